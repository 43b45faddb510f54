#include "lib/outside/episode_book.h"

#include <thread>

#include "absl/strings/str_cat.h"
#include "lib/env/slot_buffers.h"
#include "lib/outside/lane_env.h"
#include <gtest/gtest.h>

namespace troupe::outside {
namespace {

constexpr base::EnvId kLane{3};
const base::Caller kLocal{base::Caller::Kind::kUnixSocket, ""};

env::EnvSpec Spec() {
  env::EnvSpec spec;
  spec.name = "external";
  for (const char* id : {"a", "b"}) {
    spec.possible_agents.push_back({base::AgentId(id), *space::Space::Box(-1, 1, {1}), *space::Space::Discrete(4)});
  }
  return spec;
}

/// A book, one lane of a worker, and what a client hears.
class EpisodeBookTest : public testing::Test {
 protected:
  using Heard = std::shared_ptr<absl::StatusOr<std::vector<AgentAction>>>;

  static Heard Nothing() {
    return std::make_shared<absl::StatusOr<std::vector<AgentAction>>>(absl::UnknownError("no answer yet"));
  }
  static AgentReport Saw(const std::string& agent, double reward = 0) {
    AgentReport report;
    report.agent = agent;
    report.observation = {0.5f};
    report.reward = reward;
    return report;
  }
  std::string Start(const std::string& wanted = "") {
    const absl::StatusOr<std::string> id = book_.Start(kLocal, wanted);
    EXPECT_TRUE(id.ok()) << id.status();
    return id.ok() ? *id : "";
  }
  Heard Ask(const std::string& id, std::vector<AgentReport> agents) {
    Heard heard = Nothing();
    call_ = book_.Act(id, StepKind::kGetActions, {std::move(agents), {}}, [heard](auto answer) { *heard = answer; });
    return heard;
  }
  /// The lane takes the waiting episode, and acts.
  absl::Status BeginInLane() { return env_.Reset({1, kLane, 0}, buffers_.BeginStep(0)); }
  absl::Status Act(std::vector<int> slots) {
    std::vector<space::ActionWord> words(2);
    std::vector<const space::ActionWord*> rows(2, nullptr);
    for (const int slot : slots) {
      words[static_cast<size_t>(slot)].i32 = slot + 1;
      rows[static_cast<size_t>(slot)] = &words[static_cast<size_t>(slot)];
      book_.SetLogp(kLane, base::AgentSlot(slot), -0.25f);
    }
    return env_.StartStep(rows);
  }
  absl::Status Finish() { return env_.Finish(buffers_.BeginStep(0)); }

  base::FakeClock clock_;
  EpisodeLimits limits_{.episodes = 4, .idle = absl::Seconds(60), .steps = 3, .max_abs_return = 1.5e6, .ids_kept = 2};
  EpisodeBook book_{Spec(), limits_, &clock_};
  LaneEnv env_{&book_};
  env::SlotBuffers buffers_{book_.spec(), 1};
  uint64_t call_ = 0;
};

TEST_F(EpisodeBookTest, AnEpisodeGoesFromItsClientToALaneAndBack) {
  const std::string id = Start();
  const Heard first = Ask(id, {Saw("b"), Saw("a")});
  EXPECT_TRUE(absl::IsUnknown(first->status())) << "nobody has acted";
  EXPECT_TRUE(book_.HasEpisode());
  ASSERT_TRUE(BeginInLane().ok());
  EXPECT_FALSE(book_.HasEpisode());
  ASSERT_TRUE(Act({0, 1}).ok());
  ASSERT_TRUE(first->ok()) << first->status();
  ASSERT_EQ((*first)->size(), 2u);
  EXPECT_EQ((**first)[0].agent, "b") << "in the request's order";
  EXPECT_EQ((**first)[0].action.discrete, (std::vector<int32_t>{2}));
  EXPECT_EQ((**first)[0].action.logp, -0.25f);
  EXPECT_FALSE(book_.Answered(kLane)) << "its client's turn";
  EXPECT_TRUE(book_.LogReturns(id, {{"a", 1}, {"a", 2}}).ok());
  Ask(id, {Saw("a", 4)});
  EXPECT_TRUE(book_.Answered(kLane));
  ASSERT_TRUE(Finish().ok());
  EXPECT_EQ(buffers_.reward(0, 0), 7.0f) << "logged between its calls, and with the next one";
  ASSERT_TRUE(Act({0}).ok());
  EXPECT_TRUE(book_.EndEpisode(id, End::kTerminated, {{Saw("b")}, {}}).ok());
  EXPECT_TRUE(book_.Answered(kLane));
  ASSERT_TRUE(Finish().ok());
  EXPECT_EQ(book_.counters().ended, 1);
  EXPECT_EQ(book_.num_open(), 0u);
  EXPECT_EQ(Ask(id, {Saw("a")})->status(),
            absl::FailedPreconditionError(absl::StrCat("episode \"", id, "\" has ended")));
}

TEST_F(EpisodeBookTest, IdsAreTheirClientsToChooseOnce) {
  EXPECT_EQ(Start("mine"), "mine");
  EXPECT_EQ(book_.Start(kLocal, "mine").status(),
            absl::AlreadyExistsError("episode \"mine\" is in progress; expected an id of its own"));
  EXPECT_TRUE(book_.EndEpisode("mine", End::kTruncated, {}).ok()) << "an episode without a step";
  EXPECT_EQ(book_.Start(kLocal, "mine").status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(book_.Start(kLocal, "../x").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(book_.Start(kLocal, std::string(65, 'x')).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Start().size(), 32u) << "drawn: 128 bits";
  EXPECT_EQ(Ask("other", {Saw("a")})->status(), absl::NotFoundError("there is no episode \"other\""));
}

TEST_F(EpisodeBookTest, WhatIsRefusedChangesNothing) {
  const std::string id = Start();
  EXPECT_EQ(Ask(id, {Saw("a", 1)})->status().code(), absl::StatusCode::kFailedPrecondition) << "it has never acted";
  EXPECT_EQ(book_.LogReturns(id, {{"a", 1}}),
            absl::FailedPreconditionError("agent \"a\" has never acted in this episode: nothing to reward"));
  Ask(id, {Saw("a")});
  EXPECT_EQ(Ask(id, {Saw("a")})->status(),
            absl::FailedPreconditionError(absl::StrCat("episode \"", id, "\": another call of it is in progress")));
  EXPECT_EQ(book_.LogReturns(id, {{"a", 1}}).code(), absl::StatusCode::kFailedPrecondition) << "likewise";
  ASSERT_TRUE(BeginInLane().ok());
  ASSERT_TRUE(Act({0}).ok());
  EXPECT_EQ(book_.LogReturns(id, {{"a", 1}, {"nobody", 1}}).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(book_.LogReturns(id, {{"a", 1}, {"b", 1}}).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(book_.LogReturns(id, {{"a", 1e39}}).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(book_.LogReturns(id, {{"a", 6e5}, {"a", 6e5}}),
            absl::InvalidArgumentError("agent \"a\": its reward is 600000 after 600000 in this step, expected at most "
                                       "1e+06 in all, either way"));
  EXPECT_EQ(book_.EndEpisode(id, End::kNone, {}).code(), absl::StatusCode::kInvalidArgument);
  AgentReport leaves = Saw("a");
  leaves.end = End::kTerminated;
  Ask(id, {leaves, Saw("b")});
  ASSERT_TRUE(Finish().ok());
  EXPECT_EQ(buffers_.reward(0, 0), 0.0f) << "of two refused calls";
  ASSERT_TRUE(Act({1}).ok());
  AgentReport late = Saw("a");
  late.reward = 1;
  EXPECT_EQ(Ask(id, {late, Saw("b")})->status(),
            absl::FailedPreconditionError(
                "agent \"a\" is done in this episode, expected no reward with the observation with which it returns"));
  EXPECT_EQ(Ask(id, {leaves, Saw("b")})->status(),
            absl::FailedPreconditionError("agent \"a\" is done in this episode"));
  EXPECT_EQ(book_.LogReturns(id, {{"a", 1}}), absl::FailedPreconditionError("agent \"a\" is done in this episode"));
  EXPECT_TRUE(absl::IsUnknown(Ask(id, {Saw("a"), Saw("b")})->status())) << "the agent returns, and the call is served";
}

// With another one the learner would refuse the fragment.
TEST_F(EpisodeBookTest, TheReturnOfAnEpisodeIsOneThatTheLearnerBelieves) {
  const std::string id = Start();
  Ask(id, {Saw("a"), Saw("b")});
  ASSERT_TRUE(BeginInLane().ok());
  ASSERT_TRUE(Act({0, 0}).ok());
  Ask(id, {Saw("a", 8e5), Saw("b", -8e5)});
  ASSERT_TRUE(Finish().ok());
  ASSERT_TRUE(Act({0, 0}).ok());
  EXPECT_EQ(book_.LogReturns(id, {{"b", 1}, {"a", 8e5}}),
            absl::InvalidArgumentError("agent \"a\" has a return of 1.6e+06 in this episode, expected at most 1.5e+06 "
                                       "either way (env.max_abs_return)"));
  EXPECT_EQ(Ask(id, {Saw("a"), Saw("b", -8e5)})->status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(book_.LogReturns(id, {{"a", 7e5}, {"b", 8e5}}).ok()) << "of refused calls nothing counts";
  EXPECT_EQ(Ask(id, {Saw("a", 1)})->status().code(), absl::StatusCode::kInvalidArgument) << "reported either way";
}

TEST_F(EpisodeBookTest, ASilentClientLosesItsEpisode) {
  const std::string silent = Start();
  const std::string waiting = Start();
  Ask(waiting, {Saw("a")});
  clock_.Advance(absl::Seconds(59));
  book_.Tick();
  EXPECT_EQ(book_.num_open(), 2u);
  clock_.Advance(absl::Seconds(2));
  book_.Tick();
  EXPECT_EQ(book_.num_open(), 1u) << "who waits for the worker is not silent";
  EXPECT_EQ(book_.counters().lost, 1);
  EXPECT_EQ(book_.LogReturns(silent, {}),
            absl::FailedPreconditionError(absl::StrCat("episode \"", silent, "\" was lost: no call for 1m")));
  ASSERT_TRUE(BeginInLane().ok());
  ASSERT_TRUE(Act({0}).ok());
  clock_.Advance(absl::Seconds(61));
  book_.Tick();
  EXPECT_TRUE(book_.Answered(kLane));
  EXPECT_TRUE(absl::IsCancelled(Finish())) << "the lane hears of it";
  EXPECT_EQ(book_.counters().lost, 2);
}

TEST_F(EpisodeBookTest, AClientThatGoesAwayInACallLosesItsEpisode) {
  const std::string id = Start();
  const Heard heard = Ask(id, {Saw("a")});
  book_.GiveUp(id, call_ + 1);
  EXPECT_TRUE(book_.HasEpisode()) << "another call";
  book_.GiveUp(id, call_);
  EXPECT_FALSE(book_.HasEpisode());
  EXPECT_TRUE(absl::IsCancelled(heard->status()));
  // The same while a lane is about to act.
  const std::string other = Start();
  Ask(other, {Saw("a")});
  ASSERT_TRUE(BeginInLane().ok());
  book_.GiveUp(other, call_);
  ASSERT_TRUE(Act({0}).ok()) << "nobody hears it";
  EXPECT_TRUE(book_.Answered(kLane));
  EXPECT_TRUE(absl::IsCancelled(Finish()));
  EXPECT_EQ(book_.counters().lost, 2);
  EXPECT_TRUE(absl::IsCancelled(BeginInLane())) << "nobody waits";
}

TEST_F(EpisodeBookTest, EpisodesHaveACapInAllAndOneOfAnAddress) {
  const base::Caller far{base::Caller::Kind::kNetwork, "10.0.0.7:1000"};
  EXPECT_TRUE(book_.Start(far, "").ok());
  EXPECT_TRUE(book_.Start({base::Caller::Kind::kNetwork, "10.0.0.7:2000"}, "").ok());
  EXPECT_EQ(book_.Start(far, "").status().code(), absl::StatusCode::kResourceExhausted) << "half of 4";
  EXPECT_TRUE(book_.Start({base::Caller::Kind::kNetwork, "10.0.0.8:1000"}, "").ok());
  EXPECT_TRUE(book_.Start(kLocal, "").ok());
  EXPECT_EQ(book_.Start(kLocal, "").status().code(), absl::StatusCode::kResourceExhausted);
  clock_.Advance(absl::Seconds(61));
  book_.Tick();
  EXPECT_TRUE(book_.Start(far, "").ok()) << "silent ones make room";
  EXPECT_EQ(book_.num_open(), 1u);
}

TEST_F(EpisodeBookTest, OfEpisodesThatAreOverTheNewestAreRemembered) {
  for (const char* id : {"first", "second", "third"}) {
    Start(id);
    EXPECT_TRUE(book_.EndEpisode(id, End::kTerminated, {}).ok());
  }
  EXPECT_EQ(book_.LogReturns("first", {}).code(), absl::StatusCode::kNotFound) << "of 2 that are kept it is none";
  EXPECT_EQ(book_.LogReturns("second", {}).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(book_.LogReturns("third", {}).code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(EpisodeBookTest, CallsThatSayNothingOrAreRefusedKeepNoEpisodeAlive) {
  const std::string id = Start();
  Ask(id, {Saw("a")});
  ASSERT_TRUE(BeginInLane().ok());
  ASSERT_TRUE(Act({0}).ok());
  clock_.Advance(absl::Seconds(40));
  EXPECT_TRUE(book_.LogReturns(id, {{"a", 1}}).ok());
  clock_.Advance(absl::Seconds(40));
  book_.Tick();
  EXPECT_EQ(book_.num_open(), 1u) << "its client said something";
  EXPECT_TRUE(book_.LogReturns(id, {}).ok());
  EXPECT_TRUE(book_.LogReturns(id, {{"a", 0}}).ok());
  EXPECT_FALSE(Ask(id, {Saw("nobody")})->ok());
  EXPECT_FALSE(book_.EndEpisode(id, End::kNone, {}).ok());
  clock_.Advance(absl::Seconds(40));
  book_.Tick();
  EXPECT_EQ(book_.num_open(), 0u);
  EXPECT_EQ(book_.counters().lost, 1);
}

TEST_F(EpisodeBookTest, ALaneThatIsFreeIsOfTheHostThatHasFewest) {
  const base::Caller greedy{base::Caller::Kind::kNetwork, "10.0.0.7:1000"};
  const std::string played = *book_.Start(greedy, "played");
  Ask(played, {Saw("a")});
  ASSERT_TRUE(BeginInLane().ok());
  Ask(*book_.Start(greedy, "waits"), {Saw("a")});
  const Heard other = Ask(*book_.Start({base::Caller::Kind::kNetwork, "10.0.0.8:1000"}, "other"), {Saw("a")});
  ASSERT_TRUE(book_.Take(base::EnvId(kLane.value() + 1)).ok());
  book_.Drop(base::EnvId(kLane.value() + 1), absl::AbortedError("taken"));
  EXPECT_TRUE(absl::IsAborted(other->status())) << "it came after, and was taken before";
}

// The worker's grant ends with an error in the middle of its client's turn.
TEST_F(EpisodeBookTest, WhoIsGivenUpInItsClientsTurnIsToldAtTheNextCall) {
  const std::string id = Start();
  Ask(id, {Saw("a")});
  ASSERT_TRUE(BeginInLane().ok());
  ASSERT_TRUE(Act({0}).ok());
  EXPECT_TRUE(absl::IsCancelled(Finish())) << "there is nothing to write";
  EXPECT_EQ(book_.num_open(), 0u);
  EXPECT_EQ(book_.counters().dropped, 1);
  EXPECT_EQ(Ask(id, {Saw("a")})->status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(EpisodeBookTest, AnEpisodeHasACapOfSteps) {
  const std::string id = Start();
  for (int64_t step = 0; step < limits_.steps; ++step) {
    Ask(id, {Saw("a")});
    ASSERT_TRUE((step == 0 ? BeginInLane() : Finish()).ok());
    ASSERT_TRUE(Act({0}).ok());
  }
  EXPECT_EQ(Ask(id, {Saw("a")})->status(),
            absl::ResourceExhaustedError(
                absl::StrCat("episode \"", id, "\" has had 3 steps, all that it may; EndEpisode ends it")));
  EXPECT_TRUE(book_.EndEpisode(id, End::kTruncated, {}).ok());
}

TEST_F(EpisodeBookTest, WhatTheWorkerDropsItsClientHears) {
  const std::string id = Start();
  const Heard heard = Ask(id, {Saw("a")});
  ASSERT_TRUE(BeginInLane().ok());
  book_.Drop(kLane, absl::AbortedError("the reason"));
  EXPECT_EQ(heard->status(), absl::AbortedError(absl::StrCat("episode \"", id, "\" is over: the reason")));
  EXPECT_EQ(book_.counters().dropped, 1);
  // A lane that begins another episode while its client plays on (env.max_episode_steps).
  Ask(Start(), {Saw("a")});
  ASSERT_TRUE(BeginInLane().ok());
  const Heard waits = Ask(Start(), {Saw("a")});
  ASSERT_TRUE(BeginInLane().ok());
  EXPECT_EQ(book_.counters().dropped, 2);
  ASSERT_TRUE(Act({0}).ok());
  EXPECT_TRUE(waits->ok());
}

TEST_F(EpisodeBookTest, EverybodyHearsThatTheWorkerEnds) {
  const std::string id = Start();
  const Heard heard = Ask(id, {Saw("a")});
  book_.Close();
  EXPECT_TRUE(absl::IsUnavailable(heard->status()));
  EXPECT_TRUE(absl::IsUnavailable(Ask(id, {Saw("a")})->status()));
  EXPECT_TRUE(absl::IsUnavailable(book_.Start(kLocal, "").status()));
  EXPECT_TRUE(absl::IsCancelled(BeginInLane()));
}

// A run that was trained to its end looked to its clients like a worker that was killed.
TEST_F(EpisodeBookTest, TheEndOfTheRunIsToldFromThatOfAWorker) {
  const std::string waiting = Start(), elsewhere = Start();
  const Heard heard = Ask(waiting, {Saw("a")});
  EXPECT_TRUE(book_.closing().ok());
  book_.Close(Closing::kRunEnded);
  book_.Close();  // the first one counts
  EXPECT_TRUE(absl::IsUnavailable(heard->status()));
  EXPECT_TRUE(SaysRunEnded(heard->status()));
  EXPECT_TRUE(SaysRunEnded(book_.closing()));
  EXPECT_TRUE(SaysRunEnded(book_.Start(kLocal, "").status()));
  // The other client is somewhere else, and is waited for.
  std::thread client([this, elsewhere] { EXPECT_TRUE(SaysRunEnded(book_.LogReturns(elsewhere, {{"a", 1.0}}))); });
  book_.AwaitTold(absl::Seconds(60));
  client.join();
  book_.AwaitTold(absl::InfiniteDuration());
}

TEST_F(EpisodeBookTest, AWorkerThatEndsSaysNothingOfItsRun) {
  const Heard heard = Ask(Start(), {Saw("a")});
  book_.Close();
  EXPECT_FALSE(SaysRunEnded(heard->status()));
  EXPECT_FALSE(SaysRunEnded(book_.closing()));
  book_.AwaitTold(absl::InfiniteDuration());  // for nobody
}

TEST_F(EpisodeBookTest, WhoHasNoDoorSaysSo) {
  const auto env = MakeSpecEnv(std::make_shared<env::EnvSpec>(Spec()));
  EXPECT_EQ(env->spec().num_agents(), 2);
  EXPECT_TRUE(absl::IsFailedPrecondition(env->Reset({1, kLane, 0}, buffers_.BeginStep(0))));
}

}  // namespace
}  // namespace troupe::outside
