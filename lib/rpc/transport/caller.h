#pragma once

#include <string>

#include "lib/base/caller.h"
#include "lib/rpc/door/peer_book.h"
#include <grpcpp/server_context.h>

namespace troupe::rpc {

using base::Caller;

/// Through which of a learner's doors a call came.
enum class Door {
  kAddress,  ///< one of the addresses that it listens at
  kControl,  ///< the run's control socket
};

/// The caller behind a connection that came through `door`. `connection`: gRPC's name for it ("unix:" and the path of a
/// client that has one); `peers` knows who is behind those that the relay named. What nobody knows is the network.
Caller MakeCaller(Door door, const std::string& connection, const PeerBook* peers);

/// The one place where a caller's identity is made. `peers`: the server's, nullptr at the control socket.
inline Caller CallerOf(const grpc::ServerContextBase& context, Door door, const PeerBook* peers) {
  return MakeCaller(door, context.peer(), peers);
}

}  // namespace troupe::rpc
