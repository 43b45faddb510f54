#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "lib/policy/ids.h"
#include "lib/policy/policy_fwd.h"
#include "lib/policy/policy_mapping.h"

namespace troupe::policy {

/// The policies of a run by slot and who plays them, as of one revision. A change gives another table; whoever acts on
/// one keeps it whole. Immutable and shared by pointer; thread-safe.
///
/// A removed policy keeps its slot until no episode plays it any more (Release); a released slot is free and goes to
/// the next policy that is added. A slot therefore never changes its policy under an episode.
///
/// Errors of every change: INVALID_ARGUMENT, NOT_FOUND (an id that no active policy has), ALREADY_EXISTS,
/// FAILED_PRECONDITION (the mapping still names what is to go), RESOURCE_EXHAUSTED (kMaxPolicies).
class PolicyTable {
 public:
  /// Active and draining ones together.
  static constexpr size_t kMaxPolicies = 1024;
  /// Of a table that somebody else wrote; environments have no more, and no longer ids.
  static constexpr size_t kMaxAgents = 1024;
  static constexpr size_t kMaxTableAgentIdBytes = 384;
  /// Bounds of one policy's.
  static constexpr size_t kMaxSettings = 64;
  static constexpr size_t kMaxSettingBytes = 1024;
  using Ptr = std::shared_ptr<const PolicyTable>;

  ~PolicyTable();
  PolicyTable& operator=(const PolicyTable&) = delete;

  /// The first table of a run, revision 0: `specs` in the order of their slots. INVALID_ARGUMENT for none, two of one
  /// id, a `trains` of another length or for a class that is not trained; what MakeRuleMapping says of the rules.
  static absl::StatusOr<Ptr> Make(std::vector<PolicySpec> specs, std::vector<bool> trains,
                                  std::vector<MappingRule> mapping, std::vector<std::string> agent_ids);

  /// `spec` in the lowest free slot. Nobody plays it before SetMapping. `settings`: PolicyEntry's.
  absl::StatusOr<Ptr> Add(PolicySpec spec, bool trains, std::vector<std::string> settings = {}) const;
  /// Takes out a policy that no rule names; its episodes end with it.
  absl::StatusOr<Ptr> Remove(const PolicyId& id) const;
  /// Another policy under the id of an active one, in a slot of its own: episodes that begin play it, rows of the old
  /// one are STALE. It trains as the old one did, where its class can.
  absl::StatusOr<Ptr> Replace(PolicySpec spec, std::vector<std::string> settings = {}) const;
  absl::StatusOr<Ptr> SetTrains(const PolicyId& id, bool trains) const;
  /// Exactly these train.
  absl::StatusOr<Ptr> SetTrainable(absl::Span<const PolicyId> ids) const;
  /// Adds to the settings of a policy; a key that it has gets the new value.
  absl::StatusOr<Ptr> Set(const PolicyId& id, absl::Span<const std::string> settings) const;
  absl::StatusOr<Ptr> SetMapping(std::vector<MappingRule> rules) const;
  /// Frees the slots of removed policies. FAILED_PRECONDITION for an active one.
  absl::StatusOr<Ptr> Release(absl::Span<const PolicySlot> slots) const;
  /// The same policies at `revision`, if that is higher: a learner that goes on from a checkpoint must not give two
  /// tables one revision.
  Ptr AtLeast(int64_t revision) const;

  /// Grows by one with every change, from 0.
  int64_t revision() const { return revision_; }
  /// nullopt: free. The last one is not free.
  const BySlot<std::optional<PolicyEntry>>& entries() const { return entries_; }
  size_t num_slots() const;
  /// nullptr for a slot that is free or none.
  const PolicyEntry* Find(PolicySlot slot) const;
  /// The id of the policy in a slot that has one (checked).
  const PolicyId& IdOf(PolicySlot slot) const;
  /// PolicyEntry::since of the policy in the slot; -1: it is free or none.
  int64_t SinceOf(PolicySlot slot) const;
  /// The slot of an active policy.
  std::optional<PolicySlot> FindSlot(const PolicyId& id) const;
  /// NOT_FOUND with the nearest id.
  absl::StatusOr<PolicySlot> SlotOf(const PolicyId& id) const;
  /// A free slot's has an empty id.
  BySlot<PolicySpec> Specs() const;
  /// "" for those that are not active.
  BySlot<PolicyId> ActiveIds() const;
  const std::vector<MappingRule>& rules() const { return rules_; }
  const std::vector<std::string>& agent_ids() const { return agent_ids_; }
  const PolicyMapping& mapping() const { return *mapping_; }
  /// Whether any rule may give the slot to an agent.
  bool IsMapped(PolicySlot slot) const;

 private:
  PolicyTable();
  PolicyTable(const PolicyTable& other);
  /// A copy of the next revision, to be changed.
  std::shared_ptr<PolicyTable> Next() const;
  /// Resolves the rules against the active policies.
  static absl::StatusOr<Ptr> Finish(std::shared_ptr<PolicyTable> table);
  absl::StatusOr<PolicySlot> Place(PolicySpec spec, bool trains, std::vector<std::string> settings = {});

  friend absl::StatusOr<Ptr> PolicyTableFromJson(std::string_view text);

  int64_t revision_ = 0;
  BySlot<std::optional<PolicyEntry>> entries_;
  std::vector<MappingRule> rules_;
  std::vector<std::string> agent_ids_;
  std::shared_ptr<const PolicyMapping> mapping_;
};
using PolicyTablePtr = PolicyTable::Ptr;

/// By id of an active policy: the slots of the agents that may play it by the mapping, ascending. A function that names
/// no policies may choose any.
std::map<std::string, std::vector<int32_t>> AgentSlotsByPolicy(const PolicyTable& table);

/// Who reads a table.
enum class TableReader : uint8_t {
  kRun,     ///< checkpoints and the run's own user
  kWorker,  ///< who says Hello: classes are told by PolicyClass::ForWorkers
};
/// The table as JSON: what crosses the wire and lies in a checkpoint.
std::string ToJson(const PolicyTable& table, TableReader reader = TableReader::kRun);
/// INVALID_ARGUMENT for anything that ToJson could not have written; at most kMaxPolicyTableBytes.
absl::StatusOr<PolicyTablePtr> PolicyTableFromJson(std::string_view text);
inline constexpr size_t kMaxPolicyTableBytes = 4 << 20;
/// RESOURCE_EXHAUSTED for a table whose JSON, with a policy of each slot removed later on, might be larger.
absl::Status CheckSize(const PolicyTable& table);

}  // namespace troupe::policy
