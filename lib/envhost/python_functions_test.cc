#include "lib/envhost/python_functions.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/envhost/python_actor.h"
#include "lib/envhost/python_function.h"
#include "lib/envhost/python_policy_host.h"
#include "lib/policy/policy_mapping.h"
#include "lib/policy/testing.h"

namespace troupe::envhost {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr char kModule[] = "python:host_test_functions:";

HostOptions Options() {
  HostOptions options;
  options.interpreter = TROUPE_TEST_PYTHON;
  options.path = {absl::StrCat(TROUPE_SOURCE_DIR, "/lib/envhost/testing")};
  return options;
}

/// Where functions leave their marks.
std::filesystem::path EmptyFolderOfMarks() {
  const std::filesystem::path marks =
      std::filesystem::path(testing::TempDir()) / absl::StrCat("troupe_marks_", getpid());
  std::filesystem::remove_all(marks);
  std::filesystem::create_directories(marks);
  setenv("TROUPE_TEST_MARKS", marks.c_str(), 1);
  return marks;
}

std::string Text(const absl::Status& status) { return std::string(status.message()); }

class MappingTest : public ::testing::Test {
 protected:
  absl::StatusOr<std::string> Ask(PythonFunctions& functions, const std::string& name, uint32_t episode = 0,
                                  int32_t worker = 2) {
    policy::EpisodeInfo info = {
        .seed = 5, .env_id = base::EnvId(3), .episode = episode, .worker = worker, .env_args = args_};
    const std::string function = absl::StrCat(kModule, name);
    const base::AgentId left("left");
    const absl::StatusOr<policy::PolicyId> answer = functions.Ask(
        {.function = function, .agent_id = left, .episode = info, .policies = policies_, .mapped = mapped_});
    if (!answer.ok()) return answer.status();
    return answer->value();
  }

  std::vector<policy::PolicyId> policies_ = {policy::PolicyId("a"), policy::PolicyId("b")};
  std::vector<std::pair<std::string_view, std::string_view>> mapped_ = {{"right", "b"}};
  std::vector<policy::EnvArgument> args_ = {{"N", "5"}};
};

TEST_F(MappingTest, IsToldOfAgentEpisodeAndWorker) {
  const auto functions = PythonFunctions::Create(Options());
  const absl::StatusOr<std::string> told = Ask(*functions, "tell", 7);
  ASSERT_TRUE(told.ok()) << told.status();
  EXPECT_THAT(*told, StartsWith("left env 3 episode 7 worker 2 of 2 args {'N': '5'} others right=b "));
  EXPECT_EQ(*Ask(*functions, "tell", 7), *told) << "the episode's id is its own";
  EXPECT_NE(*Ask(*functions, "tell", 8), *told);
  EXPECT_EQ(*Ask(*functions, "two", 4), "left 4");
  EXPECT_EQ(*Ask(*functions, "one"), "only left");
  args_ = {{"zed", "1"}, {"abe", "2"}};
  mapped_ = {{"zed", "b"}, {"abe", "a"}};
  EXPECT_THAT(*Ask(*functions, "tell", 7), HasSubstr("args {'zed': '1', 'abe': '2'} others zed=b,abe=a "))
      << "in the run's order";
  EXPECT_EQ(functions->stats().errors, 0);
}

TEST_F(MappingTest, GlobalGeneratorsFollowFromSeedAndWorker) {
  std::vector<std::string> drawn(3);
  for (size_t process = 0; process < 3; ++process) {
    const auto functions = PythonFunctions::Create(Options());
    for (uint32_t episode = 0; episode < 64; ++episode) {
      drawn[process] += *Ask(*functions, "draw", episode, process == 2 ? 1 : 0);
    }
  }
  EXPECT_EQ(drawn[0], drawn[1]);
  EXPECT_NE(drawn[0], drawn[2]);
}

TEST_F(MappingTest, WhatIsWrongWithAFunctionIsSaidBeforeItIsAsked) {
  const auto functions = PythonFunctions::Create(Options());
  EXPECT_TRUE(functions->Prepare(absl::StrCat(kModule, "tell")).ok());
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"python:host_test_function:tell", "there is no module host_test_function"},
      {"python:host_test_functions:tel", "'tel' is no attribute of module host_test_functions, did you mean tell"},
      {"python:host_test_functions:NOT_CALLABLE", "is int, expected a function or class"},
      {"python:host_test_functions:none", "expected 1 to 3 positional parameters"},
  };
  for (const auto& [name, text] : cases) {
    const absl::Status status = functions->Prepare(name);
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << name;
    EXPECT_THAT(Text(status), AllOf(HasSubstr(text), HasSubstr("mapping function "))) << name;
  }
  HostOptions nowhere = Options();
  nowhere.interpreter = "no_such_python";
  EXPECT_THAT(Text(PythonFunctions::Create(nowhere)->Prepare("python:m:f")),
              HasSubstr("got no_such_python, which is not on the PATH"));
}

TEST_F(MappingTest, AFailureIsOneCallsAndCounted) {
  HostOptions options = Options();
  options.step_timeout = absl::Seconds(2);  // a busy machine may keep a process waiting
  const auto functions = PythonFunctions::Create(options);
  ASSERT_EQ(*Ask(*functions, "faulty", 0), "fine");
  const std::vector<std::pair<absl::StatusCode, std::string>> expected = {
      {absl::StatusCode::kInternal, "ValueError: nobody plays (at "},
      {absl::StatusCode::kInternal, "got 5 (int), expected a policy's id, a str"},
      {absl::StatusCode::kUnavailable, "was killed by signal 9"},
      {absl::StatusCode::kDeadlineExceeded, "did not answer within 2s"},
      {absl::StatusCode::kInternal, "SystemExit: 3"},
  };
  for (uint32_t kind = 1; kind <= expected.size(); ++kind) {
    const absl::Status status = Ask(*functions, "faulty", kind).status();
    EXPECT_EQ(status.code(), expected[kind - 1].first) << status;
    EXPECT_THAT(Text(status), HasSubstr(expected[kind - 1].second));
    const absl::StatusOr<std::string> next = Ask(*functions, "faulty", 0);
    EXPECT_TRUE(next.ok()) << "after " << kind << ": " << next.status();
  }
  const HostStats stats = functions->stats();
  EXPECT_EQ(stats.errors, 5);
  EXPECT_EQ(stats.exceptions, 2);
  EXPECT_EQ(stats.bad_outputs, 1);
  EXPECT_EQ(stats.deaths, 2);
  EXPECT_EQ(stats.timeouts, 1);
  EXPECT_EQ(stats.restarts, 2);
}

TEST_F(MappingTest, RestartsAreLimited) {
  HostOptions options = Options();
  options.max_restarts = 1;
  const auto functions = PythonFunctions::Create(options);
  EXPECT_TRUE(absl::IsUnavailable(Ask(*functions, "faulty", 3).status()));
  EXPECT_TRUE(absl::IsUnavailable(Ask(*functions, "faulty", 3).status()));
  const absl::Status over = Ask(*functions, "faulty", 0).status();
  EXPECT_EQ(over.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(Text(over), AllOf(HasSubstr("expected at most 1"), HasSubstr("killed by signal 9")));
}

TEST_F(MappingTest, AKindOfFunctionThatPythonDoesNotKnowIsNoPolicy) {
  const auto functions = PythonFunctions::Create(Options());
  PythonFunction function(nlohmann::json{{"filter", "host_test_functions:tell"}}, 64);
  EXPECT_THAT(Text(function.Make(*functions)), HasSubstr("filter: none of mapping, policy"));
}

TEST_F(MappingTest, AQuestionHasALimit) {
  const auto functions = PythonFunctions::Create(Options());
  args_ = {{"text", std::string(PythonFunctions::kMaxTextBytes, 'x')}};
  const absl::Status status = Ask(*functions, "tell").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Text(status), AllOf(HasSubstr(" bytes (agents, policies, arguments of the environment)"),
                                  EndsWith("expected at most 1048576")));
}

/// A policy of class python:… and rows for it.
class PythonPolicyTest : public ::testing::Test {
 protected:
  static policy::PolicySpec Spec(const std::string& name) {
    policy::PolicySpec spec = policy::SmallSpecForTesting();
    spec.actor = policy::DefaultActor();
    spec.learner_networks = {policy::DefaultCritic()};
    spec.policy_class = *policy::ParsePolicyClass(absl::StrCat(kModule, name));
    return spec;
  }

  /// The actions for `obs` (as many rows as fit), in the given episode, or the error.
  absl::StatusOr<std::vector<space::ActionWord>> Act(inference::PolicyActor& actor, const policy::PolicySpec& spec,
                                                     const std::vector<float>& obs, uint32_t episode = 0,
                                                     const uint8_t* mask = nullptr, bool deterministic = false) {
    const auto rows = static_cast<int64_t>(obs.size()) / spec.observation_size();
    std::vector<inference::RowKey> keys;
    for (int64_t row = 0; row < rows; ++row) {
      keys.push_back({.env_id = base::EnvId(4),
                      .episode = episode,
                      .slot = base::AgentSlot(static_cast<int32_t>(row)),
                      .env_step = 6});
    }
    std::vector<space::ActionWord> actions(static_cast<size_t>(rows * spec.action_words()));
    std::vector<float> logp(static_cast<size_t>(rows), 1.0f);
    const absl::Status status =
        actor.Act({rows, obs.data(), mask, keys.data(), deterministic}, actions.data(), logp.data());
    if (!status.ok()) return status;
    for (const float each : logp) EXPECT_EQ(each, 0.0f);
    return actions;
  }

  static std::vector<int32_t> Ints(const std::vector<space::ActionWord>& words) {
    std::vector<int32_t> ints;
    for (const space::ActionWord& word : words) ints.push_back(word.i32);
    return ints;
  }

  std::shared_ptr<PythonFunctions> functions_ = PythonFunctions::Create(Options());
};

TEST_F(PythonPolicyTest, ActsForRowsInSeveralCalls) {
  const policy::PolicySpec spec = Spec("shifted");
  const auto actor = functions_->MakeActor(spec, 1);
  ASSERT_TRUE(actor.ok()) << actor.status();
  EXPECT_TRUE((*actor)->runs_elsewhere());
  const auto rows = static_cast<size_t>(PythonFunctions::kMaxRows) + 3;
  std::vector<float> obs(3 * rows, -0.5f);
  for (size_t row = 0; row < rows; row += 5) obs[3 * row] = 2.0f;
  const auto actions = Act(**actor, spec, obs);
  ASSERT_TRUE(actions.ok()) << actions.status();
  for (size_t row = 0; row < rows; ++row) EXPECT_EQ((*actions)[row].i32, row % 5 == 0 ? 1 : 0) << row;
}

TEST_F(PythonPolicyTest, HasMasksShapesAndRandomNumbers) {
  policy::PolicySpec masked = Spec("allowed");
  masked.has_action_mask = true;
  const auto actor = functions_->MakeActor(masked, 1);
  ASSERT_TRUE(actor.ok()) << actor.status();
  const uint8_t mask[] = {1, 1, 1, 0};
  EXPECT_EQ(Ints(*Act(**actor, masked, std::vector<float>(6), 0, mask)), (std::vector<int32_t>{1, 0}));

  policy::PolicySpec box = Spec("drawn");
  box.observation_space = *space::Space::Box(-1, 1, {2, 2});
  box.action_space = *space::Space::Box(-1, 1, {3});
  std::set<std::vector<int32_t>> drawn;
  for (const uint64_t seed : {1, 1, 2}) {
    const auto drawing = functions_->MakeActor(box, seed);
    ASSERT_TRUE(drawing.ok()) << drawing.status();
    const auto actions = Act(**drawing, box, std::vector<float>(8));
    ASSERT_TRUE(actions.ok()) << actions.status();
    drawn.insert(Ints(*actions));
    EXPECT_EQ((*Act(**drawing, box, std::vector<float>(8), 0, nullptr, true))[5].f32, 0.0f);
  }
  EXPECT_EQ(drawn.size(), 2u) << "they follow from seed and rows";

  policy::PolicySpec nested = Spec("of_dict");
  nested.observation_space = *space::ParseSpace("Dict{direction: Discrete(4), place: Box(-1, 1, [1])}");
  nested.action_space = *space::ParseSpace("Tuple(Discrete(4), Box(-1, 1, [1]))");
  const auto structured = functions_->MakeActor(nested, 1);
  ASSERT_TRUE(structured.ok()) << structured.status();
  const auto words = Act(**structured, nested, {0, 0, 1, 0, 0.25f});
  ASSERT_TRUE(words.ok()) << words.status();
  EXPECT_EQ((*words)[0].i32, 2);
  EXPECT_EQ((*words)[1].f32, 0.25f);
}

TEST_F(PythonPolicyTest, BadAnswersAreErrorsWithTheirPlace) {
  const policy::PolicySpec outside = Spec("outside");
  const auto actor = functions_->MakeActor(outside, 1);
  ASSERT_TRUE(actor.ok()) << actor.status();
  EXPECT_THAT(Text(Act(**actor, outside, std::vector<float>(3)).status()),
              AllOf(StartsWith("policy \"p\": python:host_test_functions:outside, env 4, episode 0, step 6, agent slot "
                               "0: made an action outside its space: "),
                    HasSubstr("2")));
  const policy::PolicySpec few = Spec("too_few");
  EXPECT_EQ(Act(**functions_->MakeActor(few, 1), few, std::vector<float>(6)).status(),
            absl::InternalError("policy \"p\": got 1 actions, expected 2, one a row"));
  EXPECT_THAT(Text((*functions_->MakeActor(Spec("NotCallable"), 1))->Prepare()),
              AllOf(StartsWith("policy \"p\": "), HasSubstr("expected a method __call__")));
  EXPECT_EQ(functions_->stats().bad_outputs, 3);
}

TEST_F(PythonPolicyTest, AFailureIsOneCalls) {
  const policy::PolicySpec spec = Spec("shifted");
  const auto actor = functions_->MakeActor(spec, 1);
  ASSERT_TRUE(actor.ok()) << actor.status();
  for (const uint32_t kind : {1u, 3u, 5u}) {
    EXPECT_FALSE(Act(**actor, spec, {1, 1, 1}, kind).ok());
    const auto next = Act(**actor, spec, {1, 1, 1});
    ASSERT_TRUE(next.ok()) << next.status();
    EXPECT_EQ((*next)[0].i32, 1);
  }
  EXPECT_EQ(functions_->stats().restarts, 1);
}

TEST_F(PythonPolicyTest, AnObjectIsMadeOnceAndClosedOnce) {
  const std::filesystem::path marks = EmptyFolderOfMarks();
  const policy::PolicySpec spec = Spec("Remembers");
  for (int i = 0; i < 3; ++i) {
    // Whoever makes an actor of the same policy has the same object.
    const auto actor = functions_->MakeActor(spec, 1);
    ASSERT_TRUE(actor.ok()) << actor.status();
    EXPECT_EQ((*Act(**actor, spec, std::vector<float>(3)))[0].i32, (i + 1) % 2);
  }
  functions_ = nullptr;
  std::ifstream file(marks / "p");
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  EXPECT_EQ(text, "closed after 3\n");
}

TEST_F(PythonPolicyTest, ThreadsTakeTurns) {
  const policy::PolicySpec spec = Spec("shifted");
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([this, &spec, thread] {
      const auto actor = functions_->MakeActor(spec, 1);
      ASSERT_TRUE(actor.ok()) << actor.status();
      for (int i = 0; i < 50; ++i) {
        const bool high = (i + thread) % 2 == 0;
        const auto actions = Act(**actor, spec, std::vector<float>(6, high ? 1.0f : -1.0f));
        ASSERT_TRUE(actions.ok()) << actions.status();
        EXPECT_EQ((*actions)[1].i32, high ? 1 : 0);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

/// Policies that are asked by others, each in its process.
class PythonPolicyHostTest : public PythonPolicyTest {
 protected:
  static constexpr uint32_t kHangs = 4;  ///< the episode in which "shifted" does not answer

  std::unique_ptr<inference::PolicyActor> Make(const std::string& function, const std::string& id) {
    policy::PolicySpec spec = Spec(function);
    spec.id = policy::PolicyId(id);
    auto actor = host_.MakeActor(spec, 1);
    EXPECT_TRUE(actor.ok()) << actor.status();
    return *std::move(actor);
  }

  PythonPolicyHost host_{Options()};
};

TEST_F(PythonPolicyHostTest, OneThatHangsDelaysNoOther) {
  const policy::PolicySpec spec = Spec("shifted");
  const auto hangs = Make("shifted", "hangs"), answers = Make("shifted", "answers");
  EXPECT_TRUE(Act(*hangs, spec, {1, 1, 1}).ok());
  absl::Status status;
  std::thread asker([&] { status = Act(*hangs, spec, {1, 1, 1}, kHangs).status(); });
  for (int i = 0; i < 20; ++i) {
    const auto actions = Act(*answers, spec, {1, 1, 1});
    ASSERT_TRUE(actions.ok()) << actions.status();
  }
  host_.Stop();
  asker.join();
  EXPECT_EQ(status, absl::CancelledError("policy \"hangs\": functions in Python are asked no more: it ends"));
  EXPECT_EQ(Act(*answers, spec, {1, 1, 1}).status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(host_.MakeActor(spec, 1).status().code(), absl::StatusCode::kCancelled);
}

TEST_F(PythonPolicyHostTest, StoppedWhileAPolicyIsMadeItDoesNotWaitForIt) {
  const std::filesystem::path marks = EmptyFolderOfMarks();
  const auto actor = Make("Sleepy", "sleepy");
  absl::Status status;
  std::thread asker([&] { status = Act(*actor, Spec("Sleepy"), {1, 1, 1}).status(); });
  while (!std::filesystem::exists(marks / "sleepy")) std::this_thread::yield();
  host_.Stop();
  asker.join();
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled);
}

TEST_F(PythonPolicyHostTest, StoppedItLetsOneThatNobodyAsksCloseItself) {
  const std::filesystem::path marks = EmptyFolderOfMarks();
  auto actor = Make("Remembers", "remembers");
  EXPECT_TRUE(Act(*actor, Spec("Remembers"), std::vector<float>(3)).ok());
  host_.Stop();
  actor.reset();
  std::ifstream file(marks / "remembers");
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  EXPECT_EQ(text, "closed after 1\n");
}

TEST_F(PythonPolicyHostTest, WhatIsWrongWithAPolicyIsSaidByItsCalls) {
  const auto actor = Make("NotCallable", "p");
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(Text(Act(*actor, Spec("NotCallable"), {1, 1, 1}).status()),
                AllOf(StartsWith("policy \"p\": "), HasSubstr("expected a method __call__")));
  }
}

}  // namespace
}  // namespace troupe::envhost
