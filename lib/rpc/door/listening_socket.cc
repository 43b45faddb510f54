#include "lib/rpc/door/listening_socket.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"
#include "lib/rpc/door/resolve.h"

namespace troupe::rpc {
namespace {

// The kernel cuts it down to net.core.somaxconn.
constexpr int kBacklog = 4096;

absl::Status ListenError(const Address& address, int error) {
  const std::string what = absl::StrCat("cannot listen at ", address.text, ": ");
  switch (error) {
    case EADDRINUSE:
      return absl::AlreadyExistsError(absl::StrCat(what, "the address is in use by another process"));
    case EACCES:
      return absl::PermissionDeniedError(absl::StrCat(what, "permission denied"));
    default:
      return absl::InvalidArgumentError(absl::StrCat(what, std::strerror(error)));
  }
}

Descriptor StreamSocket(int family) {
  return Descriptor(socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

struct UnixName {
  sockaddr_un name{};
  socklen_t bytes = 0;
};

UnixName NameOf(const Address& address) {
  UnixName named;
  named.name.sun_family = AF_UNIX;
  const bool abstract = address.kind == Address::Kind::kAbstract;
  std::memcpy(named.name.sun_path + (abstract ? 1 : 0), address.path.data(), address.path.size());
  named.bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + address.path.size() + 1);
  return named;
}

/// 0, or why nobody can listen there.
int CheckNobodyAnswers(const UnixName& named) {
  const Descriptor client(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!client.valid()) return errno;
  if (connect(client.fd(), reinterpret_cast<const sockaddr*>(&named.name), named.bytes) == 0) return EADDRINUSE;
  return errno == ENOENT || errno == ECONNREFUSED ? 0 : errno;
}

int BindAndListen(const Descriptor& server, const sockaddr* name, socklen_t bytes) {
  if (bind(server.fd(), name, bytes) != 0 || listen(server.fd(), kBacklog) != 0) return errno;
  return 0;
}

/// A socket at `name`, or errno. EAFNOSUPPORT: a family that this machine does not have.
struct Bound {
  Descriptor socket;
  int error = 0;
};

Bound ListenAt(const sockaddr* name, socklen_t bytes) {
  Bound bound;
  bound.socket = StreamSocket(name->sa_family);
  if (!bound.socket.valid()) {
    bound.error = errno;
    return bound;
  }
  // Or a connection in TIME_WAIT would count as a server.
  const int on = 1;
  const int off = 0;
  setsockopt(bound.socket.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (name->sa_family == AF_INET6) setsockopt(bound.socket.fd(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
  bound.error = BindAndListen(bound.socket, name, bytes);
  if (bound.error != 0) bound.socket.Close();
  return bound;
}

int PortOf(const Descriptor& socket) {
  sockaddr_storage name{};
  socklen_t bytes = sizeof(name);
  if (getsockname(socket.fd(), reinterpret_cast<sockaddr*>(&name), &bytes) != 0) return 0;
  if (name.ss_family == AF_INET) return ntohs(reinterpret_cast<const sockaddr_in*>(&name)->sin_port);
  return ntohs(reinterpret_cast<const sockaddr_in6*>(&name)->sin6_port);
}

void SetPort(sockaddr* name, int port) {
  const in_port_t number = htons(static_cast<uint16_t>(port));
  if (name->sa_family == AF_INET) reinterpret_cast<sockaddr_in*>(name)->sin_port = number;
  if (name->sa_family == AF_INET6) reinterpret_cast<sockaddr_in6*>(name)->sin6_port = number;
}

bool IsAnyIpv4(const sockaddr* name) {
  return name->sa_family == AF_INET && reinterpret_cast<const sockaddr_in*>(name)->sin_addr.s_addr == INADDR_ANY;
}

}  // namespace

ListeningSockets::ListeningSockets(ListeningSockets&& other) noexcept
    : address_(std::move(other.address_)), sockets_(std::exchange(other.sockets_, {})) {}

ListeningSockets& ListeningSockets::operator=(ListeningSockets&& other) noexcept {
  if (this != &other) {
    Close();
    address_ = std::move(other.address_);
    sockets_ = std::exchange(other.sockets_, {});
  }
  return *this;
}

absl::StatusOr<ListeningSockets> ListeningSockets::Open(const Address& address) {
  ListeningSockets listening(address);
  TROUPE_RETURN_IF_ERROR(address.kind == Address::Kind::kTcp ? listening.OpenTcp() : listening.OpenUnix());
  return listening;
}

void ListeningSockets::Close() {
  if (sockets_.empty()) return;
  if (address_.kind == Address::Kind::kUnix) unlink(address_.path.c_str());
  sockets_.clear();
}

absl::Status ListeningSockets::OpenUnix() {
  const UnixName named = NameOf(address_);
  const int busy = CheckNobodyAnswers(named);
  if (busy != 0) return ListenError(address_, busy);
  struct stat found {};
  if (address_.kind == Address::Kind::kUnix && lstat(address_.path.c_str(), &found) == 0 && S_ISSOCK(found.st_mode)) {
    unlink(address_.path.c_str());
  }
  Descriptor server = StreamSocket(AF_UNIX);
  if (!server.valid()) return ListenError(address_, errno);
  const int error = BindAndListen(server, reinterpret_cast<const sockaddr*>(&named.name), named.bytes);
  if (error != 0) return ListenError(address_, error);
  sockets_.push_back(std::move(server));
  return absl::OkStatus();
}

absl::Status ListeningSockets::OpenTcp() {
  const absl::StatusOr<AddressList> resolved = ResolveTcp(address_);
  if (!resolved.ok()) {
    return absl::Status(resolved.status().code(), absl::StrCat("cannot listen at ", resolved.status().message()));
  }
  int missing = EADDRNOTAVAIL;
  std::set<std::string> seen;  // a hosts file may name an address twice
  for (addrinfo* info = resolved->get(); info != nullptr; info = info->ai_next) {
    SetPort(info->ai_addr, address_.port);
    if (!seen.emplace(reinterpret_cast<const char*>(info->ai_addr), info->ai_addrlen).second) continue;
    Bound bound;
    bound.error = EAFNOSUPPORT;
    if (IsAnyIpv4(info->ai_addr)) {
      // "0.0.0.0" is every address of this machine: a socket for IPv6 takes both, where there is IPv6.
      sockaddr_in6 any{};
      any.sin6_family = AF_INET6;
      any.sin6_port = htons(static_cast<uint16_t>(address_.port));
      bound = ListenAt(reinterpret_cast<const sockaddr*>(&any), sizeof(any));
    }
    if (bound.error == EAFNOSUPPORT || bound.error == EADDRNOTAVAIL) {
      bound = ListenAt(info->ai_addr, info->ai_addrlen);
    }
    // A name may stand for an address of a family that this machine does not have; one of them is enough.
    if (bound.error == EAFNOSUPPORT || bound.error == EADDRNOTAVAIL) {
      missing = bound.error;
      continue;
    }
    if (bound.error != 0) return ListenError(address_, bound.error);
    if (address_.port == 0) {
      address_.port = PortOf(bound.socket);
      address_.text = absl::StrCat(address_.text.substr(0, address_.text.rfind(':') + 1), address_.port);
    }
    sockets_.push_back(std::move(bound.socket));
  }
  return sockets_.empty() ? ListenError(address_, missing) : absl::OkStatus();
}

}  // namespace troupe::rpc
