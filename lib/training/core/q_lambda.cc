#include "lib/training/core/q_lambda.h"

#include <cmath>
#include <optional>

#include "lib/policy/ids.h"

namespace troupe::training {
namespace {

/// True where a value comes after the segment's last row.
bool HasFinalValue(const learner::TrainSegment& segment, const QLambda& options) {
  return segment.final_row >= 0 && (options.time_limit_bootstrap || !segment.truncated);
}

/// A team's part in a joint step.
struct JointParts {
  double rewards = 0;
  double greatest = 0;  ///< of those that act
  double finals = 0;    ///< of those that end there
  bool acts = false;
  bool ends = false;
};

/// A team member, and its final rows.
struct TeamRows {
  const TeamMember* member = nullptr;
  std::vector<uint8_t> final_counts;  ///< by final row, whether it is a value of the team
};

policy::BySlot<TeamRows> RowsBySlot(absl::Span<const TeamMember> members, const QLambda& options) {
  policy::BySlot<TeamRows> rows;
  for (const TeamMember& member : members) {
    rows.GrowTo(member.batch.policy);
    TeamRows& of = rows[member.batch.policy];
    of.member = &member;
    of.final_counts.resize(static_cast<size_t>(member.batch.final_rows));
    for (const learner::TrainSegment& segment : member.batch.segments) {
      if (segment.rows == 0 || !HasFinalValue(segment, options)) continue;
      of.final_counts[static_cast<size_t>(segment.final_row)] =
          member.uses.IsCounted(segment.first_row + segment.rows - 1);
    }
  }
  return rows;
}

JointParts PartsOf(const learner::JointSteps& joint, const learner::JointStep& step,
                   const policy::BySlot<TeamRows>& rows) {
  JointParts parts;
  std::optional<base::AgentSlot> acted;  // an agent's row stands before its final row
  for (int32_t e = step.first_entry; e < step.first_entry + step.num_entries; ++e) {
    const learner::JointEntry& entry = joint.entries[static_cast<size_t>(e)];
    if (!rows.Contains(entry.policy) || rows[entry.policy].member == nullptr) continue;
    const TeamMember& member = *rows[entry.policy].member;
    if (entry.row >= 0) {
      if (!member.uses.IsCounted(entry.row)) continue;
      parts.acts = true;
      acted = entry.slot;
      parts.rewards += member.batch.rewards[static_cast<size_t>(entry.row)];
      parts.greatest += member.greatest.rows[static_cast<size_t>(entry.row)];
    } else if (acted != entry.slot && rows[entry.policy].final_counts[static_cast<size_t>(entry.final_row)] != 0) {
      parts.ends = true;
      parts.finals += member.greatest.finals[static_cast<size_t>(entry.final_row)];
    }
  }
  return parts;
}

}  // namespace

std::vector<float> QLambdaTargets(const learner::PolicyTrainBatch& batch, const RowUses& uses,
                                  const GreatestValues& greatest, const QLambda& options) {
  std::vector<float> targets(batch.rewards.begin(), batch.rewards.end());
  for (const learner::TrainSegment& segment : batch.segments) {
    const bool has_final = HasFinalValue(segment, options);
    double next_value = has_final ? greatest.finals[static_cast<size_t>(segment.final_row)] : 0.0;
    double next_target = next_value;
    for (int64_t row = segment.first_row + segment.rows - 1; row >= segment.first_row; --row) {
      const auto at = static_cast<size_t>(row);
      if (!uses.IsCounted(row)) {
        next_value = next_target = 0.0;
        continue;
      }
      const bool by_wait = options.by_env_step && !batch.waits.empty();
      const double discount = by_wait ? std::pow(options.gamma, batch.waits[at]) : options.gamma;
      const double ahead = options.lambda * next_target + (1 - options.lambda) * next_value;
      next_target = batch.rewards[at] + discount * ahead;
      next_value = greatest.rows[at];
      targets[at] = static_cast<float>(next_target);
    }
  }
  return targets;
}

std::vector<float> TeamQLambdaTargets(const learner::JointSteps& joint, absl::Span<const TeamMember> members,
                                      const QLambda& options) {
  const policy::BySlot<TeamRows> rows = RowsBySlot(members, options);
  /// The value of a joint step to those who come from before it, and the env step from which gamma discounts it.
  struct Ahead {
    double value = 0;
    int32_t step = 0;
  };
  std::vector<float> targets(joint.steps.size(), 0.0f);
  std::vector<Ahead> ahead(joint.steps.size());
  for (size_t s = joint.steps.size(); s-- > 0;) {
    const learner::JointStep& step = joint.steps[s];
    const JointParts parts = PartsOf(joint, step, rows);
    const Ahead next = step.next >= 0 ? ahead[static_cast<size_t>(step.next)] : Ahead{0, step.step};
    const double passed = options.by_env_step ? std::pow(options.gamma, next.step - step.step) : 1.0;
    if (!parts.acts) {
      ahead[s] = parts.ends ? Ahead{parts.finals + passed * next.value, step.step} : next;
      continue;
    }
    const double target = parts.rewards + (options.by_env_step ? passed : options.gamma) * next.value;
    targets[s] = static_cast<float>(target);
    ahead[s] = {parts.finals + options.lambda * target + (1 - options.lambda) * parts.greatest, step.step};
  }
  return targets;
}

}  // namespace troupe::training
