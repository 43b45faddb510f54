#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lib/learner/testing/owned_train_batch.h"
#include "lib/policy/testing.h"
#include "lib/policy/weight_snapshot.h"
#include "lib/training/algorithm_options.h"
#include "lib/training/core/trainer_host.h"
#include "lib/training/make_trainer.h"
#include "lib/training/pqn/pqn_options.h"
#include "lib/training/registry.h"
#include "lib/training/testing/random_batch.h"
#include "lib/training/torch/torch_networks.h"
#include "lib/training/torch/torch_parts.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::training {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

policy::PolicySlot Slot(int32_t slot) { return policy::PolicySlot(slot); }
const Algorithm& Pqn() { return **FindAlgorithm("pqn"); }

/// A policy as a run's is, of observations of `size` numbers.
policy::PolicySpec SpecOf(int64_t size, const char* id = "p") {
  policy::PolicySpec spec = policy::SmallSpecForTesting();
  spec.id = policy::PolicyId(id);
  spec.observation_space = *space::Space::Box(-10, 10, {size});
  spec.action_space = *space::Space::Discrete(2);
  spec.actor.hidden_sizes = {32};
  spec.actor.layer_norm = true;
  EXPECT_TRUE(SetNetworks(PqnSpec({}), &spec).ok());
  return spec;
}

std::unique_ptr<TrainerHost> Host(const std::vector<policy::PolicySpec>& specs, const PqnOptions& options) {
  const auto no_backend = [](const policy::PolicySpec&) -> absl::StatusOr<std::unique_ptr<NetworkBackend>> {
    return absl::InternalError("nobody asks for one");
  };
  TrainingContext context{.seed = 1};
  context.make_torch_group = [](const Algorithm& algorithm, absl::Span<const GroupMember> members,
                                const TrainingContext& of) {
    return FindTorchParts(algorithm.name()).make_group(members, of);
  };
  auto host = TrainerHost::Make(specs, std::vector<policy::AlgorithmSpec>(specs.size(), PqnSpec(options)), context,
                                &FindAlgorithm, no_backend);
  EXPECT_TRUE(host.ok()) << host.status();
  return host.ok() ? *std::move(host) : nullptr;
}

void Update(TrainerHost* host, const learner::TrainBatch& batch, int64_t iteration) {
  const auto reports = host->Update(batch, {.seed = 1, .iteration = iteration, .next_version = {1, iteration + 1}});
  ASSERT_TRUE(reports.ok()) << reports.status();
}

/// Values of all actions for rows of observations.
torch::Tensor Values(const policy::PolicySpec& spec, const policy::PolicyState& state, const torch::Tensor& rows) {
  const policy::ParameterLayout layout = policy::ParameterLayout::For(spec);
  const Module module = MakeModule(spec, spec.actor, [&](const std::string& name) {
    const policy::ParameterEntry& entry = *layout.Find(name);
    return torch::from_blob(const_cast<float*>(state.parameters().data()) + entry.offset, entry.shape);
  });
  return RunNetwork(spec.actor.activation, module, rows);
}

TEST(PqnTest, TheActorGivesValuesAndThereIsNoCritic) {
  const policy::PolicySpec spec = SpecOf(3);
  EXPECT_TRUE(spec.actor.action_values);
  EXPECT_FALSE(spec.actor.has_target);
  EXPECT_EQ(spec.actor.output_gain, 1);
  EXPECT_TRUE(spec.learner_networks.empty());
}

TEST(PqnTest, ContinuousActionsAreRefusedWithWhatTakesThem) {
  policy::PolicySpec spec = policy::SmallSpecForTesting();
  spec.id = policy::PolicyId("walker");
  spec.action_space = *space::Space::Box(-1, 1, {2});
  EXPECT_EQ(SetNetworks(PqnSpec({}), &spec),
            absl::InvalidArgumentError("algorithm.name is pqn, but policy \"walker\" has continuous actions (a Box), "
                                       "which have no greatest value; expected ippo or mappo"));
}

TEST(PqnTest, OptionsAreChecked) {
  const auto error = [](const char* key, policy::OptionValue value) {
    policy::AlgorithmSpec spec = PqnSpec({});
    spec.options[key] = std::move(value);
    return CheckAlgorithm(spec).ToString();
  };
  EXPECT_THAT(error("q_lambda", 1.5), HasSubstr("algorithm.q_lambda is 1.5"));
  EXPECT_THAT(error("epsilon", policy::ScheduleValue{0.5, -1, 100}), HasSubstr("algorithm.epsilon is -1"));
  EXPECT_THAT(error("mixer", std::string("qmix")), HasSubstr("one of none, vdn"));
  EXPECT_THAT(error("clip_param", 0.2), HasSubstr("clip_param"));
  EXPECT_EQ(CheckAlgorithm(PqnSpec({})), absl::OkStatus());
}

TEST(PqnTest, PoliciesThatMixAreOneGroup) {
  PqnOptions mixing;
  mixing.mixer = Mixer::kVdn;
  const policy::AlgorithmSpec vdn = PqnSpec(mixing), alone = PqnSpec({});
  const std::vector<GroupMember> members = {
      {Slot(0), nullptr, &alone}, {Slot(1), nullptr, &vdn}, {Slot(2), nullptr, &alone}, {Slot(4), nullptr, &vdn}};
  EXPECT_THAT(Pqn().Groups(members),
              ElementsAre(ElementsAre(Slot(0)), ElementsAre(Slot(2)), ElementsAre(Slot(1), Slot(4))));
  EXPECT_TRUE(Pqn().reads_joint_steps(vdn));
  EXPECT_FALSE(Pqn().reads_joint_steps(alone)) << "nobody else pays for them";
  EXPECT_FALSE(Pqn().Feed(vdn).has_value());
}

TEST(PqnTest, ATeamLearnsInOneWayAndExploresInSeveral) {
  PqnOptions mixing;
  mixing.mixer = Mixer::kVdn;
  const std::vector<policy::PolicySpec> specs = {SpecOf(3, "a"), SpecOf(3, "b")};
  std::vector<policy::AlgorithmSpec> algorithms(2, PqnSpec(mixing));
  algorithms[1].options["epsilon"] = policy::ScheduleValue{0.5, 0.1, 1000};
  const auto make = [&] {
    return FindTorchParts("pqn").make_group(
        std::vector<GroupMember>{{Slot(0), &specs[0], &algorithms[0]}, {Slot(1), &specs[1], &algorithms[1]}},
        {.seed = 1});
  };
  const auto group = make();
  ASSERT_TRUE(group.ok()) << group.status();
  const auto epsilon = [&](int32_t slot, int64_t env_steps) {
    return (*group)->Exploration(Slot(slot), {.env_steps = env_steps}).at(policy::WeightSnapshot::kEpsilon);
  };
  EXPECT_EQ(epsilon(0, 0), 1.0);
  EXPECT_NEAR(epsilon(0, 100000), 0.525, 1e-12);
  EXPECT_EQ(epsilon(1, 500), 0.3);
  EXPECT_EQ(epsilon(1, 5000), 0.1);
  algorithms[1].options["gamma"] = 0.5;
  EXPECT_EQ(make().status(), absl::InvalidArgumentError(
                                 "algorithm.gamma: policies \"a\" and \"b\" have different ones; expected one value "
                                 "for all policies that mixer: vdn trains together"));
}

/// Episodes of a chain of 4 states: action 1 goes on, and from the last one to the end with reward 1; action 0 stays
/// for -0.1. Actions are even. An episode is cut after 12 decisions.
struct ChainBatch : learner::OwnedTrainBatch {
  static constexpr int kStates = 4;

  explicit ChainBatch(uint64_t seed) {
    base::PhiloxSequence random(base::PhiloxKey::Make(seed, base::RandomStream::kTest), {});
    learner::PolicyTrainBatch rows;
    const auto observe = [](int state, std::vector<float>* to) {
      for (int i = 0; i < kStates; ++i) to->push_back(i == state ? 1.0f : 0.0f);
    };
    for (uint32_t episode = 0; episode < 50; ++episode) {
      learner::TrainSegment segment{rows.rows, 0, -1, base::EnvId(episode), 0, base::AgentSlot(0)};
      int state = 0;
      for (; state < kStates && segment.rows < 12; ++segment.rows) {
        observe(state, &obs);
        const int action = static_cast<int>(random.Below(2));
        actions.emplace_back().i32 = action;
        rewards.push_back(action == 0 ? -0.1f : state == kStates - 1 ? 1.0f : 0.0f);
        state += action;
      }
      rows.rows += segment.rows;
      if (state < kStates) {
        segment.final_row = rows.final_rows++;
        observe(state, &final_obs);
        final_slot.push_back(0);
      }
      rows.segments.push_back(segment);
    }
    slot.assign(static_cast<size_t>(rows.rows), 0);
    logp.assign(static_cast<size_t>(rows.rows), 0.0f);
    Add(std::move(rows));
  }
};

TEST(PqnTest, OneStepTargetsTrainTheValuesOfTheBestPolicy) {
  const policy::PolicySpec spec = SpecOf(ChainBatch::kStates);
  PqnOptions options;
  options.minibatch_size = 64;
  options.learning_rate = 3e-3;
  options.gamma = 0.9;
  options.q_lambda = 0;
  const auto host = Host({spec}, options);
  for (int64_t iteration = 0; iteration < 150; ++iteration) {
    Update(host.get(), ChainBatch(static_cast<uint64_t>(iteration)).batch, iteration);
  }
  const torch::Tensor values = Values(spec, *host->ExportState(Slot(0)), torch::eye(ChainBatch::kStates));
  for (int state = 0; state < ChainBatch::kStates; ++state) {
    const double best = std::pow(0.9, ChainBatch::kStates - 1 - state);
    EXPECT_NEAR(values[state][1].item<double>(), best, 0.03) << state;
    EXPECT_NEAR(values[state][0].item<double>(), -0.1 + 0.9 * best, 0.03) << state;
  }
}

/// Two agents of a team, each of a policy, that decide once. Each sees -1 or 1, and is right to take action 1 at 1. Who
/// is right earns the team 1 (agent 0) or 2 (agent 1), all of which is paid to agent 0.
struct GuessBatch {
  explicit GuessBatch(uint64_t seed) {
    base::PhiloxSequence random(base::PhiloxKey::Make(seed, base::RandomStream::kTest), {});
    constexpr int kEpisodes = 128;
    std::vector<float> earned(kEpisodes, 0.0f);
    for (int agent = 1; agent >= 0; --agent) {
      learner::OwnedTrainBatch& of = agents[agent];
      learner::PolicyTrainBatch rows;
      rows.rows = kEpisodes;
      for (int episode = 0; episode < kEpisodes; ++episode) {
        const int right = static_cast<int>(random.Below(2)), action = static_cast<int>(random.Below(2));
        of.obs.push_back(right == 1 ? 1.0f : -1.0f);
        of.actions.emplace_back().i32 = action;
        if (right == action) earned[static_cast<size_t>(episode)] += static_cast<float>(1 + agent);
        of.rewards.push_back(agent == 0 ? earned[static_cast<size_t>(episode)] : 0.0f);
        of.slot.push_back(agent);
        places.push_back({episode, 0});
        rows.segments.push_back(
            {episode, 1, -1, base::EnvId(static_cast<uint32_t>(episode)), 0, base::AgentSlot(agent)});
      }
      of.logp.assign(kEpisodes, 0.0f);
      of.Add(std::move(rows));
    }
    for (int agent = 0; agent < 2; ++agent) {
      batch.policies.push_back(agents[agent].batch.policies[0]);
      batch.policies.back().policy = Slot(agent);
      batch.policies.back().joint_place = absl::MakeConstSpan(places).subspan(0, kEpisodes);
    }
    for (int32_t episode = 0; episode < kEpisodes; ++episode) {
      joint.steps.push_back({base::EnvId(static_cast<uint32_t>(episode)), 0, 0, -1, -1, 2 * episode, 2});
      for (int32_t agent = 0; agent < 2; ++agent) {
        joint.entries.push_back({base::AgentSlot(agent), Slot(agent), episode, -1});
      }
    }
    batch.joint = &joint;
  }

  learner::OwnedTrainBatch agents[2];
  std::vector<learner::JointPlace> places;
  learner::JointSteps joint;
  learner::TrainBatch batch;
};

TEST(PqnTest, ATeamsRewardTrainsThoseWhoAreNotPaid) {
  const std::vector<policy::PolicySpec> specs = {SpecOf(1, "a"), SpecOf(1, "b")};
  PqnOptions options;
  options.minibatch_size = 32;
  options.learning_rate = 3e-3;
  options.mixer = Mixer::kVdn;
  const auto host = Host(specs, options);
  for (int64_t iteration = 0; iteration < 60; ++iteration) {
    Update(host.get(), GuessBatch(static_cast<uint64_t>(iteration)).batch, iteration);
  }
  const torch::Tensor seen = torch::tensor({{-1.0f}, {1.0f}});
  const torch::Tensor a = Values(specs[0], *host->ExportState(Slot(0)), seen);
  const torch::Tensor b = Values(specs[1], *host->ExportState(Slot(1)), seen);
  for (int right = 0; right < 2; ++right) {
    EXPECT_NEAR((a[right][right] - a[right][1 - right]).item<double>(), 1, 0.1);
    EXPECT_NEAR((b[right][right] - b[right][1 - right]).item<double>(), 2, 0.1);
    EXPECT_NEAR((a[right][right] + b[right][right]).item<double>(), 3, 0.1) << "the team's value";
  }
}

TEST(PqnTest, ARunThatGoesOnHasTheSameBits) {
  policy::PolicySpec spec = policy::SmallSpecWithCoresForTesting(policy::CoreKind::kGru, policy::CoreKind::kNone);
  ASSERT_TRUE(SetNetworks(PqnSpec({}), &spec).ok());
  PqnOptions options;
  options.minibatch_size = 8;
  const auto host = Host({spec}, options);
  const auto update = [&](TrainerHost* trained, int64_t iteration) {
    RandomBatch batch(spec, {9, 17, 6}, static_cast<uint64_t>(iteration) + 1, /*inactive_rows=*/true);
    Update(trained, batch.batch, iteration);
  };
  update(host.get(), 0);
  update(host.get(), 1);
  const auto resumed = Host({spec}, options);
  ASSERT_TRUE(resumed->ImportState(*host->ExportState(Slot(0)), Slot(0)).ok());
  update(host.get(), 2);
  update(resumed.get(), 2);
  EXPECT_EQ(resumed->ExportState(Slot(0))->blocks, host->ExportState(Slot(0))->blocks);
}

}  // namespace
}  // namespace troupe::training
