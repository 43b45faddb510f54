#include "lib/rpc/transport/unary_call.h"

#include "lib/rpc/transport/grpc_deadline.h"
#include "lib/rpc/transport/transport.h"
#include <grpcpp/client_context.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/generic/generic_stub.h>

namespace troupe::rpc {

absl::StatusOr<grpc::ByteBuffer> CallBytes(const std::shared_ptr<grpc::Channel>& channel, const std::string& method,
                                           const grpc::ByteBuffer& request, absl::Duration timeout) {
  grpc::ClientContext context;
  context.set_deadline(GrpcDeadline(timeout));
  grpc::GenericStub stub(channel);
  // A queue of the thread's own: this thread waits at it, and no other is woken. It is empty between two calls.
  thread_local grpc::CompletionQueue queue;
  const auto call = stub.PrepareUnaryCall(&context, method, request, &queue);
  grpc::ByteBuffer reply;
  grpc::Status status;
  call->StartCall();
  call->Finish(&reply, &status, nullptr);
  void* tag = nullptr;
  bool ok = false;
  queue.Next(&tag, &ok);
  if (!status.ok()) return FromGrpc(status);
  if (!reply.Valid()) return absl::InternalError("answered without a message");
  return reply;
}

}  // namespace troupe::rpc
