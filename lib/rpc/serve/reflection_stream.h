#pragma once

#include <utility>

#include "lib/base/caller.h"
#include "lib/rpc/serve/service_files.h"
#include "lib/rpc/transport/answer_stream.h"
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

namespace troupe::rpc {

/// One stream of server reflection, as the server sees it: an AnswerStream in front of ServiceFiles, with a place among
/// the streams of queries.
class ReflectionStream final : public AnswerStream {
 public:
  /// Starts reading, or refuses the call. The result belongs to gRPC.
  static Reactor* Start(QueryStreams* streams, const ServiceFiles* files, grpc::CallbackServerContext* context,
                        base::Caller caller);

 private:
  ReflectionStream(QueryStreams* streams, const ServiceFiles* files, grpc::CallbackServerContext* context,
                   base::Caller caller)
      : AnswerStream(streams, context, std::move(caller)), files_(*files) {}

  // AnswerStream
  void Answer(grpc::ByteBuffer bytes) override;

  const ServiceFiles& files_;
};

}  // namespace troupe::rpc
