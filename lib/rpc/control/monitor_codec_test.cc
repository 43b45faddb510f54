#include "lib/rpc/control/monitor_codec.h"

#include <cmath>
#include <limits>
#include <string>

#include "lib/policy/testing.h"
#include <gtest/gtest.h>

namespace troupe::rpc {
namespace {

RunStatus Everything() {
  RunStatus status;
  status.build_version = "1.0";
  status.run_name = "run";
  status.learner.state = "sampling";
  status.learner.reason = "why";
  status.learner.learner_epoch = 3;
  status.learner.queue_bytes = 5;
  status.learner.queue_budget_bytes = 6;
  status.learner.fragments = {28, 7, 7, 7, 7, 1, 2};
  status.learner.books.groups = {{policy::GroupId("a"), 20, 1, 16, 1, 2, 30}};
  status.learner.books.groupless = {policy::GroupId(), 5, 2, 3, 0, 0, 3};
  learner::ProgressRecord& progress = status.learner.progress;
  progress.updates = 10;
  progress.env_steps = 11;
  progress.agent_steps = 12;
  progress.episodes = 13;
  progress.wall_clock_s = 1.5;
  progress.env_steps_per_s = 2.5;
  progress.return_mean = 0.1;
  progress.rewards_differ = true;
  progress.expired_grants = 14;
  progress.rows = {40, 31, 4, 3, 2, 11, 10, 9, 1, 7};
  progress.env_counters.errors = 15;
  ConnectedWorker& worker = status.workers.emplace_back();
  worker.name = "host:17";
  worker.gets_no_work = true;
  worker.worker.id = sample::WorkerId(7);
  worker.worker.epoch = sample::WorkerEpoch(2);
  worker.worker.lanes = 8;
  worker.worker.outstanding_steps = 9;
  worker.worker.accepted_rows = 10;
  worker.worker.expired_grants = 1;
  worker.worker.recent_episodes = {30, 20};
  worker.worker.gets_no_work = "too many failures";
  worker.worker.policy_lag = 0.5;
  worker.worker.since_last_seen = absl::Milliseconds(250);
  status.workers.emplace_back();
  status.degraded = {"no room"};
  PolicyStatus& policy = status.policies.emplace_back();
  policy.id = policy::PolicyId("p");
  policy.version = {3, 10};
  policy.trains = true;
  policy.return_count = 3;
  policy.return_mean = 1.1;
  policy.return_min = -1;
  policy.return_max = 4;
  policy.rows.accepted = 30;
  policy.rows.dropped = 12;
  policy.rows.aged = 11;
  policy.exploration = {{"epsilon", 0.25}};
  status.door = {{"connections closed: no place", 3}, {"calls refused: too many on one connection", 4}};
  return status;
}

TEST(MonitorCodecTest, AStatusComesAsItWasSent) {
  const v1::StatusReply sent = ToProto(Everything());
  const v1::StatusReply back = ToProto(FromProto(sent));
  EXPECT_EQ(back.SerializeAsString(), sent.SerializeAsString()) << sent.DebugString() << back.DebugString();
  EXPECT_TRUE(std::isnan(sent.return_sum())) << "no episode has ended";
  const RunStatus status = FromProto(sent);
  EXPECT_EQ(status.learner.progress.rows.aged, 7);
  EXPECT_EQ(status.policies[0].rows.aged, 11);
  EXPECT_EQ(status.policies[0].exploration, Everything().policies[0].exploration);
  EXPECT_FALSE(status.learner.progress.return_sum.has_value());
  EXPECT_EQ(status.learner.progress.return_mean, 0.1);
  EXPECT_EQ(status.learner.progress.rows.trained, 11);
  EXPECT_EQ(status.learner.fragments.unknown, 2);
  EXPECT_EQ(status.learner.books.groups, Everything().learner.books.groups);
  EXPECT_EQ(status.learner.books.groupless, Everything().learner.books.groupless);
  EXPECT_EQ(status.policies[0].return_mean, 1.1);
  EXPECT_EQ(status.workers[0].worker.since_last_seen, absl::Milliseconds(250));
  EXPECT_FALSE(status.workers[1].gets_no_work);
}

TEST(MonitorCodecTest, WhatWhoeverAnswersSaysIsTaken) {
  v1::StatusReply reply;
  v1::WorkerStatus* const worker = reply.add_workers();
  worker->set_num_envs(std::numeric_limits<int64_t>::max());
  worker->set_gets_no_work(true);
  reply.mutable_env_counters()->set_errors(-1);
  for (int i = 0; i < 1000; ++i) reply.add_door()->set_count(i);
  const RunStatus status = FromProto(reply);
  EXPECT_EQ(status.workers[0].worker.lanes, std::numeric_limits<int32_t>::max());
  EXPECT_TRUE(status.workers[0].gets_no_work) << "its words are withheld";
  EXPECT_EQ(status.door.size(), kNumDoorReasons);
  EXPECT_EQ(status.learner.progress.env_counters.errors, 0);
}

TEST(MonitorCodecTest, AListingComesAsItWasSent) {
  const policy::PolicySpec spec = policy::SmallSpecForTesting();
  policy::PolicyTablePtr table = *policy::PolicyTable::Make({spec}, {true}, {{"*", {{spec.id, 0.5}}}}, {"x", "y"});
  table = *table->Replace(spec);
  const v1::PoliciesReply sent = ToProto(ListPolicies(*table, /*whole=*/true));
  const PoliciesAnswer answer = FromProto(sent);
  EXPECT_EQ(ToProto(answer.listing).SerializeAsString(), sent.SerializeAsString()) << sent.DebugString();
  EXPECT_EQ(answer.table_json, "");
  ASSERT_EQ(answer.listing.policies.size(), 2u);
  EXPECT_TRUE(answer.listing.policies[0].replaced);
  EXPECT_EQ(answer.listing.policies[1].id, spec.id);
  EXPECT_EQ(answer.listing.mapping[0].policies[0].weight, 0.5);
}

}  // namespace
}  // namespace troupe::rpc
