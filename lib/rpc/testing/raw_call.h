#pragma once

#include <future>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "lib/rpc/transport/transport.h"
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

namespace troupe::rpc {

/// What the server at `address` says to `bytes` as the request of `method` ("/package.Service/Method"), as a client
/// would hear it that knows no message and keeps to no limits.
inline absl::StatusOr<std::string> RawCall(const std::string& address, const std::string& method,
                                           const std::string& bytes) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxSendMessageSize(-1);
  grpc::GenericStub stub(grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments));
  grpc::ClientContext context;
  const grpc::Slice slice(bytes);
  const grpc::ByteBuffer request(&slice, 1);
  grpc::ByteBuffer reply;
  std::promise<grpc::Status> done;
  stub.UnaryCall(&context, method, {}, &request, &reply,
                 [&done](grpc::Status status) { done.set_value(std::move(status)); });
  const grpc::Status status = done.get_future().get();
  if (!status.ok()) return FromGrpc(status);
  grpc::Slice answer;
  EXPECT_TRUE(reply.DumpToSingleSlice(&answer).ok());
  return std::string(reinterpret_cast<const char*>(answer.begin()), answer.size());
}

}  // namespace troupe::rpc
