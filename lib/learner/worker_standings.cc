#include "lib/learner/worker_standings.h"

#include <algorithm>

namespace troupe::learner {
namespace {

/// Enough for centuries.
constexpr int32_t kMaxDoublings = 24;

}  // namespace

void WorkerStandings::Join(uint64_t worker) {
  const auto [it, is_new] = standings_.try_emplace(worker);
  if (!is_new && !it->second.here) --departed_;
  if (!it->second.here && !it->second.excluded) ++at_work_;
  it->second.here = true;
}

void WorkerStandings::Exclude(uint64_t worker) {
  Standing& standing = standings_.at(worker);
  if (standing.here && !standing.excluded) --at_work_;
  standing.excluded = true;
}

void WorkerStandings::Leave(uint64_t worker, std::optional<absl::Duration> undone_since, absl::Duration now) {
  Standing& standing = standings_.at(worker);
  if (undone_since.has_value()) {
    standing.proven = false;
    Lose(*undone_since, now);
  }
  standing.failed_since.reset();
  if (standing.here && !standing.excluded) --at_work_;
  standing.here = false;
  ++departed_;
  ForgetSurplus();
}

void WorkerStandings::ForgetSurplus() {
  if (departed_ <= kMaxDeparted) return;
  const auto oldest =
      std::find_if(standings_.begin(), standings_.end(), [](const auto& entry) { return !entry.second.here; });
  standings_.erase(oldest);
  --departed_;
}

std::vector<WorkerStandings::Choice> WorkerStandings::Select(absl::Duration now) const {
  bool any_proven = false;
  bool any_willing = false;
  for (const auto& [worker, standing] : standings_) {
    if (!standing.here || standing.excluded) continue;
    any_proven = any_proven || standing.proven;
    any_willing = any_willing || standing.misses < kMisses;
  }
  const bool proven_only = any_proven && now < pause_until_;
  std::vector<Choice> choices;
  for (const auto& [worker, standing] : standings_) {
    if (!standing.here || standing.excluded || (proven_only && !standing.proven)) continue;
    if (any_willing && standing.misses >= kMisses) continue;
    choices.push_back(Choice{worker, standing.misses});
  }
  std::stable_sort(choices.begin(), choices.end(),
                   [](const Choice& a, const Choice& b) { return a.misses < b.misses; });
  return choices;
}

absl::Duration WorkerStandings::Allow(uint64_t worker, absl::Duration limit) const {
  return limit * (int64_t{1} << standings_.at(worker).doublings);
}

absl::Duration WorkerStandings::CountFrom(uint64_t worker, absl::Duration now) const {
  return standings_.at(worker).failed_since.value_or(now);
}

void WorkerStandings::Delivered(uint64_t worker, absl::Duration took, absl::Duration limit) {
  Standing& standing = standings_.at(worker);
  standing.proven = true;
  standing.misses = 0;
  standing.failed_since.reset();
  while (standing.doublings > 0 && limit * (int64_t{1} << (standing.doublings - 1)) >= 2 * took) --standing.doublings;
}

void WorkerStandings::Failed(uint64_t worker, absl::Duration since) {
  std::optional<absl::Duration>& failed_since = standings_.at(worker).failed_since;
  failed_since = std::min(since, failed_since.value_or(since));
}

int32_t WorkerStandings::Expired(uint64_t worker, uint64_t grant, absl::Duration since, absl::Duration now) {
  Standing& standing = standings_.at(worker);
  standing.proven = false;
  standing.misses = std::min(standing.misses + 1, kMisses);
  standing.doublings = std::min(standing.doublings + 1, kMaxDoublings);
  standing.failed_since.reset();
  standing.late.push_back(grant);
  if (standing.late.size() > static_cast<size_t>(kMisses)) standing.late.erase(standing.late.begin());
  ++standing.expired;
  ++expired_;
  Lose(since, now);
  return standing.misses;
}

void WorkerStandings::Lose(absl::Duration since, absl::Duration now) {
  const absl::Duration lost = now - std::max(since, counted_until_);
  counted_until_ = now;
  // Where nobody has delivered, nobody could have done better.
  const bool any_proven = std::any_of(standings_.begin(), standings_.end(), [](const auto& entry) {
    return entry.second.here && entry.second.proven && !entry.second.excluded;
  });
  if (any_proven && lost > absl::ZeroDuration()) pause_until_ = std::max(pause_until_, now) + kPause * lost;
}

void WorkerStandings::CameLate(uint64_t worker, uint64_t grant) {
  const auto found = standings_.find(worker);
  if (found == standings_.end()) return;
  const std::vector<uint64_t>& late = found->second.late;
  if (std::find(late.begin(), late.end(), grant) != late.end()) found->second.misses = 0;
}

int64_t WorkerStandings::expired_of(uint64_t worker) const {
  const auto found = standings_.find(worker);
  return found == standings_.end() ? 0 : found->second.expired;
}

}  // namespace troupe::learner
