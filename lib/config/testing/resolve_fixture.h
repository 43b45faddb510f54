#pragma once

#include <cmath>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "lib/config/resolved_run.h"
#include <gtest/gtest.h>

namespace troupe::config {

/// An environment that is only asked for its spec.
class SpecEnv final : public env::MultiAgentEnv {
 public:
  explicit SpecEnv(env::EnvSpec spec) : spec_(std::move(spec)) {}
  const env::EnvSpec& spec() const override { return spec_; }
  absl::Status Reset(const env::EpisodeSeed&, env::StepWriter&) override { return absl::OkStatus(); }
  absl::Status Step(env::ActionRows, env::StepWriter&) override { return absl::OkStatus(); }

 private:
  const env::EnvSpec spec_;
};

inline env::AgentSpec Agent(const std::string& id, space::Space observation, space::Space action, bool mask = false) {
  return {env::AgentId(id), std::move(observation), std::move(action), mask};
}

inline env::EnvSpec Spec(const std::string& name, std::vector<env::AgentSpec> agents) {
  env::EnvSpec spec;
  spec.name = name;
  spec.possible_agents = std::move(agents);
  return spec;
}

/// What a policy's algorithm has under a key; its type's nothing where the key is not set or of another type.
template <typename Value>
Value Option(const ResolvedRun& run, size_t slot, std::string_view key) {
  const auto& options = run.algorithms.at(slot).options;
  const auto found = options.find(key);
  const Value* const value = found == options.end() ? nullptr : std::get_if<Value>(&found->second);
  EXPECT_NE(value, nullptr) << key;
  return value == nullptr ? Value{} : *value;
}
inline int64_t MinibatchSize(const ResolvedRun& run, size_t slot) {
  return Option<int64_t>(run, slot, "minibatch_size");
}
inline double FirstLr(const ResolvedRun& run, size_t slot) { return Option<double>(run, slot, "lr"); }

/// Environments of many shapes by name, and what a configuration resolves to among them.
class ResolveFixture : public testing::Test {
 protected:
  ResolveFixture() {
    const space::Space obs3 = *space::Space::Box(-1, 1, {3});
    const space::Space obs2 = *space::Space::Box(-1, 1, {2});
    const space::Space go = *space::Space::Discrete(5);
    Add(Spec("team", {Agent("agent_0", obs3, go), Agent("agent_1", obs3, go), Agent("agent_2", obs3, go)}));
    Add(Spec("mixed", {Agent("wolf_0", obs3, go), Agent("wolf_1", obs3, go), Agent("sheep", obs2, go)}));
    Add(Spec("continuous", {Agent("a", obs3, *space::Space::Box(-2, 2, {2}))}));
    Add(Spec("unbounded", {Agent("a", obs3, *space::Space::Box(-INFINITY, INFINITY, {2}))}));
    Add(Spec("integer",
             {Agent("a", obs3, *space::Space::Tuple({go, *space::Space::Box(0, 3, {2}, tensor::DType::kInt32)}))}));
    Add(Spec("masked", {Agent("a", obs3, go, true), Agent("b", obs3, go, true)}));
    Add(Spec("odd name", {Agent("an agent", obs3, go)}));
    env::EnvSpec state = Spec("state", {Agent("a", obs3, go), Agent("b", obs3, go)});
    state.state_kind = env::StateKind::kPerEnv;
    state.state_space = *space::Space::Box(-1, 1, {7});
    state.has_agent_mask = true;
    state.info_columns = {"hits"};
    Add(state);
  }

  void Add(const env::EnvSpec& spec) {
    registry_.Register(
        {spec.name, "for tests", [spec](env::EnvArgs args) -> absl::StatusOr<std::unique_ptr<env::MultiAgentEnv>> {
           const absl::StatusOr<int64_t> size = args.GetInt("N", 3, 1, 10);
           if (!size.ok()) return size.status();
           if (const absl::Status known = args.CheckAllKnown(spec.name); !known.ok()) return known;
           return std::make_unique<SpecEnv>(spec);
         }});
  }

  absl::StatusOr<ResolvedRun> TryResolve(const std::string& yaml, const std::vector<std::string>& overrides = {}) {
    const absl::StatusOr<RunConfig> config = RunConfig::FromYaml(yaml, "run.yaml", overrides);
    if (!config.ok()) return config.status();
    return ResolveRun(*config, registry_);
  }

  ResolvedRun Resolve(const std::string& yaml, const std::vector<std::string>& overrides = {}) {
    absl::StatusOr<ResolvedRun> run = TryResolve(yaml, overrides);
    EXPECT_TRUE(run.ok()) << run.status();
    return run.ok() ? *run : ResolvedRun();
  }

  std::string ErrorOf(const std::string& yaml, const std::vector<std::string>& overrides = {}) {
    const absl::StatusOr<ResolvedRun> run = TryResolve(yaml, overrides);
    return run.ok() ? "OK" : std::string(run.status().message());
  }

  env::EnvRegistry registry_;
};

}  // namespace troupe::config
