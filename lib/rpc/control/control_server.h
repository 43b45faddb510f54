#pragma once

#include <unistd.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "lib/rpc/control/control_service.h"
#include "lib/rpc/control/control_socket.h"
#include "lib/rpc/control/monitor_service.h"
#include "lib/rpc/door/connection_acceptor.h"
#include "lib/rpc/worker/learner_endpoint.h"
#include <grpcpp/server.h>

namespace troupe::rpc {

/// A learner's back door: the services Control and Monitor at the run's control socket, for processes of the learner's
/// own user and of root; connections of others are closed unheard.
///
/// Made and owned by services/learner, after what it borrows. Starts gRPC's threads and an acceptor's. States: serving
/// -> shut down (Shutdown, or the destructor). Shutdown is one thread's at a time.
class ControlServer {
 public:
  /// Serving when it returns. Borrows the handlers. `learner`: the user whose processes may come, beside root's. Errors
  /// as ControlSocket::Listen.
  static absl::StatusOr<std::unique_ptr<ControlServer>> Start(const std::string& run_folder, ControlHandler* control,
                                                              MonitorHandler* monitor, uid_t learner = geteuid());
  ~ControlServer() { Shutdown(); }

  /// Nobody comes in any more, and the socket is gone. Waits for the calls that are in progress: every handler has to
  /// answer what it was asked. Idempotent.
  void Shutdown();

  /// As ControlSocket::place.
  const std::string& place() const { return socket_->place(); }

 private:
  ControlServer(std::unique_ptr<ControlSocket> socket, ControlHandler* control, MonitorHandler* monitor)
      : socket_(std::move(socket)), control_service_(control), monitor_service_(monitor, Door::kControl, nullptr) {}

  const std::unique_ptr<ControlSocket> socket_;
  ControlService control_service_;
  MonitorService monitor_service_;
  std::unique_ptr<grpc::Server> server_;          ///< after the services, which it calls
  std::unique_ptr<ConnectionAcceptor> acceptor_;  ///< after the server, to which it hands over, and the socket
};

}  // namespace troupe::rpc
