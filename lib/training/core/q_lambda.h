#pragma once

#include <vector>

#include "absl/types/span.h"
#include "lib/learner/train_batch.h"
#include "lib/training/core/row_uses.h"

namespace troupe::training {

/// How Q(lambda) looks ahead.
struct QLambda {
  double gamma = 0.99;
  double lambda = 0.65;              ///< 0: one-step Q-learning; 1: discounted returns of what was done
  bool time_limit_bootstrap = true;  ///< false: nothing comes after a segment that was truncated
  /// gamma discounts env steps (learner::PolicyTrainBatch::waits), not decisions. lambda stays per decision.
  bool by_env_step = false;
};

/// Greatest values of allowed actions.
struct GreatestValues {
  absl::Span<const float> rows;    ///< [rows]
  absl::Span<const float> finals;  ///< [final_rows]
};

/// Targets of action values, [rows]: Q(lambda) as PQN has it (Gallici et al. 2025, arXiv 2407.04811, algorithm 1),
///   G_t = r_t + gamma (lambda G_t+1 + (1 - lambda) max_a Q(s_t+1, a)),
/// a segment at a time. After a segment's last row the greatest value of its final row stands for both, or 0 when the
/// segment terminated. A row that does not count (a dead agent's, RowUses) has no value that is trained: what comes
/// before it ends there, as a segment that terminated. Its own target is its reward.
std::vector<float> QLambdaTargets(const learner::PolicyTrainBatch& batch, const RowUses& uses,
                                  const GreatestValues& greatest, const QLambda& options);

/// A policy of a team.
struct TeamMember {
  const learner::PolicyTrainBatch& batch;
  const RowUses& uses;
  GreatestValues greatest;
};

/// Targets of a team's action values, [joint steps]: the same where the value of a joint step is the sum of its agents'
/// (value decomposition networks, Sunehag et al. 2018). Rows and final rows of `members` alone are its agents'; a joint
/// step without any of them is passed over, and has the target 0.
///
/// An agent's part in a joint step is its row there, if it counts. The reward is the sum of these rows'. The value that
/// comes after is the sum over the agents at the team's next joint step (learner::JointStep::next):
///   - of one that acts there its greatest value, a part of what lambda weighs against the target of that step;
///   - of one whose segment ends there without acting (cut or truncated) its final row's greatest value, whatever
///     lambda is, since no later target has a part for it. Only where its last row counts.
/// So one that left, or died, has no part from then on. One that waits has none until it acts again: its reward while
/// it waits is in the row before, and others' values stand for the team's meanwhile. A joint step at which agents end
/// and none acts is worth these ends and what comes after it. Where no joint step follows, nothing comes after.
///
/// gamma applies once between joint steps at which the team acts, or once an env step (QLambda::by_env_step).
std::vector<float> TeamQLambdaTargets(const learner::JointSteps& joint, absl::Span<const TeamMember> members,
                                      const QLambda& options);

}  // namespace troupe::training
