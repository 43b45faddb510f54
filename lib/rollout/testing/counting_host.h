#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "lib/inference/actor_host.h"
#include "lib/policy/policy_class.h"
#include "lib/policy/policy_spec.h"
#include "lib/rollout/rollout_config.h"
#include <gtest/gtest.h>

namespace troupe::rollout {

/// An agent in its episode: env id, episode, slot.
using AgentKey = std::tuple<uint32_t, uint32_t, int32_t>;

/// What a counting policy remembers of an agent before the decision of that number: the number, the step of the
/// decision before and whose it is, again and again; zeros before the first one.
inline std::vector<float> Counted(const AgentKey& agent, int64_t number, int64_t last_step, int64_t size) {
  if (number == 0) return std::vector<float>(static_cast<size_t>(size));
  const auto& [env_id, episode, slot] = agent;
  const float words[4] = {static_cast<float>(number), static_cast<float>(last_step),
                          static_cast<float>(env_id * 64 + static_cast<uint32_t>(slot)), static_cast<float>(episode)};
  std::vector<float> state;
  for (int64_t i = 0; i < size; ++i) state.push_back(words[i % 4]);
  return state;
}

/// Makes policies that remember how often they have decided for an agent (Counted), and say the number as the
/// decision's log-probability: a state that is lost, or another agent's, shows in the next row. Used by one thread.
class CountingHost final : public inference::ActorHost {
 public:
  struct Decision {
    inference::RowKey key;
    int64_t number = 0;  ///< as the policy remembers it
  };

  absl::StatusOr<std::unique_ptr<inference::PolicyActor>> MakeActor(const policy::PolicySpec& spec,
                                                                    uint64_t /*seed*/) override {
    return std::make_unique<Counter>(*this, spec);
  }

  int failures = 0;  ///< so often acting fails from now on, where a row is of an episode's third step
  std::vector<Decision> decisions;

 private:
  class Counter final : public inference::PolicyActor {
   public:
    Counter(CountingHost& host, const policy::PolicySpec& spec)
        : host_(host), words_(spec.action_words()), size_(spec.actor_state_size()) {}
    bool runs_elsewhere() const override { return true; }
    absl::Status SetWeights(policy::WeightSnapshotPtr) override { return absl::FailedPreconditionError("none"); }
    absl::Status Act(const inference::ActInput& input, space::ActionWord* actions, float* logp) override {
      std::fill_n(actions, input.rows * words_, space::ActionWord{.i32 = 1});
      for (int64_t row = 0; row < input.rows; ++row) {
        const inference::RowKey& key = input.keys[row];
        const AgentKey agent(key.env_id.value(), key.episode, key.slot.value());
        const float* const before = input.state_in + row * size_;
        const auto number = static_cast<int64_t>(before[0]);
        EXPECT_EQ(std::vector<float>(before, before + size_),
                  Counted(agent, number, static_cast<int64_t>(before[1]), size_))
            << "env " << key.env_id.value() << " episode " << key.episode << " slot " << key.slot.value() << " step "
            << key.env_step;
        const std::vector<float> after = Counted(agent, number + 1, key.env_step, size_);
        std::copy(after.begin(), after.end(), input.state_out + row * size_);
        logp[row] = static_cast<float>(number);
        host_.decisions.push_back({key, number});
        // What was written of the others is as good as nothing.
        if (key.env_step == 2 && host_.failures-- > 0) return absl::UnavailableError("its process ended");
      }
      return absl::OkStatus();
    }

   private:
    CountingHost& host_;
    const int64_t words_, size_;
  };
};

/// The policy counts, with a state of `core`'s size.
inline void MakeCounting(policy::PolicySpec& spec, const policy::CoreSpec& core, int64_t sequence_length) {
  spec.policy_class = *policy::ParsePolicyClass("python:mine:counts");
  spec.action_bound_method = policy::ActionBoundMethod::kNone;
  spec.actor.core = core;
  spec.sequence_length = sequence_length;
}

}  // namespace troupe::rollout
