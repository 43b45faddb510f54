// Policies in other processes: their queries wait for threads of their own, and for nobody else's policies.

#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/serving/query_engine.h"
#include "lib/serving/testing/hanging_host.h"
#include "lib/serving/testing/hosted_threads.h"
#include "lib/serving/testing/query_builder.h"

namespace troupe::serving {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

policy::PolicySpec Native() { return MakeSpec("native", *space::Space::Box(-1, 1, {3}), *space::Space::Discrete(2)); }

policy::PolicySpec Hosted(const std::string& id) {
  policy::PolicySpec spec = Native();
  spec.id = policy::PolicyId(id);
  spec.actor = policy::DefaultActor();
  spec.learner_networks = {policy::DefaultCritic()};
  spec.policy_class = *policy::ParsePolicyClass("python:mine:act");
  return spec;
}

/// A query and its answer. Not movable: the engine has its address.
class Asked {
 public:
  Asked(QueryEngine& engine, const std::vector<std::string>& ids, int64_t rows = 2) {
    policy::PolicySpec spec = Native();
    for (const std::string& id : ids) {
      spec.id = policy::PolicyId(id);
      rows_.push_back(MakeRows(spec, rows));
    }
    std::vector<const OwnedRows*> pointers;
    for (const OwnedRows& owned : rows_) pointers.push_back(&owned);
    query_ = serving::Ask(pointers, true);
    give_up_ = engine.ComputeActions(query_, [this](absl::StatusOr<ActionAnswer> answer) {
      base::MutexLock lock(&mutex_);
      EXPECT_FALSE(answer_.has_value()) << "a second answer";
      answer_ = std::move(answer);
    });
  }
  Asked(const Asked&) = delete;
  Asked& operator=(const Asked&) = delete;

  bool answered() const {
    base::MutexLock lock(&mutex_);
    return answer_.has_value();
  }
  absl::StatusOr<ActionAnswer> answer() const {
    base::MutexLock lock(&mutex_);
    return *answer_;
  }
  absl::Status Await() const {
    while (!answered()) absl::SleepFor(absl::Milliseconds(1));
    return answer().status();
  }
  void GiveUp() const { give_up_(); }
  const ActionQuery& query() const { return query_; }

 private:
  std::vector<OwnedRows> rows_;
  ActionQuery query_;
  ActionQueries::GiveUp give_up_;
  mutable base::Mutex mutex_;
  std::optional<absl::StatusOr<ActionAnswer>> answer_ ABSL_GUARDED_BY(mutex_);
};

class HostedQueriesTest : public testing::Test {
 protected:
  HostedQueriesTest() { EXPECT_EQ(engine_->SetWeights(MakeWeights(Native(), 1)), absl::OkStatus()); }
  void AwaitHanging(int count) {
    while (host_->hanging() < count) absl::SleepFor(absl::Milliseconds(1));
  }

  std::shared_ptr<HangingHost> host_ = std::make_shared<HangingHost>();
  // A map of one place: policies in other processes have places of their own.
  std::unique_ptr<QueryEngine> engine_ =
      *QueryEngine::Create({Native(), Hosted("hangs"), Hosted("hangs_too"), Hosted("a"), Hosted("b")},
                           {.policy_map_capacity = 1, .actor_host = host_});
};

TEST_F(HostedQueriesTest, WaitForAThreadAndOthersDoNot) {
  Asked hosted(*engine_, {"a"}), native(*engine_, {"native"}), unknown(*engine_, {"a", "nobody"});
  EXPECT_TRUE(native.answered());
  EXPECT_EQ(unknown.answer().status().code(), absl::StatusCode::kNotFound);
  EXPECT_FALSE(hosted.answered());
  EXPECT_TRUE(engine_->AwaitHosted());
  engine_->StepHosted();
  ASSERT_TRUE(hosted.answered());
  ASSERT_TRUE(hosted.answer().ok()) << hosted.answer().status();
  EXPECT_EQ((*hosted.answer())[0].actions[1].i32, 1);
}

TEST_F(HostedQueriesTest, AQueryOfSeveralIsAnsweredAsOneOfThisProcess) {
  Asked mixed(*engine_, {"native", "a", "b", "a", "native"});
  for (int i = 0; i < 3; ++i) {
    EXPECT_FALSE(mixed.answered()) << "after " << i << " turns";
    engine_->StepHosted();
  }
  const absl::StatusOr<ActionAnswer> expected = engine_->Compute(mixed.query());
  ASSERT_TRUE(mixed.answer().ok()) << mixed.answer().status();
  ASSERT_TRUE(expected.ok()) << expected.status();
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ((*mixed.answer())[i].policy_id, (*expected)[i].policy_id);
    EXPECT_EQ(Values((*mixed.answer())[i]), Values((*expected)[i]));
  }
}

TEST_F(HostedQueriesTest, OneThatHangsDelaysItsOwnAndThoseThatAskItToo) {
  const HostedThreads threads(engine_.get(), 2);
  Asked first(*engine_, {"hangs"});
  AwaitHanging(1);
  Asked second(*engine_, {"hangs"}), both(*engine_, {"a", "hangs"});
  Asked other(*engine_, {"a", "native", "b"}), native(*engine_, {"native"});
  EXPECT_EQ(other.Await(), absl::OkStatus());
  EXPECT_EQ(native.Await(), absl::OkStatus());
  EXPECT_FALSE(first.answered() || second.answered() || both.answered());
  host_->Release();
  for (const Asked* asked : {&first, &second, &both}) EXPECT_EQ(asked->Await(), absl::OkStatus());
}

TEST_F(HostedQueriesTest, GivenUpWhileItWaitsItIsNotAsked) {
  Asked kept(*engine_, {"a"}), given_up(*engine_, {"a"});
  given_up.GiveUp();
  EXPECT_EQ(given_up.answer().status().code(), absl::StatusCode::kCancelled);
  given_up.GiveUp();
  engine_->StepHosted();
  engine_->StepHosted();
  EXPECT_EQ(kept.Await(), absl::OkStatus());
  EXPECT_EQ(host_->calls("a"), 1);
  kept.GiveUp();  // it is answered: nothing happens
}

TEST_F(HostedQueriesTest, GivenUpWhileItHangsItIsAnsweredAtOnce) {
  const HostedThreads threads(engine_.get());
  auto hangs = std::make_unique<Asked>(*engine_, std::vector<std::string>{"hangs", "a"});
  AwaitHanging(1);
  hangs->GiveUp();
  EXPECT_EQ(hangs->answer().status().code(), absl::StatusCode::kCancelled);
  hangs.reset();  // its memory goes while the policy still hangs
  host_->Release();
  Asked next(*engine_, {"hangs"});
  EXPECT_EQ(next.Await(), absl::OkStatus());
  EXPECT_EQ(host_->calls("a"), 0) << "what was not begun is not done";
}

TEST_F(HostedQueriesTest, MoreThanAPolicyMayHaveAreRefused) {
  std::vector<std::unique_ptr<Asked>> held;
  const auto ask = [&](const char* id) -> const Asked& {
    held.push_back(std::make_unique<Asked>(*engine_, std::vector<std::string>{id}));
    return *held.back();
  };
  const TurnQueue::Limits limits;
  for (int i = 0; i < limits.count_per_key; ++i) EXPECT_FALSE(ask("a").answered());
  const absl::Status refused = ask("a").answer().status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.message()),
              AllOf(StartsWith("policy \"a\": its queries that wait or are being answered are 32 of "),
                    HasSubstr("expected at most 32 of ")));
  EXPECT_FALSE(ask("b").answered());
  EXPECT_TRUE(ask("native").answered());
  held[0]->GiveUp();
  EXPECT_FALSE(ask("a").answered()) << "what was given up takes no room";
  engine_->CloseHosted();
}

TEST_F(HostedQueriesTest, TheLargestQueryFitsWhereNothingWaits) {
  const policy::PolicySpec wide = [] {
    policy::PolicySpec spec = Hosted("wide");
    spec.observation_space = *space::Space::Box(-1, 1, {1280});  // 1,024 rows are 5 MiB, as a message may be
    return spec;
  }();
  const auto engine = *QueryEngine::Create({wide}, {.actor_host = host_});
  const OwnedRows rows = MakeRows(wide, kMaxQueryRows);
  std::vector<absl::Status> answers;
  const auto ask = [&] {
    engine->ComputeActions(Ask({&rows}, true), [&](const auto& answer) { answers.push_back(answer.status()); });
  };
  ask();
  EXPECT_TRUE(answers.empty());
  ask();
  ASSERT_EQ(answers.size(), 1u) << "two of them are more than 8 MiB";
  EXPECT_EQ(answers[0].code(), absl::StatusCode::kResourceExhausted);
  engine->StepHosted();
  EXPECT_EQ(answers[1], absl::OkStatus());
}

TEST_F(HostedQueriesTest, ClosedItAnswersWhatWaitsAndWhatHangs) {
  std::optional<HostedThreads> threads(std::in_place, engine_.get(), 1);
  Asked hangs(*engine_, {"hangs"});
  AwaitHanging(1);
  Asked waits(*engine_, {"a"});
  threads.reset();
  EXPECT_EQ(waits.answer().status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(hangs.answer().status(), absl::CancelledError("the host is stopped"));
  Asked late(*engine_, {"a"});
  EXPECT_EQ(late.answer().status().code(), absl::StatusCode::kCancelled);
}

TEST_F(HostedQueriesTest, TheActorOfARemovedPolicyEndsWhereItMayTakeTime) {
  Asked asked(*engine_, {"a"});
  engine_->StepHosted();
  EXPECT_EQ(host_->actors(), 1);
  policy::PolicyTablePtr table =
      *policy::PolicyTable::Make({Native(), Hosted("a")}, {false, false}, {{"*", {{Native().id, 1.0}}}}, {"agent"});
  ASSERT_EQ(engine_->SetPolicies(*table), absl::OkStatus());
  table = *table->Remove(policy::PolicyId("a"));
  ASSERT_EQ(engine_->SetPolicies(*table), absl::OkStatus());
  Asked native(*engine_, {"native"});  // sees that nobody asks it any more
  EXPECT_EQ(host_->actors(), 1) << "not on the thread of a query";
  EXPECT_TRUE(engine_->AwaitHosted());
  engine_->StepHosted();
  EXPECT_EQ(host_->actors(), 0);
}

TEST_F(HostedQueriesTest, AtMostSoManyActorsLive) {
  std::vector<policy::PolicySpec> specs;
  for (int i = 0; i < QueryEngine::kHostedActors + 3; ++i) specs.push_back(Hosted(absl::StrCat("p", i)));
  const auto engine = *QueryEngine::Create(specs, {.actor_host = host_});
  for (const policy::PolicySpec& spec : specs) {
    Asked asked(*engine, {spec.id.value()});
    engine->StepHosted();
    EXPECT_EQ(asked.answer().status(), absl::OkStatus());
  }
  EXPECT_EQ(host_->actors(), QueryEngine::kHostedActors);
}

}  // namespace
}  // namespace troupe::serving
