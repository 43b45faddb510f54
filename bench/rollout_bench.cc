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
#include "lib/sample/multi_agent_batch.h"

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

struct Flags {
  int repetitions = 9;
  int num_policies = 500;
  inference::Backend back_end = inference::Backend::kAuto;
};

Flags ReadFlags(int argc, char** argv) {
  Flags flags;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i], value = argv[i + 1];
    if (flag == "--repetitions") flags.repetitions = std::max(1, std::atoi(value.c_str()));
    if (flag == "--policies") flags.num_policies = std::max(1, std::atoi(value.c_str()));
    if (flag == "--back_end") flags.back_end = bench::BackendOrExit(kProgram, value);
  }
  return flags;
}

/// What all legs play: the environment, and a policy for its agents.
struct Setting {
  rollout::EnvFactory factory;
  env::EnvSpec env_spec;
  policy::PolicySpec spec;
  policy::WeightSnapshotPtr weights;
  inference::Backend back_end;
  int64_t rows = 0;  ///< of one step of all environments
};

Setting MakeSetting(const env::EnvRegistry& registry, inference::Backend back_end) {
  Setting setting;
  setting.back_end = back_end;
  setting.factory = [&registry] { return registry.Make("mpe/simple_spread", env::EnvArgs()); };
  auto probe = setting.factory();
  Check(probe.status());
  setting.env_spec = (*probe)->spec();
  setting.rows = setting.env_spec.num_agents() * kNumEnvs;
  setting.spec.id = policy::PolicyId("shared");
  setting.spec.observation_space = setting.env_spec.possible_agents[0].observation_space;
  setting.spec.action_space = setting.env_spec.possible_agents[0].action_space;
  setting.weights = RandomWeights(setting.spec);
  return setting;
}

/// Everything a worker does but the network.
class WholeRollout {
 public:
  explicit WholeRollout(const Setting& setting) : WholeRollout(ConfigOf(setting), {setting.weights}) {}
  /// The same with many policies.
  static std::unique_ptr<WholeRollout> OfMany(const Setting& setting, int num_policies) {
    rollout::RolloutConfig config = ConfigOf(setting);
    config.policies.clear();
    config.options.policy_map_capacity = num_policies;
    policy::BySlot<policy::PolicyId> ids;
    std::vector<policy::WeightSnapshotPtr> weights;
    policy::MappingRule rule = {"*", {}};
    for (int p = 0; p < num_policies; ++p) {
      ids.push_back(policy::PolicyId(absl::StrCat("p", p)));
      rule.policies.push_back({ids.back(), 1});
      config.policies.push_back(setting.spec);
      config.policies.back().id = ids.back();
      weights.push_back(RandomWeights(config.policies.back(), static_cast<uint32_t>(p)));
    }
    std::vector<std::string> agents;
    for (const env::AgentSpec& agent : setting.env_spec.possible_agents) agents.emplace_back(agent.id.value());
    auto mapping = policy::MakeRuleMapping({rule}, agents, ids);
    Check(mapping.status());
    config.mapping = *std::move(mapping);
    return std::unique_ptr<WholeRollout>(new WholeRollout(std::move(config), std::move(weights)));
  }

  void Play() { Check(collector_->RunGrant(grant_, weights_, sink_)); }
  rollout::RolloutStats stats() const { return collector_->stats(); }

 private:
  WholeRollout(rollout::RolloutConfig config, std::vector<policy::WeightSnapshotPtr> weights)
      : weights_(std::move(weights)) {
    auto collector = rollout::Collector::Create(std::move(config));
    Check(collector.status());
    collector_ = *std::move(collector);
    for (uint32_t e = 0; e < kNumEnvs; ++e) grant_.lanes.push_back({base::EnvId(e), 0, false, kGrantEnvSteps});
  }
  static rollout::RolloutConfig ConfigOf(const Setting& setting) {
    rollout::RolloutConfig config;
    config.env_spec = setting.env_spec;
    config.policies = {setting.spec};
    config.mapping = std::make_shared<AllToOne>();
    config.env_factory = setting.factory;
    config.backend = setting.back_end;
    return config;
  }

  rollout::FixedWeights weights_;
  std::unique_ptr<rollout::Collector> collector_;
  sample::Grant grant_;
  DroppingSink sink_;
};

/// The environments, with fixed actions and rows that nobody reads.
class EnvsAlone {
 public:
  explicit EnvsAlone(const Setting& setting) : buffers_(setting.env_spec, kNumEnvs) {
    const int64_t num_agents = setting.env_spec.num_agents();
    words_.resize(static_cast<size_t>(num_agents));
    for (int64_t a = 0; a < num_agents; ++a) {
      words_[static_cast<size_t>(a)].i32 = static_cast<int32_t>(1 + a % 4);
      actions_.push_back(&words_[static_cast<size_t>(a)]);
    }
    for (uint32_t e = 0; e < kNumEnvs; ++e) {
      auto env = setting.factory();
      Check(env.status());
      envs_.push_back(std::make_unique<env::CheckedEnv>(*std::move(env)));
      Check(envs_.back()->Reset({1, base::EnvId(e), episode_}, buffers_.BeginStep(static_cast<int>(e))));
    }
  }
  void Play() {
    for (int s = 0; s < kGrantEnvSteps; ++s) {
      for (uint32_t e = 0; e < kNumEnvs; ++e) {
        const int index = static_cast<int>(e);
        Check(envs_[e]->Step(actions_, buffers_.BeginStep(index)));
        if (buffers_.all_done(index)) Check(envs_[e]->Reset(SeedOf(e, ++episode_), buffers_.BeginAutoReset(index)));
      }
    }
  }

 private:
  env::SlotBuffers buffers_;
  std::vector<std::unique_ptr<env::MultiAgentEnv>> envs_;
  std::vector<space::ActionWord> words_;
  std::vector<const space::ActionWord*> actions_;
  uint32_t episode_ = 0;
};

/// Inference, on rows that look like the environment's.
class InferenceAlone {
 public:
  explicit InferenceAlone(const Setting& setting)
      : rows_(setting.rows),
        obs_(static_cast<size_t>(rows_ * setting.spec.observation_size())),
        keys_(static_cast<size_t>(rows_)),
        sampled_(static_cast<size_t>(rows_)),
        logp_(static_cast<size_t>(rows_)),
        outputs_(static_cast<size_t>(rows_ * setting.spec.actor_output_size())) {
    base::PhiloxSequence random(base::PhiloxKey::Make(2, base::RandomStream::kTest), {});
    for (float& x : obs_) x = static_cast<float>(random.Uniform(-1.5, 1.5));
    for (int64_t r = 0; r < rows_; ++r) keys_[static_cast<size_t>(r)] = KeyOf(r, setting.env_spec.num_agents());
    policy::PolicySpec linear = setting.spec;
    linear.SetActivation(policy::Activation::kIdentity);
    actor_ = MakeActor(setting.spec, setting);
    products_ = MakeActor(linear, setting);
  }
  void Act() {
    for (int s = 0; s < kGrantEnvSteps; ++s) {
      for (inference::RowKey& key : keys_) ++key.env_step;
      Check(actor_->Act({rows_, obs_.data(), nullptr, keys_.data()}, sampled_.data(), logp_.data()));
    }
  }
  void Multiply() {
    for (int s = 0; s < kGrantEnvSteps; ++s)
      Check(products_->Forward({rows_, obs_.data(), nullptr, keys_.data()}, absl::MakeSpan(outputs_)));
  }
  std::string back_end() const { return std::string(actor_->backend_name()); }

 private:
  static std::unique_ptr<inference::Actor> MakeActor(const policy::PolicySpec& spec, const Setting& setting) {
    auto actor = inference::Actor::Create(spec, 1, setting.back_end);
    Check(actor.status());
    Check((*actor)->SetWeights(setting.weights));
    return *std::move(actor);
  }

  int64_t rows_;
  std::vector<float> obs_;
  std::vector<inference::RowKey> keys_;
  std::vector<space::ActionWord> sampled_;
  std::vector<float> logp_, outputs_;
  std::unique_ptr<inference::Actor> actor_, products_;
};

void Measure(int repetitions, std::vector<Leg>& legs) {
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
}

/// `legs`: one policy, many, the environments, inference, and what only stands beside them.
void Print(const std::vector<Leg>& legs) {
  std::printf("%-46s %16s %14s %22s\n", "", "agent-steps/s", "ns/agent-step", "allocations/1M steps");
  for (const Leg& leg : legs) {
    std::printf("%-46s %16.0f %14.1f %22.2f\n", leg.name.c_str(), 1e9 / leg.median(), leg.median(),
                1e6 * static_cast<double>(leg.allocations) / static_cast<double>(leg.counted_agent_steps));
  }
  std::printf("%s: %.2f of the rate of one\n", legs[1].name.c_str(), legs[0].median() / legs[1].median());
  const double floor = legs[2].median() + legs[3].median();
  std::printf(
      "rollout at %.2f of its floor (environments + inference, %.0f agent-steps/s); recording and the loop take %.1f "
      "ns\n",
      floor / legs[0].median(), 1e9 / floor, legs[0].median() - floor);
}

int Main(int argc, char** argv) {
  const Flags flags = ReadFlags(argc, argv);
  env::EnvRegistry registry;
  envs::RegisterAllEnvs(registry);
  const Setting setting = MakeSetting(registry, flags.back_end);
  WholeRollout one(setting);
  const std::unique_ptr<WholeRollout> many = WholeRollout::OfMany(setting, flags.num_policies);
  EnvsAlone envs(setting);
  InferenceAlone inference(setting);
  const int64_t agent_steps = setting.rows * kGrantEnvSteps;
  std::vector<Leg> legs = {
      {"rollout (everything)", agent_steps, [&] { one.Play(); }},
      {absl::StrCat("rollout over ", flags.num_policies, " policies"), agent_steps, [&] { many->Play(); }},
      {"environments only", agent_steps, [&] { envs.Play(); }},
      {"inference only (forward, sample, log-prob)", agent_steps, [&] { inference.Act(); }},
      {"matrix products of inference only", agent_steps, [&] { inference.Multiply(); }},
  };
  Measure(flags.repetitions, legs);
  std::printf(
      "mpe/simple_spread, %u environments x %ld agents, actor %ld-64-64-%ld tanh, back end %s, one thread, median of "
      "%d\n",
      kNumEnvs, static_cast<long>(setting.env_spec.num_agents()), static_cast<long>(setting.spec.observation_size()),
      static_cast<long>(setting.spec.actor_output_size()), inference.back_end().c_str(), flags.repetitions);
  Print(legs);
  const rollout::RolloutStats stats = one.stats();
  std::printf("fragments %ld, of %ld agent steps each; allocations of the rollout are those of handing them over\n",
              static_cast<long>(stats.fragments), static_cast<long>(stats.agent_steps / stats.fragments));
  return 0;
}

}  // namespace
}  // namespace troupe

int main(int argc, char** argv) { return troupe::Main(argc, argv); }
