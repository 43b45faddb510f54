#pragma once

#include <map>
#include <string>
#include <utility>

#include "lib/base/check.h"
#include "lib/rpc/door/address.h"
#include "lib/rpc/transport/transport.h"
#include "proto/troupe/v1/query.grpc.pb.h"
#include <grpcpp/client_context.h>
#include <grpcpp/generic/generic_stub.h>

namespace troupe::bench {

/// Takes a query's bytes and gives the bytes of an answer, neither looked into: what gRPC alone costs. `replies` by the
/// size of their request.
class BareService final : public v1::Query::WithRawCallbackMethod_ComputeActions<v1::Query::Service> {
 public:
  explicit BareService(std::map<size_t, std::string> replies) : replies_(std::move(replies)) {}

  grpc::ServerUnaryReactor* ComputeActions(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                           grpc::ByteBuffer* reply) override {
    const grpc::Slice slice(replies_.at(request->Length()));
    *reply = grpc::ByteBuffer(&slice, 1);
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }

 private:
  const std::map<size_t, std::string> replies_;
};

/// The least that a client does for a call: bytes out, bytes in. Of one thread.
class BareClient {
 public:
  BareClient(const std::string& address, std::string request)
      : stub_(*rpc::MakeChannel(*rpc::ParseAddress(address), {})), request_(std::move(request)) {}

  void Call() {
    grpc::ClientContext context;
    const grpc::Slice slice(request_);
    const grpc::ByteBuffer request(&slice, 1);
    const auto call = stub_.PrepareUnaryCall(&context, "/troupe.v1.Query/ComputeActions", request, &queue_);
    call->StartCall();
    grpc::ByteBuffer reply;
    grpc::Status status;
    call->Finish(&reply, &status, this);
    void* tag = nullptr;
    bool ok = false;
    TROUPE_CHECK(queue_.Next(&tag, &ok) && ok && status.ok());
  }

 private:
  grpc::GenericStub stub_;
  const std::string request_;
  grpc::CompletionQueue queue_;
};

}  // namespace troupe::bench
