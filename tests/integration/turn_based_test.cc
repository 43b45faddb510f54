// count_steps_by, predicates and observation functions, from YAML to the rows that a trainer gets, against records
// written by hand from the rules of testing/turn_based (lib/envs/testing/turn_based.h): x = env + episode, length
// L = 4 + x mod 3; alice decides at even steps, bob at odd ones, carol at steps 2 and 3; rows of bob and carol at step
// 3 are inactive ("-").

#include <memory>
#include <string>
#include <vector>

#include "lib/learner/testing/fake_trainer.h"
#include "tests/integration/turn_based_run.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::integration {
namespace {

using testing::ElementsAre;
using testing::ElementsAreArray;
using Rows = std::vector<std::string>;

class TurnBasedTest : public testing::Test {
 protected:
  TurnBasedTest() { envs::RegisterAllEnvs(registry_); }

  config::ResolvedRun Resolve(const std::string& yaml) {
    auto run = ResolveTurnBased(yaml, registry_);
    EXPECT_TRUE(run.ok()) << run.status();
    return *std::move(run);
  }
  /// The run after `updates` updates of a fake trainer.
  std::unique_ptr<TurnBasedRun> Train(const config::ResolvedRun& run, size_t updates, int num_workers = 1) {
    trainers_.push_back(std::make_unique<learner::FakeTrainer>(run.schema.policies));
    auto trained = std::make_unique<TurnBasedRun>(run, registry_, trainers_.back().get(), num_workers);
    trained->TrainTo(updates);
    return trained;
  }

  env::EnvRegistry registry_;
  std::vector<std::unique_ptr<learner::FakeTrainer>> trainers_;
};

constexpr char kPerAgent[] = "algorithm: {name: ippo, train_batch_size: 12}\n";

TEST_F(TurnBasedTest, BatchesOfEnvSteps) {
  const config::ResolvedRun run = Resolve(absl::StrCat(kPerAgent, "multi_agent: {policy_mapping: per_agent}"));
  const auto trained = Train(run, 1);
  const RecordingTrainer::Batch& batch = trained->updates()[0];
  EXPECT_EQ(batch.env_steps, 12);
  EXPECT_THAT(trained->grants(), ElementsAre(12));
  // Six steps each: env 0 ends an episode of 4 and begins one, env 1 one of 5. What was decided last is pending.
  EXPECT_THAT(batch.policies[0].rows,
              ElementsAre("0.0 alice@0", "0.0 alice@2", "0.1 alice@0", "1.0 alice@0", "1.0 alice@2", "1.0 alice@4"));
  EXPECT_THAT(batch.policies[1].rows, ElementsAre("0.0 bob@1", "0.0 bob@3 -", "1.0 bob@1", "1.0 bob@3 -"));
  EXPECT_THAT(batch.policies[2].rows, ElementsAre("0.0 carol@2", "0.0 carol@3 -", "1.0 carol@2", "1.0 carol@3 -"));
  EXPECT_EQ(batch.agent_steps, 10);
}

TEST_F(TurnBasedTest, BatchesOfAgentSteps) {
  const config::ResolvedRun run =
      Resolve(absl::StrCat(kPerAgent, "multi_agent: {policy_mapping: per_agent, count_steps_by: agent_steps}"));
  std::vector<float> parameters;
  for (const int num_workers : {1, 2}) {
    SCOPED_TRACE(num_workers);
    const auto trained = Train(run, 2, num_workers);
    ASSERT_EQ(trained->updates().size(), 2u);
    // Rounds of max(2, missing / 3) env steps. The first gives alice's first row in both, the second 3 + 2 rows, then
    // 1, 2 and 2: 12. The second batch gets 12 from 4, 2, 2, 2 and 2.
    if (num_workers == 1) {
      EXPECT_THAT(trained->grants(), ElementsAre(4, 3, 2, 2, 2, 4, 2, 2, 2, 2));
    }
    const RecordingTrainer::Batch& first = trained->updates()[0];
    EXPECT_EQ(first.env_steps, 13);
    EXPECT_EQ(first.agent_steps, 12);
    EXPECT_THAT(first.policies[0].rows,
                ElementsAre("0.0 alice@0", "0.0 alice@2", "0.1 alice@0", "1.0 alice@0", "1.0 alice@2", "1.0 alice@4"));
    EXPECT_THAT(first.policies[1].rows,
                ElementsAre("0.0 bob@1", "0.0 bob@3 -", "0.1 bob@1", "1.0 bob@1", "1.0 bob@3 -"));
    EXPECT_THAT(first.policies[2].rows,
                ElementsAre("0.0 carol@2", "0.0 carol@3 -", "0.1 carol@2", "1.0 carol@2", "1.0 carol@3 -"));
    // Two decisions of alice with the first weights, 0.1 at step 2 and 1.1 at step 0, waited for their outcome.
    const RecordingTrainer::Batch& second = trained->updates()[1];
    EXPECT_EQ(second.env_steps, 12);
    EXPECT_EQ(second.agent_steps, 12);
    EXPECT_THAT(second.policies[0].rows, ElementsAre("0.1 alice@2", "0.1 alice@4", "0.2 alice@0", "0.2 alice@2",
                                                     "1.1 alice@0", "1.1 alice@2", "1.1 alice@4"));
    EXPECT_THAT(second.policies[1].rows,
                ElementsAre("0.1 bob@3 -", "0.2 bob@1", "1.1 bob@1", "1.1 bob@3 -", "1.1 bob@5"));
    EXPECT_THAT(second.policies[2].rows,
                ElementsAre("0.1 carol@3 -", "0.2 carol@2", "0.2 carol@3 -", "1.1 carol@2", "1.1 carol@3 -"));
    EXPECT_EQ(trained->learner().Status().progress.rows.dropped, 0);
    EXPECT_EQ(trained->learner().Status().progress.rows.waited, 2);
    EXPECT_TRUE(learner::CheckConservation(trained->learner().Status().progress.rows).ok());
    // To the last bit, whoever sampled; and again when it is repeated.
    const std::vector<float> now = trainers_.back()->ExportState(policy::PolicySlot(0))->parameters();
    if (!parameters.empty()) {
      EXPECT_EQ(now, parameters);
    }
    parameters = now;
  }
}

constexpr char kLeague[] = R"(
algorithm: {name: ippo, train_batch_size: 20}
multi_agent:
  policies: [a, b, c, guest]
  policy_mapping: {carol: guest, "*": {function: round_robin, policies: [a, b, c]}}
  policies_to_train:
    - {policies: [a], only_against: [b]}
    - {policies: [b], only_against: [c]}
    - {policies: [c], function: self_play}
    - {only_newest: 1}
)";

TEST_F(TurnBasedTest, PredicatesAreAskedPerTrajectory) {
  // alice plays policy x mod 3, bob the next one: a against b, b against c, c against a.
  const config::ResolvedRun run = Resolve(kLeague);
  for (const int num_workers : {1, 2}) {
    const auto trained = Train(run, 1, num_workers);
    const RecordingTrainer::Batch& batch = trained->updates()[0];
    EXPECT_EQ(batch.env_steps, 20);
    EXPECT_EQ(batch.agent_steps, 18) << "also of rows that are left out";
    // a: the episode against b, not that against c.
    EXPECT_TRUE(batch.policies[0].train);
    EXPECT_THAT(batch.policies[0].rows, ElementsAre("0.0 alice@0", "0.0 alice@2", "1.1 bob@1 -", "1.1 bob@3 -"));
    // b: the episodes against c, not that against a.
    EXPECT_TRUE(batch.policies[1].train);
    EXPECT_THAT(batch.policies[1].rows, ElementsAre("0.0 bob@1 -", "0.0 bob@3 -", "0.1 alice@0", "0.1 alice@2",
                                                    "0.1 alice@4", "1.0 alice@0", "1.0 alice@2", "1.0 alice@4"));
    // c never plays with itself: nothing to train on, so it is left as it is.
    EXPECT_FALSE(batch.policies[2].train);
    EXPECT_THAT(batch.policies[2].rows, ElementsAre("0.1 bob@1 -", "0.1 bob@3 -", "1.0 bob@1 -", "1.0 bob@3 -",
                                                    "1.1 alice@0 -", "1.1 alice@2 -"));
    // guest is the newest; step 3 is inactive by the environment.
    EXPECT_TRUE(batch.policies[3].train);
    EXPECT_THAT(batch.policies[3].rows, ElementsAre("0.0 carol@2", "0.0 carol@3 -", "0.1 carol@2", "0.1 carol@3 -",
                                                    "1.0 carol@2", "1.0 carol@3 -", "1.1 carol@2", "1.1 carol@3 -"));
    const learner::RowCounters rows = trained->learner().Status().progress.rows;
    EXPECT_TRUE(learner::CheckConservation(rows).ok());
    EXPECT_EQ(rows.trained, 4 + 8 + 6 + 8);
  }
}

TEST_F(TurnBasedTest, AListTrainsThoseAlone) {
  const config::ResolvedRun run =
      Resolve(absl::StrCat(kPerAgent, "multi_agent: {policy_mapping: per_agent, policies_to_train: [bob]}"));
  const auto trained = Train(run, 1);
  EXPECT_FALSE(trained->updates()[0].policies[0].train);
  EXPECT_TRUE(trained->updates()[0].policies[1].train);
  EXPECT_THAT(trained->updates()[0].policies[1].rows,
              ElementsAre("0.0 bob@1", "0.0 bob@3 -", "1.0 bob@1", "1.0 bob@3 -"));
}

TEST_F(TurnBasedTest, AMappingThatFailsInEveryOtherEpisodeCostsThem) {
  // Environment 0 plays its even episodes, environment 1 its odd ones; x stays even.
  const config::ResolvedRun run = Resolve(R"(
algorithm: {name: ippo, train_batch_size: 20}
multi_agent:
  policies: [players, guest]
  policy_mapping: {carol: guest, "*": {function: testing/raises, policies: [players]}}
)");
  const auto trained = Train(run, 1);
  const RecordingTrainer::Batch& batch = trained->updates()[0];
  EXPECT_EQ(batch.env_steps, 20);
  // In environment 0 episodes of 4 and 6 steps; in environment 1 one of 6 and 4 steps of one of 5.
  EXPECT_THAT(
      batch.policies[0].rows,
      ElementsAre("0.0 alice@0", "0.0 alice@2", "0.0 bob@1", "0.0 bob@3 -", "0.2 alice@0", "0.2 alice@2", "0.2 alice@4",
                  "0.2 bob@1", "0.2 bob@3 -", "0.2 bob@5", "1.1 alice@0", "1.1 alice@2", "1.1 alice@4", "1.1 bob@1",
                  "1.1 bob@3 -", "1.1 bob@5", "1.3 alice@0", "1.3 alice@2", "1.3 bob@1"));
  EXPECT_TRUE(learner::CheckConservation(trained->learner().Status().progress.rows).ok());
}

TEST_F(TurnBasedTest, JointObservationsGoThroughToTheTrainer) {
  const config::ResolvedRun run =
      Resolve(absl::StrCat(kPerAgent, "multi_agent: {policy_mapping: per_agent, observation_fn: joint_observation}"));
  for (const policy::PolicySpec& spec : run.policies) EXPECT_EQ(spec.observation_size(), 4 + 4 + 2 + 3);
  const auto trained = Train(run, 1);
  const RecordingTrainer::Batch& batch = trained->updates()[0];
  ASSERT_EQ(batch.policies.size(), 3u);
  // [alice's slot, t, last action, L; bob's; carol's t, last action; who is there]. At t = 0 alice is alone, at 1 bob.
  EXPECT_THAT(batch.policies[0].obs[0], ElementsAreArray({0, 0, -1, 4, 0, 0, 0, 0, 0, 0, 1, 0, 0}));
  EXPECT_THAT(batch.policies[1].obs[0], ElementsAreArray({0, 0, 0, 0, 1, 1, -1, 4, 0, 0, 0, 1, 0}));
  // At 2 alice and carol see the same; what alice played stands there.
  std::vector<float> at_two = batch.policies[2].obs[0];
  EXPECT_EQ(at_two, batch.policies[0].obs[1]);
  at_two[2] = 0;
  EXPECT_THAT(at_two, ElementsAreArray({0, 2, 0, 4, 0, 0, 0, 0, 2, -1, 1, 0, 1}));
}

}  // namespace
}  // namespace troupe::integration
