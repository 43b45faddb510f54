#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "absl/time/time.h"

namespace troupe::learner {

/// Who is given grants, by what became of those that each worker had. A worker that delivered a grant whole is *proven*
/// until one of its grants expires, or it leaves with one undone. Has no clock: `now` and `since` are of the caller's.
/// Not thread-safe.
///
/// How long a grant was out that expired, or that was left undone, while a proven worker was here, is lost: an
/// iteration waited for it. As long as a proven worker is here, the others are given nothing until kPause times what
/// was lost has passed. A worker of which kMisses grants in a row expired is given nothing while any other is here.
///
/// Invariants: 1. Select is never empty while a worker is here that is not excluded. 2. While proven workers are here,
/// those that are not cost at most 1 / (1 + kPause) of the time, however many they are and however often they come
/// again. 3. A grant that expires doubles what its worker is allowed for the next, so that every fleet, however slow,
/// delivers at last.
///
/// Remembers kMaxDeparted workers that left.
class WorkerStandings {
 public:
  static constexpr int64_t kPause = 9;
  static constexpr int32_t kMisses = 3;
  static constexpr size_t kMaxDeparted = 4096;

  /// Of a worker that is selected.
  struct Choice {
    uint64_t worker = 0;
    int32_t misses = 0;  ///< grants that expired since it last delivered
  };

  void Join(uint64_t worker);
  /// `undone_since`: when the oldest of the grants was sent that it leaves undone.
  void Leave(uint64_t worker, std::optional<absl::Duration> undone_since, absl::Duration now);

  /// The worker gets no more work, however often it comes again.
  void Exclude(uint64_t worker);
  /// Whether Select is not empty.
  bool anybody() const { return at_work_ > 0; }

  /// The workers to give grants to; those of the fewest misses first, then by id.
  std::vector<Choice> Select(absl::Duration now) const;
  /// `limit` as it is for this worker: longer after grants that expired.
  absl::Duration Allow(uint64_t worker, absl::Duration limit) const;
  /// From when on a grant that is sent to it now counts: earlier than `now` where an earlier one was refused and none
  /// has been delivered since.
  absl::Duration CountFrom(uint64_t worker, absl::Duration now) const;

  /// A grant was delivered whole. What it is allowed falls back as far as twice what it took.
  void Delivered(uint64_t worker, absl::Duration took, absl::Duration limit);
  /// A grant ends short of what was granted, by a fragment that was refused or never came.
  void Failed(uint64_t worker, absl::Duration since);
  /// A grant was out for too long. How many in a row that makes.
  int32_t Expired(uint64_t worker, uint64_t grant, absl::Duration since, absl::Duration now);
  /// A valid fragment of a grant that is over. If it had expired, then the worker lives: its misses are forgiven.
  void CameLate(uint64_t worker, uint64_t grant);

  /// Grants that expired: of the worker, and of all that ever came.
  int64_t expired_of(uint64_t worker) const;
  int64_t expired() const { return expired_; }

 private:
  struct Standing {
    bool here = false;
    bool proven = false;
    bool excluded = false;
    int32_t misses = 0;
    int32_t doublings = 0;                       ///< of the limit
    int64_t expired = 0;                         ///< grants, ever
    std::optional<absl::Duration> failed_since;  ///< when the first of the grants was sent that failed in a row
    std::vector<uint64_t> late;                  ///< the last kMisses grants that expired
  };

  /// From `since` to `now` an iteration may have waited; what was counted before is not counted again.
  void Lose(absl::Duration since, absl::Duration now);
  void ForgetSurplus();

  std::map<uint64_t, Standing> standings_;  ///< by worker id
  size_t departed_ = 0;
  size_t at_work_ = 0;  ///< that are here and not excluded
  int64_t expired_ = 0;
  absl::Duration counted_until_ = -absl::InfiniteDuration();
  absl::Duration pause_until_ = -absl::InfiniteDuration();
};

}  // namespace troupe::learner
