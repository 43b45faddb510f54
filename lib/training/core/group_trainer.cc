#include "lib/training/core/group_trainer.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/log.h"
#include "lib/training/core/moments.h"

namespace troupe::training {
namespace {

// Observations drift less than returns; a long memory keeps the networks' inputs still.
constexpr double kMaxObservationCount = 1e8;
// So many refused updates in a row are an error that a person should look at.
constexpr int64_t kSkipsForError = 5;

}  // namespace

absl::Status GroupTrainer::Import(const std::vector<policy::StateBlock>& blocks) {
  if (blocks.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("got block \"", blocks.front().name, "\"; expected none: the group keeps nothing of its own"));
}

void MergeObserved(const policy::PolicySpec& spec, const PreparedBatch& prepared, ResidentPolicy* resident) {
  if (spec.normalize_state) {
    resident->state_moments =
        Merge(std::move(resident->state_moments), prepared.observed_states(), kMaxObservationCount);
  }
  if (!spec.normalize_observations) return;
  policy::RunningMoments merged = Merge(resident->observation_moments, prepared.observed(), kMaxObservationCount);
  if (IsFinite(merged)) resident->observation_moments = std::move(merged);
}

void BookSkips(const policy::PolicySpec& spec, int64_t taken, int64_t skipped, ResidentPolicy* resident,
               int64_t* partly_skipped) {
  // Logged when a count has doubled: a policy that is lost for good must not fill the log.
  const auto is_power_of_two = [](int64_t count) { return (count & (count - 1)) == 0; };
  if (skipped == 0 || taken > 0) {
    resident->consecutive_skips = 0;
    if (skipped > 0 && is_power_of_two(++*partly_skipped)) {
      TROUPE_WARN(
          "minibatch steps skipped for a loss or gradient that is not finite policy={} skipped={} taken={} "
          "updates_so_far={}",
          spec.id.value(), skipped, taken, *partly_skipped);
    }
    return;
  }
  ++resident->skipped_updates;
  const int64_t in_a_row = ++resident->consecutive_skips;
  if (in_a_row == kSkipsForError || (in_a_row > kSkipsForError && is_power_of_two(in_a_row))) {
    TROUPE_ERROR("updates skipped in a row for losses or gradients that are not finite policy={} updates={}",
                 spec.id.value(), in_a_row);
  } else if (in_a_row < kSkipsForError && is_power_of_two(in_a_row)) {
    TROUPE_WARN("update skipped for losses or gradients that are not finite policy={} in_a_row={}", spec.id.value(),
                in_a_row);
  }
}

}  // namespace troupe::training
