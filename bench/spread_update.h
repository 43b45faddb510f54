#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "lib/base/philox.h"
#include "lib/learner/train_batch.h"
#include "lib/policy/policy_spec.h"
#include "lib/tensor/buffer.h"
#include "lib/training/ppo/ppo_options.h"

namespace troupe::training {

/// The update that benches measure: MAPPO on simple_spread with 3 agents, whose actor sees its observation and who it
/// is, and whose critic sees what all observe.
struct SpreadUpdate {
  static constexpr int64_t kAgents = 3;
  static constexpr int64_t kObservation = 18;
  static constexpr int64_t kState = kAgents * kObservation + kAgents;
  static constexpr int64_t kActions = 5;
  static constexpr int64_t kSteps = 25;  ///< of an episode

  /// Actor 21-H-H-5 and critic 57-H-H-1 with tanh, H = `hidden`.
  static policy::PolicySpec Spec(int64_t hidden = 64) {
    policy::PolicySpec spec;
    spec.id = policy::PolicyId("shared");
    spec.observation_space = *space::Space::Box(-100, 100, {kObservation});
    spec.action_space = *space::Space::Discrete(kActions);
    spec.agent_id_size = kAgents;
    spec.SetCriticInput(policy::NetworkInput::kJointObservation, kState);
    spec.actor.hidden_sizes = {hidden, hidden};
    spec.mutable_critic()->hidden_sizes = {hidden, hidden};
    return spec;
  }

  static PpoOptions Options(int64_t epochs, int64_t minibatch_size) {
    PpoOptions options;
    options.learning_rate = 7e-4;
    options.gamma = 0.95;
    options.huber_delta = 10;
    options.max_grad_norm = 10;
    options.num_epochs = epochs;
    options.minibatch_size = minibatch_size;
    return options;
  }

  /// Multiplications and additions of one pass over a row, forward and backward, of both networks.
  static double FlopsPerRow(int64_t hidden) {
    const double h = static_cast<double>(hidden);
    const double products = (kObservation + kAgents + h + kActions) * h + (kState + h + 1) * h;
    return 6 * products;
  }
  /// What an update computes of that: gradients of the inputs are not needed.
  static double UpdateFlopsPerRow(int64_t hidden) {
    return FlopsPerRow(hidden) - 2 * static_cast<double>((kObservation + kAgents + kState) * hidden);
  }
};

/// `rows` rows of it as the assembler lays them out: an agent's episode after another. Numbers do not matter, only that
/// they are usual. Not movable: `batch` points into it.
class SpreadRows {
 public:
  explicit SpreadRows(int64_t rows) {
    constexpr int64_t kAgents = SpreadUpdate::kAgents;
    constexpr int64_t kSteps = SpreadUpdate::kSteps;
    const int64_t envs = (rows + kAgents * kSteps - 1) / (kAgents * kSteps);
    base::PhiloxSequence random(base::PhiloxKey::Make(1, base::RandomStream::kTest), {});
    const auto fill = [&](std::vector<float>* values, int64_t size) {
      values->resize(static_cast<size_t>(size));
      for (float& value : *values) value = static_cast<float>(random.Normal());
    };
    learner::PolicyTrainBatch all;
    while (static_cast<int64_t>(slot_.size()) < rows) {
      const int64_t trajectory = static_cast<int64_t>(final_slot_.size());
      const int32_t env = static_cast<int32_t>(trajectory / kAgents);
      const int32_t agent = static_cast<int32_t>(trajectory % kAgents);
      const int64_t steps = std::min(kSteps, rows - static_cast<int64_t>(slot_.size()));
      all.segments.push_back({static_cast<int64_t>(slot_.size()), steps, trajectory,
                              base::EnvId(static_cast<uint32_t>(env)), 0, base::AgentSlot(agent)});
      for (int64_t step = 0; step < steps; ++step) {
        slot_.push_back(agent);
        critic_row_.push_back(env * static_cast<int32_t>(kSteps) + static_cast<int32_t>(step));
        space::ActionWord action;
        action.i32 = static_cast<int32_t>(random.Below(SpreadUpdate::kActions));
        actions_.push_back(action);
      }
      final_slot_.push_back(agent);
      final_critic_row_.push_back(static_cast<int32_t>(envs * kSteps) + env);
    }
    all.policy = policy::PolicySlot(0);
    all.rows = rows;
    all.final_rows = static_cast<int64_t>(final_slot_.size());
    all.critic_rows = envs * kSteps + envs;
    const auto fill_rows = [&](tensor::Buffer* buffer, int64_t matrix_rows, int64_t inputs, int64_t columns) {
      const int64_t stride = learner::RowMatrix::PaddedStride(columns);
      const auto elements = static_cast<size_t>(matrix_rows * stride);
      *buffer = tensor::Buffer(elements * sizeof(float));
      const absl::Span<float> values = buffer->As<float>(0, elements);
      std::fill(values.begin(), values.end(), 0.0f);
      for (int64_t row = 0; row < matrix_rows; ++row) {
        for (int64_t c = 0; c < inputs; ++c) values[row * stride + c] = static_cast<float>(random.Normal());
      }
      return learner::RowMatrix{values.data(), matrix_rows, columns, stride};
    };
    const learner::RowMatrix obs =
        fill_rows(&obs_, rows + all.final_rows, SpreadUpdate::kObservation, SpreadUpdate::kObservation + kAgents);
    for (int64_t row = 0; row < obs.rows; ++row) {
      const int32_t agent = row < rows ? slot_[row] : final_slot_[row - rows];
      obs_.As<float>(
          0, static_cast<size_t>(obs.rows * obs.stride))[row * obs.stride + SpreadUpdate::kObservation + agent] = 1;
    }
    fill(&rewards_, rows);
    logp_.assign(static_cast<size_t>(rows), -1.6094379f);
    all.obs = obs.Rows(0, rows);
    all.actions = actions_;
    all.action_logp = logp_;
    all.rewards = rewards_;
    all.slot = slot_;
    all.critic_row = critic_row_;
    all.final_obs = obs.Rows(rows, all.final_rows);
    all.final_slot = final_slot_;
    all.final_critic_row = final_critic_row_;
    all.critic_state = fill_rows(&state_, all.critic_rows, SpreadUpdate::kState, SpreadUpdate::kState);
    batch.env_steps = envs * kSteps;
    batch.agent_steps = rows;
    batch.policies.push_back(all);
  }
  SpreadRows(const SpreadRows&) = delete;
  SpreadRows& operator=(const SpreadRows&) = delete;

  learner::TrainBatch batch;

 private:
  tensor::Buffer obs_, state_;
  std::vector<float> rewards_, logp_;
  std::vector<space::ActionWord> actions_;
  std::vector<int32_t> slot_, final_slot_, critic_row_, final_critic_row_;
};

}  // namespace troupe::training
