// Callbacks of episodes beside Python environments, and of episodes that a worker tells of.

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/base/traceback.h"
#include "lib/env/checked_env.h"
#include "lib/env/slot_buffers.h"
#include "lib/envhost/episode_teller.h"
#include "lib/envhost/episode_tracks.h"
#include "lib/envhost/host_pool.h"
#include "lib/envhost/python_functions.h"
#include "lib/envhost/testing/player.h"

namespace troupe::envhost {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

using base::TrackedTotal;

HostOptions Watched(const std::vector<std::string>& classes) {
  HostOptions options = Options(1);
  for (const std::string& name : classes) options.callbacks.push_back(absl::StrCat("python:host_test_episodes:", name));
  return options;
}

/// An environment as a worker plays it: told who plays, and when its episode is over.
class WatchedPlayer {
 public:
  explicit WatchedPlayer(HostPool& pool, uint32_t env_id = 0)
      : env_(MakeOrDie(pool)), buffers_(env_.spec(), 1), env_id_(env_id) {}

  absl::Status Reset() { return env_.Reset({1, env_id_, episode_++}, buffers_.BeginStep(0)); }
  absl::Status Step(int32_t action) {
    const std::vector<space::ActionWord> words(2, space::ActionWord{.i32 = action});
    env_.NoteDecision(base::AgentSlot(0), "main", -0.25f);
    env_.NoteDecision(base::AgentSlot(1), "other.1", -1.5f);
    return env_.Step(std::vector<const space::ActionWord*>{&words[0], &words[1]}, buffers_.BeginStep(0));
  }
  /// Plays on to the end; as many steps as it took.
  absl::StatusOr<int> PlayOn() {
    int steps = 0;
    do {
      const absl::Status status = Step(2);
      if (!status.ok()) return status;
      ++steps;
    } while (!buffers_.all_truncated(0));
    env_.NoteEnd();
    return steps;
  }

 private:
  env::CheckedEnv env_;
  env::SlotBuffers buffers_;
  const base::EnvId env_id_;
  uint32_t episode_ = 0;
};

class EpisodeCallbacksTest : public ::testing::Test {
 protected:
  std::unique_ptr<WatchedPlayer> MakePlayer(const std::vector<std::string>& classes,
                                            absl::Duration step_timeout = absl::Seconds(30)) {
    HostOptions options = Watched(classes);
    options.step_timeout = step_timeout;
    auto pool = HostPool::Create(options, "python:host_test_episodes:reporting", env::EnvArgs(), tracks_);
    EXPECT_TRUE(pool.ok()) << pool.status();
    pool_ = *std::move(pool);
    return std::make_unique<WatchedPlayer>(*pool_);
  }

  const std::shared_ptr<EpisodeTracks> tracks_ = std::make_shared<EpisodeTracks>();
  std::shared_ptr<HostPool> pool_;
};

TEST_F(EpisodeCallbacksTest, SeeTheirEpisodeFromItsStartToItsEndAndTrackItsMeans) {
  const auto player = MakePlayer({"Watches"});
  WatchedPlayer other(*pool_, 1);
  for (WatchedPlayer* each : {player.get(), &other, player.get()}) {
    ASSERT_TRUE(each->Reset().ok());
    ASSERT_EQ(each->PlayOn().value_or(0), 3);
  }
  EXPECT_EQ(tracks_->why_off(), "");
  EXPECT_THAT(tracks_->totals(),
              ElementsAre(TrackedTotal{"env steps", 9, 3}, TrackedTotal{"episode", 6, 3}, TrackedTotal{"info", 6, 3},
                          TrackedTotal{"length", 9, 3}, TrackedTotal{"policy main other.1", 3, 3},
                          TrackedTotal{"return", 36, 3}, TrackedTotal{"started", 3, 3}, TrackedTotal{"step", 6, 3}));
  EXPECT_EQ(pool_->stats().errors, 0);
}

TEST_F(EpisodeCallbacksTest, AnEpisodeThatIsGivenUpHasNoEnd) {
  const auto player = MakePlayer({"Watches"});
  ASSERT_TRUE(player->Reset().ok());
  ASSERT_TRUE(player->Step(1).ok());
  ASSERT_TRUE(player->Reset().ok());
  ASSERT_EQ(player->PlayOn().value_or(0), 3);
  EXPECT_EQ(tracks_->why_off(), "");
  EXPECT_THAT(tracks_->totals(), ::testing::Contains(TrackedTotal{"episode", 1, 1}));
  EXPECT_THAT(tracks_->totals(), ::testing::Contains(TrackedTotal{"started", 1, 1}));
}

TEST_F(EpisodeCallbacksTest, OneOfSeveralCallbacksIsOneVoiceInAnEpisodesMean) {
  const auto player = MakePlayer({"Watches", "Second"});
  ASSERT_TRUE(player->Reset().ok());
  ASSERT_EQ(player->PlayOn().value_or(0), 3);
  EXPECT_THAT(tracks_->totals(), ::testing::Contains(TrackedTotal{"length", 53, 1}));
}

/// What goes wrong in a callback, and what is said of it.
struct CallbackFault {
  std::string name;
  std::string says;
};

class FaultyCallbackTest : public EpisodeCallbacksTest, public ::testing::WithParamInterface<CallbackFault> {};

TEST_P(FaultyCallbackTest, IsCalledNoMoreAndCostsNoSampleAndNoEpisode) {
  const auto player = MakePlayer({GetParam().name, "Second"}, /*step_timeout=*/absl::Seconds(2));
  for (int episode = 0; episode < 3; ++episode) {
    const absl::Status reset = player->Reset();
    ASSERT_TRUE(reset.ok()) << reset;
    const absl::StatusOr<int> steps = player->PlayOn();
    ASSERT_EQ(steps.value_or(0), 3) << steps.status();
  }
  EXPECT_THAT(tracks_->why_off(), HasSubstr(GetParam().says));
  for (const TrackedTotal& total : tracks_->totals()) EXPECT_LE(total.episodes, 1) << total.name;
  EXPECT_EQ(pool_->stats().errors, 0);
}

INSTANTIATE_TEST_SUITE_P(
    All, FaultyCallbackTest,
    ::testing::Values(CallbackFault{"RaisesAtStart", "ValueError: not today"},
                      CallbackFault{"RaisesAtStep", "on_episode_step of host_test_episodes:RaisesAtStep: ValueError"},
                      CallbackFault{"RaisesAtEnd", "on_episode_end of host_test_episodes:RaisesAtEnd: ValueError"},
                      CallbackFault{"HangsAtStep", "on_episode_step of host_test_episodes:HangsAtStep: did not return"},
                      CallbackFault{"SleepsAtEnd", "did not return within 1 s"},
                      CallbackFault{"LeavesAtEnd", "SystemExit: 4"},
                      CallbackFault{"NanAtEnd", "expected a finite number"},
                      CallbackFault{"HugeAtEnd",
                                    "x: got 1e+101, expected a finite number of at most 1e+100 either way"},
                      CallbackFault{"SumAtEnd", "tracked x: the sum over 2 episodes is -1.2e+100, expected at most"},
                      CallbackFault{"ManyAtEnd", "this episode has 64 names already"},
                      CallbackFault{"DiesAtEnd", "on_episode_end: the process that it was called in ended"},
                      CallbackFault{"Unmade", "cannot be made: RuntimeError: no disk"},
                      CallbackFault{"Nobody", "'Nobody' is no attribute of module host_test_episodes"}),
    [](const ::testing::TestParamInfo<CallbackFault>& info) { return info.param.name; });

TEST_F(EpisodeCallbacksTest, OneThatEndsTheProcessInAStepEndsTheEpisodesInItAndIsToBlameForAllOfThem) {
  const auto player = MakePlayer({"DiesAtStep"});
  WatchedPlayer neighbour(*pool_, 1);
  ASSERT_TRUE(neighbour.Reset().ok());
  ASSERT_TRUE(player->Reset().ok());
  const absl::Status died = player->PlayOn().status();
  EXPECT_THAT(std::string(died.message()), HasSubstr("exited with 6"));
  EXPECT_TRUE(base::IsCallbackBlamed(died)) << died;
  EXPECT_TRUE(base::IsCallbackBlamed(neighbour.PlayOn().status()));
  EXPECT_THAT(tracks_->why_off(), HasSubstr("on_episode_step: the process that it was called in ended"));
  for (int episode = 0; episode < 2; ++episode) {
    ASSERT_TRUE(player->Reset().ok());
    EXPECT_EQ(player->PlayOn().value_or(0), 3);
    ASSERT_TRUE(neighbour.Reset().ok());
    EXPECT_EQ(neighbour.PlayOn().value_or(0), 3);
  }
  EXPECT_EQ(pool_->stats().errors, 2);
}

TEST_F(EpisodeCallbacksTest, AProcessTracksSoManyNamesAndNoMore) {
  const auto player = MakePlayer({"Everything"});
  for (int episode = 0; episode < 6; ++episode) {
    ASSERT_TRUE(player->Reset().ok());
    ASSERT_EQ(player->PlayOn().value_or(0), 3);
  }
  EXPECT_THAT(tracks_->totals(), SizeIs(base::kMaxTrackedNames));
  EXPECT_EQ(tracks_->why_off(), "tracked more than 256 names");
}

TEST_F(EpisodeCallbacksTest, TheLongestAnswerFits) {
  const auto player = MakePlayer({"Largest"});
  for (int episode = 0; episode < 2; ++episode) {
    ASSERT_TRUE(player->Reset().ok());
    ASSERT_EQ(player->PlayOn().value_or(0), 3);
  }
  EXPECT_THAT(tracks_->totals(), SizeIs(64));
  EXPECT_EQ(tracks_->totals()[0].episodes, 2);
  EXPECT_THAT(tracks_->why_off(),
              AllOf(HasSubstr("ValueError: "), SizeIs(::testing::Le(EpisodeTracks::kMaxWordsBytes))));
}

TEST_F(EpisodeCallbacksTest, OthersHearOfEpisodesThatEndedAndOfNothingElse) {
  const HostOptions options = Watched({"Ends", "Second"});
  const auto functions = PythonFunctions::Create(options);
  EpisodeTeller teller(functions, options, tracks_);
  std::vector<EndedEpisode> episodes;
  for (int i = 0; i < 150; ++i) episodes.push_back({2 * i, {{"a", "main", 1.5}, {"b", "old", -1.0}}});
  episodes.push_back({6, {{"a", "main", 1.5}}});
  teller.Tell(episodes);
  EXPECT_EQ(tracks_->why_off(), "");
  // An episode's mean of 2 i and 100 + 2 i is 50 + 2 i.
  EXPECT_THAT(
      tracks_->totals(),
      ElementsAre(TrackedTotal{"length", 150 * 149 + 6 + 151 * 50, 151}, TrackedTotal{"return a main", 1.5 * 151, 151},
                  TrackedTotal{"return b old", -150, 150}, TrackedTotal{"second", 151, 151}));
}

TEST_F(EpisodeCallbacksTest, AnEpisodeThatIsTooLongToTellTurnsThemOff) {
  const HostOptions options = Watched({"Ends"});
  EpisodeTeller teller(PythonFunctions::Create(options), options, tracks_);
  const std::string agent(PythonFunctions::kMaxTextBytes, 'a');
  teller.Tell({{3, {{agent, "main", 1}}}});
  EXPECT_THAT(tracks_->why_off(), AllOf(HasSubstr("on_episode_end: the question has "),
                                        HasSubstr(" bytes (an episode's agents and policies)"),
                                        ::testing::EndsWith("expected at most 1048576")));
}

TEST_F(EpisodeCallbacksTest, OneThatFailsWhereAWorkerTellsIsOffAndToldOnce) {
  for (const auto& [name, says] :
       std::vector<std::pair<std::string, std::string>>{{"RaisesAtEnd", "ValueError: not today"},
                                                        {"HangsAtEnd", "did not return within 1 s"},
                                                        {"DiesAtEnd", "exited with 6"},
                                                        {"Unmade", "cannot be made: RuntimeError: no disk"}}) {
    HostOptions options = Watched({name});
    options.step_timeout = absl::Seconds(2);
    const auto functions = PythonFunctions::Create(options);
    const auto tracks = std::make_shared<EpisodeTracks>();
    EpisodeTeller teller(functions, options, tracks);
    for (int i = 0; i < 2; ++i) teller.Tell({{3, {{"a", "main", 1}}}});
    EXPECT_THAT(tracks->why_off(), HasSubstr(says)) << name;
    EXPECT_THAT(tracks->totals(), IsEmpty());
  }
}

TEST(EpisodeTracksTest, WhatIsNoAnswerTurnsThemOffAndChangesNothing) {
  const std::string long_name(129, 'x');
  for (const std::string& answer :
       {std::string("{"), std::string("[]"), std::string("{}"), std::string(R"({"tracked": {}})"),
        std::string(R"({"tracked": [["a", 1]]})"), std::string(R"({"tracked": [["", 1, 1]]})"),
        std::string(R"({"tracked": [["a\nb", 1, 1]]})"), absl::StrCat(R"({"tracked": [[")", long_name, R"(", 1, 1]]})"),
        std::string(R"({"tracked": [["a", "1", 1]]})"), std::string(R"({"tracked": [["a", 1, -1]]})"),
        std::string(R"({"tracked": [["a", 1, 1.5]]})"), std::string(R"({"tracked": [["a", 1e999, 1]]})"),
        std::string(R"({"tracked": [["a", 1, 99999999999]]})")}) {
    EpisodeTracks tracks;
    tracks.Take(answer);
    EXPECT_EQ(tracks.why_off(), "callbacks of episodes said what is no answer") << answer;
    EXPECT_THAT(tracks.totals(), IsEmpty()) << answer;
  }
}

// More than that a learner refuses: it would take the worker for a broken one, and end it.
TEST(EpisodeTracksTest, WhatIsMoreThanMayBeSaidTurnsThemOffAndIsNotAdded) {
  for (const auto& [answer, says] : std::vector<std::pair<std::string, std::string>>{
           {R"({"tracked": [["b", 1e101, 1]]})", "tracked b: the sum over 1 episodes is 1e+101, expected at most"},
           {R"({"tracked": [["b", -1.1e100, 1]]})", "the sum over 1 episodes is -1.1e+100, expected at most 1e+100 "},
           {R"({"tracked": [["a", 6e99, 2]]})", "tracked a: the sum over 3 episodes is 1.2e+100, expected at most"}}) {
    EpisodeTracks tracks;
    tracks.Take(R"({"tracked": [["a", 6e99, 1]]})");
    EXPECT_EQ(tracks.why_off(), "");
    tracks.Take(answer);
    EXPECT_THAT(tracks.why_off(), HasSubstr(says));
    EXPECT_THAT(tracks.totals(), ElementsAre(TrackedTotal{"a", 6e99, 1}));
  }
}

TEST(EpisodeTracksTest, EpisodesAreCountedUpToALimit) {
  constexpr int64_t kMostAtOnce = 1 << 20, kEntries = 1 << 12;
  std::string answer = R"({"tracked": [["a", 1, 1048576])";
  for (int64_t i = 1; i < kEntries; ++i) answer += R"(,["a", 1, 1048576])";
  answer += "]}";
  EpisodeTracks tracks;
  for (int64_t i = 0; i < base::kMaxTrackedEpisodes / (kMostAtOnce * kEntries); ++i) tracks.Take(answer);
  EXPECT_EQ(tracks.why_off(), "");
  ASSERT_THAT(tracks.totals(), SizeIs(1));
  EXPECT_EQ(tracks.totals()[0].episodes, base::kMaxTrackedEpisodes);
  tracks.Take(R"({"tracked": [["a", 1, 1]]})");
  EXPECT_THAT(tracks.why_off(), HasSubstr("expected at most 1e+100 either way and 1099511627776 episodes"));
  EXPECT_EQ(tracks.totals()[0].episodes, base::kMaxTrackedEpisodes);
}

TEST(EpisodeTracksTest, TheFirstReasonStays) {
  EpisodeTracks tracks;
  tracks.Take(R"({"tracked": [["a", 1, 2]], "off": "first\nline"})");
  tracks.Take(R"({"tracked": [["a", 0.5, 1]], "off": "second"})");
  EXPECT_THAT(tracks.why_off(), AllOf(HasSubstr("first"), ::testing::Not(HasSubstr("\n"))));
  EXPECT_THAT(tracks.totals(), ElementsAre(TrackedTotal{"a", 1.5, 3}));
}

}  // namespace
}  // namespace troupe::envhost
