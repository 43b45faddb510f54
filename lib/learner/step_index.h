#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "lib/learner/joint_step_builder.h"
#include "lib/sample/batch_fwd.h"

namespace troupe::learner {

/// Numbers the env steps of a batch: each distinct (env id, episode, step) of its fragments is one global step, counted
/// in that order from 0. Owned by the assembler; keeps its memory from batch to batch. Not thread-safe.
class StepIndex {
 public:
  /// Of validated fragments whose env ids are below `num_envs`. Valid until the next call.
  void Build(absl::Span<const sample::MultiAgentBatchPtr> fragments, uint32_t num_envs);

  /// By global step: the env row where its state lies. Of several that is one where agents acted, with a state if any
  /// has one.
  const std::vector<StepRef>& steps() const { return distinct_; }
  size_t size() const { return distinct_.size(); }
  /// The global steps of a fragment, by env row; env rows that are only looked at come behind the others.
  const int32_t* Of(int32_t fragment) const { return global_.data() + offset_[static_cast<size_t>(fragment)]; }

 private:
  std::vector<StepRef> sorted_;  ///< all env rows
  std::vector<int32_t> env_counts_;
  std::vector<StepRef> distinct_;
  std::vector<int32_t> global_;  ///< by fragment and env row
  std::vector<size_t> offset_;   ///< of a fragment in global_
};

}  // namespace troupe::learner
