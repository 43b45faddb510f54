#pragma once

#include <string>

namespace troupe::base {

/// Who calls an endpoint. Plain value, made by rpc::CallerOf alone, which knows the door and the connection; every
/// endpoint is handed one. Certificates' roles join here.
struct Caller {
  enum class Kind {
    kNetwork,        ///< TCP, loopback included: anybody who reaches the port
    kUnixSocket,     ///< a Unix socket that the learner was told to listen at: who of this machine may open it
    kControlSocket,  ///< the run's control socket: a process of the learner's user or of root, checked when it came
  };
  Kind kind = Kind::kNetwork;
  std::string peer;  ///< of kNetwork: its address and port, for logs

  /// The machine of the network that it shares limits with: the address without the port, "10.0.0.7" or "[::1]"; empty:
  /// of this machine's sockets.
  std::string Host() const { return kind == Kind::kNetwork ? peer.substr(0, peer.rfind(':')) : ""; }

  /// For logs: "control socket", "unix socket" or the peer.
  std::string ToString() const {
    if (kind == Kind::kNetwork) return peer;
    return kind == Kind::kControlSocket ? "control socket" : "unix socket";
  }
};

}  // namespace troupe::base
