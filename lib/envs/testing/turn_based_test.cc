// The rows of testing/turn_based, written down by hand from its description: other tests rely on them.

#include "lib/envs/testing/turn_based.h"

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/env/slot_buffers.h"
#include "lib/envs/testing/faulty.h"

namespace troupe::envs {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int32_t kAlice = TurnBased::kAlice;
constexpr int32_t kBob = TurnBased::kBob;
constexpr int32_t kCarol = TurnBased::kCarol;

class TurnBasedTest : public ::testing::Test {
 protected:
  void Start(env::StateKind kind, base::EnvId env_id, uint32_t episode) {
    env_ = std::make_unique<TurnBased>(kind, -1);
    buffers_ = std::make_unique<env::SlotBuffers>(env_->spec(), 1);
    ASSERT_TRUE(env_->Reset({0, env_id, episode}, buffers_->BeginStep(0)).ok());
  }
  /// Negative: that agent does not act.
  absl::Status Step(int32_t alice, int32_t bob, int32_t carol) {
    const std::array<space::ActionWord, 3> words = {space::ActionWord{.i32 = alice}, space::ActionWord{.i32 = bob},
                                                    space::ActionWord{.i32 = carol}};
    std::array<const space::ActionWord*, 3> rows{};
    for (size_t i = 0; i < 3; ++i) {
      const bool acts = words[i].i32 >= 0;
      EXPECT_EQ(acts, buffers_->ready(0, static_cast<int32_t>(i))) << "slot " << i;
      rows[i] = acts ? &words[i] : nullptr;
    }
    return env_->Step(rows, buffers_->BeginStep(0));
  }
  std::vector<bool> Observed() const {
    return {buffers_->observed(0, 0), buffers_->observed(0, 1), buffers_->observed(0, 2)};
  }
  std::vector<float> Rewards() const {
    return {buffers_->reward(0, 0), buffers_->reward(0, 1), buffers_->reward(0, 2)};
  }

  std::unique_ptr<TurnBased> env_;
  std::unique_ptr<env::SlotBuffers> buffers_;
};

TEST_F(TurnBasedTest, AnEpisodeOfFiveStepsThatIsTruncated) {
  Start(env::StateKind::kPerEnv, base::EnvId(1), 0);  // x = 1: L = 5, carol is truncated
  EXPECT_THAT(Observed(), ElementsAre(true, false, false));
  EXPECT_THAT(buffers_->observation(0, kAlice), ElementsAre(0, 0, -1, 5));
  EXPECT_THAT(buffers_->action_mask(0, kAlice), ElementsAre(0, 1, 1));
  EXPECT_THAT(buffers_->state(0, 0), ElementsAre(0, 5));
  EXPECT_TRUE(buffers_->agent_mask(0, kAlice));

  ASSERT_TRUE(Step(2, -1, -1).ok());  // t = 1
  EXPECT_THAT(Observed(), ElementsAre(false, true, false));
  EXPECT_THAT(Rewards(), ElementsAre(-0.5f, 0, 0));  // bob has not acted: nothing for him
  EXPECT_THAT(buffers_->observation(0, kBob), ElementsAre(1, 1, -1, 5));
  EXPECT_THAT(buffers_->action_mask(0, kBob), ElementsAre(1, 0, 1));

  ASSERT_TRUE(Step(-1, 2, -1).ok());  // t = 2
  EXPECT_THAT(Observed(), ElementsAre(true, false, true));
  EXPECT_THAT(Rewards(), ElementsAre(2, -0.5f, 0));
  EXPECT_THAT(buffers_->observation(0, kAlice), ElementsAre(0, 2, 2, 5));
  EXPECT_THAT(buffers_->observation(0, kCarol), ElementsAre(2, -1));
  EXPECT_TRUE(buffers_->action_mask(0, kCarol).empty());

  ASSERT_TRUE(Step(1, -1, 1).ok());  // t = 3
  EXPECT_THAT(Observed(), ElementsAre(false, true, true));
  EXPECT_THAT(Rewards(), ElementsAre(-0.5f, 1, 2));
  EXPECT_FALSE(buffers_->agent_mask(0, kBob));
  EXPECT_FALSE(buffers_->agent_mask(0, kCarol));
  EXPECT_EQ(buffers_->infos(0, kBob)[0], 3);

  ASSERT_TRUE(Step(-1, 1, 0).ok());  // t = 4
  EXPECT_THAT(Observed(), ElementsAre(true, false, true));
  EXPECT_THAT(Rewards(), ElementsAre(1, -0.5f, 1));
  EXPECT_TRUE(buffers_->truncated(0, kCarol));
  EXPECT_FALSE(buffers_->all_done(0));
  EXPECT_THAT(buffers_->observation(0, kCarol), ElementsAre(4, 0));

  ASSERT_TRUE(Step(0, -1, -1).ok());  // t = 5
  EXPECT_THAT(Observed(), ElementsAre(true, true, false));
  EXPECT_THAT(Rewards(), ElementsAre(-0.5f, 0, 0));
  EXPECT_TRUE(buffers_->all_truncated(0));
  EXPECT_FALSE(buffers_->truncated(0, kAlice));
  EXPECT_THAT(buffers_->observation(0, kAlice), ElementsAre(0, 5, 0, 5));
  EXPECT_THAT(buffers_->observation(0, kBob), ElementsAre(1, 5, 1, 5));
}

TEST_F(TurnBasedTest, AnEpisodeOfFourStepsThatTerminates) {
  Start(env::StateKind::kNone, base::EnvId(2), 1);  // x = 3: L = 4
  ASSERT_TRUE(Step(1, -1, -1).ok());
  ASSERT_TRUE(Step(-1, 0, -1).ok());
  ASSERT_TRUE(Step(0, -1, 0).ok());
  ASSERT_TRUE(Step(-1, 2, 1).ok());
  EXPECT_TRUE(buffers_->all_terminated(0));
  EXPECT_THAT(Observed(), ElementsAre(false, false, false));
  EXPECT_THAT(Rewards(), ElementsAre(2, -0.5f, 2));
  EXPECT_FALSE(buffers_->done(0, kCarol));  // the end of all ends her too
}

TEST_F(TurnBasedTest, CarolIsTerminatedInEvenEpisodes) {
  Start(env::StateKind::kPerAgent, base::EnvId(0), 2);  // x = 2: L = 6
  EXPECT_THAT(buffers_->state(0, kAlice), ElementsAre(0, 0));
  ASSERT_TRUE(Step(1, -1, -1).ok());
  EXPECT_THAT(buffers_->state(0, kBob), ElementsAre(1, 1));
  ASSERT_TRUE(Step(-1, 0, -1).ok());
  EXPECT_THAT(buffers_->state(0, kCarol), ElementsAre(2, 2));
  ASSERT_TRUE(Step(0, -1, 0).ok());
  ASSERT_TRUE(Step(-1, 2, 0).ok());
  EXPECT_TRUE(buffers_->terminated(0, kCarol));
  ASSERT_TRUE(Step(0, -1, -1).ok());
  EXPECT_THAT(Observed(), ElementsAre(false, true, false));
  ASSERT_TRUE(Step(-1, 0, -1).ok());
  EXPECT_TRUE(buffers_->all_terminated(0));
}

TEST_F(TurnBasedTest, RefusesWhatTheMaskForbidsAndBadArguments) {
  Start(env::StateKind::kPerEnv, base::EnvId(0), 0);
  EXPECT_THAT(std::string(Step(0, -1, -1).message()), HasSubstr("action 0 was forbidden by the mask in step 1"));
  const auto error = [](env::ArgMap args) {
    return std::string(TurnBased::Make(env::EnvArgs(std::move(args))).status().message());
  };
  EXPECT_THAT(error({{"state", std::string("both")}}),
              HasSubstr("argument state is 'both', expected none, per_env or per_agent"));
  EXPECT_THAT(error({{"length", int64_t{0}}}), HasSubstr("argument length is 0"));
}

TEST(FaultyTest, ArgumentsAreChecked) {
  const auto make = [](env::ArgMap args) { return Faulty::Make(env::EnvArgs(std::move(args))); };
  EXPECT_THAT(std::string(make({{"fault", std::string("explode")}}).status().message()),
              HasSubstr("argument fault is 'explode', expected none, throw"));
  EXPECT_FALSE(make({{"at_step", int64_t{11}}}).ok());
  EXPECT_TRUE(make({{"fault", std::string("throw")}, {"at_step", int64_t{0}}}).ok());
}

TEST(FaultyTest, OnlyTheFirstEpisodeWhenToldSo) {
  Faulty env(Faulty::Fault::kBadStatus, 1, /*every_episode=*/false);
  env::SlotBuffers buffers(env.spec(), 1);
  const space::ActionWord action{.i32 = 0};
  const std::array<const space::ActionWord*, 2> rows = {&action, &action};
  ASSERT_TRUE(env.Reset({}, buffers.BeginStep(0)).ok());
  EXPECT_EQ(env.Step(rows, buffers.BeginStep(0)).code(), absl::StatusCode::kUnavailable);
  ASSERT_TRUE(env.Reset({}, buffers.BeginStep(0)).ok());
  for (int t = 1; t <= 10; ++t) ASSERT_TRUE(env.Step(rows, buffers.BeginStep(0)).ok());
  EXPECT_TRUE(buffers.all_truncated(0));
}

}  // namespace
}  // namespace troupe::envs
