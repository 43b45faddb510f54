// Clients that play outside, and the rows that a worker makes of it.

#include <atomic>
#include <future>
#include <set>
#include <thread>

#include "lib/base/await.h"
#include "lib/env/slot_buffers.h"
#include "lib/outside/episode_book.h"
#include "lib/outside/lane_env.h"
#include "lib/policy/policy_spec.h"
#include "lib/rollout/testing/scripted_env.h"
#include "lib/sample/multi_agent_batch.h"
#include <gtest/gtest.h>

namespace troupe::outside {
namespace {

using rollout::Rig;
using rollout::RolloutConfig;
using rollout::RowsOf;
using rollout::ScriptedConfig;
using rollout::ScriptedGrant;
using rollout::ScriptedOptions;
using rollout::SeenRow;
using Answered = absl::StatusOr<std::vector<AgentAction>>;

/// Plays a world of its own, step by step, and reports it: what an outside program does.
class Client {
 public:
  Client(EpisodeBook* book, std::unique_ptr<env::MultiAgentEnv> world, uint64_t seed)
      : book_(book), world_(std::move(world)), step_(world_->spec(), 1), seed_(seed) {}

  /// A whole episode, or as much of it as `steps` says: then the client is gone. Its last error.
  absl::Status Play(base::EnvId env_id, uint32_t episode, int steps = 1 << 30) {
    const absl::StatusOr<std::string> id = book_->Start({base::Caller::Kind::kUnixSocket, ""}, "");
    if (!id.ok()) return id.status();
    const std::vector<env::AgentSpec>& agents = world_->spec().possible_agents;
    acted_.clear();
    done_.clear();
    EXPECT_TRUE(world_->Reset({seed_, env_id, episode}, step_.BeginStep(0)).ok());
    for (int i = 0; i < steps; ++i) {
      const Answered answer = Ask(*id, Report());
      if (!answer.ok()) return answer.status();
      std::vector<std::vector<space::ActionWord>> chosen(agents.size());
      std::vector<const space::ActionWord*> rows(agents.size());
      for (const AgentAction& action : *answer) {
        const auto slot = static_cast<size_t>(world_->spec().FindAgent(base::AgentId(action.agent))->value());
        acted_.insert(action.agent);
        chosen[slot] = *FromClient(agents[slot].action_space, action.action);
        rows[slot] = chosen[slot].data();
      }
      EXPECT_TRUE(world_->Step(rows, step_.BeginStep(0)).ok());
      if (!step_.all_done(0)) continue;
      return book_->EndEpisode(*id, step_.all_terminated(0) ? End::kTerminated : End::kTruncated, Report());
    }
    return absl::OkStatus();
  }

 private:
  Answered Ask(const std::string& id, const StepReport& report) {
    std::promise<Answered> promise;
    book_->Act(id, StepKind::kGetActions, report,
               [&promise](Answered answer) { promise.set_value(std::move(answer)); });
    return promise.get_future().get();
  }
  /// The last step's.
  StepReport Report() {
    StepReport report;
    for (int32_t slot = 0; slot < world_->spec().num_agents(); ++slot) {
      const std::string& id = world_->spec().possible_agents[static_cast<size_t>(slot)].id.value();
      AgentReport of;
      of.agent = id;
      of.end = step_.terminated(0, slot) ? End::kTerminated : step_.truncated(0, slot) ? End::kTruncated : End::kNone;
      if (done_.count(id) > 0) continue;
      // What was rewarded or ended before it ever acted is no row of anybody's.
      if (of.end != End::kNone) done_.insert(id);
      if (acted_.count(id) == 0 && (of.end != End::kNone || !step_.observed(0, slot))) continue;
      if (step_.observed(0, slot)) {
        const absl::Span<const float> seen = step_.observation(0, slot);
        const absl::Span<const uint8_t> mask = step_.action_mask(0, slot);
        of.observation.assign(seen.begin(), seen.end());
        of.action_mask.assign(mask.begin(), mask.end());
      }
      if (acted_.count(id) > 0) of.reward = step_.reward(0, slot);
      if (of.observed() || of.end != End::kNone || of.reward != 0) report.agents.push_back(std::move(of));
    }
    if (world_->spec().state_kind == env::StateKind::kPerEnv) {
      const absl::Span<const float> state = step_.state(0, 0);
      report.state.assign(state.begin(), state.end());
    }
    return report;
  }

  EpisodeBook* const book_;
  const std::unique_ptr<env::MultiAgentEnv> world_;
  env::SlotBuffers step_;
  const uint64_t seed_;
  std::set<std::string> acted_, done_;
};

RolloutConfig OutsideConfig(const ScriptedOptions& options, EpisodeBook* book) {
  RolloutConfig config = ScriptedConfig(
      options, [book] { return std::make_unique<LaneEnv>(book); }, 2);
  config.outside = book;
  return config;
}

// Agents come and leave early, wait for each other, and are cut by fragments and grants: the rows are those of a worker
// that has the environment itself.
TEST(OutsideRowsTest, AreThoseOfAnInternalWorker) {
  ScriptedOptions options{.agents = 2, .state_kind = env::StateKind::kPerEnv, .action_mask = true};
  for (const int64_t steps_of_fragment : {0, 5}) {
    EpisodeBook book(rollout::ScriptedSpec(options), {}, &base::Clock::Real());
    RolloutConfig inside = ScriptedConfig(
        options, [&] { return rollout::MakeRandomEnv(options, nullptr); }, 2);
    RolloutConfig outside = OutsideConfig(options, &book);
    inside.options.always_sends_state = outside.options.always_sends_state = true;
    inside.options.max_fragment_env_steps = outside.options.max_fragment_env_steps = steps_of_fragment;
    Rig expected(inside);
    Rig got(outside);
    std::thread client([&] {
      Client plays(&book, rollout::MakeRandomEnv(options, nullptr), inside.options.seed);
      for (uint32_t episode = 0;; ++episode) {
        if (!plays.Play(base::EnvId(0), episode).ok()) return;
      }
    });
    for (int64_t version = 5; version < 9; ++version) {
      ASSERT_TRUE(expected.Run(ScriptedGrant(1, 37), version).ok());
      ASSERT_TRUE(got.Run(ScriptedGrant(1, 37), version).ok());
    }
    book.Close();
    client.join();
    const std::vector<SeenRow> rows = RowsOf(expected.sink.fragments);
    EXPECT_GT(rows.size(), 100u);
    EXPECT_TRUE(rows == RowsOf(got.sink.fragments)) << "fragments of " << steps_of_fragment;
    EXPECT_EQ(got.collector->stats().env_steps, expected.collector->stats().env_steps);
    EXPECT_EQ(got.collector->stats().episodes, expected.collector->stats().episodes);
    EXPECT_EQ(got.collector->stats().dropped_rows, 0);
  }
}

// Many clients, fewer lanes; some vanish in mid-episode. Each grant gets its steps all the same.
TEST(OutsideRowsTest, ClientsShareLanesAndMayVanish) {
  const ScriptedOptions options{.agents = 2};
  EpisodeBook book(rollout::ScriptedSpec(options), {.idle = absl::Milliseconds(20)}, &base::Clock::Real());
  Rig rig(OutsideConfig(options, &book));
  std::atomic<bool> over = false;
  std::vector<std::thread> threads;
  for (uint32_t c = 0; c < 6; ++c) {
    threads.emplace_back([&, c] {
      Client plays(&book, rollout::MakeRandomEnv(options, nullptr), 1);
      for (uint32_t episode = 0; !over; ++episode)
        plays.Play(base::EnvId(c), episode, c < 3 ? 1 << 30 : 2).IgnoreError();
    });
  }
  threads.emplace_back([&] {
    while (!over) {
      book.Tick();
      absl::SleepFor(absl::Milliseconds(2));
    }
  });
  for (int64_t version = 5; version < 10; ++version) ASSERT_TRUE(rig.Run(ScriptedGrant(4, 25), version).ok());
  over = true;
  book.Close();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(rig.collector->stats().env_steps, 5 * 4 * 25);
  EXPECT_GT(book.counters().lost, 0);
  EXPECT_EQ(rig.collector->stats().env_errors, 0) << "clients that vanish are no failing environments";
  int64_t last = 0;
  for (const sample::MultiAgentBatchPtr& fragment : rig.sink.fragments) last += fragment->last_of_grant ? 1 : 0;
  EXPECT_EQ(last, 5);
}

/// One agent, one decision after the other, by hand.
class ByHandTest : public testing::Test {
 protected:
  ByHandTest()
      : book_(rollout::ScriptedSpec(options_), {}, &base::Clock::Real()), rig_(OutsideConfig(options_, &book_)) {}
  ~ByHandTest() override { book_.Close(); }

  std::string Start() { return *book_.Start({base::Caller::Kind::kUnixSocket, ""}, ""); }
  /// `at`: what the observation says of env, episode and step.
  std::future<Answered> Ask(const std::string& id, std::vector<float> at, std::optional<ClientAction> own = {},
                            double reward = 0) {
    auto promise = std::make_shared<std::promise<Answered>>();
    AgentReport report;
    report.agent = book_.spec().possible_agents[0].id.value();
    report.observation = {at[0], at[1], at[2], 0};
    report.reward = reward;
    report.action = own;
    book_.Act(id, own ? StepKind::kLogActions : StepKind::kGetActions, {{report}, {}},
              [promise](Answered answer) { promise->set_value(std::move(answer)); });
    return promise->get_future();
  }

  const ScriptedOptions options_{.agents = 1};
  EpisodeBook book_;
  Rig rig_;
};

TEST_F(ByHandTest, ActionsOfItsOwnAreRecordedWithTheirProbability) {
  const std::string id = Start();
  std::thread worker([&] { EXPECT_TRUE(rig_.Run(ScriptedGrant(1, 2)).ok()); });
  EXPECT_TRUE(Ask(id, {0, 0, 0}, ClientAction{{2}, {}, -3.5f}).get().ok());
  EXPECT_TRUE(Ask(id, {0, 0, 1}, ClientAction{{0}, {}, -0.125f}, 7).get().ok());
  const std::future<Answered> last = Ask(id, {0, 0, 2});
  worker.join();
  const std::vector<SeenRow> rows = RowsOf(rig_.sink.fragments);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].action, (std::vector<int32_t>{2}));
  EXPECT_EQ(rows[0].logp, -3.5f);
  EXPECT_EQ(rows[0].reward, 7);
  EXPECT_EQ(rows[1].action, (std::vector<int32_t>{0}));
  EXPECT_EQ(rows[1].logp, -0.125f);
}

// The answer says the log-probability that training records.
TEST_F(ByHandTest, AnswersSayTheLogProbability) {
  const std::string id = Start();
  std::thread worker([&] { EXPECT_TRUE(rig_.Run(ScriptedGrant(1, 1)).ok()); });
  const Answered answer = Ask(id, {0, 0, 0}).get();
  const std::future<Answered> next = Ask(id, {0, 0, 1});
  worker.join();
  ASSERT_TRUE(answer.ok());
  const std::vector<SeenRow> rows = RowsOf(rig_.sink.fragments);
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(answer->at(0).action.logp, rows[0].logp);
  EXPECT_EQ(answer->at(0).action.discrete, rows[0].action);
}

/// The same with a policy that remembers, whose weights clients are given.
class OwnDecisionsTest : public ::testing::TestWithParam<bool> {
 protected:
  OwnDecisionsTest() : book_(rollout::ScriptedSpec(options_), {}, &base::Clock::Real()), rig_(Config(GetParam())) {
    std::vector<policy::PolicySpec> specs(rig_.config.policies.values().begin(), rig_.config.policies.values().end());
    book_.acting().Begin(policy::PolicyTable::Make(specs, {false, false}, {{"*", {{specs[0].id}}}}, {"agent_0"}));
  }
  ~OwnDecisionsTest() override { book_.Close(); }

  RolloutConfig Config(bool remembers) {
    RolloutConfig config = OutsideConfig(options_, &book_);
    if (remembers) {
      policy::PolicySpec& spec = config.policies[policy::PolicySlot(0)];
      spec.actor.core = {.kind = policy::CoreKind::kGru, .size = 3, .layers = 1};
      spec.sequence_length = 2;
    }
    return config;
  }
  /// Of the first weights that act.
  uint64_t FirstNumber() {
    EXPECT_TRUE(base::AwaitPolling(absl::Milliseconds(1), base::Deadline::After(absl::Seconds(20)),
                                   [this] { return book_.acting().number() != 0; }));
    return book_.acting().number();
  }
  /// The decision at `step` by weights of that number.
  std::future<Answered> Log(const std::string& id, int step, uint64_t weights, int env = 0) {
    auto promise = std::make_shared<std::promise<Answered>>();
    AgentReport report;
    report.agent = "agent_0";
    report.observation = {static_cast<float>(env), 0, static_cast<float>(step), 0};
    report.action = ClientAction{{step % 3}, {}, -0.5f - static_cast<float>(step)};
    StepReport steps{{report}, {}, weights};
    book_.Act(id, StepKind::kLogActions, steps, [promise](Answered answer) { promise->set_value(std::move(answer)); });
    return promise->get_future();
  }
  std::vector<int64_t> VersionsOf(const std::vector<SeenRow>& rows) const {
    std::vector<int64_t> versions;
    for (const SeenRow& row : rows) {
      EXPECT_EQ(row.action, (std::vector<int32_t>{row.step % 3}));
      EXPECT_EQ(row.logp, -0.5f - static_cast<float>(row.step));
      versions.push_back(row.version);
    }
    return versions;
  }

  const ScriptedOptions options_{.agents = 1};
  EpisodeBook book_;
  Rig rig_;
};
INSTANTIATE_TEST_SUITE_P(Remembers, OwnDecisionsTest, testing::Bool());

// Rows say which weights decided, wherever in a fragment and whichever worker's grant they come into.
TEST_P(OwnDecisionsTest, RowsHaveTheVersionThatDecided) {
  const std::string id = *book_.Start({base::Caller::Kind::kUnixSocket, ""}, "");
  std::thread worker([&] { EXPECT_TRUE(rig_.Run(ScriptedGrant(1, 2), 5).ok()); });
  const uint64_t first = FirstNumber();
  EXPECT_TRUE(Log(id, 0, first).get().ok());
  EXPECT_TRUE(Log(id, 1, first).get().ok());
  std::future<Answered> waits = Log(id, 2, first);
  worker.join();
  std::thread again([&] { EXPECT_TRUE(rig_.Run(ScriptedGrant(1, 5), 7).ok()); });
  EXPECT_TRUE(waits.get().ok()) << "decided before the update";
  EXPECT_EQ(book_.acting().number(), first + 1);
  EXPECT_TRUE(Log(id, 3, first + 1).get().ok());
  EXPECT_TRUE(Log(id, 4, first).get().ok()) << "by a client that took its time";
  EXPECT_TRUE(Log(id, 5, first + 1).get().ok());
  EXPECT_TRUE(Log(id, 6, 0).get().ok()) << "of which nobody says anything";
  const std::future<Answered> last = Log(id, 7, first);
  again.join();
  const std::vector<SeenRow> rows = RowsOf(rig_.sink.fragments);
  EXPECT_EQ(VersionsOf(rows), (std::vector<int64_t>{5, 5, 5, 7, 5, 7, 7}));
  const std::vector<std::string> segments = rollout::SegmentsOf(*rig_.sink.fragments.back());
  EXPECT_EQ(segments,
            (std::vector<std::string>{
                "env 0 ep 0 agent 0: 2(+0) cut@3 at row lag 2", "env 0 ep 0 agent 0: 3(+0) cut@4 at row lag 0",
                "env 0 ep 0 agent 0: 4(+0) cut@5 at row lag 2", "env 0 ep 0 agent 0: 5(+0) 6(+0) cut@7 lag 0"}));
}

// A decision of older weights whose world takes its time keeps their version, in whichever grant its outcome comes.
TEST_P(OwnDecisionsTest, ACarriedDecisionKeepsItsVersion) {
  const std::string slow = *book_.Start({base::Caller::Kind::kUnixSocket, ""}, "");
  std::thread worker([&] { EXPECT_TRUE(rig_.Run(ScriptedGrant(1, 1), 5).ok()); });
  const uint64_t first = FirstNumber();
  EXPECT_TRUE(Log(slow, 0, first).get().ok());
  std::future<Answered> waits = Log(slow, 1, first);
  worker.join();
  std::thread again([&] { EXPECT_TRUE(rig_.Run(ScriptedGrant(2, 1), 7).ok()); });
  EXPECT_TRUE(waits.get().ok());
  const std::string quick = *book_.Start({base::Caller::Kind::kUnixSocket, ""}, "");
  EXPECT_TRUE(Log(quick, 0, first + 1, /*env=*/1).get().ok());
  EXPECT_TRUE(Log(quick, 1, first + 1, 1).get().ok()) << "which takes the slow one's step";
  std::future<Answered> next = Log(quick, 2, first, 1);
  again.join();
  std::thread third([&] { EXPECT_TRUE(rig_.Run(ScriptedGrant(2, 1), 9).ok()); });
  EXPECT_TRUE(next.get().ok());
  const std::future<Answered> last = Log(slow, 2, 0);
  const std::future<Answered> last_of_quick = Log(quick, 3, 0, 1);
  third.join();
  EXPECT_EQ(VersionsOf(RowsOf(rig_.sink.fragments)), (std::vector<int64_t>{5, 5, 7, 7, 5}));
}

// What nobody remembers, as of a worker before this one, is as old as can be.
TEST_P(OwnDecisionsTest, OfAnotherLearnersWeightsTheVersionIsTheOldest) {
  const std::string id = *book_.Start({base::Caller::Kind::kUnixSocket, ""}, "");
  std::thread worker([&] { EXPECT_TRUE(rig_.Run(ScriptedGrant(1, 1), 5, /*epoch=*/1).ok()); });
  const uint64_t first = FirstNumber();
  EXPECT_TRUE(Log(id, 0, first).get().ok());
  std::future<Answered> waits = Log(id, 1, first);
  worker.join();
  std::thread again([&] { EXPECT_TRUE(rig_.Run(ScriptedGrant(1, 1), 7, /*epoch=*/2).ok()); });
  EXPECT_TRUE(waits.get().ok());
  const std::future<Answered> next = Log(id, 2, first);
  again.join();
  EXPECT_EQ(VersionsOf(RowsOf({rig_.sink.fragments.back()})), (std::vector<int64_t>{0}));
}

// The grant's last step is in flight in a world that takes its time: another world takes it, and what the slow one
// decided goes into the next grant, with the weights that decided it.
TEST_F(ByHandTest, ASlowWorldHoldsNobodyUp) {
  const std::string slow = Start();
  const std::string quick = Start();
  std::thread worker([&] { EXPECT_TRUE(rig_.Run(ScriptedGrant(2, 1), 5).ok()); });
  EXPECT_TRUE(Ask(slow, {0, 0, 0}).get().ok());
  EXPECT_TRUE(Ask(quick, {1, 0, 0}).get().ok());
  EXPECT_TRUE(Ask(quick, {1, 0, 1}).get().ok()) << "after a while";
  std::future<Answered> waits = Ask(quick, {1, 0, 2});
  worker.join();
  EXPECT_EQ(rig_.collector->stats().env_steps, 2);
  const size_t before = rig_.sink.fragments.size();
  std::thread again([&] { EXPECT_TRUE(rig_.Run(ScriptedGrant(2, 1), 6).ok()); });
  const std::future<Answered> last = Ask(slow, {0, 0, 1}, {}, 3);
  EXPECT_TRUE(waits.get().ok());
  const std::future<Answered> next = Ask(quick, {1, 0, 3});
  again.join();
  const std::vector<SeenRow> rows =
      RowsOf({rig_.sink.fragments.begin() + static_cast<ptrdiff_t>(before), rig_.sink.fragments.end()});
  ASSERT_FALSE(rows.empty());
  EXPECT_EQ(rows[0].env_id, 0u);
  EXPECT_EQ(rows[0].reward, 3);
  EXPECT_EQ(rows[0].version, 5) << "of the weights that decided";
  EXPECT_EQ(rig_.collector->stats().carried_rows, 2) << "over the cut, and into the next grant";
}

// An environment that goes to another worker: whoever plays in it begins another episode.
TEST_F(ByHandTest, AnEpisodeWhoseEnvironmentGoesAwayIsOver) {
  const std::string id = Start();
  std::thread worker([&] { EXPECT_TRUE(rig_.Run(ScriptedGrant(1, 1)).ok()); });
  EXPECT_TRUE(Ask(id, {0, 0, 0}).get().ok());
  std::future<Answered> waits = Ask(id, {0, 0, 1});
  worker.join();
  std::thread again([&] { EXPECT_TRUE(rig_.Run(ScriptedGrant(1, 1, /*first=*/1)).ok()); });
  EXPECT_TRUE(absl::IsAborted(waits.get().status()));
  const std::string other = Start();
  EXPECT_TRUE(Ask(other, {1, 0, 0}).get().ok());
  const std::future<Answered> last = Ask(other, {1, 0, 1});
  again.join();
  EXPECT_EQ(rig_.collector->stats().env_steps, 2);
}

// A worker that is told to stop does not wait for clients; nor does one whose run is over. What they did is handed in.
TEST_F(ByHandTest, AnEndWaitsForNoClient) {
  const std::string id = Start();
  std::thread worker([&] { EXPECT_TRUE(absl::IsCancelled(rig_.Run(ScriptedGrant(2, 100)))); });
  EXPECT_TRUE(Ask(id, {0, 0, 0}).get().ok());
  EXPECT_TRUE(Ask(id, {0, 0, 1}).get().ok());
  rig_.collector->RequestStop();
  worker.join();
  EXPECT_EQ(RowsOf(rig_.sink.fragments).size(), 1u) << "the other one waits for its outcome";
}

// A grant that fails in its client's turn: the client hears of it, and the next grant has room for others.
TEST_F(ByHandTest, AClientWhoseGrantFailedHearsThatItsEpisodeIsOver) {
  const std::string id = Start();
  rig_.sink.next_status = absl::AbortedError("the learner began anew");
  std::thread worker([&] { EXPECT_TRUE(absl::IsAborted(rig_.Run(ScriptedGrant(1, 1)))); });
  EXPECT_TRUE(Ask(id, {0, 0, 0}).get().ok());
  std::future<Answered> waits = Ask(id, {0, 0, 1});
  worker.join();
  std::thread again([&] { EXPECT_TRUE(rig_.Run(ScriptedGrant(1, 1)).ok()); });
  // Whether the lane kept the episode or gave it up, nobody waits for ever.
  const bool goes_on = waits.get().ok();
  const std::string next = goes_on ? id : Start();
  std::vector<std::future<Answered>> asked;
  if (!goes_on) {
    asked.push_back(Ask(next, {0, 1, 0}));
    EXPECT_TRUE(asked[0].get().ok());
  }
  asked.push_back(Ask(next, {0, goes_on ? 0.0f : 1.0f, goes_on ? 2.0f : 1.0f}));
  again.join();
  EXPECT_EQ(rig_.collector->stats().env_steps, 2);
}

// As of every environment the length of a fragment is in steps of a lane, not of all together.
TEST_F(ByHandTest, FragmentsHaveSoManyStepsOfALane) {
  RolloutConfig config = OutsideConfig(options_, &book_);
  config.options.max_fragment_env_steps = 3;
  Rig rig(config);
  const std::string ids[] = {Start(), Start()};
  std::thread worker([&] { EXPECT_TRUE(rig.Run(ScriptedGrant(2, 4)).ok()); });
  std::vector<std::future<Answered>> last;
  for (float step = 0; step <= 4; ++step) {
    for (const float env : {0.0f, 1.0f}) {
      std::future<Answered> answer = Ask(ids[static_cast<size_t>(env)], {env, 0, step});
      if (step < 4) {
        EXPECT_TRUE(answer.get().ok());
      } else {
        last.push_back(std::move(answer));
      }
    }
  }
  worker.join();
  EXPECT_EQ(rig.collector->stats().env_steps, 8);
  ASSERT_FALSE(rig.sink.fragments.empty());
  EXPECT_GE(rig.sink.fragments[0]->num_env_steps, 5) << "three of one, two or three of the other";
}

// Of a grant that ends while a client thinks no environment has failed.
TEST_F(ByHandTest, AClientThatThinksWhileItsGrantFailsIsNoError) {
  const std::string thinks = Start();
  const std::string quick = Start();
  rig_.sink.next_status = absl::AbortedError("the learner began anew");
  std::thread worker([&] { EXPECT_TRUE(absl::IsAborted(rig_.Run(ScriptedGrant(2, 1)))); });
  EXPECT_TRUE(Ask(thinks, {0, 0, 0}).get().ok());
  EXPECT_TRUE(Ask(quick, {1, 0, 0}).get().ok());
  std::future<Answered> waits = Ask(quick, {1, 0, 1});
  worker.join();
  EXPECT_EQ(rig_.collector->stats().env_errors, 0);
}

// Nobody may begin an episode once the steps of a grant of complete episodes are used up: then nobody is waited for in
// vain either, and the trajectories of those that play on stay whole.
TEST_F(ByHandTest, CompleteEpisodesAreNotCutWhileOthersWait) {
  const std::string slow = Start();
  const std::string quick = Start();
  sample::Grant grant = ScriptedGrant(2, 1);
  grant.complete_episodes = true;
  std::thread worker([&] { EXPECT_TRUE(rig_.Run(grant).ok()); });
  EXPECT_TRUE(Ask(slow, {0, 0, 0}).get().ok());
  EXPECT_TRUE(Ask(quick, {1, 0, 0}).get().ok());
  EXPECT_TRUE(Ask(slow, {0, 0, 1}).get().ok());
  EXPECT_TRUE(book_.EndEpisode(quick, End::kTerminated, {}).ok());
  std::future<Answered> waits = Ask(Start(), {1, 1, 0});
  // Three times as long as a worker waits for a slow world.
  EXPECT_EQ(waits.wait_for(std::chrono::milliseconds(600)), std::future_status::timeout);
  EXPECT_TRUE(Ask(slow, {0, 0, 2}).get().ok());
  EXPECT_TRUE(book_.EndEpisode(slow, End::kTerminated, {}).ok());
  worker.join();
  EXPECT_EQ(rig_.sink.fragments.size(), 1u);
  EXPECT_EQ(RowsOf(rig_.sink.fragments).size(), 4u);
}

// After a change of the mapping a client that acts by itself wants who plays next, before it begins an episode.
TEST_F(ByHandTest, WhoPlaysNextHasWeightsWhileAnEpisodeGoesOn) {
  RolloutConfig config = ScriptedConfig(
      options_, [this] { return std::make_unique<LaneEnv>(&book_); }, 2);
  const std::vector<policy::PolicySpec> specs(config.policies.values().begin(), config.policies.values().end());
  const auto to = [&specs](size_t place) { return std::vector<policy::MappingRule>{{"*", {{specs[place].id}}}}; };
  const policy::PolicyTablePtr before = *policy::PolicyTable::Make(specs, {true, true}, to(0), {"agent_0"});
  const policy::PolicyTablePtr after = *before->SetMapping(to(1));
  config.outside = &book_;
  config.mapping = std::shared_ptr<const policy::PolicyMapping>(before, &before->mapping());
  book_.acting().Begin(before);
  Rig rig(config);
  sample::Grant grant = ScriptedGrant(1, 1);
  grant.policies = before;
  const std::string id = Start();
  std::thread worker([&] { EXPECT_TRUE(rig.Run(grant).ok()); });
  EXPECT_TRUE(Ask(id, {0, 0, 0}).get().ok());
  std::future<Answered> waits = Ask(id, {0, 0, 1});
  worker.join();
  grant.policies = after;
  std::thread again([&] { rig.Run(grant).IgnoreError(); });
  EXPECT_TRUE(waits.get().ok());
  const auto now = book_.acting().Now();
  EXPECT_TRUE(now.ok() && now->has_value()) << now.status();
  if (now.ok() && now->has_value()) {
    EXPECT_EQ((*now)->specs[0].id, specs[1].id);
  }
  EXPECT_TRUE(book_.EndEpisode(id, End::kTerminated, {}).ok());
  again.join();
}

TEST_F(ByHandTest, AClosedDoorEndsTheGrant) {
  std::thread worker([&] { EXPECT_TRUE(absl::IsCancelled(rig_.Run(ScriptedGrant(2, 100)))); });
  book_.Close();
  worker.join();
}

}  // namespace
}  // namespace troupe::outside
