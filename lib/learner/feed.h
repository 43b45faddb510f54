#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "lib/learner/batch_source.h"
#include "lib/policy/learn_group.h"

namespace troupe::learner {

/// Makes what a feed is trained from, whose first batch is of that iteration of the sampling plan, or of a later one.
using SourceFactory = std::function<std::unique_ptr<BatchSource>(int64_t iteration)>;

/// Learn groups that are trained from the same rows, by a clock of their own. Plain value.
struct FeedSpec {
  std::string name;                       ///< for checkpoints; "": the run's own
  std::set<policy::GroupId> groups = {};  ///< of the run's own none: it has all that no other has
  /// Rows that are more batches of the feed older are dropped; nullopt: as the run's max_policy_lag says.
  std::optional<int64_t> max_policy_lag = std::nullopt;
  int64_t uses = 1;  ///< updates that each batch is for
  /// Iterations that may be sampled beyond those that are done (BatchSource::Done); the run takes the least of its
  /// feeds.
  int64_t max_ahead = 0;
  SourceFactory make_source = {};

  /// Updates of the feed that a row's policy may be behind, where the run's max_policy_lag is `lag`. At a batch's last
  /// use its rows are older than at the first by the other batches that are kept.
  int64_t MaxLagInUpdates(int64_t lag) const {
    return max_policy_lag.value_or(lag) * uses + (uses - 1) * (max_ahead + 1);
  }
};

/// FeedSpec::max_ahead from which on no worker waits for another: the plan runs freely (GrantScheduler). With less it
/// samples in rounds.
inline constexpr int64_t kFreeRunning = 2;
/// FeedSpec::max_ahead of a feed that takes each iteration once. A larger lag is for workers that are slow: more data
/// ahead of the updates would only be older.
constexpr int64_t AheadFor(int64_t max_policy_lag) { return std::min(max_policy_lag, kFreeRunning); }

/// How often a feed was trained, and which versions its updates were published as: what the age of a row is counted in.
/// Versions count the publications of all feeds together; where there is one feed both numbers are the same. Not
/// thread-safe.
class FeedClock {
 public:
  /// Updates whose versions are known one by one.
  static constexpr size_t kRemembered = 128;

  /// After `updates`, of which the last was published as `version`.
  FeedClock(int64_t updates, int64_t version) : updates_(updates), before_(version) {}
  /// For the only feed of a run: each version is an update of it.
  FeedClock(int64_t version) : FeedClock(version, version) {}  // NOLINT(google-explicit-constructor)

  int64_t updates() const { return updates_; }
  /// An update was published as `version`, above all before.
  void Published(int64_t version) {
    ++updates_;
    versions_.push_back(version);
    if (versions_.size() <= kRemembered) return;
    before_ = versions_.front();
    versions_.pop_front();
  }
  /// Updates since `version` was published; of one before those remembered, as if each version had been an update.
  int64_t Lag(int64_t version) const {
    const auto later = versions_.end() - std::upper_bound(versions_.begin(), versions_.end(), version);
    return later + std::max<int64_t>(0, before_ - version);
  }

 private:
  int64_t updates_;
  int64_t before_;                ///< version of the update before those remembered
  std::deque<int64_t> versions_;  ///< of the last updates, ascending
};

}  // namespace troupe::learner
