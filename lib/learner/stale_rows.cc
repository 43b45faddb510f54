#include "lib/learner/stale_rows.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/policy/policy_entry.h"
#include "lib/sample/multi_agent_batch.h"

namespace troupe::learner {
namespace {

using policy::PolicyEntry;
using policy::PolicySlot;
using policy::PolicyTable;
using sample::MultiAgentBatch;
using sample::PolicyRows;

bool IsPossible(PolicySlot slot) {
  return slot.value() >= 0 && slot.value() < static_cast<int32_t>(PolicyTable::kMaxPolicies);
}

/// Whether what a fragment calls `slot` is a policy that is gone.
bool IsGone(const PolicyTable& table, PolicySlot slot, int64_t policies_revision) {
  if (!IsPossible(slot)) return false;
  const PolicyEntry* const entry = table.Find(slot);
  return entry == nullptr || entry->replaced || entry->since > policies_revision;
}

std::string Reason(const PolicyTable& table, const PolicyRows& rows, int64_t policies_revision,
                   uint64_t learner_epoch) {
  if (rows.version.learner_epoch != learner_epoch) {
    return absl::StrCat("weights of learner epoch ", rows.version.learner_epoch, ", this is epoch ", learner_epoch);
  }
  const PolicyEntry* const entry = table.Find(rows.policy);
  if (entry == nullptr) return absl::StrCat("the policy of slot ", rows.policy.value(), " was removed");
  if (entry->since > policies_revision) {
    return absl::StrCat("slot ", rows.policy.value(), " belongs to policy \"", entry->spec.id.value(),
                        "\" since revision ", entry->since, ", these rows are of revision ", policies_revision);
  }
  return absl::StrCat("policy \"", entry->spec.id.value(), "\" was replaced in revision ", entry->removed);
}

/// As ValidateBatch will count them in what is left.
int64_t AgentSteps(const PolicyRows& rows, int64_t max_rows) {
  if (rows.rows < 0 || rows.rows > max_rows) return 0;
  const sample::ColumnView& mask = rows.agent_mask;
  if (!mask.present()) return rows.rows;
  if (mask.dtype != tensor::DType::kUint8 || mask.rows != rows.rows || mask.row_elements != 1) return 0;
  int64_t active = 0;
  for (const uint8_t bit : mask.As<uint8_t>()) active += bit;
  return active;
}

}  // namespace

FreshPart LeaveOutStale(sample::MultiAgentBatchPtr batch, const PolicyTable& table, uint64_t learner_epoch,
                        const sample::BatchLimits& limits) {
  FreshPart part;
  const int64_t revision = batch->policies_revision;
  const auto is_gone = [&](PolicySlot slot) { return IsGone(table, slot, revision); };
  const auto is_stale = [&](const PolicyRows& rows) {
    return IsPossible(rows.policy) && (rows.version.learner_epoch != learner_epoch || is_gone(rows.policy));
  };
  bool any = std::any_of(batch->policies.begin(), batch->policies.end(), is_stale);
  for (const sample::EpisodeEntry& episode : batch->episodes) {
    for (const sample::AgentEntry& agent : episode.agents) any = any || is_gone(agent.policy);
  }
  for (const sample::FinishedEpisode& episode : batch->finished) {
    for (const PolicySlot policy : episode.policies) any = any || is_gone(policy);
  }
  if (!any) {
    part.batch = std::move(batch);
    return part;
  }

  // The columns are views: what is copied is small.
  auto fresh = std::make_shared<MultiAgentBatch>(*batch);
  fresh->policies.clear();
  for (const PolicyRows& rows : batch->policies) {
    if (!is_stale(rows)) {
      fresh->policies.push_back(rows);
      continue;
    }
    if (part.stale_rows.empty()) part.reason = Reason(table, rows, revision, learner_epoch);
    const PolicyEntry* const entry = table.Find(rows.policy);
    const bool is_its_own = entry != nullptr && entry->since <= revision;
    part.stale_rows.push_back(
        {is_its_own ? rows.policy : policy::kNoPolicy, std::clamp(rows.rows, int64_t{0}, limits.max_rows_per_policy)});
    fresh->num_agent_steps -= AgentSteps(rows, limits.max_rows_per_policy);
  }
  for (sample::EpisodeEntry& episode : fresh->episodes) {
    const auto gone = std::remove_if(episode.agents.begin(), episode.agents.end(),
                                     [&](const sample::AgentEntry& agent) { return is_gone(agent.policy); });
    episode.agents.erase(gone, episode.agents.end());
  }
  for (sample::FinishedEpisode& episode : fresh->finished) {
    for (PolicySlot& policy : episode.policies) {
      if (is_gone(policy)) policy = policy::kNoPolicy;
    }
  }
  part.batch = std::move(fresh);
  return part;
}

absl::Status CheckRevisions(const MultiAgentBatch& batch, int64_t newest) {
  if (batch.policies_revision < 0 || batch.policies_revision > newest) {
    return absl::InvalidArgumentError(
        absl::StrCat("policies_revision is ", batch.policies_revision, ", expected 0 to ", newest));
  }
  if (batch.oldest_revision < 0 || batch.oldest_revision > batch.policies_revision) {
    return absl::InvalidArgumentError(
        absl::StrCat("oldest_revision is ", batch.oldest_revision, ", expected 0 to ", batch.policies_revision));
  }
  return absl::OkStatus();
}

}  // namespace troupe::learner
