#include "lib/rpc/door/resolve.h"

#include "absl/strings/str_cat.h"

namespace troupe::rpc {

absl::StatusOr<AddressList> ResolveTcp(const Address& address) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  const std::string port = absl::StrCat(address.port);
  // Without a name it is the loopback, of each family that the system has.
  const char* const host = address.host == "localhost" ? nullptr : address.host.c_str();
  addrinfo* resolved = nullptr;
  const int failed = getaddrinfo(host, port.c_str(), &hints, &resolved);
  if (failed != 0) return absl::InvalidArgumentError(absl::StrCat(address.text, ": ", gai_strerror(failed)));
  return AddressList(resolved, freeaddrinfo);
}

}  // namespace troupe::rpc
