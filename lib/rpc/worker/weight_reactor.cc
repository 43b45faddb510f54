#include "lib/rpc/worker/weight_reactor.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"
#include "lib/policy/policy_table.h"
#include "lib/rpc/codec/table_codec.h"
#include "lib/rpc/transport/convert.h"
#include "lib/rpc/transport/limits.h"
#include "lib/rpc/transport/parsed_size.h"

namespace troupe::rpc {
namespace {

absl::StatusOr<std::vector<policy::PolicySlot>> ReadSlots(const google::protobuf::RepeatedField<int32_t>& values) {
  if (static_cast<size_t>(values.size()) > policy::PolicyTable::kMaxPolicies) {
    return absl::InvalidArgumentError(absl::StrCat("SubscribeRequest: got ", values.size(),
                                                   " policy slots, expected at most ",
                                                   policy::PolicyTable::kMaxPolicies));
  }
  std::vector<policy::PolicySlot> slots;
  for (const int32_t value : values) {
    if (value < 0 || value >= static_cast<int32_t>(policy::PolicyTable::kMaxPolicies)) {
      return absl::InvalidArgumentError(absl::StrCat("SubscribeRequest: policy slot ", value, ", expected 0 to ",
                                                     policy::PolicyTable::kMaxPolicies - 1));
    }
    slots.emplace_back(value);
  }
  return slots;
}

}  // namespace

WeightReactor* WeightReactor::Start(const WeightContext* context, base::Caller caller, std::string connection) {
  // The constructor is private, so make_shared cannot reach it.
  std::shared_ptr<WeightReactor> reactor(new WeightReactor(context, std::move(caller), std::move(connection)));
  context->bus->Join(reactor);
  reactor->Begin(reactor);
  return reactor.get();
}

absl::StatusOr<WeightBus::Known> WeightReactor::Subscribe(const v1::SubscribeRequest& request) {
  const bool first = !last_number_.has_value();
  if (first) {
    TROUPE_RETURN_IF_ERROR(CheckProtocol(request.protocol()));
    if (request.spec_hash() != 0 && request.spec_hash() != context_->spec_hash) {
      return absl::FailedPreconditionError(absl::StrCat("the subscriber was built from spec ",
                                                        absl::Hex(request.spec_hash()), ", but this run has ",
                                                        absl::Hex(context_->spec_hash)));
    }
  } else if (*last_number_ == 0) {
    return absl::InvalidArgumentError("a second SubscribeRequest on a stream of fixed policies");
  }
  if (!(first && request.number() == 0) && request.number() != last_number_.value_or(0) + 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("SubscribeRequest has number ", request.number(), ", expected ", last_number_.value_or(0) + 1));
  }
  if (request.policies() && (!first || request.number() != 0 || !request.policy_ids().empty())) {
    return absl::InvalidArgumentError("SubscribeRequest: policies are asked for with number 0 and without policy_ids");
  }
  last_number_ = request.number();
  if (request.number() > 0) {
    TROUPE_ASSIGN_OR_RETURN(const std::vector<policy::PolicySlot> add, ReadSlots(request.add()));
    TROUPE_ASSIGN_OR_RETURN(const std::vector<policy::PolicySlot> remove, ReadSlots(request.remove()));
    return context_->bus->Change(this, add, remove);
  }
  if (request.policy_ids().empty()) return context_->bus->WantAll(this);
  if (static_cast<size_t>(request.policy_ids_size()) > policy::PolicyTable::kMaxPolicies) {
    return absl::InvalidArgumentError(absl::StrCat("SubscribeRequest: got ", request.policy_ids_size(),
                                                   " policy ids, expected at most ",
                                                   policy::PolicyTable::kMaxPolicies));
  }
  const std::vector<std::string> ids(request.policy_ids().begin(), request.policy_ids().end());
  TROUPE_ASSIGN_OR_RETURN(const std::vector<policy::PolicySlot> slots, context_->bus->FindSlots(ids));
  return context_->bus->Change(this, slots, {});
}

absl::Status WeightReactor::HandleMessage(const grpc::ByteBuffer& bytes) {
  TROUPE_ASSIGN_OR_RETURN(const SliceList list, SliceList::From(bytes));
  if (list.size() > kMaxFieldsBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("a SubscribeRequest of ", list.size(), " bytes, expected at most ", kMaxFieldsBytes));
  }
  v1::SubscribeRequest request;
  if (const absl::Status read = ParseBounded(list, kSubscriptionLimit, &request); !read.ok()) {
    return absl::InvalidArgumentError(read.message());
  }
  {
    base::MutexLock lock(&mutex_);
    wants_policies_ = request.policies();  // before the bus knows of it: the next table may come at once
  }
  TROUPE_ASSIGN_OR_RETURN(const WeightBus::Known known, Subscribe(request));
  context_->on_worker(connection_);
  base::MutexLock lock(&mutex_);
  subscribed_ = true;
  if (wants_policies_ && known.policies != nullptr) TakePoliciesLocked(known.policies);
  for (const PublishedWeightsPtr& weights : known.weights) TakeLocked(weights);
  number_ = request.number();
  AnnounceLocked(known.version);
  announce_ = policy::WeightVersion{} < version_;  // the same version again, for a subscription that is another
  return absl::OkStatus();
}

void WeightReactor::OnReadsOver() {
  // A subscriber that has nothing more to say still listens; one that is gone is cancelled.
  if (!last_number_.has_value()) End(absl::CancelledError("the subscriber closed the stream"));
}

void WeightReactor::TakeLocked(const PublishedWeightsPtr& weights) {
  PublishedWeightsPtr& pending = pending_[weights->slot()];
  if (pending == nullptr || weights->IsNewerThan(*pending)) pending = weights;
}

void WeightReactor::TakePoliciesLocked(const policy::PolicyTablePtr& policies) {
  if (policies_ != nullptr && policies->revision() <= policies_->revision()) return;
  const absl::StatusOr<std::vector<v1::PolicyTable>> chunks = TableChunks(*policies);
  if (!chunks.ok()) return RequestEndLocked(chunks.status());
  // An older table that is being written is written to its end; one that waits for that gives way.
  policies_ = policies;
  policy_chunks_.resize(chunks_of_begun_table_);
  for (const v1::PolicyTable& chunk : *chunks) {
    v1::WeightUpdate message;
    *message.mutable_policies() = chunk;
    policy_chunks_.push_back(Serialize(message));
  }
}

void WeightReactor::AnnounceLocked(policy::WeightVersion version) {
  if (!(version_ < version)) return;
  version_ = version;
  announce_ = true;
}

void WeightReactor::OnWeights(const PublishedWeightsPtr& weights) {
  {
    base::MutexLock lock(&mutex_);
    if (EndingLocked()) return;
    TakeLocked(weights);
  }
  Pump();
}

void WeightReactor::OnVersion(policy::WeightVersion version) {
  {
    base::MutexLock lock(&mutex_);
    if (EndingLocked() || !subscribed_) return;
    AnnounceLocked(version);
  }
  Pump();
}

void WeightReactor::OnPolicies(const policy::PolicyTablePtr& policies) {
  {
    base::MutexLock lock(&mutex_);
    if (EndingLocked() || !wants_policies_) return;
    TakePoliciesLocked(policies);
  }
  Pump();
}

void WeightReactor::CheckProgress(absl::Duration now) {
  {
    base::MutexLock lock(&mutex_);
    if (subscribed_ || now - started_at_ < kHandshakeTimeout) return;
  }
  End(absl::DeadlineExceededError(
      absl::StrCat("no SubscribeRequest within ", absl::FormatDuration(kHandshakeTimeout))));
}

std::optional<StreamPump::Message> WeightReactor::NextLocked() {
  if (EndingLocked()) return std::nullopt;
  if (current_ != nullptr && next_chunk_ < current_->Chunks().size()) return Message{current_->Chunks()[next_chunk_++]};
  if (!policy_chunks_.empty()) {
    current_ = nullptr;
    // None is begun: what waits is one table.
    if (chunks_of_begun_table_ == 0) chunks_of_begun_table_ = policy_chunks_.size();
    --chunks_of_begun_table_;
    Message piece{std::move(policy_chunks_.front())};
    policy_chunks_.pop_front();
    return piece;
  }
  if (!pending_.empty()) {
    current_ = std::move(pending_.begin()->second);
    pending_.erase(pending_.begin());
    next_chunk_ = 1;
    // The first subscriber that needs them encodes them.
    return Message{.encode = [weights = current_] { return weights->Chunks()[0]; }};
  }
  current_ = nullptr;
  if (!announce_) return std::nullopt;
  announce_ = false;
  return Message{.encode = [version = version_, number = number_] { return EncodeAnnouncement(version, number); }};
}

void WeightReactor::End(const absl::Status& status) {
  StreamPump::End(status);
  std::map<policy::PolicySlot, PublishedWeightsPtr> dropped;  // destroyed outside the lock
  base::MutexLock lock(&mutex_);
  dropped.swap(pending_);
}

void WeightReactor::OnWriteFailed() { End(PeerIsGone()); }

void WeightReactor::OnOver() { context_->bus->Leave(this); }

}  // namespace troupe::rpc
