#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lib/learner/assembler.h"
#include "lib/learner/learner_options.h"
#include "lib/policy/policy_table.h"

namespace troupe::learner {

/// Watches which policies lose rows because they are too old at assembly (Assembly::aged): clients made the decisions
/// by themselves, with weights older than max_policy_lag allows. Judges each policy that trains, by updates that have
/// rows of it; other updates do not count. Made and owned by UpdateCycle, confined to the update thread.
class AgingWatch {
 public:
  /// A policy is judged once for so many updates with rows of it, and the run ends after so many in which it lost all.
  static constexpr int64_t kUpdates = 10;
  /// A policy that lost a larger share of its rows in kUpdates is named. One in so many rows:
  static constexpr int64_t kOneIn = 10;
  /// So many policies are named at a time.
  static constexpr size_t kMostNamed = 5;

  /// `options` outlives it.
  explicit AgingWatch(const LearnerOptions* options) : options_(*options) {}

  /// An update's batch, whose policies are those of `table`.
  void Add(const Assembly& assembly, const policy::PolicyTable& table);

  /// A sentence on each policy that loses too many rows now, by slot, with the remedy; at most kMostNamed and one more.
  std::vector<std::string> Losing() const;
  /// The sentences on policies that were not named before, once each.
  std::vector<std::string> TakeNews();
  /// Why the run is to end: a policy that trains lost all its rows in kUpdates updates in a row. nullopt: it goes on.
  const std::optional<std::string>& end() const { return end_; }

 private:
  /// Rows of one policy in some updates.
  struct Rows {
    int64_t updates = 0;
    int64_t all = 0;
    int64_t aged = 0;
  };
  struct Policy {
    int64_t since = -1;  ///< revision that brought it
    Rows update;         ///< of the update that is being added
    Rows judged;         ///< since it was judged
    Rows lost;           ///< of the last updates in a row in which it lost all
    std::string losing;  ///< by the last judgement; empty: it keeps most rows
    bool named = false;
  };

  void Judge(const policy::PolicyId& id, Policy& policy);

  const LearnerOptions& options_;
  policy::BySlot<Policy> policies_;
  std::vector<std::string> news_;
  std::optional<std::string> end_;
};

}  // namespace troupe::learner
