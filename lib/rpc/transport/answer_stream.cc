#include "lib/rpc/transport/answer_stream.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "lib/base/hidden_order.h"
#include "lib/rpc/transport/transport.h"
#include <grpcpp/server_context.h>

namespace troupe::rpc {
namespace {

/// A stream that ends as it begins.
class RefusedStream final : public AnswerStream::Reactor {
 public:
  explicit RefusedStream(const absl::Status& status) { Finish(ToGrpc(status)); }
  void OnDone() override { delete this; }
};

/// "10.0.0.7", "[::1]", "unix socket".
std::string AddressOf(const base::Caller& caller) {
  return caller.kind == base::Caller::Kind::kNetwork ? caller.Host() : caller.ToString();
}

}  // namespace

absl::Status QueryStreams::Take(const base::Caller& caller) {
  return open.Take(AddressOf(caller), limits.open, limits.open_of_address);
}

void QueryStreams::GiveBack(const base::Caller& caller) { open.GiveBack(AddressOf(caller)); }

AnswerStream::Reactor* AnswerStream::Refuse(const absl::Status& status) { return new RefusedStream(status); }

AnswerStream::Reactor* AnswerStream::Begin(std::shared_ptr<AnswerStream> stream) {
  AnswerStream* const begun = stream.get();
  if (const absl::Status taken = begun->streams_.Take(begun->caller_); !taken.ok()) return Refuse(taken);
  begun->self_ = stream;  // before Add, which ends it where the server shuts down
  begun->streams_.registry->Add(std::move(stream));
  base::HandOver(begun);
  begun->StartRead(&begun->incoming_);
  return begun;
}

void AnswerStream::OnReadDone(bool ok) {
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

void AnswerStream::GoOn() {
  absl::Status end_status;
  bool answers = false;
  {
    base::MutexLock lock(&mutex_);
    answers = held_ && !ending_;
    if (answers) {
      held_ = false;
    } else if (ending_ || reads_over_) {
      end_status = end_status_;  // it stays busy, so that nothing begins any more
    } else {
      busy_ = false;
      idle_since_ = streams_.clock->SteadyNow();
      return;
    }
  }
  if (answers) {
    const std::shared_ptr<AnswerStream> self = self_;  // it may be over before Answer returns
    grpc::ByteBuffer request;
    request.Swap(&incoming_);
    return Answer(std::move(request));
  }
  base::HandOver(this);
  Finish(ToGrpc(end_status));
}

void AnswerStream::Reply(grpc::ByteBuffer answer) {
  outgoing_.Swap(&answer);
  bool reads_on = false;
  bool cancelled = false;
  {
    base::MutexLock lock(&mutex_);
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

void AnswerStream::Fail(const absl::Status& status) {
  {
    base::MutexLock lock(&mutex_);
    RequestEndLocked(status);
  }
  GoOn();
}

void AnswerStream::OnWriteDone(bool ok) {
  const base::Reaction reaction(this);
  outgoing_.Clear();
  {
    base::MutexLock lock(&mutex_);
    writing_since_.reset();
    if (!ok) RequestEndLocked(absl::CancelledError("the client is gone"));
  }
  GoOn();
}

void AnswerStream::RequestEndLocked(const absl::Status& status) {
  if (std::exchange(ending_, true)) return;
  end_status_ = status;
}

void AnswerStream::End(const absl::Status& status) {
  {
    base::MutexLock lock(&mutex_);
    RequestEndLocked(status);
    if (std::exchange(busy_, true)) return;  // whoever is goes on, and ends it
  }
  GoOn();
}

void AnswerStream::CheckProgress(absl::Duration now) {
  {
    base::MutexLock lock(&mutex_);
    // A client that does not read holds the answer's memory. The context lives until OnDone.
    if (writing_since_ && now - *writing_since_ >= streams_.limits.idle) context_->TryCancel();
    if (busy_ || now - idle_since_ < streams_.limits.idle) return;
  }
  End(absl::DeadlineExceededError(
      absl::StrCat("no request for ", absl::FormatDuration(streams_.limits.idle), "; begin another stream")));
}

void AnswerStream::OnCancel() {
  const base::Reaction reaction(this);
  {
    base::MutexLock lock(&mutex_);
    cancelled_ = true;
  }
  GiveUp();
  End(absl::CancelledError("the client is gone"));
}

void AnswerStream::OnDone() {
  const base::Reaction reaction(this);
  streams_.GiveBack(caller_);
  streams_.registry->Remove(this);
  const std::shared_ptr<AnswerStream> last = std::move(self_);  // may be the end of this
}

}  // namespace troupe::rpc
