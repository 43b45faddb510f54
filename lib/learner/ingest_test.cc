#include "lib/learner/ingest.h"

#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "lib/learner/grant_scheduler.h"
#include "lib/learner/iteration_source.h"
#include "lib/sample/testing/batch_maker.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::learner {
namespace {

using sample::Disposition;
using sample::WorkerId;
using testing::HasSubstr;

class IngestTest : public testing::Test {
 protected:
  void Make(int64_t budget_bytes) {
    GrantScheduler::Options options;
    options.num_envs = 2;
    options.train_batch_size = 20;
    scheduler_ = std::make_unique<GrantScheduler>(options, 1, 0, std::vector<LaneState>{});
    accounting_ = std::make_unique<Accounting>(1);
    std::vector<Feed> feeds(1);
    feeds[0].source = std::make_unique<IterationSource>(0);
    ingest_ = std::make_unique<Ingest>(budget_bytes, scheduler_.get(), accounting_.get(), std::move(feeds));
    scheduler_->AddWorker(WorkerId(1), absl::ZeroDuration());
    scheduler_->SetPublished(0, 0);
    sample::FakeRolloutOptions rollout_options;
    rollout_options.max_ticks_per_fragment = 5;
    rollout_ = std::make_unique<sample::FakeRollout>(schema_, rollout_options);
    sequences_ = SequenceTracker();
    Sample();
  }
  void Sample() {
    const auto orders = scheduler_->Schedule(absl::ZeroDuration());
    ASSERT_EQ(orders.size(), 1u);
    fragments_ = rollout_->Play(orders[0].grant, policy::WeightVersion{1, scheduler_->first_incomplete()});
  }
  absl::StatusOr<sample::FragmentAck> Offer(uint64_t sequence, const sample::MultiAgentBatchPtr& batch) {
    return ingest_->Offer(WorkerId(1), sequences_, sequence, CheckFragment(batch, schema_, {}));
  }

  const sample::BatchSchema schema_ = sample::SimpleSchema(2, 3);
  std::unique_ptr<GrantScheduler> scheduler_;
  std::unique_ptr<Accounting> accounting_;
  std::unique_ptr<Ingest> ingest_;
  std::unique_ptr<sample::FakeRollout> rollout_;
  SequenceTracker sequences_;
  std::vector<std::shared_ptr<sample::MultiAgentBatch>> fragments_;
};

TEST_F(IngestTest, AcceptsOnceAndHoldsUntilTaken) {
  Make(1 << 20);
  auto ack = Offer(1, fragments_[0]);
  ASSERT_TRUE(ack.ok());
  EXPECT_EQ(ack->disposition, Disposition::kAccepted);
  EXPECT_EQ(ack->watermark, 1u);
  EXPECT_TRUE(ack->reason.empty());
  ack = Offer(1, fragments_[0]);
  EXPECT_EQ(ack->disposition, Disposition::kDuplicate);
  EXPECT_EQ(ack->watermark, 1u);
  ack = Offer(2, fragments_[1]);
  EXPECT_EQ(ack->disposition, Disposition::kAccepted);
  EXPECT_EQ(scheduler_->first_incomplete(), 1);
  EXPECT_GT(ingest_->held_bytes(), 0);
  ASSERT_EQ(ingest_->NumReady(0), 1);
  const Selection taken = ingest_->Select(0);
  EXPECT_EQ(taken.iteration, 0);
  EXPECT_EQ(taken.picks.size(), 2u);
  EXPECT_GT(ingest_->held_bytes(), 0) << "charged until they are copied";
  const std::vector<BatchFate> fates = ingest_->Release(0, taken, {{policy::PolicySlot(0), 3}});
  EXPECT_EQ(ingest_->held_bytes(), 0);
  EXPECT_EQ(ingest_->NumReady(0), 0);
  EXPECT_EQ(accounting_->totals().queued, 40) << "until it has been trained on";
  accounting_->BookBatch(fates);
  EXPECT_EQ(accounting_->totals().trained, 37);
  EXPECT_EQ(accounting_->totals().dropped, 3);
  EXPECT_EQ(accounting_->totals().accepted, 40);
  EXPECT_EQ(accounting_->totals().duplicate, 20);
  EXPECT_EQ(CheckConservation(accounting_->Books()), absl::OkStatus());
}

TEST_F(IngestTest, ARepeatOfARefusedOneIsADuplicate) {
  Make(1 << 20);
  sample::MutableColumn<float>(fragments_[0]->policies[0].obs)[0] = std::numeric_limits<float>::infinity();
  auto ack = Offer(1, fragments_[0]);
  EXPECT_EQ(ack->disposition, Disposition::kInvalid);
  EXPECT_THAT(ack->reason, HasSubstr("'obs' has inf"));
  EXPECT_EQ(ack->watermark, 1u);
  EXPECT_EQ(Offer(1, fragments_[0])->disposition, Disposition::kDuplicate);
  // Its steps come again, in a grant of their own; the rest of the old one is stale.
  EXPECT_EQ(Offer(2, fragments_[1])->disposition, Disposition::kStale);
  Sample();
  EXPECT_EQ(Offer(3, fragments_[0])->disposition, Disposition::kAccepted);
  EXPECT_EQ(Offer(4, fragments_[1])->disposition, Disposition::kAccepted);
  EXPECT_EQ(scheduler_->first_incomplete(), 1);
  EXPECT_EQ(accounting_->totals().accepted, 40);
  EXPECT_EQ(accounting_->totals().invalid, 20);
  EXPECT_EQ(accounting_->totals().stale, 20);
  EXPECT_TRUE(CheckConservation(accounting_->totals()).ok());
}

TEST_F(IngestTest, UndecodableBytesCostTheGrantButNotTheWorker) {
  Make(1 << 20);
  auto ack = ingest_->OfferUndecodable(WorkerId(1), sequences_, 1, "checksum is wrong");
  ASSERT_TRUE(ack.ok());
  EXPECT_EQ(ack->disposition, Disposition::kInvalid);
  EXPECT_EQ(ack->reason, "checksum is wrong");
  EXPECT_EQ(ack->watermark, 1u);
  EXPECT_EQ(ingest_->OfferUndecodable(WorkerId(1), sequences_, 1, "again")->disposition, Disposition::kDuplicate);
  Sample();
  EXPECT_EQ(Offer(2, fragments_[0])->disposition, Disposition::kAccepted);
  EXPECT_EQ(accounting_->fragments().invalid, 1);
}

TEST_F(IngestTest, SequencesOutOfTheWindowAreNoFragments) {
  Make(1 << 20);
  EXPECT_EQ(Offer(0, fragments_[0]).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Offer(SequenceTracker::kMaxGap + 1, fragments_[0]).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ingest_->OfferUndecodable(WorkerId(1), sequences_, 0, "x").status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(accounting_->fragments().received, 0);
}

TEST_F(IngestTest, AFullBudgetRefusesWithoutADisposition) {
  Make(1 << 20);
  ASSERT_EQ(Offer(1, fragments_[0])->disposition, Disposition::kAccepted);
  const int64_t first_bytes = ingest_->held_bytes();
  Make(first_bytes + first_bytes / 2);
  ASSERT_EQ(Offer(1, fragments_[0])->disposition, Disposition::kAccepted);
  EXPECT_TRUE(ingest_->stuck().ok());
  const auto refused = Offer(2, fragments_[1]);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(accounting_->fragments().received, 1);
  EXPECT_EQ(sequences_.watermark(), 1u);
  // Nothing complete is waiting and nothing is being trained: it would stay so for ever.
  EXPECT_EQ(ingest_->stuck().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(ingest_->stuck().message()), HasSubstr("too small for iteration 0"));
}

TEST_F(IngestTest, AFullBudgetWithABatchToTrainIsNotStuck) {
  Make(1 << 20);
  ASSERT_EQ(Offer(1, fragments_[0])->disposition, Disposition::kAccepted);
  ASSERT_EQ(Offer(2, fragments_[1])->disposition, Disposition::kAccepted);
  const int64_t batch_bytes = ingest_->held_bytes();
  Make(batch_bytes);
  ASSERT_EQ(Offer(1, fragments_[0])->disposition, Disposition::kAccepted);
  ASSERT_EQ(Offer(2, fragments_[1])->disposition, Disposition::kAccepted);
  scheduler_->SetPublished(1, 1);
  Sample();
  EXPECT_EQ(Offer(3, fragments_[0]).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(ingest_->stuck().ok()) << "iteration 0 waits";
  const Selection taken = ingest_->Select(0);
  EXPECT_EQ(Offer(3, fragments_[0]).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(ingest_->stuck().ok()) << "iteration 0 is being copied";
  ingest_->Release(0, taken, {});
  EXPECT_EQ(Offer(3, fragments_[0])->disposition, Disposition::kAccepted);
}

TEST(CheckBudgetTest, HoldsTheBatchesAndAFragmentAWorker) {
  const sample::BatchSchema schema = sample::SimpleSchema(3, 18);
  const sample::BatchLimits limits;
  LearnerOptions options;
  options.train_batch_size = 4000;
  options.num_workers = 4;
  int64_t ahead = 0;
  for (ahead = 0; ahead < 4; ++ahead) {
    const int64_t needed = (1 + ahead) * 4000 * MaxBytesPerEnvStep(schema) + 4 * limits.max_message_bytes;
    options.ingest_budget_bytes = needed;
    EXPECT_TRUE(Ingest::CheckBudget(options, schema, limits, ahead).ok());
    options.ingest_budget_bytes = needed - 1;
    const absl::Status status = Ingest::CheckBudget(options, schema, limits, ahead);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat("expected at least ", needed)));
  }
  ahead = 0;
  options.count_steps_by = CountStepsBy::kAgentSteps;
  options.num_envs = 10;
  const int64_t needed = (4000 + 10 * 3) * MaxBytesPerAgentStep(schema) + 4 * limits.max_message_bytes;
  options.ingest_budget_bytes = needed;
  EXPECT_TRUE(Ingest::CheckBudget(options, schema, limits, ahead).ok());
  options.ingest_budget_bytes = needed - 1;
  EXPECT_THAT(std::string(Ingest::CheckBudget(options, schema, limits, ahead).message()),
              HasSubstr("1 batches of 4030 agent steps"));
  options.count_steps_by = CountStepsBy::kEnvSteps;
  options.train_batch_size = std::numeric_limits<int64_t>::max() / 2;
  EXPECT_EQ(Ingest::CheckBudget(options, schema, limits, ahead).code(), absl::StatusCode::kInvalidArgument);
}

/// The bound that the start-up check rests on: no batch needs more a step.
TEST(CheckBudgetTest, NoFragmentIsOverTheBound) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(seed);
    const sample::BatchSchema schema = sample::RandomSchema(seed);
    const auto batch = sample::RandomBatch(schema, seed);
    const CheckedFragment fragment = CheckFragment(batch, schema, {});
    ASSERT_TRUE(fragment.status.ok());
    const auto overhead =
        static_cast<int64_t>(sizeof(sample::MultiAgentBatch) + batch->policies.size() * sizeof(sample::PolicyRows));
    EXPECT_LE(fragment.bytes - overhead, batch->num_env_steps * MaxBytesPerEnvStep(schema));
  }
}

}  // namespace
}  // namespace troupe::learner
