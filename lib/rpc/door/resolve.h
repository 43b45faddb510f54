#pragma once

#include <netdb.h>

#include <memory>

#include "absl/status/statusor.h"
#include "lib/rpc/door/address.h"

namespace troupe::rpc {

using AddressList = std::unique_ptr<addrinfo, void (*)(addrinfo*)>;

/// What the system's resolver knows of a TCP address, at least one; INVALID_ARGUMENT otherwise. "localhost" is this
/// machine's loopback whatever a resolver says (RFC 6761): Address::local() relies on it, and a bare machine has no
/// hosts file. Blocks as long as the resolver does.
absl::StatusOr<AddressList> ResolveTcp(const Address& address);

}  // namespace troupe::rpc
