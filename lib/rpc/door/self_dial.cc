#include "lib/rpc/door/self_dial.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "lib/base/await.h"
#include "lib/base/status_macros.h"
#include "lib/rpc/door/descriptor.h"
#include "lib/rpc/door/resolve.h"

namespace troupe::rpc {
namespace {

// Connection preface and an empty SETTINGS frame; the server answers with SETTINGS of its own.
constexpr std::string_view kGreeting("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0", 33);
constexpr size_t kFrameHeaderBytes = 9;
constexpr char kSettingsFrame = 4;

struct SocketName {
  sockaddr_storage name{};
  socklen_t bytes = 0;
};

absl::Status DialError(const Address& address, int error) {
  const std::string what = absl::StrCat(address.text, ": ", std::strerror(error));
  if (error == EMFILE || error == ENFILE) return absl::ResourceExhaustedError(what);
  return absl::UnavailableError(what);
}

/// Where to reach a server of this machine; a name may stand for several addresses, not all of which it has.
absl::StatusOr<std::vector<SocketName>> NamesOfServer(const Address& address) {
  std::vector<SocketName> names;
  if (address.kind != Address::Kind::kTcp) {
    SocketName& found = names.emplace_back();
    auto& name = *reinterpret_cast<sockaddr_un*>(&found.name);
    name.sun_family = AF_UNIX;
    std::memcpy(name.sun_path + (address.kind == Address::Kind::kAbstract ? 1 : 0), address.path.data(),
                address.path.size());
    found.bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + address.path.size() + 1);
    return names;
  }
  Address reached = address;
  // Who listens at every address of this machine is met at its loopback.
  if (address.host == "0.0.0.0") reached.host = "127.0.0.1";
  if (address.host == "::") reached.host = "::1";
  TROUPE_ASSIGN_OR_RETURN(const AddressList resolved, ResolveTcp(reached));
  for (const addrinfo* info = resolved.get(); info != nullptr; info = info->ai_next) {
    SocketName& found = names.emplace_back();
    std::memcpy(&found.name, info->ai_addr, info->ai_addrlen);
    found.bytes = info->ai_addrlen;
  }
  return names;
}

/// Gives a TCP socket its port before it connects, so that the server can be told whom to expect.
int BindToAnyPort(int fd, int family) {
  sockaddr_storage name{};
  name.ss_family = static_cast<sa_family_t>(family);
  socklen_t bytes = family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  if (bind(fd, reinterpret_cast<const sockaddr*>(&name), bytes) != 0) return 0;
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&name), &bytes) != 0) return 0;
  return ntohs(family == AF_INET6 ? reinterpret_cast<const sockaddr_in6*>(&name)->sin6_port
                                  : reinterpret_cast<const sockaddr_in*>(&name)->sin_port);
}

/// OK once one of `events` has come.
absl::Status AwaitEvents(int fd, short events, const base::Deadline& deadline, const Address& address) {
  pollfd wait = {.fd = fd, .events = events, .revents = 0};
  if (poll(&wait, 1, static_cast<int>(absl::ToInt64Milliseconds(deadline.left()))) > 0) return absl::OkStatus();
  return absl::DeadlineExceededError(absl::StrCat(address.text, ": nothing came in time"));
}

absl::Status AwaitSettings(int fd, const base::Deadline& deadline, const Address& address) {
  char header[kFrameHeaderBytes];
  size_t have = 0;
  while (have < sizeof(header)) {
    TROUPE_RETURN_IF_ERROR(AwaitEvents(fd, POLLIN, deadline, address));
    const ssize_t got = recv(fd, header + have, sizeof(header) - have, MSG_DONTWAIT);
    if (got == 0) return absl::UnavailableError(absl::StrCat(address.text, ": closed before its first frame"));
    if (got < 0 && errno != EAGAIN && errno != EINTR) return DialError(address, errno);
    if (got > 0) have += static_cast<size_t>(got);
  }
  if (header[3] == kSettingsFrame) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(address.text, ": the first frame is no SETTINGS"));
}

absl::Status DialOne(const Address& address, const SocketName& server, PeerBook* peers,
                     const base::Deadline& deadline) {
  const Descriptor client(socket(server.name.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!client.valid()) return DialError(address, errno);
  if (address.kind == Address::Kind::kTcp) {
    peers->ExpectOwnDial(BindToAnyPort(client.fd(), server.name.ss_family));
  }
  const absl::Cleanup expected_no_more = [peers] { peers->ExpectOwnDial(0); };
  if (connect(client.fd(), reinterpret_cast<const sockaddr*>(&server.name), server.bytes) != 0) {
    if (errno != EINPROGRESS) return DialError(address, errno);
    TROUPE_RETURN_IF_ERROR(AwaitEvents(client.fd(), POLLOUT, deadline, address));
    int error = 0;
    socklen_t size = sizeof(error);
    getsockopt(client.fd(), SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) return DialError(address, error);
  }
  // A fresh socket has room for so little.
  if (send(client.fd(), kGreeting.data(), kGreeting.size(), MSG_NOSIGNAL) < 0) return DialError(address, errno);
  return AwaitSettings(client.fd(), deadline, address);
}

}  // namespace

absl::Status DialSelf(const Address& address, PeerBook* peers, absl::Duration timeout) {
  const base::Deadline deadline = base::Deadline::After(timeout);
  TROUPE_ASSIGN_OR_RETURN(const std::vector<SocketName> names, NamesOfServer(address));
  absl::Status dialled;
  for (const SocketName& name : names) {
    dialled = DialOne(address, name, peers, deadline);
    if (dialled.ok()) break;
  }
  return dialled;
}

}  // namespace troupe::rpc
