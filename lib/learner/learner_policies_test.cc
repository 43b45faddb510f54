#include <memory>
#include <utility>
#include <vector>

#include "lib/learner/learner.h"
#include "lib/learner/testing/fake_trainer.h"
#include "lib/learner/testing/fake_worker.h"
#include "lib/policy/parameter_layout.h"
#include "lib/policy/policy_entry.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::learner {
namespace {

using policy::PolicyId;
using policy::PolicySlot;
using policy::PolicyTablePtr;
using sample::Disposition;
using testing::HasSubstr;
using Kind = StepOutcome::Kind;

/// Two agents that play "shared"; "spare" is there and plays nobody. 4 environments, 40 env steps an update, one
/// worker.
class LearnerPoliciesTest : public testing::Test {
 protected:
  explicit LearnerPoliciesTest(int32_t episode_steps = 5) {
    config_.schema = sample::SimpleSchema(2, 3);
    policy::PolicySpec spare = config_.schema.policies[PolicySlot(0)];
    spare.id = PolicyId("spare");
    config_.schema.policies.push_back(spare);
    config_.policies = *policy::PolicyTable::Make(config_.schema.policies.values(), {true, false},
                                                  {{"*", {{PolicyId("shared")}}}}, config_.schema.agent_ids);
    config_.options.num_envs = 4;
    config_.options.train_batch_size = 40;
    config_.options.num_workers = 1;
    rollout_options_.min_episode_steps = rollout_options_.max_episode_steps = episode_steps;
    Make();
  }

  void Make() {
    trainer_ = std::make_unique<FakeTrainer>(config_.policies == nullptr ? config_.schema.policies
                                                                         : config_.policies->Specs());
    LearnerDeps deps;
    deps.trainer = trainer_.get();
    deps.publisher = &publisher_;
    deps.clock = &clock_;
    auto made = Learner::Create(config_, deps);
    ASSERT_TRUE(made.ok()) << made.status();
    learner_ = *std::move(made);
    rollout_ = std::make_unique<sample::FakeRollout>(config_.schema, rollout_options_);
    port_ = std::make_shared<FakeWorkerPort>();
    next_sequence_ = 1;
  }
  void Begin() {
    ASSERT_TRUE(learner_->Start().ok());
    const auto ticket = learner_->Join({}, port_);
    ASSERT_TRUE(ticket.ok());
    ticket_ = *ticket;
  }

  NewPolicy Fresh(const PolicyTablePtr& table, const char* id) {
    NewPolicy policy{*table->FindSlot(PolicyId(id)), {}, PolicySlot(0)};
    const auto size = static_cast<size_t>(policy::ParameterLayout::For(table->Find(policy.slot)->spec).size());
    policy.state.Set(policy::kParameters, std::vector<float>(size, 0.5f));
    return policy;
  }
  policy::PolicySpec Spec(const char* id) {
    policy::PolicySpec spec = config_.schema.policies[PolicySlot(0)];
    spec.id = PolicyId(id);
    return spec;
  }
  absl::Status Change(const absl::StatusOr<PolicyTablePtr>& next, std::vector<NewPolicy> added = {}) {
    EXPECT_TRUE(next.ok()) << next.status();
    return learner_->ChangePolicies(*next, {std::move(added)});
  }
  /// Does what is granted; the dispositions of the fragments.
  std::vector<Disposition> Work() {
    std::vector<Disposition> got;
    while (auto grant = port_->TryTakeGrant()) {
      last_grant_ = *grant;
      for (auto& fragment : rollout_->Play(*grant, {config_.learner_epoch, learner_->Status().progress.updates})) {
        const auto ack = learner_->Submit(ticket_, next_sequence_++, fragment);
        EXPECT_TRUE(ack.ok()) << ack.status();
        if (ack.ok()) got.push_back(ack->disposition);
      }
    }
    return got;
  }
  Kind Step() { return learner_->Step(absl::ZeroDuration()).kind; }
  const RowCounters& Rows() { return rows_ = learner_->Status().progress.rows; }

  LearnerConfig config_;
  sample::FakeRolloutOptions rollout_options_;
  base::FakeClock clock_;
  FakePublisher publisher_;
  std::unique_ptr<FakeTrainer> trainer_;
  std::unique_ptr<Learner> learner_;
  std::unique_ptr<sample::FakeRollout> rollout_;
  std::shared_ptr<FakeWorkerPort> port_;
  WorkerTicket ticket_;
  uint64_t next_sequence_ = 1;
  sample::Grant last_grant_;
  RowCounters rows_;
};

TEST_F(LearnerPoliciesTest, AGrantCarriesThePoliciesOnceTheyHaveChanged) {
  Begin();
  Work();
  EXPECT_EQ(last_grant_.policies, nullptr);
  const PolicyTablePtr next = *learner_->Policies()->Add(Spec("new"), true);
  ASSERT_TRUE(Change(next, {Fresh(next, "new")}).ok());
  EXPECT_EQ(learner_->Policies(), next);
  ASSERT_NE(publisher_.Newest(2), nullptr) << "published before anybody hears of it";
  EXPECT_EQ(publisher_.Newest(2)->id, PolicyId("new"));
  EXPECT_EQ(publisher_.Newest(2)->version, (policy::WeightVersion{1, 0}));
  ASSERT_EQ(Step(), Kind::kUpdated);
  EXPECT_EQ(publisher_.Newest(2)->version, (policy::WeightVersion{1, 0})) << "nobody has played it";
  EXPECT_EQ(publisher_.version(), (policy::WeightVersion{1, 1})) << "it is current all the same";
  Work();
  EXPECT_EQ(last_grant_.policies, next);
}

TEST_F(LearnerPoliciesTest, WhatWasTrainedOnDeadAgentsAloneIsPublished) {
  Begin();
  trainer_->TakeAllForDead();
  Work();
  ASSERT_EQ(Step(), Kind::kUpdated);
  EXPECT_EQ(publisher_.Newest(0)->version, (policy::WeightVersion{1, 1}));
  EXPECT_EQ(publisher_.Newest(0)->actor, (*trainer_->Snapshot(PolicySlot(0)))->actor);
  EXPECT_EQ(publisher_.Newest(1)->version, (policy::WeightVersion{1, 0})) << "nobody has played it";
}

TEST_F(LearnerPoliciesTest, ANewPolicyPlaysAndTrainsOnceItIsMapped) {
  Begin();
  PolicyTablePtr next = *learner_->Policies()->Add(Spec("new"), true);
  ASSERT_TRUE(Change(next, {Fresh(next, "new")}).ok());
  ASSERT_TRUE(Change(next->SetMapping({{"agent_0", {{PolicyId("shared")}}}, {"*", {{PolicyId("new")}}}})).ok());
  for (int update = 0; update < 2; ++update) {
    Work();
    ASSERT_EQ(Step(), Kind::kUpdated);
  }
  const LearnerStatus status = learner_->Status();
  ASSERT_EQ(status.policy_rows.size(), 3u);
  EXPECT_EQ(status.policy_rows[PolicySlot(2)].trained, 40) << "one agent, from the second grant on";
  EXPECT_EQ(trainer_->ExportState(PolicySlot(2))->Integer("trained_rows"), 40);
  // Frozen, its rows still count, and it stays as it is.
  ASSERT_TRUE(Change(learner_->Policies()->SetTrains(PolicyId("new"), false)).ok());
  Work();
  ASSERT_EQ(Step(), Kind::kUpdated);
  EXPECT_EQ(learner_->Status().policy_rows[PolicySlot(2)].trained, 80);
}

TEST_F(LearnerPoliciesTest, ARemovedPolicyGoesOnceNobodyPlaysIt) {
  Begin();
  ASSERT_TRUE(Change(learner_->Policies()->SetMapping({{"*", {{PolicyId("spare")}}}})).ok());
  ASSERT_TRUE(Change(learner_->Policies()->Remove(PolicyId("shared"))).ok());
  EXPECT_EQ(Work(), std::vector<Disposition>{Disposition::kAccepted}) << "granted before: its rows are taken";
  ASSERT_EQ(Step(), Kind::kUpdated);
  EXPECT_EQ(trainer_->ExportState(PolicySlot(0))->Integer("trained_rows"), 80) << "and trained on";
  EXPECT_NE(learner_->Policies()->Find(PolicySlot(0)), nullptr) << "its episodes may go on";
  Work();
  ASSERT_EQ(Step(), Kind::kUpdated);
  EXPECT_EQ(Step(), Kind::kWaiting);
  EXPECT_EQ(learner_->Policies()->Find(PolicySlot(0)), nullptr);
  EXPECT_FALSE(trainer_->Has(PolicySlot(0)));
  EXPECT_EQ(Rows().stale, 0);
  // Its slot is the next one's.
  const PolicyTablePtr next = *learner_->Policies()->Add(Spec("next"), true);
  EXPECT_EQ(next->FindSlot(PolicyId("next")), PolicySlot(0));
  NewPolicy fresh = Fresh(next, "next");
  fresh.like = PolicySlot(1);
  ASSERT_TRUE(Change(next, {fresh}).ok());
  EXPECT_EQ(learner_->Status().policy_rows[PolicySlot(0)].trained, 0) << "it has trained on nothing yet";
}

class LongEpisodesTest : public LearnerPoliciesTest {
 protected:
  LongEpisodesTest() : LearnerPoliciesTest(1000) {}
};

TEST_F(LongEpisodesTest, ASlotWaitsForTheEpisodesThatPlayIt) {
  Begin();
  Work();
  ASSERT_EQ(Step(), Kind::kUpdated);
  ASSERT_TRUE(Change(learner_->Policies()->SetMapping({{"*", {{PolicyId("spare")}}}})).ok());
  ASSERT_TRUE(Change(learner_->Policies()->Remove(PolicyId("shared"))).ok());
  for (int update = 0; update < 5; ++update) {
    Work();
    ASSERT_EQ(Step(), Kind::kUpdated);
    ASSERT_NE(learner_->Policies()->Find(PolicySlot(0)), nullptr);
  }
  EXPECT_EQ(Rows().stale, 0);
  // Without its worker there are no episodes.
  learner_->Leave(ticket_);
  EXPECT_EQ(Step(), Kind::kWaiting);
  EXPECT_EQ(learner_->Policies()->Find(PolicySlot(0)), nullptr);
}

TEST_F(LongEpisodesTest, AReplacedPolicysRowsAreStaleAndItsEpisodesEnd) {
  Begin();
  Work();
  const PolicyTablePtr next = *learner_->Policies()->Replace(Spec("shared"));
  ASSERT_TRUE(Change(next, {Fresh(next, "shared")}).ok());
  // What was accepted before is dropped, what comes after is stale, and granted again to be played by the new one.
  ASSERT_EQ(Step(), Kind::kUpdated);
  EXPECT_EQ(Rows().dropped, 80 - 8 + 8);
  EXPECT_EQ(Rows().trained, 0);
  EXPECT_EQ(Work(), (std::vector<Disposition>{Disposition::kStale, Disposition::kAccepted}));
  ASSERT_EQ(Step(), Kind::kUpdated);
  EXPECT_EQ(trainer_->ExportState(*next->FindSlot(PolicyId("shared")))->Integer("trained_rows"), Rows().trained);
  EXPECT_GT(Rows().trained, 0);
  EXPECT_TRUE(CheckConservation(Rows()).ok());
  EXPECT_EQ(Step(), Kind::kWaiting);
  EXPECT_EQ(learner_->Policies()->Find(PolicySlot(0)), nullptr) << "nobody is in its episodes any more";
}

TEST_F(LearnerPoliciesTest, WhatDoesNotFollowIsRefused) {
  const auto code = [&](const PolicyTablePtr& next, std::vector<NewPolicy> added) {
    const PolicyTablePtr before = learner_->Policies();
    const absl::Status status = learner_->ChangePolicies(next, {std::move(added)});
    EXPECT_EQ(learner_->Policies(), before);
    EXPECT_FALSE(trainer_->Has(PolicySlot(2)));
    return status.code();
  };
  const PolicyTablePtr first = learner_->Policies();
  const PolicyTablePtr more = *first->Add(Spec("new"), true);
  EXPECT_EQ(code(more, {Fresh(more, "new")}), absl::StatusCode::kFailedPrecondition) << "not started";
  Begin();
  EXPECT_EQ(code(first, {}), absl::StatusCode::kInvalidArgument) << "no later revision";
  EXPECT_EQ(code(more, {}), absl::StatusCode::kInvalidArgument) << "no state for the new one";
  EXPECT_EQ(code(*first->SetTrains(PolicyId("spare"), true), {Fresh(more, "new")}), absl::StatusCode::kInvalidArgument);
  const PolicyTablePtr released = *(*first->Remove(PolicyId("spare")))->Release({PolicySlot(1)});
  EXPECT_EQ(code(released, {}), absl::StatusCode::kInvalidArgument) << "only the learner releases slots";
  NewPolicy wrong = Fresh(more, "new");
  wrong.like = PolicySlot(7);
  EXPECT_EQ(code(more, {wrong}), absl::StatusCode::kInvalidArgument);
  wrong = Fresh(more, "new");
  wrong.state.Set(policy::kParameters, std::vector<float>(wrong.state.parameters().size() - 1));
  EXPECT_EQ(code(more, {wrong}), absl::StatusCode::kInvalidArgument) << "of the trainer";
  trainer_->FailNext(absl::ResourceExhaustedError("no memory"));
  EXPECT_EQ(code(more, {Fresh(more, "new")}), absl::StatusCode::kResourceExhausted);
  learner_->RequestDrain("enough");
  EXPECT_EQ(code(more, {Fresh(more, "new")}), absl::StatusCode::kUnavailable);
}

TEST_F(LearnerPoliciesTest, RevisionsThatNoWorkerHasAreInvalid) {
  Begin();
  ASSERT_TRUE(Change(learner_->Policies()->SetTrains(PolicyId("spare"), true)).ok());
  const auto grant = port_->TryTakeGrant();
  ASSERT_TRUE(grant.has_value());
  const auto fragment = rollout_->Play(*grant, {1, 0})[0];
  fragment->policies_revision = 2;
  const auto ack = learner_->Submit(ticket_, 1, fragment);
  ASSERT_TRUE(ack.ok());
  EXPECT_EQ(ack->disposition, Disposition::kInvalid);
  EXPECT_EQ(ack->reason, "policies_revision is 2, expected 0 to 1");
}

TEST_F(LearnerPoliciesTest, ARestartedLearnerGoesOnWithThePoliciesOfItsCheckpoint) {
  Begin();
  PolicyTablePtr next = *learner_->Policies()->Add(Spec("new"), true);
  ASSERT_TRUE(Change(next, {Fresh(next, "new")}).ok());
  ASSERT_TRUE(Change(next->Remove(PolicyId("spare"))).ok());
  Work();
  ASSERT_EQ(Step(), Kind::kUpdated);
  const auto saved = learner_->SnapshotState();
  ASSERT_TRUE(saved.ok()) << saved.status();
  const LearnerState state = saved->state;
  ASSERT_NE(state.table, nullptr);
  EXPECT_EQ(state.table->Find(PolicySlot(1)), nullptr) << "no episode outlives the learner";
  ASSERT_EQ(state.policies.size(), 3u);
  EXPECT_TRUE(state.policies[1].parameters().empty());
  EXPECT_EQ(state.policies[2].id, PolicyId("new"));
  EXPECT_EQ(state.trained_as, (std::vector<PolicyId>{PolicyId("shared"), PolicyId(), PolicyId("shared")}));

  config_.learner_epoch = 2;
  config_.policies = state.table;
  Make();
  ASSERT_TRUE(learner_->Restore(state).ok());
  Begin();
  EXPECT_EQ(learner_->Policies()->revision(), int64_t{1} << 32) << "above all that the one before may have given out";
  EXPECT_EQ(trainer_->ExportState(PolicySlot(2))->parameters(), state.policies[2].parameters());
  Work();
  EXPECT_EQ(last_grant_.policies, learner_->Policies()) << "also a worker that was here before must know";
  EXPECT_EQ(Step(), Kind::kUpdated);
  // What the former learner's workers still hold is stale, whatever its slots mean now.
  const auto old = sample::MakeBatch(config_.schema, rollout_options_, 1, 3, {1, 0});
  old->policies_revision = old->oldest_revision = 99;
  const auto ack = learner_->Submit(ticket_, next_sequence_++, old);
  ASSERT_TRUE(ack.ok());
  EXPECT_EQ(ack->disposition, Disposition::kStale);
  EXPECT_THAT(ack->reason, HasSubstr("learner epoch 1"));
}

// Fragments of before the change and of after it are told by their revisions, and go into the same batches.
TEST_F(LearnerPoliciesTest, TheStateComesWithItsFirstReaderAndGoesWithTheLast) {
  config_.schema.env_state_size = 4;
  config_.options.max_policy_lag = 2;
  Make();
  Begin();
  std::vector<bool> with_state;
  const auto work = [&] {
    with_state.clear();
    while (const auto grant = port_->TryTakeGrant()) {
      last_grant_ = *grant;
      for (const auto& fragment : rollout_->Play(*grant, {1, learner_->Status().progress.updates})) {
        const auto ack = learner_->Submit(ticket_, next_sequence_++, fragment);
        ASSERT_TRUE(ack.ok()) << ack.status();
        EXPECT_EQ(ack->disposition, Disposition::kAccepted) << ack->reason;
        with_state.push_back(fragment->state.present());
      }
    }
    ASSERT_FALSE(with_state.empty());
  };
  work();
  EXPECT_THAT(with_state, testing::Each(false));
  ASSERT_EQ(Step(), Kind::kUpdated);

  policy::PolicySpec reader = Spec("reader");
  reader.SetCriticInput(policy::NetworkInput::kState, 4);
  const PolicyTablePtr next = *(*learner_->Policies()->Add(reader, true))->SetMapping({{"*", {{PolicyId("reader")}}}});
  ASSERT_TRUE(Change(next, {Fresh(next, "reader")}).ok());
  work();  // granted before the change
  EXPECT_THAT(with_state, testing::Contains(false));
  while (Step() == Kind::kUpdated) {
  }
  for (int i = 0; i < 3; ++i) {
    work();
    EXPECT_THAT(with_state, testing::Each(true));
    ASSERT_EQ(Step(), Kind::kUpdated);
  }
  // Who does not know the table yet hands in what the old one asks for, who knows it must not.
  auto bare =
      std::make_shared<sample::MultiAgentBatch>(*sample::MakeBatch(config_.schema, rollout_options_, 1, 3, {1, 0}));
  bare->policies_revision = bare->oldest_revision = next->revision();
  const auto ack = learner_->Submit(ticket_, next_sequence_++, bare);
  ASSERT_TRUE(ack.ok()) << ack.status();
  EXPECT_EQ(ack->disposition, Disposition::kInvalid);
  EXPECT_THAT(ack->reason, HasSubstr("env-step table: column 'state' is absent, expected float32["));
  ASSERT_TRUE(port_->TryTakeGrant().has_value()) << "the one that was out, which that has ended";

  ASSERT_TRUE(
      Change(*(*learner_->Policies()->SetMapping({{"*", {{PolicyId("shared")}}}}))->Remove(PolicyId("reader"))).ok());
  for (int i = 0; i < 6; ++i) {
    work();
    ASSERT_EQ(Step(), Kind::kUpdated);
  }
  EXPECT_EQ(learner_->Policies()->Find(PolicySlot(2)), nullptr) << "its slot is free";
  EXPECT_THAT(with_state, testing::Each(false));
}

TEST_F(LearnerPoliciesTest, HowAPolicyTrainsGoesToTheTrainerWithItsTable) {
  Begin();
  const PolicyTablePtr before = learner_->Policies();
  const PolicyTablePtr next = *before->Set(PolicyId("shared"), {"algorithm.lr=0.5"});
  TableChange change;
  change.algorithm = NewAlgorithm{*next->FindSlot(PolicyId("shared")), {.name = "x", .options = {{"lr", 0.5}}}};
  trainer_->FailNext(absl::FailedPreconditionError("it has no place for it"));
  EXPECT_EQ(learner_->ChangePolicies(next, change).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(learner_->Policies(), before);
  ASSERT_EQ(learner_->ChangePolicies(next, change), absl::OkStatus());
  EXPECT_EQ(learner_->Policies(), next);
  EXPECT_EQ(trainer_->last_algorithm(), change.algorithm->algorithm);
}

TEST_F(LearnerPoliciesTest, ALearnerWithoutATableKeepsItsPolicies) {
  const PolicyTablePtr table = config_.policies;
  config_.policies = nullptr;
  Make();
  Begin();
  EXPECT_EQ(learner_->ChangePolicies(*table->SetTrains(PolicyId("spare"), true), {}).code(),
            absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace troupe::learner
