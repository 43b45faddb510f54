#include "services/learner/control_handler.h"

#include <memory>
#include <vector>

#include "lib/learner/testing/fake_trainer.h"
#include "lib/learner/testing/fake_worker.h"
#include "lib/sample/testing/batch_maker.h"
#include <gtest/gtest.h>

namespace troupe::services {
namespace {

class ControlHandlerTest : public testing::Test {
 protected:
  ControlHandlerTest() {
    learner::LearnerConfig config;
    config.schema = sample::SimpleSchema(2, 3);
    config.options.num_envs = 1;
    config.options.train_batch_size = 1;
    const policy::PolicyId shared = config.schema.policies[0].id;
    config.policies =
        *policy::PolicyTable::Make(config.schema.policies, {true}, {{"*", {{shared}}}}, config.schema.agent_ids);
    trainer_ = std::make_unique<learner::FakeTrainer>(config.schema.policies);
    learner::LearnerDeps deps;
    deps.trainer = trainer_.get();
    deps.publisher = &publisher_;
    learner_ = *learner::Learner::Create(config, deps);
    binding_ = std::make_unique<rpc::LearnerBinding>(learner_.get());
    control_ = std::make_unique<ControlHandler>(learner_.get(), binding_.get(), "run");
  }
  void Ask() {
    control_->ChangePolicies({}, policy::RemovePolicy{policy::PolicyId("x")},
                             [this](absl::StatusOr<int64_t> answer) { answers_.push_back(answer.status()); });
  }

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

TEST_F(ControlHandlerTest, AtTheEndWhoeverWaitsOrComesIsRefused) {
  Ask();
  control_->RefuseAll();
  Ask();
  ASSERT_EQ(answers_.size(), 2u);
  for (const absl::Status& answer : answers_) EXPECT_EQ(answer.code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(control_->TakeChanges().empty());
}

TEST_F(ControlHandlerTest, StatusShowsThePoliciesThatThereAre) {
  const v1::StatusReply status = control_->GetStatus({});
  ASSERT_EQ(status.policies_size(), 1);
  EXPECT_EQ(status.policies(0).policy_id(), "shared");
  EXPECT_TRUE(status.policies(0).trains());
  EXPECT_EQ(control_->Policies({}), learner_->Policies());
}

}  // namespace
}  // namespace troupe::services
