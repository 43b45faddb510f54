// Rollout on one core: mpe/simple_spread, 64 environments, three agents, actor 18-64-64-5 with tanh; everything a
// worker does but the network: env step, inference, sampling, log-probability, recording of fragments. Beside it, in
// the same run and interleaved, what bounds it: the environments alone, inference alone, and the matrix products of
// inference alone; and the same rollout over many policies, one drawn for each agent and episode. Heap allocations are
// counted by replacing malloc.
//
//   taskset -c 0 build/release/bench/rollout_bench [--repetitions N] [--back_end auto|eigen|avx2|avx512] [--policies N]
//
// Medians over the repetitions; a repetition of each takes about 0.2 s.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "bench/forward_options.h"
#include "bench/random_policy.h"
#include "lib/base/philox.h"
#include "lib/env/checked_env.h"
#include "lib/env/registry.h"
#include "lib/env/slot_buffers.h"
#include "lib/envs/register_all.h"
#include "lib/inference/actor.h"
#include "lib/policy/policy_mapping.h"
#include "lib/rollout/collector.h"
#include "lib/rollout/testing/fixed_weights.h"
#include "lib/rollout/testing/malloc_counter.h"

namespace troupe {
namespace {

constexpr uint32_t kNumEnvs = 64;
constexpr int32_t kGrantEnvSteps = 50;  // of each environment: two episodes

class AllToOne final : public policy::PolicyMapping {
 public:
  absl::StatusOr<policy::PolicySlot> Map(const base::AgentId&, base::AgentSlot,
                                         const policy::EpisodeInfo&) const override {
    return policy::PolicySlot(0);
  }
};

class DroppingSink final : public rollout::SampleSink {
 public:
  absl::Status Submit(sample::MultiAgentBatchPtr fragment) override {
    bytes += static_cast<int64_t>(fragment->policies.at(0).obs.bytes());
    return absl::OkStatus();
  }
  int64_t bytes = 0;
};

constexpr char kProgram[] = "rollout_bench";

void Check(const absl::Status& status) { bench::Check(kProgram, status); }

double Seconds(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// One thing that is measured.
struct Leg {
  std::string name;
  int64_t agent_steps;  ///< of one call
  std::function<void()> call;
  std::vector<double> ns_per_agent_step = {};
  int64_t allocations = 0;
  int64_t counted_agent_steps = 0;

  double median() const { return bench::MedianOf(ns_per_agent_step); }
};

env::EpisodeSeed SeedOf(uint32_t env, uint32_t episode) { return {1, base::EnvId(env), episode}; }

inference::RowKey KeyOf(int64_t row, int64_t num_agents) {
  return {base::EnvId(static_cast<uint32_t>(row / num_agents)), 0,
          base::AgentSlot(static_cast<int32_t>(row % num_agents)), 0};
}

int Main(int argc, char** argv) {
  int repetitions = 9;
  int num_policies = 500;
  inference::Backend back_end = inference::Backend::kAuto;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i], value = argv[i + 1];
    if (flag == "--repetitions") repetitions = std::max(1, std::atoi(value.c_str()));
    if (flag == "--policies") num_policies = std::max(1, std::atoi(value.c_str()));
    if (flag == "--back_end") back_end = bench::BackendOrExit(kProgram, value);
  }

  env::EnvRegistry registry;
  envs::RegisterAllEnvs(registry);
  const rollout::EnvFactory factory = [&registry] { return registry.Make("mpe/simple_spread", env::EnvArgs()); };
  auto probe = factory();
  Check(probe.status());
  const env::EnvSpec env_spec = (*probe)->spec();
  const int64_t num_agents = env_spec.num_agents();

  policy::PolicySpec spec;
  spec.id = policy::PolicyId("shared");
  spec.observation_space = env_spec.possible_agents[0].observation_space;
  spec.action_space = env_spec.possible_agents[0].action_space;
  const policy::WeightSnapshotPtr weights = RandomWeights(spec);
  policy::PolicySpec linear = spec;
  linear.SetActivation(policy::Activation::kIdentity);

  // Everything.
  rollout::RolloutConfig config;
  config.env_spec = env_spec;
  config.policies = {spec};
  config.mapping = std::make_shared<AllToOne>();
  config.env_factory = factory;
  config.backend = back_end;
  auto collector = rollout::Collector::Create(config);
  Check(collector.status());
  // The same with many policies.
  rollout::RolloutConfig many_config = config;
  many_config.policies.clear();
  many_config.options.policy_map_capacity = num_policies;
  policy::BySlot<policy::PolicyId> ids;
  std::vector<policy::WeightSnapshotPtr> many_weights;
  policy::MappingRule rule = {"*", {}};
  for (int p = 0; p < num_policies; ++p) {
    ids.push_back(policy::PolicyId(absl::StrCat("p", p)));
    rule.policies.push_back({ids.back(), 1});
    many_config.policies.push_back(spec);
    many_config.policies.back().id = ids.back();
    many_weights.push_back(RandomWeights(many_config.policies.back(), static_cast<uint32_t>(p)));
  }
  std::vector<std::string> agents;
  for (const env::AgentSpec& agent : env_spec.possible_agents) agents.emplace_back(agent.id.value());
  auto mapping = policy::MakeRuleMapping({rule}, agents, ids);
  Check(mapping.status());
  many_config.mapping = *std::move(mapping);
  auto many_collector = rollout::Collector::Create(many_config);
  Check(many_collector.status());
  const std::string many_name = absl::StrCat("rollout over ", num_policies, " policies");
  sample::Grant grant;
  for (uint32_t e = 0; e < kNumEnvs; ++e) grant.lanes.push_back({base::EnvId(e), 0, false, kGrantEnvSteps});
  DroppingSink sink;

  // The environments, with fixed actions and rows that nobody reads.
  std::vector<std::unique_ptr<env::MultiAgentEnv>> envs;
  env::SlotBuffers buffers(env_spec, kNumEnvs);
  uint32_t episode = 0;
  std::vector<space::ActionWord> words(static_cast<size_t>(num_agents));
  std::vector<const space::ActionWord*> actions;
  for (int64_t a = 0; a < num_agents; ++a) {
    words[static_cast<size_t>(a)].i32 = static_cast<int32_t>(1 + a % 4);
    actions.push_back(&words[static_cast<size_t>(a)]);
  }
  for (uint32_t e = 0; e < kNumEnvs; ++e) {
    auto env = factory();
    Check(env.status());
    envs.push_back(std::make_unique<env::CheckedEnv>(*std::move(env)));
    Check(envs.back()->Reset({1, base::EnvId(e), episode}, buffers.BeginStep(static_cast<int>(e))));
  }
  const auto step_envs = [&] {
    for (int s = 0; s < kGrantEnvSteps; ++s) {
      for (uint32_t e = 0; e < kNumEnvs; ++e) {
        const int index = static_cast<int>(e);
        Check(envs[e]->Step(actions, buffers.BeginStep(index)));
        if (buffers.all_done(index)) Check(envs[e]->Reset(SeedOf(e, ++episode), buffers.BeginAutoReset(index)));
      }
    }
  };

  // Inference, on rows that look like the environment's.
  const int64_t rows = num_agents * kNumEnvs;
  std::vector<float> obs(static_cast<size_t>(rows * spec.observation_size()));
  base::PhiloxSequence random(base::PhiloxKey::Make(2, base::RandomStream::kTest), {});
  for (float& x : obs) x = static_cast<float>(random.Uniform(-1.5, 1.5));
  std::vector<inference::RowKey> keys(static_cast<size_t>(rows));
  for (int64_t r = 0; r < rows; ++r) keys[static_cast<size_t>(r)] = KeyOf(r, num_agents);
  std::vector<space::ActionWord> sampled(static_cast<size_t>(rows));
  std::vector<float> logp(static_cast<size_t>(rows)), outputs(static_cast<size_t>(rows * spec.actor_output_size()));
  auto actor = inference::Actor::Create(spec, 1, back_end);
  auto products = inference::Actor::Create(linear, 1, back_end);
  Check(actor.status());
  Check(products.status());
  Check((*actor)->SetWeights(weights));
  Check((*products)->SetWeights(weights));
  const auto act = [&] {
    for (int s = 0; s < kGrantEnvSteps; ++s) {
      for (inference::RowKey& key : keys) ++key.env_step;
      Check((*actor)->Act({rows, obs.data(), nullptr, keys.data()}, sampled.data(), logp.data()));
    }
  };
  const auto multiply = [&] {
    for (int s = 0; s < kGrantEnvSteps; ++s)
      Check((*products)->Forward({rows, obs.data(), nullptr, keys.data()}, absl::MakeSpan(outputs)));
  };

  const int64_t agent_steps = rows * kGrantEnvSteps;
  rollout::FixedWeights fixed({weights});
  rollout::FixedWeights many_fixed(many_weights);
  std::vector<Leg> legs = {
      {"rollout (everything)", agent_steps, [&] { Check((*collector)->RunGrant(grant, fixed, sink)); }},
      {many_name, agent_steps, [&] { Check((*many_collector)->RunGrant(grant, many_fixed, sink)); }},
      {"environments only", agent_steps, step_envs},
      {"inference only (forward, sample, log-prob)", agent_steps, act},
      {"matrix products of inference only", agent_steps, multiply},
  };
  for (Leg& leg : legs) {
    for (int i = 0; i < 12; ++i) leg.call();  // buffers grow to their size
  }
  for (int repetition = 0; repetition < repetitions; ++repetition) {
    for (Leg& leg : legs) {
      int64_t calls = 0;
      double seconds = 0;
      const int64_t before = rollout::AllocationCount();
      while (seconds < 0.2) {
        seconds += Seconds(leg.call);
        ++calls;
      }
      leg.allocations += rollout::AllocationCount() - before;
      leg.counted_agent_steps += calls * leg.agent_steps;
      leg.ns_per_agent_step.push_back(seconds * 1e9 / static_cast<double>(calls * leg.agent_steps));
    }
  }

  std::printf(
      "mpe/simple_spread, %u environments x %ld agents, actor %ld-64-64-%ld tanh, back end %s, one thread, median of "
      "%d\n",
      kNumEnvs, static_cast<long>(num_agents), static_cast<long>(spec.observation_size()),
      static_cast<long>(spec.actor_output_size()), std::string((*actor)->backend_name()).c_str(), repetitions);
  std::printf("%-46s %16s %14s %22s\n", "", "agent-steps/s", "ns/agent-step", "allocations/1M steps");
  for (Leg& leg : legs) {
    std::printf("%-46s %16.0f %14.1f %22.2f\n", leg.name.c_str(), 1e9 / leg.median(), leg.median(),
                1e6 * static_cast<double>(leg.allocations) / static_cast<double>(leg.counted_agent_steps));
  }
  std::printf("%s: %.2f of the rate of one\n", many_name.c_str(), legs[0].median() / legs[1].median());
  const double floor = legs[2].median() + legs[3].median();
  std::printf(
      "rollout at %.2f of its floor (environments + inference, %.0f agent-steps/s); recording and the loop take %.1f "
      "ns\n",
      floor / legs[0].median(), 1e9 / floor, legs[0].median() - floor);
  const rollout::RolloutStats stats = (*collector)->stats();
  std::printf("fragments %ld, of %ld agent steps each; allocations of the rollout are those of handing them over\n",
              static_cast<long>(stats.fragments), static_cast<long>(stats.agent_steps / stats.fragments));
  return 0;
}

}  // namespace
}  // namespace troupe

int main(int argc, char** argv) { return troupe::Main(argc, argv); }
