#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "lib/learner/train_batch.h"

namespace troupe::training {

/// Agents of one episode by the steps at which they act: a policy's columns and joint steps without observations and
/// actions. Not movable: its batch points into it.
class JointBatch {
 public:
  /// A segment of an agent.
  struct Acts {
    int32_t agent = 0;
    std::vector<int32_t> steps;
    int32_t final_step = -1;  ///< -1: the segment terminates
    bool truncated = false;
  };

  JointBatch(const std::vector<Acts>& segments, std::vector<float> rewards) : rewards_(std::move(rewards)) {
    policy_.policy = policy::PolicySlot(0);
    std::map<int32_t, std::vector<std::pair<int32_t, learner::JointEntry>>> entries;  // by step, with the agent
    std::map<int32_t, int32_t> bridges;  // by step: segments that begin less those that end
    for (const Acts& acts : segments) {
      const base::AgentSlot slot(acts.agent);
      learner::TrainSegment segment{policy_.rows,  static_cast<int64_t>(acts.steps.size()), -1, base::EnvId(0), 0, slot,
                                    acts.truncated};
      for (const int32_t step : acts.steps) {
        entries[step].push_back({2 * acts.agent, {slot, policy_.policy, static_cast<int32_t>(policy_.rows++), -1}});
        places_.push_back({step, 0});
      }
      ++bridges[acts.steps.front()];
      --bridges[acts.final_step >= 0 ? acts.final_step : acts.steps.back()];
      if (acts.final_step >= 0) {
        segment.final_row = policy_.final_rows++;
        entries[acts.final_step].push_back(
            {2 * acts.agent + 1, {slot, policy_.policy, -1, static_cast<int32_t>(segment.final_row)}});
      }
      policy_.segments.push_back(segment);
    }
    int32_t open = 0;
    for (auto& [step, of_step] : entries) {
      std::stable_sort(of_step.begin(), of_step.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
      learner::JointStep at{base::EnvId(0),
                            0,
                            step,
                            -1,
                            -1,
                            static_cast<int32_t>(joint_.entries.size()),
                            static_cast<int32_t>(of_step.size())};
      open += bridges[step];
      const auto next = entries.upper_bound(step);
      if (next != entries.end() && (open > 0 || next->first == step + 1)) {
        at.next = static_cast<int32_t>(joint_.steps.size()) + 1;
      }
      for (const auto& [_, entry] : of_step) {
        if (entry.row >= 0) places_[static_cast<size_t>(entry.row)].step = static_cast<int32_t>(joint_.steps.size());
        joint_.entries.push_back(entry);
      }
      joint_.steps.push_back(at);
    }
    policy_.rewards = rewards_;
    policy_.joint_place = places_;
  }
  JointBatch(const JointBatch&) = delete;
  JointBatch& operator=(const JointBatch&) = delete;

  void SetMask(std::vector<uint8_t> mask) {
    mask_ = std::move(mask);
    policy_.agent_mask = mask_;
  }
  void SetSequences(std::vector<learner::TrainSequence> sequences) { policy_.sequences = std::move(sequences); }

  const learner::PolicyTrainBatch& policy() const { return policy_; }
  const learner::JointSteps& joint() const { return joint_; }

 private:
  std::vector<float> rewards_;
  std::vector<uint8_t> mask_;
  std::vector<learner::JointPlace> places_;
  learner::PolicyTrainBatch policy_;
  learner::JointSteps joint_;
};

}  // namespace troupe::training
