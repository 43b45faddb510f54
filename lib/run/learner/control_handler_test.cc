#include "lib/run/learner/control_handler.h"

#include <limits>
#include <memory>
#include <vector>

#include "lib/learner/testing/fake_trainer.h"
#include "lib/learner/testing/fake_worker.h"
#include "lib/rpc/transport/limits.h"
#include "lib/sample/testing/batch_maker.h"
#include <gtest/gtest.h>

namespace troupe::run {
namespace {

class ControlHandlerTest : public testing::Test {
 protected:
  ControlHandlerTest() { MakeLearner(1, nullptr); }
  /// A learner, which goes on from `state` where there is one, and what asks it.
  void MakeLearner(uint64_t learner_epoch, const learner::LearnerState* state) {
    control_.reset();
    binding_.reset();
    learner_.reset();
    learner::LearnerConfig config;
    config.learner_epoch = learner_epoch;
    config.schema = sample::SimpleSchema(2, 3);
    config.options.num_envs = 1;
    config.options.train_batch_size = 1;
    const policy::PolicyId shared = config.schema.policies[policy::PolicySlot(0)].id;
    config.policies = *policy::PolicyTable::Make(config.schema.policies.values(), {true}, {{"*", {{shared}}}},
                                                 config.schema.agent_ids);
    trainer_ = std::make_unique<learner::FakeTrainer>(config.schema.policies);
    learner::LearnerDeps deps;
    deps.trainer = trainer_.get();
    deps.publisher = &publisher_;
    learner_ = *learner::Learner::Create(config, deps);
    if (state != nullptr) {
      EXPECT_EQ(learner_->Restore(*state), absl::OkStatus());
    }
    binding_ = std::make_unique<rpc::LearnerBinding>(learner_.get());
    control_ =
        std::make_unique<ControlHandler>(learner_.get(), binding_.get(), &degradations_, &door_counts_, "run", &clock_);
  }
  void Ask() {
    control_->ChangePolicies({}, policy::RemovePolicy{policy::PolicyId("x")},
                             [this](absl::StatusOr<int64_t> answer) { answers_.push_back(answer.status()); });
  }

  void AskForAnother() {
    policy::AddPolicy add;
    add.id = policy::PolicyId("another");
    control_->ChangePolicies({}, add, [this](absl::StatusOr<int64_t> answer) { answers_.push_back(answer.status()); });
    control_->TakeChanges();
  }
  absl::Status Join(uint64_t incarnation) {
    rpc::LearnerEndpoint::JoinRequest hello;
    hello.incarnation = incarnation;
    hello.next_sequence = hello.first_unacked = 1;
    hello.name = "worker";
    const auto joined = binding_->Join(hello, std::make_shared<learner::FakeWorkerPort>());
    if (joined.ok()) newest_ = joined->ticket;
    return joined.status();
  }

  base::FakeClock clock_;
  Degradations degradations_;
  rpc::DoorCounts door_counts_;
  learner::WorkerTicket newest_;
  learner::FakePublisher publisher_;
  std::unique_ptr<learner::FakeTrainer> trainer_;
  std::unique_ptr<learner::Learner> learner_;
  std::unique_ptr<rpc::LearnerBinding> binding_;
  std::unique_ptr<ControlHandler> control_;
  std::vector<absl::Status> answers_;
};

TEST_F(ControlHandlerTest, ChangesWaitForTheUpdateThreadUpToALimit) {
  for (size_t i = 0; i < ControlHandler::kMaxChanges; ++i) Ask();
  EXPECT_TRUE(answers_.empty());
  Ask();
  ASSERT_EQ(answers_.size(), 1u);
  EXPECT_EQ(answers_[0].code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(control_->TakeChanges().size(), ControlHandler::kMaxChanges);
  EXPECT_TRUE(control_->TakeChanges().empty());
  Ask();
  EXPECT_EQ(answers_.size(), 1u) << "there is room again";
}

TEST_F(ControlHandlerTest, SoManyPoliciesMayBeAddedAnHour) {
  for (size_t i = 0; i < ControlHandler::kMaxAddedPerHour; ++i) AskForAnother();
  EXPECT_TRUE(answers_.empty());
  clock_.Advance(absl::Minutes(20));
  AskForAnother();
  ASSERT_EQ(answers_.size(), 1u);
  EXPECT_EQ(answers_[0],
            absl::ResourceExhaustedError("1024 policies were added within an hour, at most 1024; try again in 40m"));
  Ask();
  EXPECT_EQ(answers_.size(), 1u) << "other changes are no policies";
  control_->TakeChanges();
  clock_.Advance(absl::Minutes(40));
  AskForAnother();
  EXPECT_EQ(answers_.size(), 1u) << "the hour is over";
}

TEST_F(ControlHandlerTest, ALearnerTakesSoManyWorkers) {
  for (uint64_t i = 1; i <= rpc::kMaxWorkers; ++i) ASSERT_EQ(Join(i), absl::OkStatus()) << i;
  EXPECT_EQ(Join(5000), absl::ResourceExhaustedError("1024 workers are connected, a learner takes at most 1024"));
  binding_->Leave(newest_, "goodbye");
  binding_->Leave(newest_, "once more");
  EXPECT_EQ(Join(5000), absl::OkStatus());
  EXPECT_EQ(Join(5001).code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(ControlHandlerTest, AtTheEndWhoeverWaitsOrComesIsRefused) {
  Ask();
  control_->RefuseAll();
  Ask();
  ASSERT_EQ(answers_.size(), 2u);
  for (const absl::Status& answer : answers_) EXPECT_EQ(answer.code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(control_->TakeChanges().empty());
}

TEST_F(ControlHandlerTest, StatusShowsThePoliciesThatThereAre) {
  const rpc::RunStatus status = control_->GetStatus({});
  ASSERT_EQ(status.policies.size(), 1u);
  EXPECT_EQ(status.policies[0].id, policy::PolicyId("shared"));
  EXPECT_TRUE(status.policies[0].trains);
  EXPECT_EQ(control_->Policies({}), learner_->Policies());
}

TEST_F(ControlHandlerTest, StatusShowsWhatEachPolicyGot) {
  EXPECT_EQ(control_->GetStatus({}).policies[0].return_count, 0) << "no episode has ended";
  EXPECT_FALSE(control_->GetStatus({}).learner.progress.rewards_differ);
  ASSERT_EQ(learner_->Start(), absl::OkStatus());
  learner::LearnerState state = learner_->SnapshotState()->state;
  state.recent_return_sums = {1, 5};
  state.recent_lengths = {10, 10};
  const size_t agents = learner_->Policies()->agent_ids().size();
  ASSERT_GE(agents, 2u);
  const double absent = std::numeric_limits<double>::quiet_NaN();
  state.recent_agent_returns.assign(agents, {absent, absent});
  state.recent_agent_returns[0] = {-1, 2};
  state.recent_agent_returns[1] = {2, 3};
  state.recent_agent_policies.assign(agents, {0, 0});
  state.rewards_differ = true;
  MakeLearner(state.learner_epoch + 1, &state);
  const rpc::RunStatus status = control_->GetStatus({});
  EXPECT_TRUE(status.learner.progress.rewards_differ);
  ASSERT_EQ(status.policies.size(), 1u);
  const rpc::PolicyStatus& policy = status.policies[0];
  EXPECT_EQ(policy.return_count, 4);
  EXPECT_EQ(policy.return_mean, 1.5);
  EXPECT_EQ(policy.return_min, -1);
  EXPECT_EQ(policy.return_max, 3);
}

}  // namespace
}  // namespace troupe::run
