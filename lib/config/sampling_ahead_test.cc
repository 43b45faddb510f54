#include "lib/config/sampling_ahead.h"

#include "lib/config/testing/resolve_fixture.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::config {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

using SamplingAheadTest = ResolveFixture;

constexpr char kTeam[] = "env: {name: team}";

TEST_F(SamplingAheadTest, TheLagIsByItselfWhatTheAlgorithmsCorrectFor) {
  EXPECT_EQ(Resolve(kTeam).learner.max_policy_lag, 0);
  EXPECT_EQ(Resolve(kTeam, {"algorithm.name=impala"}).learner.max_policy_lag, 16);
  EXPECT_EQ(Resolve(kTeam, {"algorithm.name=appo"}).learner.max_policy_lag, 16);
  EXPECT_EQ(Resolve(kTeam, {"algorithm.name=impala", "algorithm.max_policy_lag=3"}).learner.max_policy_lag, 3);
  EXPECT_EQ(Resolve(kTeam, {"algorithm.max_policy_lag=500000"}).learner.max_policy_lag, 500000) << "any number";
}

TEST_F(SamplingAheadTest, ThePlanInWords) {
  const auto text = [this](const std::vector<std::string>& set) { return SamplingText(Resolve(kTeam, set)); };
  EXPECT_THAT(text({}), HasSubstr("in rounds, each after the update (policy \""));
  EXPECT_THAT(text({}), HasSubstr("ppo: max_policy_lag 0)"));
  EXPECT_THAT(text({"algorithm.max_policy_lag=1"}), HasSubstr("in rounds, at most 1 batch ahead ("));
  EXPECT_THAT(text({"algorithm.name=impala"}), HasSubstr("free-running, at most 2 batches ahead ("));
  EXPECT_THAT(text({"algorithm.name=impala"}), HasSubstr("impala: max_policy_lag 16)"));
  EXPECT_THAT(text({"algorithm.name=appo"}), HasSubstr("free-running, at most 3 batches ahead ("));
  EXPECT_THAT(text({"algorithm.name=appo"}), HasSubstr("appo: appo of 4 batches, 2 times)"));
  EXPECT_THAT(text({"algorithm.name=appo", "algorithm.circular_buffer_num_batches=2"}),
              HasSubstr("in rounds, at most 1 batch ahead ("));
}

TEST_F(SamplingAheadTest, WarnsOfALagThatTheAlgorithmDoesNotCorrect) {
  EXPECT_THAT(LagWarnings(Resolve(kTeam, {"algorithm.max_policy_lag=1"})), IsEmpty());
  EXPECT_THAT(LagWarnings(Resolve(kTeam, {"algorithm.name=impala", "algorithm.max_policy_lag=100"})), IsEmpty());
  EXPECT_THAT(LagWarnings(Resolve(kTeam, {"algorithm.name=impala"})), IsEmpty());
  EXPECT_THAT(LagWarnings(Resolve(kTeam, {"algorithm.max_policy_lag=2"})),
              ElementsAre(HasSubstr("algorithm.max_policy_lag: got 2, but ppo of policy \"")));
  EXPECT_THAT(LagWarnings(Resolve(kTeam, {"algorithm.max_policy_lag=2"})),
              ElementsAre(HasSubstr("expected at most 1, or algorithm.name: appo or impala, which correct for them")));
}

TEST_F(SamplingAheadTest, WarnsOfWorkersThatWaitForNothing) {
  EXPECT_THAT(
      LagWarnings(Resolve(kTeam, {"algorithm.name=impala", "algorithm.max_policy_lag=0"})),
      ElementsAre(HasSubstr("algorithm.max_policy_lag: got 0, so that workers wait for each other, which impala "
                            "does not need; expected at least 2, or auto")));
}

TEST_F(SamplingAheadTest, TheBudgetHoldsWhatIsSampledAhead) {
  const std::vector<std::string> large = {"algorithm.train_batch_size=4000000"};
  const auto budget = [&](const std::string& more) {
    std::vector<std::string> set = large;
    set.push_back(more);
    return Resolve(kTeam, set).learner.ingest_budget_bytes;
  };
  const int64_t one = budget("algorithm.max_policy_lag=0");
  EXPECT_GT(budget("algorithm.name=impala"), 2 * one);
  EXPECT_LT(budget("algorithm.name=impala"), 3 * one + 1) << "three batches, whatever the lag";
  EXPECT_GT(budget("algorithm.name=appo"), 3 * one) << "four, as its buffer holds";
}

}  // namespace
}  // namespace troupe::config
