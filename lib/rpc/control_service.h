#pragma once

#include "lib/rpc/learner_endpoint.h"
#include "proto/troupe/v1/control.grpc.pb.h"

namespace troupe::rpc {

/// The Control service, which the control socket alone has: a shell around ControlHandler, which it borrows.
/// Thread-safe.
class ControlService final : public v1::Control::CallbackService {
 public:
  explicit ControlService(ControlHandler* handler) : handler_(handler) {}

  grpc::ServerUnaryReactor* Checkpoint(grpc::CallbackServerContext* context, const v1::CheckpointRequest* request,
                                       v1::CheckpointReply* reply) override;
  grpc::ServerUnaryReactor* Drain(grpc::CallbackServerContext* context, const v1::DrainRequest* request,
                                  v1::DrainReply* reply) override;
  grpc::ServerUnaryReactor* ChangePolicies(grpc::CallbackServerContext* context,
                                           const v1::ChangePoliciesRequest* request,
                                           v1::ChangePoliciesReply* reply) override;

 private:
  ControlHandler* const handler_;
};

}  // namespace troupe::rpc
