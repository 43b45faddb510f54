#include "lib/rpc/codec/weight_codec.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/crc32c.h"
#include "lib/base/status_macros.h"
#include "lib/policy/parameter_layout.h"
#include "lib/policy/policy_entry.h"
#include "lib/policy/policy_spec.h"
#include "lib/rpc/transport/convert.h"
#include "lib/rpc/transport/limits.h"
#include "lib/rpc/transport/parsed_size.h"

namespace troupe::rpc {
namespace {

/// A run of bytes inside a snapshot.
struct Piece {
  const float* data;
  size_t bytes;
};

}  // namespace

const std::vector<grpc::ByteBuffer>& PublishedWeights::Chunks() const {
  std::call_once(once_, [this] { Encode(); });
  return chunks_;
}

void PublishedWeights::Encode() const {
  const policy::WeightSnapshotPtr& snapshot = snapshot_;
  const Piece pieces[] = {
      {snapshot->actor.data(), snapshot->actor.size() * sizeof(float)},
      {snapshot->observation_mean.data(), snapshot->observation_mean.size() * sizeof(float)},
      {snapshot->observation_inverse_std.data(), snapshot->observation_inverse_std.size() * sizeof(float)}};
  size_t total_bytes = 0;
  uint32_t crc = 0;
  for (const Piece& piece : pieces) {
    total_bytes += piece.bytes;
    crc = base::Crc32c(piece.data, piece.bytes, crc);
  }
  v1::WeightUpdate header;
  header.set_policy_slot(slot_.value());
  header.set_since(since_);
  header.set_policy_id(snapshot->id.value());
  *header.mutable_version() = ToProto(snapshot->version);
  header.set_actor_size(snapshot->actor.size());
  header.set_observation_size(snapshot->observation_mean.size());
  header.set_total_bytes(total_bytes);
  header.set_crc32c(crc);
  for (const auto& [name, value] : snapshot->exploration) {
    v1::ExplorationScalar* const scalar = header.add_exploration();
    scalar->set_name(name);
    scalar->set_value(value);
  }

  size_t offset = 0;
  do {
    const size_t chunk_bytes = std::min(kWeightChunkBytes, total_bytes - offset);
    header.set_offset(offset);
    SliceBuilder builder;
    AppendFieldsAndPayloadTag(header.SerializeAsString(), chunk_bytes, builder);
    // The parts of the pieces that lie in [offset, offset + chunk_bytes).
    size_t piece_begin = 0;
    for (const Piece& piece : pieces) {
      const size_t begin = std::max(offset, piece_begin);
      const size_t end = std::min(offset + chunk_bytes, piece_begin + piece.bytes);
      if (begin < end) {
        builder.AppendBorrowed(reinterpret_cast<const char*>(piece.data) + (begin - piece_begin), end - begin,
                               snapshot);
      }
      piece_begin += piece.bytes;
    }
    chunks_.push_back(builder.Build());
    offset += chunk_bytes;
  } while (offset < total_bytes);
}

grpc::ByteBuffer EncodeAnnouncement(policy::WeightVersion version, uint64_t number) {
  v1::WeightUpdate message;
  *message.mutable_version() = ToProto(version);
  message.mutable_announcement()->set_number(number);
  return Serialize(message);
}

SlotPolicies::SlotPolicies(const policy::BySlot<policy::PolicySpec>& at_start)
    : specs(at_start), since(specs.size(), 0) {}

SlotPolicies::SlotPolicies(const policy::PolicyTable& table) : specs(table.Specs()) {
  for (const std::optional<policy::PolicyEntry>& entry : table.entries()) {
    since.push_back(entry.has_value() ? entry->since : 0);
  }
}

SlotPolicies::~SlotPolicies() = default;

bool SlotPolicies::SameIn(const SlotPolicies& other, policy::PolicySlot slot) const {
  if (!specs.Contains(slot) || !other.specs.Contains(slot)) return false;
  return since[slot] == other.since[slot] && specs[slot].id == other.specs[slot].id;
}

void WeightAssembler::SetPolicies(SlotPoliciesPtr policies) {
  if (policies == policies_) return;
  if (received_bytes_ > 0 && !policies->SameIn(*policies_, policy::PolicySlot(header_.policy_slot()))) {
    dropping_ = true;
  }
  policies_ = std::move(policies);
  acting_sizes_.clear();
}

int64_t WeightAssembler::ActingSize(policy::PolicySlot slot) {
  const auto [size, is_new] = acting_sizes_.try_emplace(slot.value(), 0);
  if (is_new) size->second = policy::ParameterLayout::For(policies_->specs[slot]).acting_size();
  return size->second;
}

absl::Status WeightAssembler::Begin(const v1::WeightUpdate& header) {
  const policy::PolicySlot slot(header.policy_slot());
  received_bytes_ = 0;
  dropping_ = false;
  header_ = header;
  if (slot.value() < 0 || slot.value() >= static_cast<int64_t>(policy::PolicyTable::kMaxPolicies)) {
    return absl::InvalidArgumentError(
        absl::StrCat("weights: policy slot ", slot.value(), ", expected 0 to ", policy::PolicyTable::kMaxPolicies - 1));
  }
  if (!policies_->specs.Contains(slot) || header.since() != policies_->since[slot] ||
      policies_->specs[slot].id.value().empty()) {
    dropping_ = true;
    return absl::OkStatus();
  }
  const policy::PolicySpec& spec = policies_->specs[slot];
  if (header.policy_id() != spec.id.value()) {
    return absl::InvalidArgumentError(
        absl::StrCat("weights: another policy than ", spec.id.value(), " in slot ", slot.value()));
  }
  const uint64_t actor = static_cast<uint64_t>(ActingSize(slot));
  const uint64_t observation = spec.normalize_observations ? static_cast<uint64_t>(spec.observation_size()) : 0;
  if (header.actor_size() != actor || header.observation_size() != observation) {
    return absl::InvalidArgumentError(absl::StrCat("weights of ", spec.id.value(), ": ", header.actor_size(),
                                                   " parameters and ", header.observation_size(),
                                                   " normalizers, expected ", actor, " and ", observation));
  }
  const uint64_t bytes = (actor + 2 * observation) * sizeof(float);
  if (header.total_bytes() != bytes || bytes > kMaxWeightBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("weights of ", spec.id.value(), ": ", header.total_bytes(), " bytes, expected ", bytes));
  }
  whole_.resize(bytes / sizeof(float));
  return absl::OkStatus();
}

absl::StatusOr<std::optional<WeightAssembler::Update>> WeightAssembler::Add(const grpc::ByteBuffer& message) {
  TROUPE_ASSIGN_OR_RETURN(const SliceList list, SliceList::From(message));
  TROUPE_ASSIGN_OR_RETURN(const SplitMessage split, SplitPayload(list, kMaxFieldsBytes));
  v1::WeightUpdate header;
  if (const absl::Status read = ParseBounded(split.fields, kAnswerLimit, &header); !read.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("weights: ", read.message()));
  }
  if (header.has_announcement()) {
    return std::optional<Update>(
        Update{policy::PolicySlot(), nullptr, FromProto(header.version()), header.announcement().number()});
  }
  if (header.has_policies()) return AddPolicies(header.policies());
  if (tables_.has_value() && policies_->specs.size() == 0) {
    return absl::FailedPreconditionError(
        "weights before the policies that were asked for: the learner is of a version that does not tell them");
  }
  if (header.offset() == 0) {
    TROUPE_RETURN_IF_ERROR(Begin(header));
  } else if (header.policy_slot() != header_.policy_slot() ||
             FromProto(header.version()) != FromProto(header_.version()) || header.offset() != received_bytes_) {
    return absl::InvalidArgumentError(
        absl::StrCat("weights: a chunk at byte ", header.offset(), " that does not follow the one before"));
  }
  if (dropping_) {
    received_bytes_ += split.payload_bytes;
    return std::optional<Update>();
  }
  const size_t whole_bytes = whole_.size() * sizeof(float);
  if (split.payload_bytes > whole_bytes - received_bytes_ || (split.payload_bytes == 0 && whole_bytes > 0)) {
    return absl::InvalidArgumentError(absl::StrCat("weights: a chunk of ", split.payload_bytes, " bytes at byte ",
                                                   received_bytes_, ", expected 1 to ", whole_bytes - received_bytes_));
  }
  list.CopyWithCrc(split.payload_offset, split.payload_bytes,
                   reinterpret_cast<std::byte*>(whole_.data()) + received_bytes_);
  received_bytes_ += split.payload_bytes;
  if (received_bytes_ < whole_bytes) return std::optional<Update>();
  TROUPE_ASSIGN_OR_RETURN(Update update, Finish());
  return std::optional<Update>(std::move(update));
}

WeightAssembler WeightAssembler::WithPolicies() {
  WeightAssembler assembler(std::make_shared<const SlotPolicies>(policy::BySlot<policy::PolicySpec>()));
  assembler.tables_.emplace(-1);
  return assembler;
}

absl::StatusOr<std::optional<WeightAssembler::Update>> WeightAssembler::AddPolicies(const v1::PolicyTable& chunk) {
  if (!tables_.has_value()) return absl::InvalidArgumentError("weights: a table of policies that nobody asked for");
  TROUPE_ASSIGN_OR_RETURN(policy::PolicyTablePtr table, tables_->Add(chunk));
  if (table == nullptr) return std::optional<Update>();
  SetPolicies(std::make_shared<const SlotPolicies>(*table));
  Update update;
  update.policies = std::move(table);
  return std::optional<Update>(std::move(update));
}

absl::StatusOr<WeightAssembler::Update> WeightAssembler::Finish() {
  const uint32_t crc = base::Crc32c(whole_.data(), whole_.size() * sizeof(float));
  if (crc != header_.crc32c()) {
    return absl::DataLossError(absl::StrCat("weights of ", header_.policy_id(), ": CRC-32C ", crc,
                                            ", but the header says ", header_.crc32c()));
  }
  auto snapshot = std::make_shared<policy::WeightSnapshot>();
  snapshot->id = policy::PolicyId(header_.policy_id());
  snapshot->version = FromProto(header_.version());
  const auto actor_end = whole_.begin() + static_cast<int64_t>(header_.actor_size());
  const auto mean_end = actor_end + static_cast<int64_t>(header_.observation_size());
  if (header_.observation_size() > 0) {
    snapshot->observation_mean.assign(actor_end, mean_end);
    snapshot->observation_inverse_std.assign(mean_end, whole_.end());
  }
  for (const v1::ExplorationScalar& scalar : header_.exploration()) {
    if (snapshot->exploration.emplace(scalar.name(), scalar.value()).second) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("weights of ", header_.policy_id(), ": an exploration scalar is there twice"));
  }
  whole_.resize(header_.actor_size());
  snapshot->actor = std::move(whole_);
  whole_ = {};
  received_bytes_ = 0;
  const policy::PolicySlot slot(header_.policy_slot());
  TROUPE_RETURN_IF_ERROR(snapshot->Validate(policies_->specs[slot], ActingSize(slot)));
  header_.Clear();
  const policy::WeightVersion version = snapshot->version;
  return Update{slot, std::move(snapshot), version};
}

}  // namespace troupe::rpc
