#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lib/learner/episode_stats.h"
#include "lib/learner/progress.h"
#include "lib/policy/ids.h"
#include "lib/policy/policy_table.h"

namespace troupe::learner {

/// A value of one policy or agent, or of those that are not told one by one.
struct NamedValue {
  std::string key;  ///< in progress.jsonl; empty: it is not there
  std::string tag;  ///< in TensorBoard (docs/metrics.md); empty: it is not there
  double value = 0;
};

/// The returns of a policy or an agent.
struct NamedReturns {
  std::string name;
  int32_t slot = 0;  ///< the policy's or the agent's
  Spread returns;
};

/// Some by name, in the order of their slots, the others as one.
struct ReturnsByName {
  std::vector<NamedReturns> named;
  std::vector<int32_t> others;  ///< their slots
  Spread rest;                  ///< of the others' mean returns
};

/// What a run tells of its policies, agents and learn groups by name: at most kMost of each in a line, those with most
/// rows (agents: episodes), and least, mean and largest of the others (groups: their sum). All that is told by name
/// comes from here, so that a run of a thousand policies floods nothing, and nothing is formatted before it is chosen.
/// Confined to the update thread.
class NamedValues {
 public:
  static constexpr size_t kMost = 100;

  explicit NamedValues(std::vector<std::string> agent_ids) : agent_ids_(std::move(agent_ids)) {}

  /// An update. Costs a few operations for each policy that trained in it.
  void Add(const ProgressRecord& record);
  /// The values of a line, after which the next one begins: returns and infos of the window. With several policies also
  /// the last update of each that trained since the last line. With several learn groups also the fate of their rows.
  std::vector<NamedValue> TakeLine(const ProgressRecord& record);
  /// An evaluation that played the policies of `table`, by the names that every output has for it (`key`), and by older
  /// ones that TensorBoard has, too (`tag`).
  std::vector<NamedValue> OfEvaluation(const EpisodeStats& evaluation, const policy::PolicyTable& table) const;

  /// By name at most `most`: those with most rows since this was made.
  ReturnsByName Policies(const EpisodeStats& stats, const policy::PolicyTable& table, size_t most) const;
  /// Its last one since this was made; nullptr: none.
  const PolicyUpdateReport* LastUpdateOf(policy::PolicySlot policy) const { return Rows(policy).last; }
  /// By name at most `most`: those with most episodes.
  ReturnsByName Agents(const EpisodeStats& stats, size_t most) const;

 private:
  struct PolicyRows {
    int64_t since = -1;                                              ///< revision that brought the policy
    int64_t in_line = 0;                                             ///< trained since the last line
    int64_t in_all = 0;                                              ///< trained since this was made
    const PolicyUpdateReport* last = nullptr;                        ///< of its updates
    std::shared_ptr<const std::vector<PolicyUpdateReport>> reports;  ///< holds `last`
  };

  const PolicyRows& Rows(policy::PolicySlot policy) const;
  ReturnsByName Choose(const EpisodeStats& stats, const policy::PolicyTable& table, size_t most, bool of_line) const;
  void AppendTraining(const ReturnsByName& policies, std::vector<NamedValue>* values) const;

  const std::vector<std::string> agent_ids_;
  policy::BySlot<PolicyRows> rows_;
  size_t line_size_ = 0;  ///< of the last line: the next one is about as long
};

}  // namespace troupe::learner
