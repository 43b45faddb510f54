// Environment steps per second on one core with random actions, and what bounds them: an environment of the same shape
// that only writes its rows (floor), and the share of drawing actions and of CheckedEnv.
//
//   build/release/bench/env_bench [--benchmark_repetitions=5 --benchmark_report_aggregates_only=true]
//
// items_per_second are env steps. One iteration steps 64 environments once, automatic resets included.

#include <memory>
#include <utility>
#include <vector>

#include "benchmark/benchmark.h"
#include "lib/env/checked_env.h"
#include "lib/env/registry.h"
#include "lib/env/vector_env.h"
#include "lib/envs/register_all.h"

namespace troupe {
namespace {

constexpr int kNumEnvs = 64;

/// Writes rows of the spec's shape and does nothing else: what no environment behind this interface can beat.
class WriteOnlyEnv final : public env::MultiAgentEnv {
 public:
  explicit WriteOnlyEnv(env::EnvSpec spec) : spec_(std::move(spec)) {}
  const env::EnvSpec& spec() const override { return spec_; }
  absl::Status Reset(const env::EpisodeSeed&, env::StepWriter& out) override {
    step_ = 0;
    return Write(out);
  }
  absl::Status Step(env::ActionRows, env::StepWriter& out) override {
    for (int32_t i = 0; i < spec_.num_agents(); ++i) out.AddReward(env::AgentSlot(i), 1.0f);
    const absl::Status status = Write(out);
    if (++step_ == spec_.max_episode_steps) out.TruncateAll();
    return status;
  }

 private:
  absl::Status Write(env::StepWriter& out) {
    const float value = static_cast<float>(step_);
    if (spec_.state_kind == env::StateKind::kPerEnv)
      std::fill_n(out.State(env::AgentSlot(0)), spec_.state_space.flat_size(), value);
    for (int32_t i = 0; i < spec_.num_agents(); ++i) {
      std::fill_n(out.ObserveFloat(env::AgentSlot(i)),
                  spec_.possible_agents[static_cast<size_t>(i)].observation_space.flat_size(), value);
    }
    return absl::OkStatus();
  }

  const env::EnvSpec spec_;
  int64_t step_ = 0;
};

enum class Wrap { kPlain, kChecked, kFloor };
enum class Actions { kRandom, kFixed };

void Run(benchmark::State& state, const char* name, env::ArgMap args, Wrap wrap, Actions kind) {
  env::EnvRegistry registry;
  envs::RegisterAllEnvs(registry);
  std::vector<std::unique_ptr<env::MultiAgentEnv>> envs;
  for (int i = 0; i < kNumEnvs; ++i) {
    auto env = registry.Make(name, env::EnvArgs(args));
    if (!env.ok()) return state.SkipWithError(std::string(env.status().message()).c_str());
    if (wrap == Wrap::kFloor) *env = std::make_unique<WriteOnlyEnv>((*env)->spec());
    if (wrap == Wrap::kChecked) *env = std::make_unique<env::CheckedEnv>(*std::move(env));
    envs.push_back(*std::move(env));
  }
  auto vector = env::VectorEnv::Make(std::move(envs), {});
  if (!vector.ok() || !(*vector)->Reset().ok()) return state.SkipWithError("cannot start");
  std::vector<space::ActionWord> actions((*vector)->action_size());
  (*vector)->SampleActions(absl::MakeSpan(actions));
  for (auto _ : state) {
    if (kind == Actions::kRandom) (*vector)->SampleActions(absl::MakeSpan(actions));
    const absl::Status status = (*vector)->Step(actions);
    if (!status.ok()) return state.SkipWithError(std::string(status.message()).c_str());
  }
  state.SetItemsProcessed((*vector)->env_steps());
  state.counters["agent_steps/s"] =
      benchmark::Counter(static_cast<double>((*vector)->agent_steps()), benchmark::Counter::kIsRate);
}

const env::ArgMap kNone;
const env::ArgMap kTenAgents = {{"N", int64_t{10}}};
const env::ArgMap kContinuous = {{"continuous_actions", true}};
const env::ArgMap kNeighbours = {{"num_agent_neighbors", int64_t{1}}, {"num_landmark_neighbors", int64_t{2}}};

BENCHMARK_CAPTURE(Run, spread_random_actions, "mpe/simple_spread", kNone, Wrap::kPlain, Actions::kRandom);
BENCHMARK_CAPTURE(Run, spread_random_actions_checked, "mpe/simple_spread", kNone, Wrap::kChecked, Actions::kRandom);
BENCHMARK_CAPTURE(Run, spread_fixed_actions, "mpe/simple_spread", kNone, Wrap::kPlain, Actions::kFixed);
BENCHMARK_CAPTURE(Run, spread_fixed_actions_checked, "mpe/simple_spread", kNone, Wrap::kChecked, Actions::kFixed);
BENCHMARK_CAPTURE(Run, spread_floor_random_actions, "mpe/simple_spread", kNone, Wrap::kFloor, Actions::kRandom);
BENCHMARK_CAPTURE(Run, spread_floor_fixed_actions, "mpe/simple_spread", kNone, Wrap::kFloor, Actions::kFixed);
BENCHMARK_CAPTURE(Run, spread_continuous_random_actions, "mpe/simple_spread", kContinuous, Wrap::kPlain,
                  Actions::kRandom);
BENCHMARK_CAPTURE(Run, spread_neighbours_random_actions, "mpe/simple_spread", kNeighbours, Wrap::kPlain,
                  Actions::kRandom);
BENCHMARK_CAPTURE(Run, spread_10_agents_random_actions, "mpe/simple_spread", kTenAgents, Wrap::kPlain,
                  Actions::kRandom);
BENCHMARK_CAPTURE(Run, cartpole_random_actions, "cartpole", kNone, Wrap::kPlain, Actions::kRandom);
BENCHMARK_CAPTURE(Run, cartpole_random_actions_checked, "cartpole", kNone, Wrap::kChecked, Actions::kRandom);
BENCHMARK_CAPTURE(Run, cartpole_floor_random_actions, "cartpole", kNone, Wrap::kFloor, Actions::kRandom);

}  // namespace
}  // namespace troupe
