// Policies of every class side by side, through collector, worker and evaluator.

#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "lib/policy/policy_spec.h"
#include "lib/rollout/evaluator.h"
#include "lib/rollout/rollout_worker.h"
#include "lib/rollout/testing/scripted_env.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::rollout {
namespace {

using testing::HasSubstr;

/// Agent 0 learns, agent 1 plays what `policy_class` says.
RolloutConfig Against(const std::string& policy_class, const ScriptedOptions& options = {.agents = 2}) {
  RolloutConfig config = ScriptedConfig(
      options, [options] { return MakeRandomEnv(options, nullptr); }, 2);
  config.policies[policy::PolicySlot(1)].policy_class = *policy::ParsePolicyClass(policy_class);
  config.policies[policy::PolicySlot(1)].action_bound_method = policy::ActionBoundMethod::kNone;
  return config;
}

/// Weights of the policies that have some.
std::vector<policy::WeightSnapshotPtr> Weights(const RolloutConfig& config, int64_t learner_version,
                                               int64_t frozen_version) {
  std::vector<policy::WeightSnapshotPtr> weights = ScriptedWeights(config, learner_version);
  if (config.policies[policy::PolicySlot(1)].policy_class.has_weights()) {
    weights[1] = ScriptedWeights(config, frozen_version)[1];
  } else {
    weights[1] = nullptr;
  }
  return weights;
}

TEST(PolicyClassesTest, RowsOfEveryClassAreRecordedAndValid) {
  for (const std::string policy_class : {"random", "scripted:always_same", "checkpoint:runs/old"}) {
    const RolloutConfig config = Against(policy_class, {.agents = 2, .action_mask = true});
    auto collector = *Collector::Create(config);
    CollectingSink sink(ScriptedSchema(config));
    sample::Grant grant = ScriptedGrant(4, 60);
    grant.min_version = {1, 5};
    ASSERT_TRUE(RunGrant(*collector, grant, Weights(config, 6, 0), sink).ok()) << policy_class;
    std::set<int32_t> actions;
    int64_t rows_of_it = 0;
    for (const SeenRow& row : RowsOf(sink.fragments)) {
      EXPECT_EQ(row.version, 6) << "what never changes is as new as what does";
      if (row.policy == 0) {
        EXPECT_LT(row.logp, 0);
        continue;
      }
      ++rows_of_it;
      actions.insert(row.action[0]);
      EXPECT_EQ(row.mask[static_cast<size_t>(row.action[0])], 1);
      if (!config.policies[policy::PolicySlot(1)].policy_class.has_weights()) {
        EXPECT_EQ(row.logp, 0);
      }
      if (policy_class == "scripted:always_same") {
        EXPECT_EQ(row.action[0], row.mask[0] == 1 ? 0 : 1);
      }
    }
    EXPECT_GT(rows_of_it, 60) << policy_class;
    if (policy_class == "random") {
      EXPECT_EQ(actions.size(), 3u);
    }
  }
}

TEST(PolicyClassesTest, OnlyPoliciesThatTrainMustBeNewEnough) {
  const RolloutConfig config = Against("checkpoint:runs/old");
  auto collector = *Collector::Create(config);
  CollectingSink sink(ScriptedSchema(config));
  sample::Grant grant = ScriptedGrant(2, 5);
  grant.min_version = {1, 5};
  EXPECT_TRUE(RunGrant(*collector, grant, Weights(config, 5, 1), sink).ok());
  EXPECT_EQ(RunGrant(*collector, grant, Weights(config, 4, 5), sink).code(), absl::StatusCode::kFailedPrecondition);
  std::vector<policy::WeightSnapshotPtr> none = Weights(config, 5, 1);
  none[1] = nullptr;
  EXPECT_THAT(std::string(RunGrant(*collector, grant, none, sink).message()),
              HasSubstr("got no weights of policy \"policy_1\""));
}

TEST(PolicyClassesTest, RandomFillsTheEnvironmentsBoxWithoutBounding) {
  const RolloutConfig config = Against("random", {.agents = 2, .continuous = true});
  auto collector = *Collector::Create(config);
  CollectingSink sink(ScriptedSchema(config));
  ASSERT_TRUE(RunGrant(*collector, ScriptedGrant(4, 60), Weights(config, 1, 0), sink).ok());
  EXPECT_EQ(collector->stats().env_errors, 0);
}

TEST(PolicyClassesTest, AClassThatCannotPlayIsRefusedAtTheStart) {
  EXPECT_EQ(Collector::Create(Against("scripted:beat_last")).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Collector::Create(Against("scripted:nobody")).status().code(), absl::StatusCode::kNotFound);
}

class OneGrant final : public GrantSource {
 public:
  explicit OneGrant(sample::Grant grant) : grant_(std::move(grant)) {}
  absl::StatusOr<std::optional<sample::Grant>> AwaitGrant(absl::Duration) override {
    return std::exchange(grant_, std::nullopt);
  }

 private:
  std::optional<sample::Grant> grant_;
};

/// Has what was published, and says what it was asked for.
class PublishedWeights final : public WeightSource {
 public:
  absl::StatusOr<CurrentWeights> AwaitWeights(policy::PolicySlot policy, policy::WeightVersion min_version,
                                              absl::Duration) override {
    asked.push_back(policy.value());
    const policy::WeightSnapshotPtr& weights = published.at(static_cast<size_t>(policy.value()));
    if (weights == nullptr || weights->version < min_version) return absl::DeadlineExceededError("not yet");
    return CurrentWeights{weights, weights->version};
  }
  std::vector<policy::WeightSnapshotPtr> published;
  std::vector<int32_t> asked;
};

TEST(PolicyClassesTest, AWorkerWaitsForWeightsThatComeAndForNoOthers) {
  for (const std::string policy_class : {"random", "checkpoint:runs/old"}) {
    const RolloutConfig config = Against(policy_class);
    sample::Grant grant = ScriptedGrant(2, 5);
    grant.min_version = {1, 5};
    OneGrant grants(grant);
    PublishedWeights weights;
    weights.published = Weights(config, 5, 0);
    CollectingSink sink(ScriptedSchema(config));
    RolloutWorker worker(*Collector::Create(config), grants, weights, sink);
    const absl::StatusOr<bool> worked = worker.Step(absl::ZeroDuration());
    ASSERT_TRUE(worked.ok()) << worked.status();
    EXPECT_TRUE(*worked) << policy_class;
    EXPECT_EQ(weights.asked, policy_class == "random" ? std::vector<int32_t>({0}) : std::vector<int32_t>({0, 1}));
  }
}

TEST(PolicyClassesTest, AnEvaluationPlaysThem) {
  for (const std::string policy_class : {"random", "scripted:always_same", "checkpoint:runs/old"}) {
    const RolloutConfig config = Against(policy_class);
    const auto play = [&](int num_envs) {
      auto evaluator = *Evaluator::Create(config, num_envs);
      return evaluator->Run({.episodes = 20, .seed = 3}, Weights(config, 2, 1));
    };
    const absl::StatusOr<EvaluationResult> one = play(1);
    const absl::StatusOr<EvaluationResult> many = play(7);
    ASSERT_TRUE(one.ok()) << one.status();
    ASSERT_TRUE(many.ok()) << many.status();
    EXPECT_EQ(one->episodes, 20);
    EXPECT_EQ(one->return_sum.mean, many->return_sum.mean) << "random numbers are of the decision, not of the batch";
  }
}

/// Policies in another process, as far as a rollout can tell: they fail `failures` times, in every other episode after
/// its first step.
class FakeHost final : public inference::ActorHost {
 public:
  FakeHost(absl::Status failure, int failures) : failure_(std::move(failure)), failures_(failures) {}

  absl::StatusOr<std::unique_ptr<inference::PolicyActor>> MakeActor(const policy::PolicySpec& spec,
                                                                    uint64_t /*seed*/) override {
    class FakeActor final : public inference::PolicyActor {
     public:
      FakeActor(FakeHost& host, int64_t words) : host_(host), words_(words) {}
      bool runs_elsewhere() const override { return true; }
      absl::Status Prepare() override { return host_.made; }
      absl::Status SetWeights(policy::WeightSnapshotPtr) override { return absl::FailedPreconditionError("none"); }
      absl::Status Act(const inference::ActInput& input, space::ActionWord* actions, float* logp) override {
        for (int64_t row = 0; row < input.rows; ++row) {
          const inference::RowKey& key = input.keys[row];
          if ((key.env_id.value() + key.episode) % 2 == 1 && key.env_step >= 1 && host_.failures_-- > 0)
            return host_.failure_;
        }
        std::fill_n(actions, input.rows * words_, space::ActionWord{.i32 = 1});
        std::fill_n(logp, input.rows, 0.0f);
        return absl::OkStatus();
      }

     private:
      FakeHost& host_;
      const int64_t words_;
    };
    return std::make_unique<FakeActor>(*this, spec.action_words());
  }
  absl::Status made;  ///< what comes of making a policy there

 private:
  const absl::Status failure_;
  int failures_;
};

TEST(PolicyClassesTest, OneInAnotherProcessThatFailsCostsItsEpisodes) {
  RolloutConfig config = Against("python:mine:act");
  EXPECT_EQ(Collector::Create(config).status().code(), absl::StatusCode::kFailedPrecondition)
      << "there is no process to play it";
  config.actor_host = std::make_shared<FakeHost>(absl::UnavailableError("its process ended"), 10);
  auto collector = *Collector::Create(config);
  CollectingSink sink(ScriptedSchema(config));
  ASSERT_TRUE(RunGrant(*collector, ScriptedGrant(3, 200), Weights(config, 0, 0), sink).ok());
  const RolloutStats stats = collector->stats();
  EXPECT_EQ(stats.env_steps, 3 * 200) << "the grant is full";
  EXPECT_GE(stats.env_errors, 10) << "a failure is one of each environment that the policy was to act in";
  EXPECT_GT(stats.episodes, 3);
  int64_t rows_of_it = 0;
  for (const SeenRow& row : RowsOf(sink.fragments)) {
    if (row.policy != 1) continue;
    ++rows_of_it;
    EXPECT_EQ(row.action[0], 1) << "what was filled in for a failure is dropped";
  }
  EXPECT_GT(rows_of_it, 100);
}

// A policy that was added live and could not be made ended every worker, though nobody played it.
TEST(PolicyClassesTest, OneInAnotherProcessIsNotMadeWhileNobodyPlaysIt) {
  RolloutConfig config = Against("python:mine:act");
  const auto host = std::make_shared<FakeHost>(absl::UnavailableError("its process ended"), 0);
  config.actor_host = host;
  host->made = absl::InvalidArgumentError("no such module");
  EXPECT_EQ(Collector::Create(config).status(), host->made) << "one that is played is made at the start";
  EXPECT_EQ((*Evaluator::Create(config, 1))->Run({.episodes = 1}, Weights(config, 0, 0)).status(), host->made);
  config.unplayed = {config.policies[policy::PolicySlot(1)].id};
  EXPECT_TRUE(Collector::Create(config).ok());
  EXPECT_TRUE((*Evaluator::Create(config, 1))->Run({.episodes = 1}, Weights(config, 0, 0)).ok());
}

TEST(PolicyClassesTest, OneWhoseProcessesAreUsedUpEndsTheGrant) {
  RolloutConfig config = Against("python:mine:act");
  config.actor_host = std::make_shared<FakeHost>(absl::ResourceExhaustedError("restarted too often"), 1);
  auto collector = *Collector::Create(config);
  CollectingSink sink(ScriptedSchema(config));
  EXPECT_EQ(RunGrant(*collector, ScriptedGrant(3, 200), Weights(config, 0, 0), sink),
            absl::ResourceExhaustedError("restarted too often"));
}

TEST(PolicyClassesTest, AnEvaluationBeginsItsEpisodesAgain) {
  RolloutConfig config = Against("python:mine:act");
  config.actor_host = std::make_shared<FakeHost>(absl::UnavailableError("its process ended"), 2);
  const auto result = (*Evaluator::Create(config, 4))->Run({.episodes = 8}, Weights(config, 0, 0));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->episodes, 8);
  config.actor_host = std::make_shared<FakeHost>(absl::UnavailableError("its process ended"), 1000);
  const absl::Status failed = (*Evaluator::Create(config, 4))->Run({.episodes = 8}, Weights(config, 0, 0)).status();
  EXPECT_EQ(failed.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(failed.message()), HasSubstr("failed 3 times, the last time: its process ended"));
}

}  // namespace
}  // namespace troupe::rollout
