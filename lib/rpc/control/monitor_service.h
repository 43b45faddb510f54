#pragma once

#include "lib/rpc/transport/caller.h"
#include "lib/rpc/worker/learner_endpoint.h"
#include "proto/troupe/v1/monitor.grpc.pb.h"

namespace troupe::rpc {

/// The Monitor service at one door: a shell around MonitorHandler, which it borrows. At an address it withholds what is
/// not for everybody, whatever the handler says. Its requests have no fields, so their bytes are not looked at.
/// Thread-safe.
class MonitorService final : public v1::Monitor::WithRawCallbackMethod_Status<
                                 v1::Monitor::WithRawCallbackMethod_Policies<v1::Monitor::Service>> {
 public:
  /// `peers`: the server's, nullptr at the control socket.
  MonitorService(MonitorHandler* handler, Door door, const PeerBook* peers)
      : handler_(handler), door_(door), peers_(peers) {}

  grpc::ServerUnaryReactor* Status(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                   grpc::ByteBuffer* reply) override;
  grpc::ServerUnaryReactor* Policies(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                     grpc::ByteBuffer* reply) override;

 private:
  MonitorHandler* const handler_;
  const Door door_;
  const PeerBook* const peers_;
};

}  // namespace troupe::rpc
