#include "lib/rollout/rollout_worker.h"

#include <deque>

#include "lib/rollout/testing/scripted_env.h"
#include "lib/sample/multi_agent_batch.h"
#include <gtest/gtest.h>

namespace troupe::rollout {
namespace {

class FakeGrants final : public GrantSource {
 public:
  absl::StatusOr<std::optional<sample::Grant>> AwaitGrant(absl::Duration) override {
    if (queue.empty())
      return closed ? absl::StatusOr<std::optional<sample::Grant>>(absl::CancelledError("closed")) : std::nullopt;
    sample::Grant grant = queue.front();
    queue.pop_front();
    return std::optional<sample::Grant>(grant);
  }
  std::deque<sample::Grant> queue;
  bool closed = false;
};

class FakeWeights final : public WeightSource {
 public:
  absl::StatusOr<CurrentWeights> AwaitWeights(policy::PolicySlot policy, policy::WeightVersion min_version,
                                              absl::Duration) override {
    if (gone) return absl::AbortedError("the policy is gone");
    const policy::WeightSnapshotPtr& newest = weights.at(static_cast<size_t>(policy.value()));
    if (newest == nullptr || newest->version < min_version) return absl::DeadlineExceededError("no such weights yet");
    return CurrentWeights{newest, newest->version};
  }
  std::vector<policy::WeightSnapshotPtr> weights;
  bool gone = false;
};

class RolloutWorkerTest : public testing::Test {
 protected:
  RolloutWorkerTest()
      : config_(ScriptedConfig(
            {}, [] { return MakeRandomEnv({}, nullptr); }, 2)),
        sink_(ScriptedSchema(config_)),
        worker_(*Collector::Create(config_), grants_, weights_, sink_) {
    weights_.weights = ScriptedWeights(config_, 3);
  }

  RolloutConfig config_;
  FakeGrants grants_;
  FakeWeights weights_;
  CollectingSink sink_;
  RolloutWorker worker_;
};

TEST_F(RolloutWorkerTest, NothingToDoWithoutAGrant) {
  EXPECT_FALSE(*worker_.Step(absl::ZeroDuration()));
  EXPECT_TRUE(sink_.fragments.empty());
}

TEST_F(RolloutWorkerTest, SamplesWithTheNewestWeights) {
  grants_.queue.push_back(ScriptedGrant(2, 5));
  EXPECT_TRUE(*worker_.Step(absl::ZeroDuration()));
  ASSERT_EQ(sink_.fragments.size(), 1u);
  EXPECT_EQ(sink_.fragments[0]->policies.at(0).version.n, 3);
}

TEST_F(RolloutWorkerTest, AGrantWaitsForItsWeights) {
  sample::Grant grant = ScriptedGrant(2, 5);
  grant.min_version = {1, 4};
  grants_.queue.push_back(grant);
  EXPECT_FALSE(*worker_.Step(absl::ZeroDuration()));
  weights_.weights[0] = ScriptedWeights(config_, 4)[0];
  EXPECT_FALSE(*worker_.Step(absl::ZeroDuration())) << "the other policy's are still old";
  EXPECT_TRUE(sink_.fragments.empty());
  weights_.weights = ScriptedWeights(config_, 4);
  EXPECT_TRUE(*worker_.Step(absl::ZeroDuration())) << "the grant was kept";
  EXPECT_EQ(sink_.fragments.at(0)->policies.at(0).version.n, 4);
}

TEST_F(RolloutWorkerTest, AGrantWhosePolicyIsGoneIsGivenUpForTheNext) {
  grants_.queue.push_back(ScriptedGrant(2, 5));
  weights_.gone = true;
  EXPECT_TRUE(*worker_.Step(absl::ZeroDuration()));
  EXPECT_TRUE(sink_.fragments.empty());
  weights_.gone = false;
  EXPECT_FALSE(*worker_.Step(absl::ZeroDuration())) << "it is not tried again";
  grants_.queue.push_back(ScriptedGrant(2, 5));
  EXPECT_TRUE(*worker_.Step(absl::ZeroDuration()));
  EXPECT_EQ(sink_.fragments.size(), 1u);
}

TEST_F(RolloutWorkerTest, RunEndsWhenThePortsClose) {
  grants_.queue.push_back(ScriptedGrant(2, 5));
  grants_.queue.push_back(ScriptedGrant(2, 5));
  grants_.closed = true;
  EXPECT_TRUE(worker_.Run().ok());
  EXPECT_EQ(sink_.fragments.size(), 2u);
}

TEST_F(RolloutWorkerTest, RunEndsWhenTheSinkCloses) {
  grants_.queue.push_back(ScriptedGrant(2, 5));
  sink_.next_status = absl::CancelledError("closing");
  EXPECT_TRUE(worker_.Run().ok());
}

TEST_F(RolloutWorkerTest, RunGivesOtherErrorsOn) {
  grants_.queue.push_back(ScriptedGrant(2, 5));
  sink_.next_status = absl::UnavailableError("gone");
  EXPECT_EQ(worker_.Run().code(), absl::StatusCode::kUnavailable);
}

TEST_F(RolloutWorkerTest, StopEndsRun) {
  grants_.queue.push_back(ScriptedGrant(2, 1000));
  worker_.RequestStop();
  EXPECT_TRUE(worker_.Run().ok());
  EXPECT_EQ(sink_.fragments.size(), 1u);
}

}  // namespace
}  // namespace troupe::rollout
