#include "lib/rpc/serve/query_stream.h"

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "lib/rpc/serve/query_codec.h"
#include "lib/rpc/transport/convert.h"
#include "lib/rpc/transport/limits.h"
#include "lib/rpc/transport/parsed_size.h"

namespace troupe::rpc {
namespace {

grpc::ByteBuffer Serialized(const absl::StatusOr<serving::ActionAnswer>& answer) {
  v1::ComputeActionsReply reply;
  if (answer.ok()) {
    ToProto(*answer, &reply);
  } else {
    reply.mutable_error()->set_code(static_cast<int32_t>(answer.status().code()));
    reply.mutable_error()->set_message(std::string(answer.status().message()));
  }
  return Serialize(reply);
}

}  // namespace

AnswerStream::Reactor* QueryStream::Start(QueryStreams* streams, grpc::CallbackServerContext* context,
                                          base::Caller caller) {
  if (streams->queries == nullptr) return Refuse(absl::UnimplementedError("this server answers no queries"));
  // The constructor is private, so make_shared cannot reach it.
  return Begin(std::shared_ptr<QueryStream>(new QueryStream(streams, context, std::move(caller))));
}

void QueryStream::Answer(grpc::ByteBuffer bytes) {
  const absl::Status read = ParseBounded(bytes, kActionQueryLimit, &request_);
  bytes.Clear();
  if (!read.ok()) return Fail(read);
  uint64_t number = 0;
  {
    base::MutexLock lock(&mutex_);
    number = ++requests_;
  }
  query_ = FromProto(request_);
  query_.caller = caller();
  serving::ActionQueries::GiveUp give_up = streams().queries->ComputeActions(
      query_, [this](const absl::StatusOr<serving::ActionAnswer>& answer) { OnAnswer(answer); });
  if (give_up == nullptr) return;
  {
    base::MutexLock lock(&mutex_);
    if (number <= answered_) return;
    if (!given_up_) {
      give_up_ = std::move(give_up);
      return;
    }
  }
  give_up();
}

void QueryStream::OnAnswer(const absl::StatusOr<serving::ActionAnswer>& answer) {
  grpc::ByteBuffer reply = Serialized(answer);
  // A stream that waits holds no memory of its largest request: there may be thousands.
  query_ = serving::ActionQuery();
  v1::ComputeActionsRequest().Swap(&request_);
  serving::ActionQueries::GiveUp over;  // destroyed outside the lock
  {
    base::MutexLock lock(&mutex_);
    answered_ = requests_;
    over.swap(give_up_);
  }
  Reply(std::move(reply));
}

void QueryStream::GiveUp() {
  serving::ActionQueries::GiveUp give_up;
  {
    base::MutexLock lock(&mutex_);
    given_up_ = true;
    give_up.swap(give_up_);
  }
  if (give_up != nullptr) give_up();
}

}  // namespace troupe::rpc
