#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lib/env/multi_agent_env.h"

namespace troupe::env::testing {

/// A spec of `num_agents` agents "agent_0", … with observation Box(-1, 1, [2]) and Discrete(3), for tests.
inline EnvSpec SmallSpec(int num_agents) {
  EnvSpec spec;
  spec.name = "test/scripted";
  for (int i = 0; i < num_agents; ++i) {
    spec.possible_agents.push_back({.id = AgentId("agent_" + std::to_string(i)),
                                    .observation_space = *space::Space::Box(-1, 1, {2}),
                                    .action_space = *space::Space::Discrete(3)});
  }
  return spec;
}

/// An environment that does what a function says: t = 0 is Reset, t = 1 the first Step. For tests.
class ScriptedEnv final : public MultiAgentEnv {
 public:
  using Script = std::function<absl::Status(int64_t t, ActionRows actions, StepWriter& out)>;

  ScriptedEnv(EnvSpec spec, Script script) : spec_(std::move(spec)), script_(std::move(script)) {}

  const EnvSpec& spec() const override { return spec_; }
  absl::Status Reset(const EpisodeSeed& seed, StepWriter& out) override {
    seed_ = seed;
    t_ = 0;
    return script_(0, {}, out);
  }
  absl::Status Step(ActionRows actions, StepWriter& out) override { return script_(++t_, actions, out); }

  const EpisodeSeed& seed() const { return seed_; }

 private:
  const EnvSpec spec_;
  const Script script_;
  EpisodeSeed seed_;
  int64_t t_ = 0;
};

/// Observes `slot` as [value, value].
inline void ObserveAs(StepWriter& out, int32_t slot, float value) {
  float* row = out.ObserveFloat(AgentSlot(slot));
  row[0] = value;
  row[1] = value;
}

}  // namespace troupe::env::testing
