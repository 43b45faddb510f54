#include "lib/policy/policy_state_tier.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/check.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/policy/policy_spec.h"
#include "lib/policy/policy_state_codec.h"

namespace troupe::policy {
namespace {

std::string KeyOf(PolicySlot slot) { return absl::StrCat("policy_", slot.value()); }

bool IsPowerOfTwo(int64_t count) { return (count & (count - 1)) == 0; }

}  // namespace

absl::Status ValidateBlobKey(std::string_view key) {
  const bool good = !key.empty() && key.size() <= 64 && std::all_of(key.begin(), key.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  });
  if (good) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("blob key \"", base::LogSafe(key), "\": expected 1 to 64 of a-z, 0-9, _ and -"));
}

absl::StatusOr<std::unique_ptr<PolicyStateTier>> PolicyStateTier::Make(const std::vector<PolicySpec>* specs,
                                                                       const Options& options, Deps deps) {
  TROUPE_CHECK(deps.form != nullptr && deps.initial != nullptr);
  if (options.host_budget_bytes < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("host_budget_bytes is ", options.host_budget_bytes, "; expected at least 0"));
  }
  return std::unique_ptr<PolicyStateTier>(new PolicyStateTier(specs, options, std::move(deps)));
}

PolicyStateTier::PolicyStateTier(const std::vector<PolicySpec>* specs, const Options& options, Deps deps)
    : specs_(*specs), options_(options), deps_(std::move(deps)), entries_(specs_.size()) {}

absl::StatusOr<PolicyTier::Value> PolicyStateTier::Load(PolicySlot slot) {
  TROUPE_ASSIGN_OR_RETURN(const StatePtr state, Read(slot));
  return deps_.form->FromState(slot, *state);
}

absl::Status PolicyStateTier::Store(PolicySlot slot, const Value& value) {
  return Keep(slot, std::make_shared<const PolicyState>(deps_.form->ToState(slot, value)), /*must_keep=*/false);
}

void PolicyStateTier::Put(PolicySlot slot, PolicyState state) {
  Keep(slot, std::make_shared<const PolicyState>(std::move(state)), /*must_keep=*/true)
      .IgnoreError();  // it cannot fail
}

absl::StatusOr<PolicyStateTier::StatePtr> PolicyStateTier::Read(PolicySlot slot) {
  Place place = Place::kNowhere;
  {
    base::MutexLock lock(&mutex_);
    const Entry& entry = entries_[slot];
    if (entry.place == Place::kHost) return entry.host;
    place = entry.place;
  }
  if (place == Place::kNowhere) {
    TROUPE_ASSIGN_OR_RETURN(PolicyState first, deps_.initial(slot));
    return std::make_shared<const PolicyState>(std::move(first));
  }
  absl::StatusOr<StatePtr> state = ReadBlob(slot);
  if (!state.ok()) return Recover(slot, state.status());
  base::MutexLock lock(&mutex_);
  ++stats_.blob_reads;
  entries_[slot].lost = false;
  return state;
}

absl::StatusOr<PolicyStateTier::StatePtr> PolicyStateTier::ReadBlob(PolicySlot slot) {
  TROUPE_ASSIGN_OR_RETURN(const std::string bytes, deps_.blobs->Get(KeyOf(slot)));
  TROUPE_ASSIGN_OR_RETURN(PolicyState state, DecodePolicyState(bytes, specs_[static_cast<size_t>(slot.value())]));
  return std::make_shared<const PolicyState>(std::move(state));
}

absl::StatusOr<PolicyStateTier::StatePtr> PolicyStateTier::Recover(PolicySlot slot, const absl::Status& damage) {
  const PolicySpec& spec = specs_[static_cast<size_t>(slot.value())];
  absl::StatusOr<PolicyState> older = absl::NotFoundError("there is none");
  if (deps_.fallback != nullptr) older = deps_.fallback(slot);
  if (older.ok()) {
    if (const absl::Status fits = older->Validate(spec); !fits.ok()) older = fits;
  }
  bool first_time = false;
  {
    base::MutexLock lock(&mutex_);
    Entry& entry = entries_[slot];
    first_time = !std::exchange(entry.lost, true);
    if (first_time) ++stats_.lost;
  }
  const std::string what(damage.message());
  if (older.ok()) {
    TROUPE_ERROR("a policy's stored state is lost, an older one is used policy={} error=\"{}\"", spec.id.value(),
                 base::LogSafe(what));
    auto state = std::make_shared<const PolicyState>(*std::move(older));
    Keep(slot, state, /*must_keep=*/true).IgnoreError();  // it cannot fail
    return state;
  }
  const std::string why(older.status().message());
  if (first_time) {
    TROUPE_ERROR("a policy's stored state is lost, and there is no older one policy={} error=\"{}\" older=\"{}\"",
                 spec.id.value(), base::LogSafe(what), base::LogSafe(why));
  }
  return absl::DataLossError(
      absl::StrCat("policy \"", spec.id.value(), "\" is lost: ", what, "; an older state: ", why));
}

absl::Status PolicyStateTier::Keep(PolicySlot slot, StatePtr state, bool must_keep) {
  const int64_t bytes = BytesOf(*state);
  StatePtr before;
  absl::StatusOr<bool> fits = MakeRoom(slot, bytes);
  if (fits.ok() && !*fits) {
    const absl::Status written = WriteBlob(slot, *state);
    if (written.ok()) {
      base::MutexLock lock(&mutex_);
      Entry& entry = entries_[slot];
      if (entry.place == Place::kHost) before = TakeFromHostLocked(entry);
      if (entry.place != Place::kDisk) ++stats_.states_on_disk;
      entry.place = Place::kDisk;
      entry.lost = false;
      return absl::OkStatus();
    }
    fits = written;
  }
  if (!fits.ok()) {
    int64_t failures = 0;
    {
      base::MutexLock lock(&mutex_);
      failures = ++stats_.blob_write_failures;
    }
    if (IsPowerOfTwo(failures)) {
      TROUPE_WARN(
          "states of policies stay in memory beyond its budget: they cannot be written failures={} error=\"{}\"",
          failures, base::LogSafe(std::string(fits.status().message())));
    }
    if (!must_keep) return fits.status();
  }
  bool on_disk = false;
  {
    base::MutexLock lock(&mutex_);
    on_disk = entries_[slot].place == Place::kDisk;
  }
  // The blob is stale from here on, and is in nobody's way if it cannot be deleted.
  if (on_disk) deps_.blobs->Delete(KeyOf(slot)).IgnoreError();
  base::MutexLock lock(&mutex_);
  Entry& entry = entries_[slot];
  if (entry.place == Place::kHost) before = TakeFromHostLocked(entry);
  if (on_disk) --stats_.states_on_disk;
  entry.place = Place::kHost;
  entry.host = std::move(state);
  entry.bytes = bytes;
  entry.stored_at = ++stores_;
  entry.lost = false;
  oldest_.emplace(entry.stored_at, slot);
  stats_.host_bytes += bytes;
  return absl::OkStatus();
}

PolicyStateTier::StatePtr PolicyStateTier::TakeFromHostLocked(Entry& entry) {
  stats_.host_bytes -= entry.bytes;
  oldest_.erase(entry.stored_at);
  entry.bytes = 0;
  return std::move(entry.host);
}

absl::StatusOr<bool> PolicyStateTier::MakeRoom(PolicySlot slot, int64_t bytes) {
  if (deps_.blobs == nullptr) return true;
  while (true) {
    std::optional<PolicySlot> victim;
    StatePtr state;
    {
      base::MutexLock lock(&mutex_);
      const Entry& own = entries_[slot];
      if (stats_.host_bytes - own.bytes + bytes <= options_.host_budget_bytes) return true;
      // Another thread writes its older state: two writes of one key must not meet.
      if (own.spilling) return true;
      if (bytes > options_.host_budget_bytes) return false;
      for (const auto& [stored_at, candidate] : oldest_) {
        Entry& entry = entries_[candidate];
        if (candidate == slot || entry.spilling) continue;
        entry.spilling = true;
        victim = candidate;
        state = entry.host;
        break;
      }
    }
    if (!victim.has_value()) return false;
    const absl::Status written = WriteBlob(*victim, *state);
    base::MutexLock lock(&mutex_);
    Entry& entry = entries_[*victim];
    entry.spilling = false;
    if (!written.ok()) return written;
    // It may have been stored anew meanwhile: then the blob is stale.
    if (entry.place == Place::kHost && entry.host == state) {
      TakeFromHostLocked(entry);  // `state` is the last owner
      entry.place = Place::kDisk;
      ++stats_.states_on_disk;
    }
  }
}

absl::Status PolicyStateTier::WriteBlob(PolicySlot slot, const PolicyState& state) {
  const std::string key = KeyOf(slot);
  const std::string bytes = EncodePolicyState(state);
  TROUPE_RETURN_IF_ERROR(deps_.blobs->Put(key, bytes));
  TROUPE_ASSIGN_OR_RETURN(const std::string read_back, deps_.blobs->Get(key));
  if (read_back != bytes) {
    return absl::DataLossError(absl::StrCat("policy \"", state.id.value(), "\": ", read_back.size(),
                                            " bytes read back are not the ", bytes.size(), " written"));
  }
  base::MutexLock lock(&mutex_);
  ++stats_.blob_writes;
  return absl::OkStatus();
}

void PolicyStateTier::SetNumSlots(size_t num_slots) {
  base::MutexLock lock(&mutex_);
  entries_.resize(num_slots);
}

void PolicyStateTier::Forget(PolicySlot slot) {
  StatePtr before;
  bool on_disk = false;
  {
    base::MutexLock lock(&mutex_);
    Entry& entry = entries_[slot];
    if (entry.place == Place::kHost) before = TakeFromHostLocked(entry);
    on_disk = entry.place == Place::kDisk;
    if (on_disk) --stats_.states_on_disk;
    entry = Entry{};
  }
  // A blob that cannot be deleted is in nobody's way: nothing says that it is there.
  if (on_disk) deps_.blobs->Delete(KeyOf(slot)).IgnoreError();
}

PolicyStateTierStats PolicyStateTier::Stats() const {
  base::MutexLock lock(&mutex_);
  return stats_;
}

}  // namespace troupe::policy
