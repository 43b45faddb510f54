// Learn groups of a learner: what they keep is in its checkpoints, and their rows are counted apart.

#include <functional>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "lib/learner/learner.h"
#include "lib/learner/testing/test_run.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::learner {
namespace {

using policy::GroupId;
using policy::PolicySlot;
using Kind = StepOutcome::Kind;

/// RandomSchema's policies, of which the first two are a group; the others are not trained where `frozen`.
struct GroupsRun {
  explicit GroupsRun(bool frozen = false, uint64_t learner_epoch = 1) {
    config.schema = sample::RandomSchema(3);
    EXPECT_EQ(config.schema.policies.size(), 4u);
    for (int64_t i = 0; i < config.schema.num_info_columns; ++i) config.info_columns.push_back("info");
    config.options.num_envs = 4;
    config.options.train_batch_size = 40;
    config.options.num_workers = 1;
    config.learner_epoch = learner_epoch;
    for (const int32_t p : {2, 3}) {
      if (!frozen) break;
      config.schema.policies[PolicySlot(p)].policy_class = *policy::ParsePolicyClass("checkpoint:runs/old");
    }
    rollout = std::make_unique<sample::FakeRollout>(config.schema, sample::RandomRolloutOptions(config.schema, 3));
    trainer = std::make_unique<FakeTrainer>(config.schema.policies);
    trainer->KeepGroup({GroupId("team"), "qmix", {PolicySlot(0), PolicySlot(1)}, /*joint_steps=*/true});
  }
  void Make() {
    LearnerDeps deps;
    deps.trainer = trainer.get();
    deps.publisher = &publisher;
    deps.progress = &listener;
    auto made = Learner::Create(config, deps);
    ASSERT_TRUE(made.ok()) << made.status();
    learner = *std::move(made);
  }
  void TrainOnce() {
    if (port == nullptr) {
      port = std::make_shared<FakeWorkerPort>();
      ticket = *learner->Join({}, port);
    }
    while (auto grant = port->TryTakeGrant()) {
      for (auto& fragment : rollout->Play(*grant, publisher.version())) {
        ASSERT_TRUE(learner->Submit(ticket, ++sequence, fragment).ok());
      }
    }
    ASSERT_EQ(learner->Step(absl::ZeroDuration()).kind, Kind::kUpdated);
  }
  int64_t TrainedRows(int32_t slot) { return trainer->ExportState(PolicySlot(slot))->Integer("trained_rows"); }

  LearnerConfig config;
  std::unique_ptr<sample::FakeRollout> rollout;
  std::unique_ptr<FakeTrainer> trainer;
  FakePublisher publisher;
  FakeListener listener;
  std::unique_ptr<Learner> learner;
  std::shared_ptr<FakeWorkerPort> port;
  WorkerTicket ticket;
  uint64_t sequence = 0;
};

TEST(LearnerGroupsTest, RowsAreCountedByGroupAndThoseOfNoneApart) {
  GroupsRun run(/*frozen=*/true);
  run.Make();
  ASSERT_TRUE(run.learner->Start().ok());
  for (int k = 0; k < 4; ++k) run.TrainOnce();
  const LearnerStatus status = run.learner->Status();
  EXPECT_EQ(CheckConservation(status.books), absl::OkStatus());
  ASSERT_EQ(status.books.groups.size(), 1u);
  const GroupRows& team = status.books.groups[0];
  EXPECT_EQ(team.id, GroupId("team"));
  EXPECT_GT(team.trained, 0);
  EXPECT_EQ(team.trained, run.TrainedRows(0) + run.TrainedRows(1));
  EXPECT_EQ(team.uses, team.trained) << "each row once";
  EXPECT_GT(run.trainer->last_joint_steps(), 0) << "the group asks for them";
  EXPECT_GT(status.books.groupless.trained, 0);
  EXPECT_EQ(status.books.groupless.trained, run.TrainedRows(2) + run.TrainedRows(3));
  EXPECT_EQ(team.trained + status.books.groupless.trained, status.progress.rows.trained);
  EXPECT_EQ(*run.listener.records_.back().groups, status.books.groups);
}

TEST(LearnerGroupsTest, WithoutAGroupThatAsksThereAreNoJointSteps) {
  TestRun run;
  ASSERT_TRUE(run.learner_->Start().ok());
  auto worker = run.Join();
  run.Work(*worker);
  ASSERT_EQ(run.Step().kind, Kind::kUpdated);
  EXPECT_EQ(run.trainer_->last_joint_steps(), -1);
}

TEST(LearnerGroupsTest, WhatGroupsKeepIsSavedAndRestored) {
  GroupsRun run;
  run.Make();
  ASSERT_TRUE(run.learner->Start().ok());
  for (int k = 0; k < 3; ++k) run.TrainOnce();
  const auto saved = run.learner->SnapshotState();
  ASSERT_TRUE(saved.ok()) << saved.status();
  ASSERT_EQ(saved->state.groups.size(), 1u);
  EXPECT_EQ(saved->state.groups[0].id, GroupId("team"));
  const auto& kept = std::get<std::vector<int64_t>>(saved->state.groups[0].blocks.at(0).values);
  EXPECT_EQ(kept, (std::vector<int64_t>{run.TrainedRows(0), run.TrainedRows(1)}));

  GroupsRun next(/*frozen=*/false, /*learner_epoch=*/2);
  next.Make();
  ASSERT_TRUE(next.learner->Restore(saved->state).ok());
  ASSERT_TRUE(next.learner->Start().ok());
  EXPECT_EQ(next.learner->SnapshotState()->state.groups, saved->state.groups);
  next.TrainOnce();
  EXPECT_NE(next.learner->SnapshotState()->state.groups, saved->state.groups) << "it goes on from there";
  EXPECT_EQ(CheckConservation(next.learner->Status().books), absl::OkStatus());
}

TEST(LearnerGroupsTest, AGroupWhosePolicyWasRemovedIsInNoCheckpoint) {
  LearnerConfig config;
  config.schema = sample::SimpleSchema(2, 3);
  config.schema.policies.push_back(config.schema.policies[PolicySlot(0)]);
  config.schema.policies[PolicySlot(1)].id = policy::PolicyId("spare");
  const auto table =
      policy::PolicyTable::Make(config.schema.policies.values(), {true, true},
                                {{"*", {{config.schema.policies[PolicySlot(0)].id}}}}, config.schema.agent_ids);
  ASSERT_TRUE(table.ok()) << table.status();
  config.policies = *table;
  FakeTrainer trainer(config.schema.policies);
  trainer.KeepGroup({GroupId("first"), "sac", {PolicySlot(0)}});
  trainer.KeepGroup({GroupId("second"), "sac", {PolicySlot(1)}});
  FakePublisher publisher;
  LearnerDeps deps;
  deps.trainer = &trainer;
  deps.publisher = &publisher;
  const auto learner = Learner::Create(config, deps);
  ASSERT_TRUE(learner.ok()) << learner.status();
  ASSERT_TRUE((*learner)->Start().ok());
  EXPECT_EQ((*learner)->SnapshotState()->state.groups.size(), 2u);
  ASSERT_TRUE((*learner)->ChangePolicies(*(*table)->Remove(policy::PolicyId("spare")), {}).ok());
  EXPECT_EQ((*learner)->Status().books.groups.size(), 2u) << "its episodes play on";
  const auto saved = (*learner)->SnapshotState();
  ASSERT_EQ(saved->state.groups.size(), 1u);
  EXPECT_EQ(saved->state.groups[0].id, GroupId("first"));
  EXPECT_EQ((*learner)->Step(absl::ZeroDuration()).kind, Kind::kWaiting);
  EXPECT_EQ((*learner)->Status().books.groups.size(), 1u) << "its slot is free";
  EXPECT_EQ((*learner)->SnapshotState()->state.groups, saved->state.groups);
}

TEST(LearnerGroupsTest, AStateOfAGroupThatDoesNotFitIsRefused) {
  GroupsRun run;
  run.Make();
  ASSERT_TRUE(run.learner->Start().ok());
  const auto saved = run.learner->SnapshotState();
  ASSERT_TRUE(saved.ok()) << saved.status();
  const auto restore = [&](const std::function<void(policy::GroupState&)>& change) {
    GroupsRun next(/*frozen=*/false, /*learner_epoch=*/2);
    next.Make();
    LearnerState state = saved->state;
    change(state.groups[0]);
    return next.learner->Restore(state).code();
  };
  EXPECT_EQ(restore([](policy::GroupState&) {}), absl::StatusCode::kOk);
  EXPECT_EQ(restore([](policy::GroupState& group) { group.id = GroupId("other"); }), absl::StatusCode::kNotFound);
  EXPECT_EQ(restore([](policy::GroupState& group) { group.blocks[0].shape = {3}; }),
            absl::StatusCode::kInvalidArgument);
}

TEST(LearnerGroupsTest, ABatchThatIsGivenUpIsEvicted) {
  GroupsRun run;
  run.Make();
  ASSERT_TRUE(run.learner->Start().ok());
  run.TrainOnce();
  const auto team = [&run] {
    for (const GroupRows& rows : run.learner->Status().books.groups) {
      if (rows.id == GroupId("team")) return rows;
    }
    ADD_FAILURE() << "the group is not there";
    return GroupRows();
  };
  const GroupRows before = team();
  while (auto grant = run.port->TryTakeGrant()) {
    for (auto& fragment : run.rollout->Play(*grant, run.publisher.version())) {
      ASSERT_TRUE(run.learner->Submit(run.ticket, ++run.sequence, fragment).ok());
    }
  }
  const int64_t queued = team().queued;
  EXPECT_GT(queued, 0);
  run.trainer->FailNext(absl::InternalError("out of memory"));
  ASSERT_EQ(run.learner->Step(absl::ZeroDuration()).kind, Kind::kFailed);
  const GroupRows after = team();
  EXPECT_EQ(after.evicted + after.aged, before.aged + queued);
  EXPECT_EQ(after.queued, 0);
  EXPECT_EQ(after.trained, before.trained);
  EXPECT_EQ(after.uses, before.uses);
  EXPECT_EQ(CheckConservation(run.learner->Status().books), absl::OkStatus());
}

}  // namespace
}  // namespace troupe::learner
