#include "lib/learner/grant_scheduler.h"

#include <limits>
#include <map>
#include <memory>

#include "lib/learner/testing/grant_scheduler_fixture.h"
#include "lib/sample/testing/batch_maker.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::learner {
namespace {

using sample::Disposition;
using sample::GrantId;
using sample::WorkerId;
using testing::HasSubstr;

using GrantSchedulerTest = GrantSchedulerFixture;

TEST_F(GrantSchedulerTest, StartsWhenAllHaveJoinedOrTheTimeIsUp) {
  Make(4, 40, 2);
  scheduler_->SetPublished(0, 0);
  EXPECT_TRUE(Schedule().empty());
  EXPECT_EQ(scheduler_->NextDeadline(), absl::InfiniteDuration());
  Join(1);
  EXPECT_TRUE(Schedule().empty());
  EXPECT_EQ(scheduler_->NextDeadline(), kNow + absl::Seconds(10));
  EXPECT_TRUE(scheduler_->Schedule(kNow + absl::Seconds(9)).empty());
  EXPECT_EQ(scheduler_->Schedule(kNow + absl::Seconds(10)).size(), 1u);
  EXPECT_EQ(scheduler_->NextDeadline(), kNow + absl::Seconds(10) + absl::Seconds(60) + 40 * absl::Milliseconds(10))
      << "when the grant has been out for too long";

  Make(4, 40, 2);
  scheduler_->SetPublished(0, 0);
  Join(1);
  Join(2);
  EXPECT_EQ(Schedule().size(), 2u);
}

TEST_F(GrantSchedulerTest, TheFirstWorkerLeavingStopsTheJoinClock) {
  Make(4, 40, 2);
  scheduler_->SetPublished(0, 0);
  Join(1);
  scheduler_->RemoveWorker(WorkerId(1));
  EXPECT_EQ(scheduler_->NextDeadline(), absl::InfiniteDuration());
  scheduler_->AddWorker(WorkerId(2), kNow + absl::Seconds(60));
  EXPECT_TRUE(scheduler_->Schedule(kNow + absl::Seconds(61)).empty());
}

TEST_F(GrantSchedulerTest, GrantsAddUpToTheBatchAndSayEverything) {
  Make(4, 42, 2);
  scheduler_->SetPublished(0, 0);
  Join(7);
  Join(9);
  const auto orders = Schedule();
  ASSERT_EQ(orders.size(), 2u);
  EXPECT_EQ(Steps(orders), 42);
  EXPECT_NE(orders[0].grant.id, orders[1].grant.id);
  std::map<base::EnvId, int32_t> steps;
  for (const GrantOrder& order : orders) {
    EXPECT_EQ(order.grant.iteration, 0);
    EXPECT_EQ(order.grant.min_version, (policy::WeightVersion{kEpoch, 0}));
    EXPECT_EQ(order.grant.lanes.size(), 2u);
    for (const sample::GrantLane& lane : order.grant.lanes) {
      EXPECT_TRUE(lane.fresh);
      EXPECT_EQ(lane.next_episode, 0u);
      steps[lane.env_id] = lane.env_steps;
    }
  }
  EXPECT_EQ(steps, (std::map<base::EnvId, int32_t>{
                       {base::EnvId(0), 11}, {base::EnvId(1), 11}, {base::EnvId(2), 10}, {base::EnvId(3), 10}}));
  EXPECT_TRUE(Schedule().empty()) << "everything is granted once";
  EXPECT_EQ(scheduler_->outstanding_steps_of(WorkerId(7)), 22);
  EXPECT_EQ(scheduler_->num_lanes_of(WorkerId(7)), 2);
}

TEST_F(GrantSchedulerTest, AgentStepsAreSampledInRoundsUntilThereAreEnough) {
  rollout_options_.ready_probability = 0.5;  // so that an env step has one of two agents' steps or none
  rollout_options_.min_episode_steps = rollout_options_.max_episode_steps = 40;
  options_.count_steps_by = CountStepsBy::kAgentSteps;
  options_.num_agents = 2;
  // By the number of workers: the steps of each round, and the agent steps.
  std::vector<std::vector<int64_t>> rounds;
  for (const int workers : {1, 2}) {
    rollouts_.clear();
    sequences_.clear();
    Make(3, 60, workers);
    scheduler_->SetPublished(0, 0);
    for (int i = 0; i < workers; ++i) Join(static_cast<uint64_t>(i) + 1);
    rounds.emplace_back();
    int64_t agent_steps = 0;
    while (scheduler_->first_incomplete() == 0) {
      const auto orders = Schedule();
      ASSERT_FALSE(orders.empty());
      // Never more than fit, if all agents act; but a step of every environment.
      EXPECT_EQ(Steps(orders), std::max<int64_t>(3, (60 - agent_steps) / 2));
      rounds.back().push_back(Steps(orders));
      for (const GrantOrder& order : orders) {
        EXPECT_EQ(order.grant.iteration, 0);
        for (const sample::GrantLane& lane : order.grant.lanes) {
          EXPECT_EQ(lane.fresh, rounds.back().size() == 1) << "episodes go on from round to round";
        }
        for (const auto& fragment : Play(order, 0)) {
          agent_steps += fragment->num_agent_steps;
          EXPECT_EQ(Deliver(order.worker.value(), fragment).disposition, Disposition::kAccepted);
        }
      }
    }
    EXPECT_GE(agent_steps, 60);
    EXPECT_LT(agent_steps, 60 + 3 * 2);
    rounds.back().push_back(agent_steps);
  }
  EXPECT_GT(rounds[0].size(), 3u);
  EXPECT_EQ(rounds[0], rounds[1]) << "whoever samples";
}

TEST_F(GrantSchedulerTest, AgentStepsThatAreTooOldCountNothing) {
  // A row that a client decided with the weights of the last iteration ends up in this one's fragment, and not in its
  // batch.
  options_.count_steps_by = CountStepsBy::kAgentSteps;
  options_.num_agents = 2;
  rollout_options_.ready_probability = 0.4;
  rollout_options_.min_episode_steps = rollout_options_.max_episode_steps = 1000;
  Make(1, 20, 1);
  scheduler_->SetPublished(0, 0);
  Join(1);
  int64_t too_old = 0;
  for (int64_t iteration = 0; iteration < 20; ++iteration) {
    int64_t young = 0;
    while (scheduler_->first_incomplete() == iteration) {
      for (const GrantOrder& order : Schedule()) {
        for (const auto& fragment : Play(order, iteration)) {
          const CheckedFragment checked = Check(fragment);
          int64_t old = 0;
          for (const auto& [version, agent_steps] : checked.of_clients) {
            if (version < order.grant.min_version.n) old += agent_steps;
          }
          young += checked.agent_steps - old;
          too_old += old;
          EXPECT_EQ(Deliver(1, fragment).disposition, Disposition::kAccepted);
        }
      }
    }
    EXPECT_GE(young, 20);
    EXPECT_LT(young, 20 + 2);
    scheduler_->SetPublished(iteration + 1, iteration + 1);
  }
  EXPECT_GT(too_old, 0);
}

TEST_F(GrantSchedulerTest, LagZeroWaitsForThePublishedVersion) {
  Make(2, 20, 1);
  Join(1);
  EXPECT_TRUE(Schedule().empty()) << "nothing is published";
  scheduler_->SetPublished(0, 0);
  PlayAndDeliver(Schedule(), 0);
  EXPECT_EQ(scheduler_->first_incomplete(), 1);
  EXPECT_TRUE(Schedule().empty());
  scheduler_->SetPublished(1, 1);
  const auto orders = Schedule();
  ASSERT_EQ(orders.size(), 1u);
  EXPECT_EQ(orders[0].grant.iteration, 1);
  EXPECT_EQ(orders[0].grant.min_version.n, 1);
  for (const sample::GrantLane& lane : orders[0].grant.lanes) {
    EXPECT_FALSE(lane.fresh);
    EXPECT_EQ(lane.next_episode, 2u) << "two episodes of 5 steps in 10";
  }
}

TEST_F(GrantSchedulerTest, AsManyIterationsAreOutAsTheLagAllows) {
  Make(2, 20, 1, /*lag=*/1);
  Join(1);
  scheduler_->SetPublished(0, 0);
  auto orders = Schedule();
  ASSERT_EQ(orders.size(), 2u) << "both before anything has arrived";
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(orders[i].grant.iteration, static_cast<int64_t>(i));
    EXPECT_EQ(orders[i].grant.min_version.n, 0);
  }
  EXPECT_TRUE(orders[0].grant.lanes[0].fresh);
  EXPECT_FALSE(orders[1].grant.lanes[0].fresh) << "the episode goes on";
  EXPECT_EQ(scheduler_->outstanding_steps_of(WorkerId(1)), 40);
  PlayAndDeliver({orders[0]}, 0);
  EXPECT_EQ(scheduler_->first_incomplete(), 1);
  EXPECT_TRUE(Schedule().empty()) << "iteration 2 needs version 1";
  scheduler_->SetPublished(1, 1);
  const auto next = Schedule();
  ASSERT_EQ(next.size(), 1u) << "while iteration 1 is out";
  EXPECT_EQ(next[0].grant.iteration, 2);
  EXPECT_EQ(next[0].grant.min_version.n, 1);
  PlayAndDeliver({orders[1]}, 0);
  PlayAndDeliver(next, 1);
  EXPECT_EQ(scheduler_->first_incomplete(), 3);
  EXPECT_EQ(scheduler_->outstanding_steps_of(WorkerId(1)), 0);
}

TEST_F(GrantSchedulerTest, AnIterationThatIsWholeWaitsForTheOneBefore) {
  Make(2, 20, 2, /*lag=*/1);
  Join(1);
  Join(2);
  scheduler_->SetPublished(0, 0);
  const auto orders = Schedule();
  ASSERT_EQ(orders.size(), 4u);
  PlayAndDeliver({orders[0], orders[2], orders[3]}, 0);
  EXPECT_EQ(scheduler_->first_incomplete(), 0) << "worker 2 owes its half of the first";
  PlayAndDeliver({orders[1]}, 0);
  EXPECT_EQ(scheduler_->first_incomplete(), 2);
}

TEST_F(GrantSchedulerTest, NoOrdinalOfALaneIsGrantedTwiceWhileGrantsAreOut) {
  Make(4, 40, 1, /*lag=*/2);
  Join(1);
  scheduler_->SetPublished(0, 0);
  auto orders = Schedule();
  ASSERT_EQ(orders.size(), 3u);
  Join(2);
  scheduler_->SetPublished(1, 1);  // half of the lanes move to worker 2, though three grants of each are out
  for (const GrantOrder& order : Schedule()) orders.push_back(order);
  ASSERT_EQ(orders.size(), 5u);
  scheduler_->RemoveWorker(WorkerId(1));  // all it had goes to worker 2
  for (const GrantOrder& order : Schedule()) orders.push_back(order);
  struct Ordinals {
    uint32_t first, limit;
    uint64_t worker;
  };
  std::map<uint32_t, std::vector<Ordinals>> by_lane;
  for (const GrantOrder& order : orders) {
    for (const sample::GrantLane& lane : order.grant.lanes) {
      const auto steps = static_cast<uint32_t>(lane.env_steps);
      by_lane[lane.env_id.value()].push_back({lane.next_episode, lane.next_episode + steps, order.worker.value()});
    }
  }
  for (const auto& [env_id, grants] : by_lane) {
    EXPECT_GE(grants.size(), 4u);
    for (size_t i = 1; i < grants.size(); ++i) {
      EXPECT_GE(grants[i].first, grants[i - 1].limit) << "env " << env_id << ", grant " << i;
    }
  }
}

TEST_F(GrantSchedulerTest, NoMoreIterationsAreOpenedThanTheStopNeeds) {
  options_.stop.env_steps = 50;
  options_.env_steps_before = 10;
  Make(2, 20, 1, /*lag=*/5);
  Join(1);
  scheduler_->SetPublished(0, 0);
  EXPECT_EQ(Schedule().size(), 2u) << "of 20 env steps each";
  options_.stop = {.updates = 3};
  Make(2, 20, 1, /*lag=*/5);
  Join(1);
  scheduler_->SetPublished(0, 0);
  auto orders = Schedule();
  EXPECT_EQ(orders.size(), 3u);
  // An expired grant is granted again all the same.
  scheduler_->Expire(WorkerId(1), orders[0].grant.id);
  const auto again = Schedule();
  ASSERT_EQ(again.size(), 1u);
  EXPECT_EQ(again[0].grant.iteration, 0);
}

TEST_F(GrantSchedulerTest, ADeadWorkersRestGoesToTheOthersWithNewOrdinals) {
  rollout_options_.max_ticks_per_fragment = 4;
  Make(4, 40, 2);
  scheduler_->SetPublished(0, 0);
  Join(1);
  Join(2);
  const auto orders = Schedule();
  const auto fragments = Play(orders[0], 0);
  ASSERT_EQ(Deliver(1, fragments[0]).disposition, Disposition::kAccepted);  // 4 of 10 steps of 2 environments
  scheduler_->RemoveWorker(WorkerId(1));
  const auto again = Schedule();
  ASSERT_EQ(again.size(), 1u);
  EXPECT_EQ(again[0].worker, WorkerId(2));
  EXPECT_EQ(Steps(again), 12);
  for (const sample::GrantLane& lane : again[0].grant.lanes) {
    EXPECT_TRUE(lane.fresh);
    EXPECT_EQ(lane.env_steps, 6);
    EXPECT_EQ(lane.next_episode, 10 + GrantScheduler::kSpareEpisodes) << "10 steps could have begun 10 episodes";
  }
  EXPECT_EQ(Deliver(1, fragments[1]).disposition, Disposition::kStale) << "of a grant that is over";
  PlayAndDeliver({orders[1]}, 0);
  EXPECT_EQ(scheduler_->first_incomplete(), 0);
  PlayAndDeliver(again, 0);
  EXPECT_EQ(scheduler_->first_incomplete(), 1);
}

TEST_F(GrantSchedulerTest, AReplacementGetsOrphansAtOnce) {
  Make(4, 40, 2);
  scheduler_->SetPublished(0, 0);
  Join(1);
  Join(2);
  const auto orders = Schedule();
  scheduler_->RemoveWorker(WorkerId(1));
  scheduler_->RemoveWorker(WorkerId(2));
  EXPECT_TRUE(Schedule().empty()) << "nobody is there";
  Join(3);
  const auto again = Schedule();
  ASSERT_EQ(again.size(), 1u);
  EXPECT_EQ(again[0].worker, WorkerId(3));
  EXPECT_EQ(Steps(again), 40);
  EXPECT_EQ(again[0].grant.iteration, 0);
}

TEST_F(GrantSchedulerTest, LanesMoveAsLittleAsTheyCan) {
  Make(10, 100, 2);
  scheduler_->SetPublished(0, 0);
  Join(1);
  Join(2);
  auto orders = Schedule();
  PlayAndDeliver(orders, 0);
  std::map<base::EnvId, uint64_t> owner;
  for (const GrantOrder& order : orders) {
    for (const auto& lane : order.grant.lanes) owner[lane.env_id] = order.worker.value();
  }
  Join(3);
  scheduler_->SetPublished(1, 1);
  orders = Schedule();
  std::multiset<size_t> sizes;
  int moved = 0;
  for (const GrantOrder& order : orders) {
    sizes.insert(order.grant.lanes.size());
    for (const auto& lane : order.grant.lanes) {
      const bool mine = owner[lane.env_id] == order.worker.value();
      EXPECT_EQ(lane.fresh, !mine);
      moved += mine ? 0 : 1;
    }
  }
  EXPECT_EQ(sizes, (std::multiset<size_t>{3, 3, 4}));
  EXPECT_EQ(moved, 3) << "the newcomer's three";
}

TEST_F(GrantSchedulerTest, AWorkerTooManyWaits) {
  Make(2, 20, 1);
  scheduler_->SetPublished(0, 0);
  Join(1);
  Join(2);
  Join(3);
  EXPECT_EQ(Schedule().size(), 2u);
  EXPECT_EQ(scheduler_->num_lanes_of(WorkerId(3)), 0);
}

TEST_F(GrantSchedulerTest, FewerStepsThanEnvironments) {
  Make(5, 3, 1);
  scheduler_->SetPublished(0, 0);
  Join(1);
  const auto orders = Schedule();
  ASSERT_EQ(orders.size(), 1u);
  EXPECT_EQ(orders[0].grant.lanes.size(), 3u);
  PlayAndDeliver(orders, 0);
  EXPECT_EQ(scheduler_->first_incomplete(), 1);
}

TEST_F(GrantSchedulerTest, CompleteEpisodesMayDeliverMore) {
  Make(2, 16, 1);
  options_.complete_episodes = true;
  scheduler_ = std::make_unique<GrantScheduler>(options_, kEpoch, 0, std::vector<LaneState>{});
  scheduler_->SetPublished(0, 0);
  Join(1);
  const auto orders = Schedule();
  EXPECT_TRUE(orders[0].grant.complete_episodes);
  PlayAndDeliver(orders, 0);  // 8 steps each, to the end of the second episode: 10
  EXPECT_EQ(scheduler_->first_incomplete(), 1);
  EXPECT_EQ(scheduler_->outstanding_steps_of(WorkerId(1)), 0);
  scheduler_->SetPublished(1, 1);
  EXPECT_EQ(Schedule()[0].grant.lanes[0].next_episode, 2u);
}

TEST_F(GrantSchedulerTest, ARefusedFragmentsStepsAreGrantedAgain) {
  rollout_options_.max_ticks_per_fragment = 5;
  Make(2, 20, 1);
  scheduler_->SetPublished(0, 0);
  Join(1);
  const auto orders = Schedule();
  const auto fragments = Play(orders[0], 0);
  ASSERT_EQ(fragments.size(), 2u);
  ASSERT_EQ(Deliver(1, fragments[0]).disposition, Disposition::kAccepted);
  scheduler_->Expire(WorkerId(1), orders[0].grant.id);  // the second was no good
  const auto again = Schedule();
  ASSERT_EQ(again.size(), 1u);
  EXPECT_EQ(Steps(again), 10);
  EXPECT_EQ(Deliver(1, fragments[1]).disposition, Disposition::kStale);
  // Something about a grant that is over does not touch the new one.
  scheduler_->ExpireIfLive(WorkerId(1), orders[0].grant.id);
  EXPECT_TRUE(Schedule().empty());
  PlayAndDeliver(again, 0);
  EXPECT_EQ(scheduler_->first_incomplete(), 1);
}

TEST_F(GrantSchedulerTest, AGrantThatEndsShortIsGrantedAgain) {
  rollout_options_.max_ticks_per_fragment = 5;
  Make(2, 20, 1);
  scheduler_->SetPublished(0, 0);
  Join(1);
  const auto fragments = Play(Schedule()[0], 0);
  ASSERT_EQ(Deliver(1, fragments[1]).disposition, Disposition::kAccepted);  // the last; the first never comes
  const auto again = Schedule();
  ASSERT_EQ(again.size(), 1u);
  EXPECT_EQ(Steps(again), 10);
}

/// The last fragment may overtake the others: the grant ends when the sequence has no gap before it.
TEST_F(GrantSchedulerTest, TheLastFragmentMayComeFirst) {
  rollout_options_.max_ticks_per_fragment = 5;
  Make(2, 20, 1);
  scheduler_->SetPublished(0, 0);
  Join(1);
  const auto fragments = Play(Schedule()[0], 0);
  scheduler_->Accept(WorkerId(1), /*sequence=*/2, /*watermark=*/0, Check(fragments[1]));
  EXPECT_TRUE(Schedule().empty());
  EXPECT_EQ(scheduler_->first_incomplete(), 0);
  EXPECT_EQ(scheduler_->Judge(WorkerId(1), Check(fragments[0])).disposition, Disposition::kAccepted);
  scheduler_->Accept(WorkerId(1), /*sequence=*/1, /*watermark=*/2, Check(fragments[0]));
  EXPECT_EQ(scheduler_->first_incomplete(), 1);
}

TEST_F(GrantSchedulerTest, VerdictsOnWhatDoesNotFit) {
  Make(2, 20, 1, /*lag=*/1);
  Join(1);
  scheduler_->SetPublished(0, 0);
  PlayAndDeliver(Schedule(), 0);  // iterations 0 and 1
  scheduler_->SetPublished(1, 1);
  scheduler_->SetPublished(2, 2);
  const auto orders = Schedule();  // iteration 2: versions 1 and 2
  const auto judge = [&](auto change, uint64_t worker = 1, int64_t version = 2) {
    const auto whole = rollouts_[1].get();
    EXPECT_NE(whole, nullptr);
    sample::FakeRollout other(schema_, rollout_options_);
    sample::Grant grant = orders[0].grant;
    for (auto& lane : grant.lanes) lane.fresh = true;
    auto batch = other.Play(grant, policy::WeightVersion{kEpoch, version})[0];
    change(*batch);
    const CheckedFragment fragment = Check(batch);
    EXPECT_TRUE(fragment.status.ok()) << fragment.status;
    return scheduler_->Judge(WorkerId(worker), fragment);
  };
  const auto nothing = [](sample::MultiAgentBatch&) {};
  EXPECT_EQ(judge(nothing).disposition, Disposition::kAccepted);
  EXPECT_EQ(judge(nothing, 1, 1).disposition, Disposition::kAccepted);
  auto verdict = judge(nothing, 1, 0);
  EXPECT_EQ(verdict.disposition, Disposition::kStale);
  EXPECT_THAT(verdict.reason, HasSubstr("weights version 0, iteration 2 needs 1"));
  verdict = judge(nothing, 1, 3);
  EXPECT_EQ(verdict.disposition, Disposition::kInvalid);
  EXPECT_THAT(verdict.reason, HasSubstr("the newest is 2"));
  // A worker may be quicker than the learner, which publishes first and books that afterwards.
  scheduler_->SetPublishing(3);
  EXPECT_EQ(judge(nothing, 1, 3).disposition, Disposition::kAccepted);
  EXPECT_EQ(judge(nothing, 1, 4).disposition, Disposition::kInvalid);
  verdict = judge([](auto& b) { b.policies[0].version.learner_epoch = kEpoch - 1; });
  EXPECT_EQ(verdict.disposition, Disposition::kStale);
  EXPECT_THAT(verdict.reason, HasSubstr("learner epoch 2"));
  verdict = judge([](auto& b) { b.grant = GrantId(12345); });
  EXPECT_EQ(verdict.disposition, Disposition::kStale);
  verdict = judge(nothing, 2);
  EXPECT_EQ(verdict.disposition, Disposition::kStale) << "another worker's grant";
  verdict = judge([](auto& b) { b.iteration = 1; });
  EXPECT_EQ(verdict.disposition, Disposition::kInvalid);
  verdict = judge([](auto& b) { b.num_env_steps = 21; });
  EXPECT_EQ(verdict.disposition, Disposition::kInvalid);
  EXPECT_THAT(verdict.reason, HasSubstr("of 20"));
  verdict = judge([](auto& b) {
    for (auto& episode : b.episodes) episode.env_id = base::EnvId(episode.env_id.value() + 2);
  });
  EXPECT_EQ(verdict.disposition, Disposition::kInvalid);
  EXPECT_THAT(verdict.reason, HasSubstr("is not in grant"));
  verdict = judge([](auto& b) { b.finished[0].env_id = base::EnvId(9); });
  EXPECT_EQ(verdict.disposition, Disposition::kInvalid);
  verdict = judge([](auto& b) { b.episodes[0].episode = 0; });
  EXPECT_EQ(verdict.disposition, Disposition::kInvalid);
  EXPECT_THAT(verdict.reason, HasSubstr("has episodes 0 to"));
  verdict = judge([](auto& b) { b.episodes[0].episode = std::numeric_limits<uint32_t>::max(); });
  EXPECT_EQ(verdict.disposition, Disposition::kInvalid);
}

/// An environment that fails uses an ordinal up without a step.
TEST_F(GrantSchedulerTest, FailedEpisodesHaveOrdinalsToo) {
  Make(1, 3, 1);
  Join(1);
  scheduler_->SetPublished(0, 0);
  const auto orders = Schedule();
  auto batch = std::const_pointer_cast<sample::MultiAgentBatch>(Play(orders[0], 0)[0]);
  batch->episodes[0].episode = 3 + GrantScheduler::kSpareEpisodes;
  EXPECT_EQ(scheduler_->Judge(WorkerId(1), Check(batch)).disposition, Disposition::kInvalid);
  batch->episodes[0].episode = 2 + GrantScheduler::kSpareEpisodes;
  EXPECT_EQ(Deliver(1, batch).disposition, Disposition::kAccepted);
  EXPECT_EQ(scheduler_->Lanes()[0].next_episode, 3 + GrantScheduler::kSpareEpisodes);
}

TEST_F(GrantSchedulerTest, ClosedGrantsNothing) {
  Make(2, 20, 1);
  scheduler_->SetPublished(0, 0);
  Join(1);
  const auto orders = Schedule();
  scheduler_->Close();
  Join(2);
  scheduler_->RemoveWorker(WorkerId(1));
  EXPECT_TRUE(Schedule().empty());
}

TEST_F(GrantSchedulerTest, ContinuesTheOrdinalsOfARestoredRun) {
  options_.num_envs = 2;
  options_.train_batch_size = 20;
  scheduler_ = std::make_unique<GrantScheduler>(
      options_, kEpoch, 5, std::vector<LaneState>{{base::EnvId(0), 12}, {base::EnvId(1), 30}, {base::EnvId(8), 1}});
  Join(1);
  scheduler_->SetPublished(5, 5);
  const auto orders = Schedule();
  EXPECT_EQ(orders[0].grant.iteration, 5);
  EXPECT_EQ(orders[0].grant.lanes[0].next_episode, 12u);
  EXPECT_EQ(orders[0].grant.lanes[1].next_episode, 30u);
  EXPECT_TRUE(orders[0].grant.lanes[0].fresh);
  // What is granted may have been begun when a checkpoint is taken now.
  EXPECT_EQ(scheduler_->Lanes()[0].next_episode, 22 + GrantScheduler::kSpareEpisodes);
  PlayAndDeliver(orders, 5);
  EXPECT_EQ(scheduler_->Lanes()[0].next_episode, 14u) << "exact between iterations";
}

TEST_F(GrantSchedulerTest, KnowsWhoMayPlayByOlderPolicies) {
  using Owners = std::vector<WorkerId>;
  rollout_options_.min_episode_steps = rollout_options_.max_episode_steps = 8;
  Make(2, 10, 1);
  scheduler_->SetPublished(0, 0);
  Join(1);
  EXPECT_EQ(scheduler_->OwnersOfOlderEpisodes(1), Owners()) << "nobody has begun";
  PlayAndDeliver(Schedule(), 0);
  scheduler_->SetRevision(1);
  EXPECT_EQ(scheduler_->OwnersOfOlderEpisodes(1), Owners{WorkerId(1)});
  EXPECT_EQ(scheduler_->OwnersOfOlderEpisodes(0), Owners());
  // In the next grant the episodes go on, and others begin: those that its fragments show are of its policies.
  scheduler_->SetPublished(1, 1);
  const auto orders = Schedule();
  ASSERT_EQ(orders.size(), 1u);
  for (const auto& fragment : Play(orders[0], 1)) {
    auto newer = std::make_shared<sample::MultiAgentBatch>(*fragment);
    newer->policies_revision = 1;
    EXPECT_EQ(Deliver(1, newer).disposition, Disposition::kAccepted);
  }
  EXPECT_EQ(scheduler_->OwnersOfOlderEpisodes(1), Owners());
  EXPECT_EQ(scheduler_->OwnersOfOlderEpisodes(2), Owners{WorkerId(1)});
  // A lane that is nobody's has no episodes, and one that moves begins a fresh one.
  scheduler_->RemoveWorker(WorkerId(1));
  EXPECT_EQ(scheduler_->OwnersOfOlderEpisodes(2), Owners());
  scheduler_->SetRevision(2);
  scheduler_->SetPublished(2, 2);
  Join(2);
  EXPECT_EQ(Schedule().size(), 1u);
  EXPECT_EQ(scheduler_->OwnersOfOlderEpisodes(2), Owners());
}

}  // namespace
}  // namespace troupe::learner
