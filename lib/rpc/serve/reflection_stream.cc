#include "lib/rpc/serve/reflection_stream.h"

#include <memory>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lib/rpc/transport/convert.h"
#include "lib/rpc/transport/limits.h"
#include "lib/rpc/transport/parsed_size.h"

namespace troupe::rpc {
namespace {

absl::Status Read(const grpc::ByteBuffer& bytes, grpc::reflection::v1::ServerReflectionRequest* request) {
  if (bytes.Length() > kMaxReflectionRequestBytes) {
    return absl::ResourceExhaustedError(absl::StrCat("a ServerReflectionRequest has ", bytes.Length(),
                                                     " bytes, expected at most ", kMaxReflectionRequestBytes));
  }
  return ParseBounded(bytes, kAnswerLimit, request);
}

}  // namespace

AnswerStream::Reactor* ReflectionStream::Start(QueryStreams* streams, const ServiceFiles* files,
                                               grpc::CallbackServerContext* context, base::Caller caller) {
  // The constructor is private, so make_shared cannot reach it.
  return Begin(std::shared_ptr<ReflectionStream>(new ReflectionStream(streams, files, context, std::move(caller))));
}

void ReflectionStream::Answer(grpc::ByteBuffer bytes) {
  grpc::reflection::v1::ServerReflectionRequest request;
  if (const absl::Status read = Read(bytes, &request); !read.ok()) return Fail(read);
  Reply(Serialize(files_.Answer(request)));
}

}  // namespace troupe::rpc
