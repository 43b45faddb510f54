#include "lib/rpc/door/peer.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "absl/strings/str_cat.h"

namespace troupe::rpc {
namespace {

std::string HostOf(const sockaddr_in6& name) {
  char text[INET6_ADDRSTRLEN] = {};
  if (IN6_IS_ADDR_V4MAPPED(&name.sin6_addr)) {
    inet_ntop(AF_INET, name.sin6_addr.s6_addr + 12, text, sizeof(text));
  } else {
    inet_ntop(AF_INET6, &name.sin6_addr, text, sizeof(text));
  }
  return text;
}

Peer TcpPeer(const sockaddr_storage& name) {
  Peer peer;
  if (name.ss_family == AF_INET) {
    const auto& ipv4 = *reinterpret_cast<const sockaddr_in*>(&name);
    char text[INET_ADDRSTRLEN] = {};
    inet_ntop(AF_INET, &ipv4.sin_addr, text, sizeof(text));
    peer.host = text;
    peer.port = ntohs(ipv4.sin_port);
  } else if (name.ss_family == AF_INET6) {
    const auto& ipv6 = *reinterpret_cast<const sockaddr_in6*>(&name);
    peer.host = HostOf(ipv6);
    peer.port = ntohs(ipv6.sin6_port);
  }
  return peer;
}

}  // namespace

std::string Peer::ToString() const {
  if (unix_socket) return absl::StrCat("uid ", uid);
  if (host.find(':') != std::string::npos) return absl::StrCat("[", host, "]:", port);
  return absl::StrCat(host, ":", port);
}

Peer PeerOfSocket(int fd) {
  Peer peer;
  sockaddr_storage name{};
  socklen_t bytes = sizeof(name);
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&name), &bytes) != 0) return peer;
  if (name.ss_family != AF_UNIX) return TcpPeer(name);
  peer.unix_socket = true;
  ucred credentials{};
  socklen_t size = sizeof(credentials);
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size) == 0) peer.uid = credentials.uid;
  return peer;
}

std::string LocalHostOf(int fd) {
  sockaddr_storage name{};
  socklen_t bytes = sizeof(name);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&name), &bytes) != 0) return "";
  return TcpPeer(name).host;
}

}  // namespace troupe::rpc
