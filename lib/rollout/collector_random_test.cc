#include <algorithm>
#include <map>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "lib/env/testing/elsewhere_env.h"
#include "lib/rollout/collector.h"
#include "lib/rollout/testing/scripted_env.h"
#include "lib/sample/columns.h"
#include "lib/sample/multi_agent_batch.h"
#include <gtest/gtest.h>

// Random episodes against what the environments say they did.

namespace troupe::rollout {
namespace {

struct Truth {
  float reward = 0;
  bool terminated = false, truncated = false, done = false;
  int action = -1;
};
using TruthKey = std::tuple<uint32_t, uint32_t, int, int>;  // env, episode, slot, step

/// The transitions that the log tells of; those that were not completed have done == false.
std::map<TruthKey, Truth> Replay(const ScriptedLog& log) {
  using Kind = ScriptedLog::Event::Kind;
  std::map<TruthKey, Truth> all;
  struct Open {
    bool observed = false, acted = false, left = false;
    int step = 0;
  };
  std::map<std::tuple<uint32_t, uint32_t, int>, Open> open;
  for (size_t i = 0; i < log.events.size(); ++i) {
    const ScriptedLog::Event& e = log.events[i];
    // A call that fails brings nothing: skip its events.
    bool failed = false;
    for (size_t j = i; j < log.events.size() && e.kind != Kind::kAction; ++j) {
      const ScriptedLog::Event& later = log.events[j];
      if (later.env_id != e.env_id || later.episode != e.episode || later.step != e.step || later.kind == Kind::kAction)
        break;
      failed = failed || later.kind == Kind::kFail;
    }
    if (failed) continue;
    Open& agent = open[{e.env_id, e.episode, e.slot}];
    const auto complete = [&](int slot, bool terminated, bool truncated) {
      Open& a = open[{e.env_id, e.episode, slot}];
      if (a.left) return;
      if (a.acted) {
        Truth& truth = all[{e.env_id, e.episode, slot, a.step}];
        truth.done = true;
        truth.terminated = terminated;
        truth.truncated = truncated;
      }
      a.left = terminated || truncated;
    };
    switch (e.kind) {
      case Kind::kAction:
        agent.acted = true;
        all[{e.env_id, e.episode, e.slot, agent.step}].action = static_cast<int>(e.value);
        break;
      case Kind::kReward:
        all[{e.env_id, e.episode, e.slot, agent.step}].reward += e.value;
        break;
      case Kind::kObserve: {
        // An end in the same call decides how the transition ended.
        bool ends = false;
        for (size_t j = i + 1; j < log.events.size(); ++j) {
          const ScriptedLog::Event& later = log.events[j];
          if (later.env_id != e.env_id || later.episode != e.episode || later.step != e.step ||
              later.kind == Kind::kAction)
            break;
          ends = ends || later.slot == -1 ||
                 ((later.kind == Kind::kTerminate || later.kind == Kind::kTruncate) && later.slot == e.slot);
        }
        if (ends) break;
        complete(e.slot, false, false);
        agent.acted = false;
        agent.observed = true;
        agent.step = e.step;
        break;
      }
      case Kind::kTerminate:
      case Kind::kTruncate:
        complete(e.slot, e.kind == Kind::kTerminate, e.kind == Kind::kTruncate);
        break;
      case Kind::kTerminateAll:
      case Kind::kTruncateAll:
        for (int slot = 0; slot < 8; ++slot) {
          if (open.count({e.env_id, e.episode, slot}) > 0 && open[{e.env_id, e.episode, slot}].observed) {
            complete(slot, e.kind == Kind::kTerminateAll, e.kind == Kind::kTruncateAll);
          }
        }
        break;
      case Kind::kFail:
        break;
    }
  }
  return all;
}

/// Whether environments compute in the collector's thread, or elsewhere.
class CollectorRandomTest : public testing::TestWithParam<bool> {
 protected:
  RolloutConfig Config(const ScriptedOptions& options, const EnvFactory& factory, int policies = 1) {
    if (!GetParam()) return ScriptedConfig(options, factory, policies);
    const auto elsewhere = [this, factory]() -> absl::StatusOr<std::unique_ptr<env::MultiAgentEnv>> {
      return std::make_unique<env::testing::ElsewhereEnv>(*factory(), calls_);
    };
    return ScriptedConfig(options, elsewhere, policies);
  }
  void TearDown() override {
    EXPECT_EQ(calls_.in_flight, 0);
    EXPECT_EQ(calls_.out_of_order, 0);
    EXPECT_EQ(calls_.most_in_flight > 1, GetParam());
  }

  env::testing::ElsewhereEnv::Calls calls_;
};

INSTANTIATE_TEST_SUITE_P(Both, CollectorRandomTest, testing::Bool(),
                         [](const auto& info) { return info.param ? "Elsewhere" : "Here"; });

struct FuzzCase {
  ScriptedOptions options;
  int policies;
  int64_t max_fragment_env_steps;
};

std::vector<FuzzCase> FuzzCases() {
  std::vector<FuzzCase> cases;
  for (const int64_t steps : {0, 1, 2, 5}) {
    cases.push_back({{.agents = 5}, 1, steps});
    cases.push_back(
        {{.agents = 5, .state_kind = env::StateKind::kPerEnv, .action_mask = true, .agent_mask = true}, 2, steps});
    cases.push_back(
        {{.agents = 3, .state_kind = env::StateKind::kPerAgent, .action_mask = true, .uint8_obs = true}, 3, steps});
  }
  return cases;
}

TEST_P(CollectorRandomTest, RandomEpisodesArriveExactlyAsTheyHappened) {
  for (const FuzzCase& c : FuzzCases()) {
    SCOPED_TRACE(absl::StrCat("agents ", c.options.agents, " policies ", c.policies, " fragment steps ",
                              c.max_fragment_env_steps));
    ScriptedLog log;
    RolloutConfig config = Config(
        c.options, [&] { return MakeRandomEnv(c.options, &log); }, c.policies);
    config.options.max_fragment_env_steps = c.max_fragment_env_steps;
    Rig rig(config);
    for (int g = 0; g < 6; ++g) ASSERT_TRUE(rig.Run(ScriptedGrant(7, 9), 5 + g).ok());
    const std::vector<SeenRow> rows = RowsOf(rig.sink.fragments);
    std::map<TruthKey, Truth> truth = Replay(log);
    size_t complete = 0;
    for (const auto& [key, t] : truth) complete += t.done ? 1 : 0;
    EXPECT_EQ(rows.size(), complete) << "every complete transition once";
    EXPECT_GT(complete, 400u);
    for (const SeenRow& row : rows) {
      const auto found = truth.find({row.env_id, row.episode, row.slot, row.step});
      ASSERT_NE(found, truth.end());
      EXPECT_TRUE(found->second.done);
      EXPECT_EQ(row.reward, found->second.reward);
      EXPECT_EQ(row.terminated, found->second.terminated);
      EXPECT_EQ(row.truncated, found->second.truncated);
      EXPECT_EQ(row.action.at(0), found->second.action);
      EXPECT_EQ(row.policy, row.slot % c.policies);
      truth.erase(found);
    }
  }
}

TEST_P(CollectorRandomTest, WithFailuresNoTransitionIsInventedOrTwice) {
  const ScriptedOptions options = {.agents = 4, .state_kind = env::StateKind::kPerEnv};
  ScriptedLog log;
  RolloutConfig config = Config(options, [&] { return MakeRandomEnv(options, &log, 0.1); });
  config.options.max_fragment_env_steps = 3;
  Rig rig(config);
  for (int g = 0; g < 6; ++g) ASSERT_TRUE(rig.Run(ScriptedGrant(6, 10), 5 + g).ok());
  EXPECT_GT(rig.collector->stats().env_errors, 10);
  std::map<TruthKey, Truth> truth = Replay(log);
  int64_t cut_by_failure = 0;
  for (const SeenRow& row : RowsOf(rig.sink.fragments)) {
    const auto found = truth.find({row.env_id, row.episode, row.slot, row.step});
    ASSERT_NE(found, truth.end()) << "env " << row.env_id << " episode " << row.episode << " slot " << row.slot
                                  << " step " << row.step;
    EXPECT_TRUE(found->second.done);
    EXPECT_EQ(row.reward, found->second.reward);
    EXPECT_EQ(row.terminated, found->second.terminated);
    cut_by_failure += row.truncated && !found->second.truncated ? 1 : 0;
    truth.erase(found);
  }
  EXPECT_GT(cut_by_failure, 5);
  for (const auto& [key, t] : truth) EXPECT_FALSE(t.done) << "a complete transition is missing";
}

TEST_P(CollectorRandomTest, CutsChangeNothing) {
  // The same grant in one fragment, in fragments of some steps, and in fragments that the byte limit makes.
  const ScriptedOptions options = {.agents = 4, .state_kind = env::StateKind::kPerEnv, .action_mask = true};
  std::vector<SeenRow> uncut;
  for (const int64_t steps : {0, 1, 3, -1}) {
    RolloutConfig config = Config(options, [&] { return MakeRandomEnv(options, nullptr); });
    if (steps >= 0) {
      config.options.max_fragment_env_steps = steps;
    } else {
      config.options.max_fragment_bytes = 20000;
    }
    Rig rig(config);
    sample::Grant grant = ScriptedGrant(6, 40);
    grant.complete_episodes = true;  // so that nothing is pending at the end
    ASSERT_TRUE(rig.Run(grant).ok());
    const std::vector<SeenRow> rows = RowsOf(rig.sink.fragments);
    if (steps == 0) {
      EXPECT_EQ(rig.sink.fragments.size(), 1u);
      uncut = rows;
    } else {
      EXPECT_GT(rig.sink.fragments.size(), 2u);
      EXPECT_EQ(rows, uncut);
    }
    for (size_t i = 0; i < rig.sink.fragments.size(); ++i) {
      if (steps > 0) {
        EXPECT_LE(rig.sink.fragments[i]->num_env_steps, 6 * steps);
      }
      EXPECT_EQ(rig.sink.fragments[i]->last_of_grant, i + 1 == rig.sink.fragments.size());
    }
  }
}

TEST_P(CollectorRandomTest, FragmentsKeepTheByteLimit) {
  const ScriptedOptions options = {.agents = 4, .state_kind = env::StateKind::kPerAgent, .action_mask = true};
  for (const int64_t limit : {9000, 30000}) {
    RolloutConfig config = Config(options, [&] { return MakeRandomEnv(options, nullptr); });
    config.options.max_fragment_bytes = limit;
    Rig rig(config);
    ASSERT_TRUE(rig.Run(ScriptedGrant(40, 30)).ok());
    for (const auto& fragment : rig.sink.fragments) {
      EXPECT_LE(static_cast<int64_t>(sample::ColumnBytes(*fragment)), limit);
    }
    int64_t steps = 0;
    for (const auto& fragment : rig.sink.fragments) steps += fragment->num_env_steps;
    EXPECT_EQ(steps, 40 * 30);
  }
}

TEST_P(CollectorRandomTest, EnvironmentsDoNotDependOnTheirCompany) {
  const ScriptedOptions options = {.agents = 4};
  const auto factory = [&] { return MakeRandomEnv(options, nullptr); };
  Rig together(Config(options, factory));
  for (int g = 0; g < 3; ++g) ASSERT_TRUE(together.Run(ScriptedGrant(6, 15)).ok());
  std::vector<SeenRow> alone;
  for (uint32_t e = 0; e < 6; ++e) {
    Rig rig(Config(options, factory));
    for (int g = 0; g < 3; ++g) ASSERT_TRUE(rig.Run(ScriptedGrant(1, 15, e)).ok());
    const std::vector<SeenRow> rows = RowsOf(rig.sink.fragments);
    alone.insert(alone.end(), rows.begin(), rows.end());
  }
  std::sort(alone.begin(), alone.end());
  const std::vector<SeenRow> rows = RowsOf(together.sink.fragments);
  ASSERT_EQ(rows.size(), alone.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    // Log-probabilities are compared with a tolerance because the Eigen back end's sums depend on the batch.
    EXPECT_NEAR(rows[i].logp, alone[i].logp, 1e-5);
    alone[i].logp = rows[i].logp;
    EXPECT_TRUE(rows[i] == alone[i]) << "env " << rows[i].env_id << " step " << rows[i].step;
  }
}

TEST_P(CollectorRandomTest, FragmentsHaveTheStepsOfEveryEnvironment) {
  const ScriptedOptions options = {.agents = 2};
  const Script long_episode(100, ScriptedCall{.observe = {0, 1}});
  RolloutConfig config = Config(options, [&] { return MakeScriptedEnv(options, long_episode); });
  config.options.max_fragment_env_steps = 2;
  Rig rig(config);
  ASSERT_TRUE(rig.Run(ScriptedGrant(5, 9)).ok());
  ASSERT_EQ(rig.sink.fragments.size(), 5u);
  for (size_t i = 0; i < 5; ++i) EXPECT_EQ(rig.sink.fragments[i]->num_env_steps, i < 4 ? 5 * 2 : 5);
}

TEST_P(CollectorRandomTest, StopsThoughAnEnvironmentCannotBegin) {
  const ScriptedOptions options = {.agents = 2};
  const Script fails = {{.observe = {0}, .fail = true}};
  int made = 0;
  Rig rig(
      Config(options, [&] { return ++made == 2 ? MakeScriptedEnv(options, fails) : MakeRandomEnv(options, nullptr); }));
  rig.collector->RequestStop();
  EXPECT_EQ(rig.Run(ScriptedGrant(5, 10)).code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(rig.collector->stats().env_errors, 1);
  EXPECT_EQ(rig.sink.fragments.size(), 1u) << "what there is is handed in";
}

TEST_P(CollectorRandomTest, AnEnvironmentThatCannotBeMadeInTimeEndsTheGrantAndIsNotWaitedFor) {
  // DEADLINE_EXCEEDED alone would mean that weights are not there yet.
  const ScriptedOptions options = {.agents = 2};
  Rig good(Config(options, [&] { return MakeRandomEnv(options, nullptr); }));
  ASSERT_TRUE(good.Run(ScriptedGrant(3, 5)).ok());
  RolloutConfig config = good.config;
  for (const absl::Status& status : {absl::DeadlineExceededError("no start"), absl::AbortedError("no start")}) {
    config.env_factory = [&status]() -> absl::StatusOr<std::unique_ptr<env::MultiAgentEnv>> { return status; };
    Rig rig(config);
    const absl::Status ended = rig.Run(ScriptedGrant(1, 5));
    EXPECT_EQ(ended.code(), absl::StatusCode::kInternal) << ended;
    EXPECT_EQ(ended.message(), "no start");
  }
}

TEST_P(CollectorRandomTest, AnEnvironmentThatNeverWorksLeavesNoCallBehind) {
  const ScriptedOptions options = {.agents = 2};
  const Script fails = {{.observe = {0}, .fail = true}};
  int made = 0;
  Rig rig(
      Config(options, [&] { return ++made == 2 ? MakeScriptedEnv(options, fails) : MakeRandomEnv(options, nullptr); }));
  const absl::Status status = rig.Run(ScriptedGrant(5, 10));
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
  EXPECT_EQ(calls_.in_flight, 0);
  // The others go on.
  sample::Grant others = ScriptedGrant(5, 10);
  others.lanes.erase(others.lanes.begin() + 1);
  const size_t before = rig.sink.fragments.size();
  ASSERT_TRUE(rig.Run(others).ok());
  int64_t steps = 0;
  for (size_t i = before; i < rig.sink.fragments.size(); ++i) steps += rig.sink.fragments[i]->num_env_steps;
  EXPECT_EQ(steps, 4 * 10);
}

}  // namespace
}  // namespace troupe::rollout
