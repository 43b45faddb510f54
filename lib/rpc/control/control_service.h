#pragma once

#include "lib/rpc/worker/learner_endpoint.h"
#include "proto/troupe/v1/control.grpc.pb.h"

namespace troupe::rpc {

/// The Control service, which the control socket alone has: a shell around ControlHandler, which it borrows. Its
/// requests come as bytes, which are looked at before anything is made of them. Thread-safe.
class ControlService final
    : public v1::Control::WithRawCallbackMethod_Checkpoint<
          v1::Control::WithRawCallbackMethod_PruneCheckpoints<v1::Control::WithRawCallbackMethod_Drain<
              v1::Control::WithRawCallbackMethod_ChangePolicies<v1::Control::Service>>>> {
 public:
  explicit ControlService(ControlHandler* handler) : handler_(handler) {}

  grpc::ServerUnaryReactor* Checkpoint(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                       grpc::ByteBuffer* reply) override;
  grpc::ServerUnaryReactor* PruneCheckpoints(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                             grpc::ByteBuffer* reply) override;
  grpc::ServerUnaryReactor* Drain(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                  grpc::ByteBuffer* reply) override;
  grpc::ServerUnaryReactor* ChangePolicies(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                           grpc::ByteBuffer* reply) override;

 private:
  ControlHandler* const handler_;
};

}  // namespace troupe::rpc
