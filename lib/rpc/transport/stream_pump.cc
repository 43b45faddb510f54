#include "lib/rpc/transport/stream_pump.h"

#include <exception>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/hidden_order.h"
#include "lib/base/line_quota.h"
#include "lib/base/log.h"
#include "lib/rpc/transport/transport.h"

namespace troupe::rpc {

void StreamPump::Begin(const std::shared_ptr<StreamPump>& self) {
  self_ = self;
  registry_->Add(self);
  base::HandOver(this);
  StartRead(&incoming_);
}

absl::Status StreamPump::PeerIsGone() const {
  return absl::CancelledError(absl::StrCat("the ", names_.peer, " is gone"));
}

void StreamPump::Pump() {
  std::optional<Message> next;
  absl::Status end_status;
  {
    base::MutexLock lock(&mutex_);
    if (finished_ || writing_) return;
    if (!peer_gone_) next = NextLocked();
    if (next.has_value()) {
      writing_ = true;
    } else if (end_requested_) {
      finished_ = true;
      end_status = end_status_;
    } else {
      return;
    }
  }
  if (next.has_value()) {
    outgoing_ = next->encode ? next->encode() : std::move(next->bytes);
    base::HandOver(this);
    StartWrite(&outgoing_);
  } else {
    base::HandOver(this);
    Finish(ToGrpc(end_status));
  }
}

void StreamPump::RequestEndLocked(const absl::Status& status) {
  if (end_requested_) return;
  end_requested_ = true;
  end_status_ = status;
}

void StreamPump::End(const absl::Status& status) {
  {
    base::MutexLock lock(&mutex_);
    if (end_requested_) return;
    RequestEndLocked(status);
  }
  Pump();
}

void StreamPump::OnReadDone(bool ok) {
  const base::Reaction reaction(this);
  if (!ok) return OnReadsOver();
  {
    base::MutexLock lock(&mutex_);
    if (end_requested_) return;  // what still arrives is not acknowledged, so who sent it keeps it
  }
  absl::Status status;
  try {
    status = HandleMessage(incoming_);
  } catch (const std::exception& e) {
    status = absl::InternalError(absl::StrCat("exception while a message was handled: ", e.what()));
  }
  incoming_.Clear();
  if (!status.ok()) {
    if (base::MayTellOfPeer()) {
      TROUPE_WARN("{} stream ended from=\"{}\" status={}", names_.stream, caller_.ToString(),
                  base::LogSafe(status.ToString()));
    }
    End(status);
    return;
  }
  Pump();  // outside the try: an exception must not leave a write begun that nobody ends
  base::HandOver(this);
  StartRead(&incoming_);
}

void StreamPump::OnWriteDone(bool ok) {
  const base::Reaction reaction(this);
  {
    base::MutexLock lock(&mutex_);
    writing_ = false;
    outgoing_.Clear();
    if (!ok) peer_gone_ = true;
  }
  if (!ok) OnWriteFailed();
  Pump();
}

void StreamPump::OnCancel() {
  const base::Reaction reaction(this);
  {
    base::MutexLock lock(&mutex_);
    peer_gone_ = true;
  }
  End(PeerIsGone());
  Pump();  // End does nothing for a stream that was ending and waited for its peer to read
}

void StreamPump::OnDone() {
  const base::Reaction reaction(this);
  OnOver();
  registry_->Remove(this);
  const std::shared_ptr<StreamPump> last = std::move(self_);  // may be the end of this
}

}  // namespace troupe::rpc
