#pragma once

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "lib/rpc/door/address.h"
#include "lib/rpc/door/peer_book.h"

namespace troupe::rpc {

/// Connects to a server of this process at `address` as a client would, and waits for its first HTTP/2 frame: the
/// kernel, the accepting thread, the relay and gRPC have all done their part then. The server's `peers` learn of it, so
/// that it finds a place where there is none for others. One thread at a time. Blocks at most `timeout`.
/// UNAVAILABLE: refused or closed; DEADLINE_EXCEEDED: nothing came; RESOURCE_EXHAUSTED: no descriptor is left for it.
absl::Status DialSelf(const Address& address, PeerBook* peers, absl::Duration timeout);

}  // namespace troupe::rpc
