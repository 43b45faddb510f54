// The free-running plan of a GrantScheduler.

#include <map>
#include <vector>

#include "lib/learner/testing/grant_scheduler_fixture.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::learner {
namespace {

using sample::Disposition;
using sample::WorkerId;

class FreeRunningTest : public GrantSchedulerFixture {
 protected:
  void MakeFree(int32_t num_envs, int64_t batch, int32_t num_workers) {
    options_.free_running = true;
    Make(num_envs, batch, num_workers, /*lag=*/2);
    scheduler_->SetPublished(0, 0);
    for (int32_t worker = 1; worker <= num_workers; ++worker) Join(static_cast<uint64_t>(worker));
  }
  static std::map<uint64_t, int64_t> StepsByWorker(const std::vector<GrantOrder>& orders) {
    std::map<uint64_t, int64_t> steps;
    for (const GrantOrder& order : orders) steps[order.worker.value()] += Steps({order});
    return steps;
  }
  static std::vector<GrantOrder> Of(uint64_t worker, const std::vector<GrantOrder>& orders) {
    std::vector<GrantOrder> own;
    for (const GrantOrder& order : orders) {
      if (order.worker.value() == worker) own.push_back(order);
    }
    return own;
  }
};

TEST_F(FreeRunningTest, EachWorkerHasTwoGrantsOfItsLanes) {
  MakeFree(4, 40, 2);
  const auto orders = Schedule();
  ASSERT_EQ(orders.size(), 4u);
  EXPECT_EQ(StepsByWorker(orders), (std::map<uint64_t, int64_t>{{1, 40}, {2, 40}}));
  EXPECT_EQ(orders[0].grant.lanes[0].env_id, orders[2].grant.lanes[0].env_id) << "lanes stay with their worker";
  EXPECT_GE(orders[2].grant.lanes[0].next_episode, orders[0].grant.lanes[0].next_episode + 10);
  EXPECT_TRUE(Schedule().empty());
}

TEST_F(FreeRunningTest, AWorkerThatDeliversWaitsForNobody) {
  MakeFree(4, 40, 2);
  auto orders = Schedule();
  // The second worker never delivers.
  std::vector<GrantOrder> of_first = Of(1, orders);
  for (int64_t batch = 0; batch < 50; ++batch) {
    for (int half = 0; half < 2; ++half) {
      ASSERT_FALSE(of_first.empty());
      PlayAndDeliver({of_first.front()}, batch);
      of_first.erase(of_first.begin());
      for (const GrantOrder& order : Schedule()) {
        EXPECT_EQ(order.worker, WorkerId(1));
        of_first.push_back(order);
      }
    }
    EXPECT_EQ(scheduler_->first_incomplete(), batch + 1) << "its data alone fills batches";
    EXPECT_EQ(scheduler_->EnvStepsBelow(batch + 1), 40 * (batch + 1));
    scheduler_->SetPublished(batch + 1, batch + 1);
    for (const GrantOrder& order : Schedule()) of_first.push_back(order);
  }
  // The slow one's rows are taken when they come.
  EXPECT_EQ(Deliver(2, Play(Of(2, orders).front(), 0).front()).disposition, Disposition::kAccepted);
}

TEST_F(FreeRunningTest, AFragmentIsOfTheIterationInWhichItArrives) {
  MakeFree(4, 40, 2);
  const auto orders = Schedule();
  PlayAndDeliver(Of(1, orders), 0);
  EXPECT_EQ(scheduler_->first_incomplete(), 1);
  const CheckedFragment late = Check(Play(Of(2, orders).front(), 0).front());
  ASSERT_EQ(scheduler_->Judge(WorkerId(2), late).disposition, Disposition::kAccepted);
  EXPECT_EQ(late.batch->iteration, 0);
  EXPECT_EQ(scheduler_->Accept(WorkerId(2), 1, 1, late), 1);
}

TEST_F(FreeRunningTest, NoMoreThanTwoBatchesAreAheadOfTheLearner) {
  MakeFree(4, 40, 2);
  int64_t granted = 0;
  std::vector<GrantOrder> orders = Schedule();
  for (int i = 0; i < 20; ++i) {
    granted += Steps(orders);
    PlayAndDeliver(orders, 0);
    orders = Schedule();
  }
  EXPECT_EQ(granted, 3 * 40);
  EXPECT_EQ(scheduler_->first_incomplete(), 3);
  scheduler_->SetPublished(1, 1);
  EXPECT_EQ(Steps(Schedule()), 40) << "as much as an update made room for";
}

TEST_F(FreeRunningTest, WhatAWorkerLeavesUndoneIsSampledByTheOthers) {
  MakeFree(4, 40, 2);
  auto orders = Schedule();
  scheduler_->RemoveWorker(WorkerId(2));
  orders = Of(1, orders);
  std::map<uint32_t, int64_t> steps;
  for (int64_t batch = 0; batch < 4; ++batch) {
    PlayAndDeliver(orders, 2 * batch);
    scheduler_->SetPublished(scheduler_->first_incomplete(), 2 * batch + 2);
    orders = Schedule();
    for (const GrantOrder& order : orders) {
      EXPECT_EQ(order.worker, WorkerId(1));
      for (const sample::GrantLane& lane : order.grant.lanes) steps[lane.env_id.value()] += lane.env_steps;
    }
  }
  EXPECT_EQ(steps.size(), 4u) << "all lanes are its";
  Join(3);
  bool has_some = false;
  for (int i = 0; i < 4 && !has_some; ++i) {
    PlayAndDeliver(orders, 8);
    scheduler_->SetPublished(scheduler_->first_incomplete(), 9);
    orders = Schedule();
    has_some = !Of(3, orders).empty();
  }
  EXPECT_TRUE(has_some);
}

TEST_F(FreeRunningTest, StopsWhereTheRunDoes) {
  for (const int64_t stop : {100, 120, 121}) {
    options_.stop.env_steps = stop;
    MakeFree(4, 40, 2);
    int64_t sampled = 0;
    for (int64_t done = 0; done < 10; ++done) {
      const auto orders = Schedule();
      sampled += Steps(orders);
      PlayAndDeliver(orders, done);
      scheduler_->SetPublished(scheduler_->first_incomplete(), done + 1);
    }
    EXPECT_EQ(sampled, (stop + 39) / 40 * 40) << "whole batches, none too many";
    EXPECT_EQ(scheduler_->EnvStepsBelow(scheduler_->first_incomplete()), sampled);
  }
  options_.stop = {.updates = 2};
  MakeFree(4, 40, 2);
  const auto orders = Schedule();
  PlayAndDeliver(orders, 0);
  EXPECT_EQ(Steps(orders), 80);
  scheduler_->SetPublished(2, 2);
  EXPECT_TRUE(Schedule().empty());
}

TEST_F(FreeRunningTest, CountsAgentSteps) {
  options_.count_steps_by = CountStepsBy::kAgentSteps;
  options_.num_agents = 2;
  MakeFree(4, 80, 2);
  for (int64_t done = 0; done < 5; ++done) {
    PlayAndDeliver(Schedule(), done);
    EXPECT_GT(scheduler_->first_incomplete(), done) << "it goes on until a batch is whole";
    scheduler_->SetPublished(done + 1, done + 1);
  }
}

TEST_F(FreeRunningTest, ManyWorkersShareTheBatch) {
  MakeFree(12, 36, 6);
  const auto orders = Schedule();
  const auto steps = StepsByWorker(orders);
  EXPECT_EQ(steps.size(), 6u);
  for (const auto& [worker, count] : steps) EXPECT_EQ(count, 12) << "worker " << worker;
}

}  // namespace
}  // namespace troupe::learner
