#include "lib/rollout/collector.h"

#include <cmath>
#include <deque>
#include <map>
#include <memory>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/await.h"
#include "lib/base/mutex.h"
#include "lib/policy/policy_spec.h"
#include "lib/policy/testing/slots.h"
#include "lib/rollout/testing/scripted_env.h"
#include "lib/rollout/testing/scripts.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::rollout {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(CollectorTest, WholeEpisodesWithTruncationAndACut) {
  Rig rig(ScriptedConfig({}, Scripted({}, kBothTruncated)));
  ASSERT_TRUE(rig.Run(ScriptedGrant(1, 5)).ok());
  ASSERT_EQ(rig.sink.fragments.size(), 1u);
  const sample::MultiAgentBatch& batch = *rig.sink.fragments[0];
  EXPECT_THAT(SegmentsOf(batch), ElementsAre("env 0 ep 0 agent 0: 0(+1) 1(+2) 2(+4) truncated@3 lag 0",
                                             "env 0 ep 0 agent 1: 0(+-1) 1(+-2) 2(+-4) truncated@3 lag 0",
                                             "env 0 ep 1 agent 0: 0(+1) 1(+2) cut@2 lag 0",
                                             "env 0 ep 1 agent 1: 0(+-1) 1(+-2) cut@2 lag 0"));
  EXPECT_EQ(batch.grant, sample::GrantId(7));
  EXPECT_EQ(batch.iteration, 3);
  EXPECT_EQ(batch.num_env_steps, 5);
  EXPECT_EQ(batch.num_agent_steps, 10);
  EXPECT_TRUE(batch.last_of_grant);
  EXPECT_EQ(batch.env_rows, 5);
  EXPECT_EQ(batch.final_env_rows, 2);
  ASSERT_EQ(batch.episodes.size(), 2u);
  EXPECT_FALSE(batch.episodes[1].continues);
  EXPECT_EQ(batch.episodes[0].agents.size(), 2u);
  ASSERT_EQ(batch.finished.size(), 1u);
  EXPECT_EQ(batch.finished[0].length, 3);
  EXPECT_THAT(batch.finished[0].returns, ElementsAre(7.0f, -7.0f));
  EXPECT_EQ(batch.finished[0].policies, policy::SlotsForTesting({0, 0}));
  EXPECT_EQ(batch.policies[0].version.n, 5);
}

// What is summed over an episode is summed over that episode alone: on its lane others came before it.
TEST(CollectorTest, EveryEpisodeOfALaneBeginsAtNothing) {
  const ScriptedOptions options = {.agents = 2, .info_columns = 2};
  const Script script = {
      {.observe = {0, 1}},
      {.observe = {0, 1}, .rewards = {{0, 0.5f}, {1, -1.0f}}, .infos = {{0, 3.0}, {1, 5.0}}},
      {.observe = {0, 1}, .rewards = {{0, 2.0f}, {1, -2.25f}}, .terminate_all = true},
  };
  // Says the number of its episode, too.
  class Numbered final : public env::MultiAgentEnv {
   public:
    explicit Numbered(std::unique_ptr<env::MultiAgentEnv> inner) : inner_(std::move(inner)) {}
    const env::EnvSpec& spec() const override { return inner_->spec(); }
    absl::Status Reset(const env::EpisodeSeed& seed, env::StepWriter& out) override {
      const absl::Status status = inner_->Reset(seed, out);
      out.SetInfo(env::AgentSlot(0), 0, seed.episode);
      return status;
    }
    absl::Status Step(env::ActionRows actions, env::StepWriter& out) override { return inner_->Step(actions, out); }

   private:
    const std::unique_ptr<env::MultiAgentEnv> inner_;
  };
  Rig rig(ScriptedConfig(options, [=] { return std::make_unique<Numbered>(MakeScriptedEnv(options, script)); }));
  // Three whole episodes of two steps on two lanes, the second in two grants.
  for (const int32_t steps : {3, 3}) ASSERT_TRUE(rig.Run(ScriptedGrant(2, steps)).ok());
  std::map<std::pair<base::EnvId, uint32_t>, int> seen;
  for (const auto& fragment : rig.sink.fragments) {
    for (const sample::FinishedEpisode& episode : fragment->finished) {
      SCOPED_TRACE(absl::StrCat("env ", episode.env_id.value(), " episode ", episode.episode));
      ++seen[{episode.env_id, episode.episode}];
      EXPECT_EQ(episode.length, 2);
      EXPECT_THAT(episode.returns, ElementsAre(2.5f, -3.25f));
      ASSERT_EQ(episode.infos.size(), 2u);
      EXPECT_FLOAT_EQ(episode.infos[0], (3.0f + 5.0f + static_cast<float>(episode.episode)) / 3);
      EXPECT_TRUE(std::isnan(episode.infos[1])) << "nobody said anything";
    }
  }
  EXPECT_EQ(seen.size(), 6u);
}

// As in poker, where one folds before the other's turn.
TEST(CollectorTest, ARewardBeforeAnAgentsFirstActionCountsIntoItsReturn) {
  const Script folded = {{.observe = {0}}, {.observe = {0}, .rewards = {{0, -1.0f}, {1, 1.0f}}, .terminate_all = true}};
  Rig rig(ScriptedConfig({}, Scripted({}, folded), 2));
  ASSERT_TRUE(rig.Run(ScriptedGrant(1, 1)).ok());
  const sample::MultiAgentBatch& batch = *rig.sink.fragments[0];
  EXPECT_THAT(SegmentsOf(batch), ElementsAre("env 0 ep 0 agent 0: 0(+-1) terminated lag 0"));
  ASSERT_EQ(batch.finished.size(), 1u);
  EXPECT_THAT(batch.finished[0].returns, ElementsAre(-1.0f, 1.0f));
  EXPECT_EQ(batch.finished[0].policies, policy::SlotsForTesting({0, 1})) << "the return is a policy's";

  // What it gets before it acts is no part of its first row.
  const Script late = {{.observe = {0}},
                       {.observe = {0, 1}, .rewards = {{0, 1.0f}, {1, 2.0f}}},
                       {.observe = {0, 1}, .rewards = {{0, 4.0f}, {1, 8.0f}}, .terminate_all = true}};
  Rig second(ScriptedConfig({}, Scripted({}, late), 2));
  ASSERT_TRUE(second.Run(ScriptedGrant(1, 2)).ok());
  EXPECT_THAT(SegmentsOf(*second.sink.fragments[0]), ElementsAre("env 0 ep 0 agent 0: 0(+1) 1(+4) terminated lag 0",
                                                                 "env 0 ep 0 agent 1: 1(+8) terminated lag 0"));
  EXPECT_THAT(second.sink.fragments[0]->finished[0].returns, ElementsAre(5.0f, 10.0f));
}

TEST(CollectorTest, AnEpisodeGoesOnInTheNextGrant) {
  Rig rig(ScriptedConfig({}, Scripted({}, kBothTruncated)));
  ASSERT_TRUE(rig.Run(ScriptedGrant(1, 2), 5).ok());
  sample::Grant next = ScriptedGrant(1, 2);
  next.lanes[0].next_episode = 1;
  ASSERT_TRUE(rig.Run(next, 6).ok());
  ASSERT_EQ(rig.sink.fragments.size(), 2u);
  EXPECT_THAT(SegmentsOf(*rig.sink.fragments[0]), ElementsAre("env 0 ep 0 agent 0: 0(+1) 1(+2) cut@2 lag 0",
                                                              "env 0 ep 0 agent 1: 0(+-1) 1(+-2) cut@2 lag 0"));
  const sample::MultiAgentBatch& second = *rig.sink.fragments[1];
  EXPECT_THAT(SegmentsOf(second),
              ElementsAre("env 0 ep 0 agent 0: 2(+4) truncated@3 lag 0", "env 0 ep 0 agent 1: 2(+-4) truncated@3 lag 0",
                          "env 0 ep 1 agent 0: 0(+1) cut@1 lag 0", "env 0 ep 1 agent 1: 0(+-1) cut@1 lag 0"));
  EXPECT_TRUE(second.episodes[0].continues);
  EXPECT_EQ(second.episodes[0].first_step, 2);
  EXPECT_EQ(second.policies[0].version.n, 6);
  EXPECT_EQ(rig.collector->stats().env_steps, 4);
  EXPECT_EQ(rig.collector->stats().agent_steps, 8);
  EXPECT_EQ(rig.collector->stats().episodes, 1);
}

TEST(CollectorTest, TurnsInOneFragmentWithoutACut) {
  Rig rig(ScriptedConfig({}, Scripted({}, kTurns)));
  ASSERT_TRUE(rig.Run(ScriptedGrant(1, 5)).ok());
  EXPECT_THAT(SegmentsOf(*rig.sink.fragments.at(0)),
              ElementsAre("env 0 ep 0 agent 0: 0(+3) 2(+12) 4(+16) terminated lag 0",
                          "env 0 ep 0 agent 1: 1(+30) 3(+120) terminated lag 0"));
}

TEST(CollectorTest, APendingDecisionTravelsInALaterFragmentWithItsVersion) {
  Rig rig(ScriptedConfig({}, Scripted({}, kTurns)));
  // After three steps: agent 0 has acted at 0 and 2 (pending), agent 1 at 1 and is ready.
  ASSERT_TRUE(rig.Run(ScriptedGrant(1, 3), 5).ok());
  ASSERT_TRUE(rig.Run(ScriptedGrant(1, 2), 7).ok());
  ASSERT_EQ(rig.sink.fragments.size(), 2u);
  // What agent 0 saw when it made the pending decision bootstraps the segment before it: it acted there, "at row".
  EXPECT_THAT(SegmentsOf(*rig.sink.fragments[0]),
              ElementsAre("env 0 ep 0 agent 0: 0(+3) cut@2 at row lag 0", "env 0 ep 0 agent 1: 1(+30) cut@3 lag 0"));
  // The rewards from before the cut (4) and after it (8) are the decision's.
  EXPECT_THAT(SegmentsOf(*rig.sink.fragments[1]), ElementsAre("env 0 ep 0 agent 0: 2(+12) cut@4 at row lag 2",
                                                              "env 0 ep 0 agent 0: 4(+16) terminated lag 0",
                                                              "env 0 ep 0 agent 1: 3(+120) terminated lag 0"));
  EXPECT_EQ(rig.sink.fragments[0]->num_agent_steps, 2);
  EXPECT_EQ(rig.sink.fragments[1]->num_agent_steps, 3);
  EXPECT_EQ(rig.sink.fragments[1]->episodes[0].first_step, 2);
  EXPECT_EQ(rig.collector->stats().carried_rows, 1);
  EXPECT_EQ(rig.collector->stats().dropped_rows, 0);
}

TEST(CollectorTest, AStepWhoseOnlyDecisionIsPendingCountsWithoutARow) {
  Rig rig(ScriptedConfig({}, Scripted({}, kTurns)));
  ASSERT_TRUE(rig.Run(ScriptedGrant(1, 1)).ok());
  ASSERT_EQ(rig.sink.fragments.size(), 1u);
  EXPECT_TRUE(rig.sink.fragments[0]->policies.empty());
  EXPECT_EQ(rig.sink.fragments[0]->num_env_steps, 1);
  EXPECT_EQ(rig.sink.fragments[0]->num_agent_steps, 0);
  EXPECT_TRUE(rig.sink.fragments[0]->last_of_grant);
}

TEST(CollectorTest, APendingDecisionCanBeCarriedTwice) {
  const Script script = {
      {.observe = {0, 1}},
      {.observe = {1}, .rewards = {{0, 1.0f}}},
      {.observe = {1}, .rewards = {{0, 2.0f}}},
      {.observe = {1}, .rewards = {{0, 4.0f}}},
      {.observe = {0, 1}, .rewards = {{0, 8.0f}}, .truncate_all = true},
  };
  Rig rig(ScriptedConfig({}, Scripted({}, script)));
  for (const int64_t version : {5, 6, 9}) ASSERT_TRUE(rig.Run(ScriptedGrant(1, version == 9 ? 2 : 1), version).ok());
  ASSERT_EQ(rig.sink.fragments.size(), 3u);
  EXPECT_THAT(SegmentsOf(*rig.sink.fragments[0]), ElementsAre("env 0 ep 0 agent 1: 0(+0) cut@1 lag 0"));
  EXPECT_THAT(SegmentsOf(*rig.sink.fragments[1]), ElementsAre("env 0 ep 0 agent 1: 1(+0) cut@2 lag 0"));
  EXPECT_THAT(SegmentsOf(*rig.sink.fragments[2]), ElementsAre("env 0 ep 0 agent 0: 0(+15) truncated@4 lag 4",
                                                              "env 0 ep 0 agent 1: 2(+0) 3(+0) truncated@4 lag 0"));
}

TEST(CollectorTest, APendingDecisionOfAnotherLearnerEpochIsDropped) {
  Rig rig(ScriptedConfig({}, Scripted({}, kTurns)));
  ASSERT_TRUE(rig.Run(ScriptedGrant(1, 3), 5, 1).ok());
  ASSERT_TRUE(rig.Run(ScriptedGrant(1, 2), 5, 2).ok());
  EXPECT_THAT(SegmentsOf(*rig.sink.fragments.at(1)), ElementsAre("env 0 ep 0 agent 0: 4(+16) terminated lag 0",
                                                                 "env 0 ep 0 agent 1: 3(+120) terminated lag 0"));
  EXPECT_EQ(rig.collector->stats().dropped_rows, 1);
  EXPECT_THAT(rig.sink.fragments[1]->finished.at(0).returns, ElementsAre(31.0f, 150.0f))
      << "the return keeps every reward";
}

// Agents come and go: 2 appears at step 1; 0 terminates at 2 with a last look, 1 is truncated at 3 with one, 2 stays to
// the end.
const Script kComeAndGo = {
    {.observe = {0, 1}},
    {.observe = {0, 1, 2}, .rewards = {{0, 1.0f}, {1, 1.0f}}},
    {.observe = {0, 1, 2}, .rewards = {{0, 2.0f}, {1, 2.0f}, {2, 2.0f}}, .terminate = {0}},
    {.observe = {1, 2}, .rewards = {{1, 4.0f}, {2, 4.0f}}, .truncate = {1}},
    {.observe = {2}, .rewards = {{2, 8.0f}}},
    {.observe = {2}, .rewards = {{2, 16.0f}}, .terminate_all = true},
};

TEST(CollectorTest, AgentsAppearAndLeave) {
  const ScriptedOptions options = {.agents = 4};
  Rig rig(ScriptedConfig(options, Scripted(options, kComeAndGo)));
  ASSERT_TRUE(rig.Run(ScriptedGrant(1, 5)).ok());
  const sample::MultiAgentBatch& batch = *rig.sink.fragments.at(0);
  EXPECT_THAT(SegmentsOf(batch), ElementsAre("env 0 ep 0 agent 0: 0(+1) 1(+2) terminated lag 0",
                                             "env 0 ep 0 agent 1: 0(+1) 1(+2) 2(+4) truncated@3 at row lag 0",
                                             "env 0 ep 0 agent 2: 1(+2) 2(+4) 3(+8) 4(+16) terminated lag 0"));
  EXPECT_EQ(batch.final_env_rows, 0) << "others acted at the step that agent 1 saw last";
  ASSERT_EQ(batch.finished.size(), 1u);
  EXPECT_TRUE(std::isnan(batch.finished[0].returns[3])) << "agent 3 never appeared";
  EXPECT_EQ(batch.finished[0].policies[3], policy::kNoPolicy);
  EXPECT_EQ(batch.episodes[0].agents.size(), 3u);
}

TEST(CollectorTest, AnAgentTruncatedAtTheStepOfACutPointsAtItsFinalEnvRow) {
  const ScriptedOptions options = {.agents = 4, .state_kind = env::StateKind::kPerEnv};
  Rig rig(ScriptedConfig(options, Scripted(options, kComeAndGo)));
  ASSERT_TRUE(rig.Run(ScriptedGrant(1, 3)).ok());
  const sample::MultiAgentBatch& batch = *rig.sink.fragments.at(0);
  EXPECT_THAT(SegmentsOf(batch), ElementsAre("env 0 ep 0 agent 0: 0(+1) 1(+2) terminated lag 0",
                                             "env 0 ep 0 agent 1: 0(+1) 1(+2) 2(+4) truncated@3 lag 0",
                                             "env 0 ep 0 agent 2: 1(+2) 2(+4) cut@3 lag 0"));
  EXPECT_EQ(batch.final_env_rows, 1) << "one step, looked at by both";
  RowsOf(rig.sink.fragments);
}

TEST(CollectorTest, AnAgentTruncatedWithoutALastLookIsBootstrappedFromItsLastObservation) {
  const Script script = {
      {.observe = {0, 1}},
      {.observe = {1}, .rewards = {{0, 1.0f}}},
      {.observe = {1}, .rewards = {{0, 2.0f}}, .truncate_all = true},
  };
  Rig rig(ScriptedConfig({}, Scripted({}, script)));
  ASSERT_TRUE(rig.Run(ScriptedGrant(1, 2)).ok());
  EXPECT_THAT(SegmentsOf(*rig.sink.fragments.at(0)), ElementsAre("env 0 ep 0 agent 0: 0(+3) truncated@0 lag 0",
                                                                 "env 0 ep 0 agent 1: 0(+0) 1(+0) truncated@2 lag 0"));
}

TEST(CollectorTest, InfosAndAgentMasks) {
  ScriptedOptions options = {.agents = 2, .agent_mask = true, .info_columns = 2};
  const Script script = {
      {.observe = {0, 1}, .inactive = {1}},
      {.observe = {0, 1}, .infos = {{0, 1.0}, {1, 2.0}}},
      {.observe = {0, 1}, .terminate_all = true, .infos = {{0, 6.0}}},
  };
  Rig rig(ScriptedConfig(options, Scripted(options, script)));
  ASSERT_TRUE(rig.Run(ScriptedGrant(1, 2)).ok());
  const sample::MultiAgentBatch& batch = *rig.sink.fragments.at(0);
  EXPECT_EQ(batch.num_agent_steps, 3) << "a masked row counts no agent step";
  EXPECT_THAT(batch.policies[0].agent_mask.As<uint8_t>(), ElementsAre(1, 0, 1, 1));
  EXPECT_FLOAT_EQ(batch.finished.at(0).infos[0], 3.0f);
  EXPECT_TRUE(std::isnan(batch.finished[0].infos[1]));
}

TEST(CollectorTest, CompleteEpisodesEndTheGrant) {
  Rig rig(ScriptedConfig({}, Scripted({}, kBothTruncated)));
  sample::Grant grant = ScriptedGrant(2, 4);
  grant.lanes[1].env_steps = 3;
  grant.complete_episodes = true;
  ASSERT_TRUE(rig.Run(grant).ok());
  const sample::MultiAgentBatch& batch = *rig.sink.fragments.at(0);
  EXPECT_EQ(batch.num_env_steps, 9) << "env 0 goes on from 4 to 6, env 1 ends at 3";
  EXPECT_EQ(batch.finished.size(), 3u);
  for (const std::string& segment : SegmentsOf(batch)) EXPECT_THAT(segment, HasSubstr("truncated"));
}

TEST(CollectorTest, FreshDropsTheEpisodeInProgress) {
  Rig rig(ScriptedConfig({}, Scripted({}, kBothTruncated)));
  ASSERT_TRUE(rig.Run(ScriptedGrant(1, 2)).ok());
  sample::Grant grant = ScriptedGrant(1, 1);
  grant.lanes[0].fresh = true;
  grant.lanes[0].next_episode = 17;
  ASSERT_TRUE(rig.Run(grant).ok());
  EXPECT_THAT(SegmentsOf(*rig.sink.fragments.at(1)),
              ElementsAre("env 0 ep 17 agent 0: 0(+1) cut@1 lag 0", "env 0 ep 17 agent 1: 0(+-1) cut@1 lag 0"));
}

TEST(CollectorTest, EpisodeOrdinalsNeverRepeat) {
  Rig rig(ScriptedConfig({}, Scripted({}, kBothTruncated)));
  sample::Grant grant = ScriptedGrant(1, 3);
  for (const uint32_t next : {0u, 0u, 9u}) {  // the learner's count may lag behind ours, or be ahead
    grant.lanes[0].next_episode = next;
    ASSERT_TRUE(rig.Run(grant).ok());
  }
  std::vector<uint32_t> ordinals;
  for (const auto& fragment : rig.sink.fragments) ordinals.push_back(fragment->episodes.at(0).episode);
  EXPECT_THAT(ordinals, ElementsAre(0u, 1u, 9u));
}

TEST(CollectorTest, LanesWithDifferentStepsShareAFragment) {
  Rig rig(ScriptedConfig({}, Scripted({}, kBothTruncated)));
  sample::Grant grant = ScriptedGrant(3, 1);
  grant.lanes[1].env_steps = 4;
  grant.lanes[2].env_steps = 0;
  ASSERT_TRUE(rig.Run(grant).ok());
  EXPECT_EQ(rig.sink.fragments.at(0)->num_env_steps, 5);
  EXPECT_EQ(RowsOf(rig.sink.fragments).size(), 10u);
}

TEST(CollectorTest, AnEmptyGrantStillAnswers) {
  Rig rig(ScriptedConfig({}, Scripted({}, kBothTruncated)));
  ASSERT_TRUE(rig.Run(ScriptedGrant(0, 1)).ok());
  ASSERT_EQ(rig.sink.fragments.size(), 1u);
  EXPECT_TRUE(rig.sink.fragments[0]->last_of_grant);
  EXPECT_EQ(rig.sink.fragments[0]->num_env_steps, 0);
}

TEST(CollectorTest, ContinuousActionsAreBoundedForTheEnvironmentOnly) {
  const ScriptedOptions options = {.agents = 2, .continuous = true};
  ScriptedLog log;
  Rig rig(ScriptedConfig(options, Scripted(options, kBothTruncated, &log)));
  ASSERT_TRUE(rig.Run(ScriptedGrant(1, 30)).ok());
  float widest_given = 0;
  for (const ScriptedLog::Event& event : log.events) {
    if (event.kind == ScriptedLog::Event::Kind::kAction) widest_given = std::max(widest_given, std::abs(event.value));
  }
  EXPECT_FLOAT_EQ(widest_given, 0.1f) << "clipped to the Box";
  float widest_recorded = 0;
  const sample::PolicyRows& rows = rig.sink.fragments.at(0)->policies[0];
  for (const float action : rows.actions.As<float>()) widest_recorded = std::max(widest_recorded, std::abs(action));
  EXPECT_GT(widest_recorded, 1.0f) << "as sampled with a deviation of 1";
}

TEST(CollectorTest, DeterministicWithoutExploration) {
  RolloutConfig config = ScriptedConfig({}, Scripted({}, kBothTruncated));
  config.options.explore = false;
  Rig rig(config);
  config.options.seed = 43;
  Rig other(config);
  ASSERT_TRUE(rig.Run(ScriptedGrant(2, 9)).ok());
  ASSERT_TRUE(other.Run(ScriptedGrant(2, 9)).ok());
  const std::vector<SeenRow> a = RowsOf(rig.sink.fragments);
  const std::vector<SeenRow> b = RowsOf(other.sink.fragments);
  EXPECT_EQ(a, b) << "the seed plays no part";
}

TEST(CollectorTest, RefusesEnvironmentsThatTheRunDoesNotHave) {
  RolloutConfig config = ScriptedConfig({}, Scripted({}, kBothTruncated));
  config.options.num_envs = 2;
  Rig rig(std::move(config));
  EXPECT_TRUE(rig.Run(ScriptedGrant(2, 1)).ok());
  sample::Grant grant = ScriptedGrant(2, 1);
  grant.lanes[1].env_id = base::EnvId(2);
  const absl::Status refused = rig.Run(grant);
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(refused.message().find("env 2, expected less than 2, the run's environments"), std::string::npos)
      << refused;
}

TEST(CollectorTest, RefusesBadGrantsAndWeights) {
  Rig rig(ScriptedConfig({}, Scripted({}, kBothTruncated)));
  sample::Grant grant = ScriptedGrant(2, 1);
  grant.min_version = {1, 6};
  EXPECT_EQ(rig.Run(grant, 5).code(), absl::StatusCode::kFailedPrecondition);
  grant.min_version = {2, 0};
  EXPECT_EQ(rig.Run(grant, 5, 1).code(), absl::StatusCode::kFailedPrecondition) << "an earlier epoch is older";
  grant.min_version = {};
  std::swap(grant.lanes[0], grant.lanes[1]);
  EXPECT_EQ(rig.Run(grant).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(RunGrant(*rig.collector, ScriptedGrant(1, 1), {}, rig.sink).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(rig.sink.fragments.empty());
}

TEST(CollectorTest, RefusesAnAgentOnAPolicyOfAnotherSpace) {
  RolloutConfig config = ScriptedConfig({}, Scripted({}, kBothTruncated), 2);
  config.policies[policy::PolicySlot(1)].observation_space = *space::Space::Box(0, 1, {5});
  Rig rig(config);
  const absl::Status status = rig.Run(ScriptedGrant(1, 1));
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("agent \"agent_1\""));
}

TEST(CollectorTest, RefusesAFragmentLimitThatAStepMayExceed) {
  RolloutConfig config = ScriptedConfig({}, Scripted({}, kBothTruncated));
  config.options.max_fragment_bytes = 100;
  const absl::Status status = Collector::Create(config).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("max_fragment_bytes is 100"));
  EXPECT_EQ(status.message().find("env.resize"), absl::string_view::npos);
  RolloutConfig bytes = ScriptedConfig({.uint8_obs = true}, Scripted({.uint8_obs = true}, kBothTruncated));
  bytes.options.max_fragment_bytes = 100;
  EXPECT_EQ(Collector::Create(bytes).status().message().find("env.resize"), absl::string_view::npos)
      << "four bytes in a row are no image";
  RolloutConfig images = bytes;
  const space::Space image = *space::Space::Box(0, 255, {2, 2, 1}, tensor::DType::kUint8);
  for (env::AgentSpec& agent : images.env_spec.possible_agents) agent.observation_space = image;
  for (policy::PolicySpec& spec : images.policies) spec.observation_space = image;
  EXPECT_THAT(std::string(Collector::Create(images).status().message()),
              HasSubstr("bytes; env.crop, env.grayscale and env.resize make images smaller"));
}

TEST(CollectorTest, AnotherEnvironmentThanTheRunsIsAnError) {
  Rig rig(ScriptedConfig({}, [] { return MakeScriptedEnv({.agents = 3}, kBothTruncated); }));
  EXPECT_EQ(rig.Run(ScriptedGrant(1, 1)).code(), absl::StatusCode::kInvalidArgument);
}

TEST(CollectorTest, ASinkThatRefusesEndsTheGrantAndTheLanesGoOn) {
  Rig rig(ScriptedConfig({}, Scripted({}, kBothTruncated)));
  rig.sink.next_status = absl::UnavailableError("gone");
  EXPECT_EQ(rig.Run(ScriptedGrant(1, 2)).code(), absl::StatusCode::kUnavailable);
  ASSERT_TRUE(rig.Run(ScriptedGrant(1, 1)).ok());
  EXPECT_THAT(SegmentsOf(*rig.sink.fragments.at(0)), ElementsAre("env 0 ep 0 agent 0: 2(+4) truncated@3 lag 0",
                                                                 "env 0 ep 0 agent 1: 2(+-4) truncated@3 lag 0"));
}

TEST(CollectorTest, StopHandsInWhatThereIs) {
  Rig rig(ScriptedConfig({}, Scripted({}, kBothTruncated)));
  rig.collector->RequestStop();
  EXPECT_EQ(rig.Run(ScriptedGrant(2, 100)).code(), absl::StatusCode::kCancelled);
  ASSERT_EQ(rig.sink.fragments.size(), 1u);
  EXPECT_EQ(rig.sink.fragments[0]->num_env_steps, 2);
  EXPECT_FALSE(rig.sink.fragments[0]->last_of_grant);
}

TEST(CollectorTest, FragmentsOutliveTheCollector) {
  std::vector<sample::MultiAgentBatchPtr> fragments;
  std::vector<SeenRow> before;
  {
    Rig rig(ScriptedConfig({}, Scripted({}, kBothTruncated)));
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(rig.Run(ScriptedGrant(4, 3)).ok());
    fragments = rig.sink.fragments;
    before = RowsOf(fragments);
  }
  EXPECT_EQ(RowsOf(fragments), before);
  const auto copy = std::make_shared<sample::MultiAgentBatch>(*fragments[0]);
  const std::vector<SeenRow> first = RowsOf({fragments[0]});
  fragments.clear();
  EXPECT_EQ(RowsOf({copy}), first) << "a copy by value keeps the columns, too";
}

TEST(CollectorTest, FragmentsInFlightDoNotShareMemory) {
  Rig rig(ScriptedConfig({}, Scripted({}, kBothTruncated)));
  std::vector<SeenRow> each;
  for (int i = 0; i < 12; ++i) {
    ASSERT_TRUE(rig.Run(ScriptedGrant(4, 2)).ok());
    const std::vector<SeenRow> rows = RowsOf({rig.sink.fragments.back()});
    each.insert(each.end(), rows.begin(), rows.end());
  }
  std::sort(each.begin(), each.end());
  EXPECT_EQ(RowsOf(rig.sink.fragments), each) << "held all the time, none was overwritten";
}

/// Hands fragments to another thread, which checks and drops them: like a sink that sends.
class OtherThreadSink final : public SampleSink {
 public:
  OtherThreadSink() : thread_([this] { Drain(); }) {}
  ~OtherThreadSink() override { Join(); }
  absl::Status Submit(sample::MultiAgentBatchPtr fragment) override {
    base::MutexLock lock(&mutex_);
    const bool room = base::Await(changed_, &mutex_, base::Deadline::After(kPatience),
                                  [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return waiting_.size() < 2; });
    if (!room) return absl::DeadlineExceededError("nobody takes fragments");
    waiting_.push_back(std::move(fragment));
    changed_.NotifyAll();
    return absl::OkStatus();
  }
  /// The sum of all rewards that arrived.
  double Join() {
    {
      base::MutexLock lock(&mutex_);
      closed_ = true;
      changed_.NotifyAll();
    }
    if (thread_.joinable()) thread_.join();
    return reward_sum_;
  }

 private:
  static constexpr absl::Duration kPatience = absl::Seconds(30);

  /// nullptr once there is nothing and nothing will come.
  sample::MultiAgentBatchPtr Take() {
    base::MutexLock lock(&mutex_);
    base::Await(changed_, &mutex_, base::Deadline::After(kPatience),
                [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return closed_ || !waiting_.empty(); });
    if (waiting_.empty()) return nullptr;
    sample::MultiAgentBatchPtr fragment = std::move(waiting_.front());
    waiting_.pop_front();
    changed_.NotifyAll();
    return fragment;
  }
  void Drain() {
    while (const sample::MultiAgentBatchPtr fragment = Take()) {
      for (const sample::PolicyRows& rows : fragment->policies) {
        for (const float reward : rows.rewards.As<float>()) reward_sum_ += reward;
      }
    }
  }

  base::Mutex mutex_;
  base::CondVar changed_;
  std::deque<sample::MultiAgentBatchPtr> waiting_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  double reward_sum_ = 0;
  std::thread thread_;  // last: it uses the rest
};

TEST(CollectorTest, FragmentsMayDieOnAnotherThread) {
  const RolloutConfig config = ScriptedConfig({}, Scripted({}, kBothTruncated));
  auto collector = *Collector::Create(config);
  OtherThreadSink sink;
  for (int i = 0; i < 200; ++i)
    ASSERT_TRUE(RunGrant(*collector, ScriptedGrant(4, 3), ScriptedWeights(config, 1), sink).ok());
  EXPECT_EQ(sink.Join(), 0) << "the two agents' rewards cancel in every row pair";
  EXPECT_EQ(collector->stats().fragments, 200);
}

}  // namespace
}  // namespace troupe::rollout
