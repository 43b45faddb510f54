#include "lib/rpc/query_stream.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/hidden_order.h"
#include "lib/base/log.h"
#include "lib/rpc/convert.h"
#include "lib/rpc/limits.h"
#include "lib/rpc/parsed_size.h"
#include "lib/rpc/query_codec.h"
#include "lib/rpc/transport.h"

namespace troupe::rpc {
namespace {

/// A stream that ends as it begins.
class RefusedStream final : public QueryStream::Reactor {
 public:
  explicit RefusedStream(const absl::Status& status) { Finish(ToGrpc(status)); }
  void OnDone() override { delete this; }
};

/// "10.0.0.7", "[::1]", "unix socket".
std::string AddressOf(const base::Caller& caller) {
  return caller.kind == base::Caller::Kind::kNetwork ? caller.Host() : caller.ToString();
}

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

QueryStream::Reactor* QueryStream::Start(QueryStreams* streams, grpc::CallbackServerContext* context,
                                         base::Caller caller) {
  if (streams->queries == nullptr) return new RefusedStream(absl::UnimplementedError("this server answers no queries"));
  if (const absl::Status taken =
          streams->open.Take(AddressOf(caller), streams->limits.open, streams->limits.open_of_address);
      !taken.ok()) {
    return new RefusedStream(taken);
  }
  // The constructor is private, so make_shared cannot reach it.
  std::shared_ptr<QueryStream> stream(new QueryStream(streams, context, std::move(caller)));
  stream->self_ = stream;
  streams->registry->Add(stream);
  base::HandOver(stream.get());
  stream->StartRead(&stream->incoming_);
  return stream.get();
}

void QueryStream::OnReadDone(bool ok) {
  const base::Reaction reaction(this);
  {
    base::MutexLock lock(&mutex_);
    if (!ok) reads_over_ = true;
    if (ok) held_ = true;
    if (busy_) return;
    busy_ = true;
  }
  GoOn();
}

void QueryStream::GoOn() {
  enum class Step { kWait, kAnswer, kFinish } step = Step::kWait;
  absl::Status end_status;
  {
    base::MutexLock lock(&mutex_);
    if (held_ && !ending_) {
      held_ = false;
      ++requests_;
      step = Step::kAnswer;
    } else if (ending_ || reads_over_) {
      end_status = end_status_;
      step = Step::kFinish;  // it stays busy, so that nothing begins any more
    } else {
      busy_ = false;
      idle_since_ = streams_.clock->SteadyNow();
    }
  }
  if (step == Step::kAnswer) Answer();
  if (step != Step::kFinish) return;
  base::HandOver(this);
  Finish(ToGrpc(end_status));
}

void QueryStream::Answer() {
  const std::shared_ptr<QueryStream> self = self_;  // it may be over before this returns
  const absl::Status read = ParseBounded(incoming_, kActionQueryLimit, &request_);
  incoming_.Clear();
  uint64_t number = 0;
  {
    base::MutexLock lock(&mutex_);
    number = requests_;
    if (!read.ok()) RequestEndLocked(read);
  }
  if (!read.ok()) return GoOn();
  query_ = FromProto(request_);
  query_.caller = caller_;
  serving::ActionQueries::GiveUp give_up = streams_.queries->ComputeActions(
      query_, [this](const absl::StatusOr<serving::ActionAnswer>& answer) { OnAnswer(answer); });
  if (give_up == nullptr) return;
  {
    base::MutexLock lock(&mutex_);
    if (number <= answered_) return;
    if (!cancelled_) {
      give_up_ = std::move(give_up);
      return;
    }
  }
  give_up();
}

void QueryStream::OnAnswer(const absl::StatusOr<serving::ActionAnswer>& answer) {
  outgoing_ = Serialized(answer);
  // A stream that waits holds no memory of its largest request: there may be thousands.
  query_ = serving::ActionQuery();
  v1::ComputeActionsRequest().Swap(&request_);
  bool reads_on = false;
  bool cancelled = false;
  serving::ActionQueries::GiveUp over;  // destroyed outside the lock
  {
    base::MutexLock lock(&mutex_);
    answered_ = requests_;
    over.swap(give_up_);
    cancelled = cancelled_;
    if (!cancelled) writing_since_ = streams_.clock->SteadyNow();
    reads_on = !ending_ && !reads_over_;
  }
  if (cancelled) return GoOn();
  base::HandOver(this);
  // In this order: once the write is done somebody else may finish the stream.
  if (reads_on) StartRead(&incoming_);
  StartWrite(&outgoing_);
}

void QueryStream::OnWriteDone(bool ok) {
  const base::Reaction reaction(this);
  outgoing_.Clear();
  {
    base::MutexLock lock(&mutex_);
    writing_since_.reset();
    if (!ok) RequestEndLocked(absl::CancelledError("the client is gone"));
  }
  GoOn();
}

void QueryStream::RequestEndLocked(const absl::Status& status) {
  if (std::exchange(ending_, true)) return;
  end_status_ = status;
}

void QueryStream::End(const absl::Status& status) {
  {
    base::MutexLock lock(&mutex_);
    RequestEndLocked(status);
    if (std::exchange(busy_, true)) return;  // whoever is goes on, and ends it
  }
  GoOn();
}

void QueryStream::CheckProgress(absl::Duration now) {
  {
    base::MutexLock lock(&mutex_);
    // Who does not read what was asked for holds the answer's memory; the context lives until OnDone.
    if (writing_since_ && now - *writing_since_ >= streams_.limits.idle) context_->TryCancel();
    if (busy_ || now - idle_since_ < streams_.limits.idle) return;
  }
  End(absl::DeadlineExceededError(
      absl::StrCat("no request for ", absl::FormatDuration(streams_.limits.idle), "; begin another stream")));
}

void QueryStream::OnCancel() {
  const base::Reaction reaction(this);
  serving::ActionQueries::GiveUp give_up;
  {
    base::MutexLock lock(&mutex_);
    cancelled_ = true;
    give_up.swap(give_up_);
  }
  if (give_up != nullptr) give_up();
  End(absl::CancelledError("the client is gone"));
}

void QueryStream::OnDone() {
  const base::Reaction reaction(this);
  streams_.open.GiveBack(AddressOf(caller_));
  streams_.registry->Remove(this);
  const std::shared_ptr<QueryStream> last = std::move(self_);  // may be the end of this
}

}  // namespace troupe::rpc
