// An algorithm of another shape than the library's own, in the middle of the house as it is: policies that learn
// together from joint steps, with target networks, by Forward and Backward, out of a replay.

#include "tests/seam/vdn.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "lib/base/testing/processor.h"
#include "lib/learner/assembler.h"
#include "lib/learner/learner.h"
#include "lib/learner/testing/fake_worker.h"
#include "lib/rollout/evaluator.h"
#include "lib/rollout/testing/scripted_env.h"
#include "lib/training/core/trainer_host.h"
#include "lib/training/fused/fused_backend.h"
#include <gtest/gtest.h>

namespace troupe::seam {
namespace {

/// The two-step game of Rashid et al. 2018 ("QMIX", section 5): agent 0's first action chooses one of two matrix games,
/// which both then play. Both observe a one-hot of where they are: the choice, game A, game B. The team's reward comes
/// to agent 0.
class TwoStepGame final : public env::MultiAgentEnv {
 public:
  TwoStepGame() {
    for (const char* id : {"agent_0", "agent_1"}) {
      spec_.possible_agents.push_back({env::AgentId(id), *space::Space::Box(0, 1, {3}), *space::Space::Discrete(2)});
    }
  }
  const env::EnvSpec& spec() const override { return spec_; }
  absl::Status Reset(const env::EpisodeSeed& /*seed*/, env::StepWriter& out) override { return MoveTo(0, out); }
  absl::Status Step(env::ActionRows actions, env::StepWriter& out) override {
    if (place_ == 0) return MoveTo(1 + actions[0]->i32, out);
    constexpr float kGameB[2][2] = {{0, 1}, {1, 8}};
    out.AddReward(env::AgentSlot(0), place_ == 1 ? 7 : kGameB[actions[0]->i32][actions[1]->i32]);
    out.TerminateAll();
    return MoveTo(place_, out);
  }

 private:
  absl::Status MoveTo(int place, env::StepWriter& out) {
    place_ = place;
    for (const int slot : {0, 1}) {
      float* const row = out.ObserveFloat(env::AgentSlot(slot));
      for (int i = 0; i < 3; ++i) row[i] = i == place ? 1.0f : 0.0f;
    }
    return absl::OkStatus();
  }

  env::EnvSpec spec_{.name = "test/two_step", .possible_agents = {}, .state_space = {}, .info_columns = {}};
  int place_ = 0;
};

/// A replay that keeps the last `capacity` fragments. A batch is two of them, drawn with a seed; one that was in two
/// batches goes. It draws while it has `least`, so that there is a choice.
class TwiceReplay final : public learner::BatchSource {
 public:
  TwiceReplay(size_t capacity, uint64_t seed)
      : capacity_(capacity), random_(base::PhiloxKey::Make(seed, base::RandomStream::kTest), {}) {}

  std::vector<learner::KeptFragmentPtr> Accept(learner::KeptFragmentPtr fragment) override {
    kept_.push_back({std::move(fragment)});
    if (kept_.size() <= capacity_) return {};
    std::vector<learner::KeptFragmentPtr> oldest = {kept_.front().fragment};
    kept_.erase(kept_.begin());
    return oldest;
  }
  int64_t NumReady(int64_t /*first_incomplete*/) const override { return kept_.size() >= least ? 1 : 0; }
  learner::Selection Select(int64_t /*first_incomplete*/) override {
    learner::Selection selection;
    auto left = static_cast<uint32_t>(kept_.size());
    uint32_t wanted = std::min(left, 2u);
    for (Kept& kept : kept_) {  // Knuth's algorithm S
      if (random_.Below(left--) >= wanted) continue;
      --wanted;
      selection.iteration = std::max(selection.iteration, kept.fragment->batch().iteration);
      selection.picks.push_back({kept.fragment, /*ranges=*/{}, /*last=*/++kept.uses == 2});
    }
    std::erase_if(kept_, [](const Kept& kept) { return kept.uses == 2; });
    return selection;
  }
  /// An iteration not drawn yet may be drawn later: it holds nobody up.
  int64_t Done(int64_t first_incomplete) const override { return first_incomplete; }
  bool AnyKept(absl::FunctionRef<bool(const learner::KeptFragment&)> is_one) const override {
    return std::any_of(kept_.begin(), kept_.end(), [&](const Kept& kept) { return is_one(*kept.fragment); });
  }

  size_t least = 8;

 private:
  struct Kept {
    learner::KeptFragmentPtr fragment;
    int uses = 0;
  };
  const size_t capacity_;
  base::PhiloxSequence random_;
  std::vector<Kept> kept_;  ///< in order of arrival
};

/// A learner and its one worker, in one thread. Grants cut episodes: each of 8 environments takes 3 steps in one.
class Team final : public rollout::SampleSink {
 public:
  explicit Team(uint64_t seed, size_t capacity = 32, const learner::LearnerState* from = nullptr) {
    config_.env_spec = TwoStepGame().spec();
    config_.options.seed = seed;
    for (policy::PolicySpec& spec : config_.policies) {
      spec.observation_space = config_.env_spec.possible_agents[0].observation_space;
      spec.action_space = config_.env_spec.possible_agents[0].action_space;
    }
    vdn_ = std::make_unique<Vdn>(learner::FeedSpec{
        .name = "replay", .max_policy_lag = 100, .make_source = [this, capacity, seed](int64_t /*iteration*/) {
          auto made = std::make_unique<TwiceReplay>(capacity, seed);
          replay = made.get();
          return made;
        }});
    const auto find = [this](std::string_view) -> absl::StatusOr<const training::Algorithm*> { return vdn_.get(); };
    const auto make = [team = std::make_shared<training::ThreadTeam>(1)](const policy::PolicySpec& spec) {
      return training::MakeFusedBackend(spec, team);
    };
    host = *training::TrainerHost::Make(config_.policies.values(), {{.name = "vdn"}, {.name = "vdn"}}, {.seed = seed},
                                        find, make);
    learner::LearnerConfig config;
    config.schema = rollout::ScriptedSchema(config_);
    config.options.seed = seed;
    config.options.num_envs = 8;
    config.options.train_batch_size = 24;
    config.options.num_workers = 1;
    config.learner_epoch = from == nullptr ? 1 : 2;
    learner::LearnerDeps deps;
    deps.trainer = host.get();
    deps.publisher = &weights_;
    learner = *learner::Learner::Create(config, deps);
    EXPECT_TRUE(from == nullptr || learner->Restore(*from).ok());
    EXPECT_TRUE(learner->Start().ok());
    ticket_ = *learner->Join({}, port_);
    collector_ = *rollout::Collector::Create(config_);
  }

  absl::Status Submit(sample::MultiAgentBatchPtr fragment) override {
    last = fragment;
    return learner->Submit(ticket_, ++sequence_, std::move(fragment)).status();
  }
  std::vector<policy::WeightSnapshotPtr> Weights() const { return {weights_.Newest(0), weights_.Newest(1)}; }
  /// Trains on what is ready.
  void Step() {
    while (learner->Step(absl::ZeroDuration()).kind == learner::StepOutcome::Kind::kUpdated) {
      ASSERT_EQ(CheckConservation(learner->Status().books), absl::OkStatus());
      const learner::PolicyUpdateReport report = learner->Status().progress.policies->front();
      const std::pair<std::string, double> epsilon = {"Policy/Exploration epsilon",
                                                      weights_.Newest(0)->exploration.at("epsilon")};
      ASSERT_EQ(std::count(report.metrics.begin(), report.metrics.end(), epsilon), 1);
    }
  }
  void Train(int rounds, int grants_each = 1) {
    for (int i = 1; i <= rounds * grants_each; ++i) {
      ASSERT_EQ(RunGrant(*collector_, *port_->TryTakeGrant(), Weights(), *this), absl::OkStatus());
      if (i % grants_each == 0) Step();
    }
  }
  /// Agent 1's parameters after an update from one fragment.
  std::vector<float> TrainOn(const sample::MultiAgentBatchPtr& fragment) const {
    learner::Assembler assembler(rollout::ScriptedSchema(config_), {.max_policy_lag = 100, .joint_steps = true});
    const learner::TrainBatch& batch = assembler.Assemble({fragment}, fragment->iteration).batch;
    EXPECT_TRUE(host->Update(batch, {.seed = 1, .iteration = 1, .env_steps = 0, .next_version = {9, 1}}).ok());
    return host->ExportState(policy::PolicySlot(1))->parameters();
  }
  double GreedyReturn() const {
    const auto evaluator = *rollout::Evaluator::Create(config_, 1);
    return evaluator->Run({.episodes = 1, .deterministic = true}, Weights())->return_sum.mean;
  }
  /// Q of a joint action at a place.
  double Value(size_t place, const std::vector<size_t>& actions) const {
    alignas(64) const float places[3][16] = {{1}, {0, 1}, {0, 0, 1}};
    double sum = 0;
    for (const int32_t p : {0, 1}) {
      const auto backend = *training::MakeFusedBackend(config_.policies[policy::PolicySlot(p)],
                                                       std::make_shared<training::ThreadTeam>(1));
      const policy::PolicyState state = *host->ExportState(policy::PolicySlot(p));
      sum += (*backend->Forward({"actor", state.parameters(), {places[place], 1, 3, 16}, {0}}))[actions[p]];
    }
    return sum;
  }

  std::unique_ptr<Vdn> vdn_;
  std::unique_ptr<training::TrainerHost> host;
  std::unique_ptr<learner::Learner> learner;
  TwiceReplay* replay = nullptr;
  sample::MultiAgentBatchPtr last;

 private:
  rollout::RolloutConfig config_ = rollout::ScriptedConfig(
      {}, [] { return std::make_unique<TwoStepGame>(); }, 2);
  std::unique_ptr<rollout::Collector> collector_;
  learner::FakePublisher weights_;
  std::shared_ptr<learner::FakeWorkerPort> port_ = std::make_shared<learner::FakeWorkerPort>();
  learner::WorkerTicket ticket_;
  uint64_t sequence_ = 0;
};

class VdnTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!base::ProcessorHasAvx2()) GTEST_SKIP() << base::kNoAvx2;
  }
};

TEST_F(VdnTest, LearnsTheTwoStepGame) {
  for (const uint64_t seed : {1, 2, 3, 4, 5}) {
    SCOPED_TRACE(seed);
    Team team(seed);
    team.Train(1000);
    EXPECT_GE(team.GreedyReturn(), 6.5);
    // Sums can say what game A is worth, whatever is done, and so what its choice is worth; game B they flatten.
    for (const size_t second : {0, 1}) {
      EXPECT_NEAR(team.Value(0, {0, second}), VdnGroup::kGamma * 7, 0.15);
      for (const size_t first : {0, 1}) EXPECT_NEAR(team.Value(1, {first, second}), 7, 0.2);
    }
    EXPECT_GT(team.Value(2, {1, 1}), 7.5) << "agent 1, which has no reward of its own, plays for the team's";
  }
}

TEST_F(VdnTest, ARowHasOneFateAndTwoUses) {
  for (const bool too_many : {false, true}) {
    Team team(1, /*capacity=*/too_many ? 9 : 32);
    team.Train(40, /*grants_each=*/too_many ? 4 : 1);
    team.learner->RequestDrain("the end");
    team.replay->least = 1;
    team.Step();
    const learner::RowBooks books = team.learner->Status().books;
    ASSERT_EQ(books.groups.size(), 1u);
    const learner::GroupRows& rows = books.groups[0];
    EXPECT_EQ(rows.accepted, books.totals.received);
    EXPECT_EQ(rows.accepted, rows.trained + rows.evicted) << "none is too old, none waits";
    EXPECT_EQ(rows.evicted > 0, too_many) << "the oldest go, some before they were drawn";
    EXPECT_EQ(rows.uses < 2 * rows.trained, too_many) << "or drawn a second time";
    EXPECT_LE(rows.uses, 2 * rows.trained);
  }
}

TEST_F(VdnTest, TargetsAreSavedWithTheGroup) {
  Team team(1);
  team.Train(40);
  learner::LearnerState saved = team.learner->SnapshotState()->state;
  ASSERT_EQ(saved.groups.size(), 1u);
  Team resumed(2, 32, &saved);
  EXPECT_EQ(*resumed.host->ExportGroups(), saved.groups);
  EXPECT_LT(team.Weights()[0]->exploration.at("epsilon"), 1);
  EXPECT_EQ(resumed.Weights()[0]->exploration, team.Weights()[0]->exploration) << "before its first update";
  const std::vector<float> expected = team.TrainOn(team.last);
  EXPECT_EQ(resumed.TrainOn(team.last), expected);
  const policy::GroupState group = std::exchange(saved.groups, {})[0];
  EXPECT_NE(Team(2, 32, &saved).TrainOn(team.last), expected) << "its targets are fresh ones";
  EXPECT_EQ(team.host->ImportGroup({group.id, {group.blocks[1]}}).code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace troupe::seam
