#include "lib/rpc/weight_reactor.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"
#include "lib/rpc/convert.h"
#include "lib/rpc/limits.h"
#include "lib/rpc/transport.h"
#include "proto/troupe/v1/weights.pb.h"

namespace troupe::rpc {

WeightReactor* WeightReactor::Start(const WeightContext* context, const grpc::ByteBuffer& request) {
  // The constructor is private, so make_shared cannot reach it.
  std::shared_ptr<WeightReactor> reactor(new WeightReactor(context));
  reactor->self_ = reactor;
  context->registry->Add(reactor);
  const absl::Status status = reactor->Subscribe(request);
  if (!status.ok()) reactor->End(status);
  return reactor.get();
}

absl::Status WeightReactor::Subscribe(const grpc::ByteBuffer& request) {
  TROUPE_ASSIGN_OR_RETURN(const SliceList list, SliceList::From(request));
  SliceInputStream stream(list);
  v1::SubscribeRequest message;
  if (list.size() > kMaxFieldsBytes || !message.ParseFromZeroCopyStream(&stream)) {
    return absl::InvalidArgumentError("no valid SubscribeRequest");
  }
  TROUPE_RETURN_IF_ERROR(CheckProtocol(message.protocol()));
  if (message.spec_hash() != 0 && message.spec_hash() != context_->spec_hash) {
    return absl::FailedPreconditionError(absl::StrCat("the subscriber was built from spec ",
                                                      absl::Hex(message.spec_hash()), ", but this run has ",
                                                      absl::Hex(context_->spec_hash)));
  }
  const std::vector<std::string> ids(message.policy_ids().begin(), message.policy_ids().end());
  TROUPE_ASSIGN_OR_RETURN(const std::vector<policy::PolicySlot> slots, context_->bus->FindSlots(ids));
  context_->bus->Subscribe(shared_from_this(), slots);
  return absl::OkStatus();
}

void WeightReactor::OnWeights(policy::PolicySlot slot, const EncodedWeightsPtr& weights) {
  EncodedWeightsPtr replaced;  // destroyed outside the lock
  {
    base::MutexLock lock(&mutex_);
    if (end_requested_ || finished_) return;
    EncodedWeightsPtr& pending = pending_[slot];
    if (pending != nullptr && !(pending->version < weights->version)) return;
    replaced = std::move(pending);
    pending = weights;
  }
  Pump();
}

// As RolloutReactor::Pump: whoever sets writing_ or finished_ is alone in calling gRPC after the lock is released.
void WeightReactor::Pump() {
  bool write = false;
  absl::Status end_status;
  {
    base::MutexLock lock(&mutex_);
    if (finished_ || writing_) return;
    if (end_requested_) {
      finished_ = true;
      end_status = end_status_;
    } else {
      if (current_ == nullptr || next_chunk_ == current_->chunks.size()) {
        if (pending_.empty()) {
          current_ = nullptr;
          return;
        }
        current_ = std::move(pending_.begin()->second);
        pending_.erase(pending_.begin());
        next_chunk_ = 0;
      }
      outgoing_ = current_->chunks[next_chunk_++];
      writing_ = true;
      write = true;
    }
  }
  if (write) {
    StartWrite(&outgoing_);
  } else {
    Finish(ToGrpc(end_status));
  }
}

void WeightReactor::End(const absl::Status& status) {
  {
    base::MutexLock lock(&mutex_);
    if (end_requested_ || finished_) return;
    end_requested_ = true;
    end_status_ = status;
    pending_.clear();
  }
  Pump();
}

void WeightReactor::OnWriteDone(bool ok) {
  {
    base::MutexLock lock(&mutex_);
    writing_ = false;
    outgoing_.Clear();
  }
  if (!ok) End(absl::CancelledError("the subscriber is gone"));
  Pump();
}

void WeightReactor::OnCancel() { End(absl::CancelledError("the subscriber is gone")); }

void WeightReactor::OnDone() {
  context_->bus->Unsubscribe(this);
  context_->registry->Remove(this);
  const std::shared_ptr<WeightReactor> last = std::move(self_);  // may be the end of this
}

}  // namespace troupe::rpc
