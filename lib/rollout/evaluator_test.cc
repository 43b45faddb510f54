#include "lib/rollout/evaluator.h"

#include <atomic>
#include <cmath>
#include <map>
#include <memory>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "lib/env/slot_buffers.h"
#include "lib/env/testing/elsewhere_env.h"
#include "lib/inference/make_policy_actor.h"
#include "lib/policy/testing/slots.h"
#include "lib/rollout/testing/counting_host.h"
#include "lib/rollout/testing/scripted_env.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::rollout {
namespace {

using testing::ElementsAre;

RolloutConfig RandomConfig(const ScriptedOptions& options = {.agents = 4, .action_mask = true}) {
  return ScriptedConfig(
      options, [options] { return MakeRandomEnv(options, nullptr); }, 2);
}

EvaluationResult Evaluate(const RolloutConfig& config, int num_envs, const EvaluationRequest& request) {
  auto evaluator = *Evaluator::Create(config, num_envs);
  absl::StatusOr<EvaluationResult> result = evaluator->Run(request, ScriptedWeights(config, 3));
  EXPECT_TRUE(result.ok()) << result.status();
  return *std::move(result);
}

std::vector<std::pair<int64_t, std::vector<float>>> Each(const EvaluationResult& result) {
  std::vector<std::pair<int64_t, std::vector<float>>> each;
  for (const EvaluatedEpisode& episode : result.each) {
    std::vector<float> returns;
    for (const double r : episode.returns) returns.push_back(std::isnan(r) ? -1e9f : static_cast<float>(r));
    each.emplace_back(episode.length, returns);
  }
  return each;
}

TEST(EvaluatorTest, SameEpisodesHoweverManyPlayAtOnce) {
  const EvaluationRequest request = {.episodes = 37, .seed = 5};
  const EvaluationResult one = Evaluate(RandomConfig(), 1, request);
  EXPECT_EQ(one.episodes, 37);
  EXPECT_EQ(Each(one), Each(Evaluate(RandomConfig(), 8, request)));
  EXPECT_EQ(Each(one), Each(Evaluate(RandomConfig(), 100, request)));
  const EvaluationResult other_seed = Evaluate(RandomConfig(), 8, {.episodes = 37, .seed = 6});
  EXPECT_NE(Each(one), Each(other_seed));
}

TEST(EvaluatorTest, MoreEpisodesBeginWithTheSameOnes) {
  const auto few = Each(Evaluate(RandomConfig(), 8, {.episodes = 10}));
  auto many = Each(Evaluate(RandomConfig(), 8, {.episodes = 30}));
  many.resize(10);
  EXPECT_EQ(few, many) << "and so there is no bias to short ones";
}

TEST(EvaluatorTest, SharesJoinedAreTheWhole) {
  const auto whole = Each(Evaluate(RandomConfig(), 8, {.episodes = 20}));
  auto joined = Each(Evaluate(RandomConfig(), 8, {.episodes = 13}));
  const auto rest = Each(Evaluate(RandomConfig(), 3, {.episodes = 7, .first_episode = 13}));
  joined.insert(joined.end(), rest.begin(), rest.end());
  EXPECT_EQ(whole, joined);
}

// What a policy is judged by are not the episodes that it was trained on, though a user gives both the same seed.
TEST(EvaluatorTest, ItsEpisodesAreNotThoseOfTheTraining) {
  using Seeds = std::set<std::tuple<uint64_t, base::EnvId, uint32_t>>;
  class Listening final : public env::MultiAgentEnv {
   public:
    Listening(std::unique_ptr<env::MultiAgentEnv> inner, Seeds* seeds) : inner_(std::move(inner)), seeds_(seeds) {}
    const env::EnvSpec& spec() const override { return inner_->spec(); }
    absl::Status Reset(const env::EpisodeSeed& seed, env::StepWriter& out) override {
      seeds_->emplace(seed.seed, seed.env_id, seed.episode);
      return inner_->Reset(seed, out);
    }
    absl::Status Step(env::ActionRows actions, env::StepWriter& out) override { return inner_->Step(actions, out); }

   private:
    const std::unique_ptr<env::MultiAgentEnv> inner_;
    Seeds* const seeds_;
  };
  const Script one_step = {{.observe = {0, 1}}, {.observe = {0, 1}, .terminate_all = true}};
  const auto config_for = [&](Seeds* seeds) {
    return ScriptedConfig(
        {}, [one_step, seeds] { return std::make_unique<Listening>(MakeScriptedEnv({}, one_step), seeds); });
  };
  Seeds trained, evaluated, of_another_seed;
  Rig rig(config_for(&trained));
  ASSERT_TRUE(rig.Run(ScriptedGrant(20, 3)).ok());
  EXPECT_EQ(trained.size(), 60u);
  const uint64_t seed = rig.config.options.seed;
  Evaluate(config_for(&evaluated), 4, {.episodes = 20, .seed = seed});
  Evaluate(config_for(&of_another_seed), 4, {.episodes = 20, .seed = seed + 1});
  EXPECT_EQ(evaluated.size(), 20u);
  Seeds all = trained;
  all.insert(evaluated.begin(), evaluated.end());
  all.insert(of_another_seed.begin(), of_another_seed.end());
  EXPECT_EQ(all.size(), 100u) << "no episode twice";
}

TEST(EvaluatorTest, InfoColumnsAreMeansOfTheEpisodesThatSetThem) {
  const ScriptedOptions options = {.info_columns = 2};
  const Script script = {{.observe = {0, 1}},
                         {.observe = {0, 1}, .infos = {{0, 1.0}}},
                         {.observe = {0, 1}},
                         {.observe = {0, 1}, .terminate_all = true, .infos = {{0, 2.0}, {1, 6.0}}}};
  const EvaluationResult result =
      Evaluate(ScriptedConfig(options, [&] { return MakeScriptedEnv(options, script); }), 2, {.episodes = 3});
  ASSERT_EQ(result.info_columns.size(), 2u);
  ASSERT_EQ(result.infos.size(), 1u) << "nobody set the other one";
  EXPECT_EQ(result.infos[0].column, result.info_columns[0]);
  EXPECT_EQ(result.infos[0].value.mean, 3) << "a step in which nobody sets it does not count";
  EXPECT_EQ(result.infos[0].value.std, 0);
  for (const EvaluatedEpisode& episode : result.each) {
    EXPECT_EQ(episode.infos[0], 3);
    EXPECT_TRUE(std::isnan(episode.infos[1]));
  }
}

TEST(EvaluatorTest, AnInfoOfTheResetCountsAsInTraining) {
  const ScriptedOptions options = {.info_columns = 1};
  const Script script = {{.observe = {0, 1}, .infos = {{0, 2.0}}}, {.observe = {0, 1}, .terminate_all = true}};
  const EvaluationResult result =
      Evaluate(ScriptedConfig(options, [&] { return MakeScriptedEnv(options, script); }), 2, {.episodes = 3});
  ASSERT_EQ(result.infos.size(), 1u);
  EXPECT_EQ(result.infos[0].value.mean, 2);
}

// Each state before its agents act and the last one, of every episode, by the number that it has in the evaluation.
TEST(EvaluatorTest, AWatcherSeesEveryStateOfEveryEpisode) {
  struct Seen {
    int64_t last_step = -1;
    bool over = false;
    double returns = 0;
  };
  class Watcher final : public EpisodeWatcher {
   public:
    absl::Status OnState(const WatchedState& state) override {
      Seen& seen = episodes[state.episode];
      EXPECT_EQ(state.step, seen.last_step + 1);
      EXPECT_FALSE(seen.over);
      seen.last_step = state.step;
      seen.over = state.over;
      seen.returns = 0;
      for (size_t slot = 0; slot < state.policies.size(); ++slot) {
        if (state.policies[slot] != policy::kNoPolicy) seen.returns += state.returns[slot];
      }
      if (state.episode == refuses) return absl::InternalError("no film left");
      return absl::OkStatus();
    }
    std::map<int64_t, Seen> episodes;
    int64_t refuses = -1;
  };
  Watcher watcher;
  const EvaluationRequest request = {.episodes = 9, .first_episode = 4, .watcher = &watcher};
  const EvaluationResult result = Evaluate(RandomConfig(), 3, request);
  EXPECT_EQ(Each(result), Each(Evaluate(RandomConfig(), 3, {.episodes = 9, .first_episode = 4})));
  ASSERT_EQ(watcher.episodes.size(), 9u);
  for (const auto& [number, seen] : watcher.episodes) {
    const EvaluatedEpisode& episode = result.each[static_cast<size_t>(number - 4)];
    EXPECT_TRUE(seen.over);
    EXPECT_EQ(seen.last_step, episode.length);
    EXPECT_DOUBLE_EQ(seen.returns, episode.return_sum());
  }
  watcher.episodes.clear();
  watcher.refuses = 6;
  const RolloutConfig config = RandomConfig();
  const absl::Status refused = (*Evaluator::Create(config, 3))->Run(request, ScriptedWeights(config, 3)).status();
  EXPECT_EQ(refused.message(), "no film left");
}

/// One agent, rewarded 1 in each of 1,000 env steps.
RolloutConfig LongConfig() {
  Script script = {{.observe = {0}}};
  for (int step = 0; step < 999; ++step) script.push_back({.observe = {0}, .rewards = {{0, 1.0f}}});
  script.push_back({.observe = {0}, .rewards = {{0, 1.0f}}, .terminate_all = true});
  return ScriptedConfig(
      {.agents = 1}, [=] { return MakeScriptedEnv({.agents = 1}, script); }, 1);
}

TEST(EvaluatorTest, AnEpisodeThatDoesNotEndIsCutAndSaidToBe) {
  const EvaluationResult cut = Evaluate(LongConfig(), 2, {.episodes = 5, .max_episode_steps = 999});
  EXPECT_EQ(cut.episodes, 5);
  EXPECT_EQ(cut.cut, 5);
  EXPECT_EQ(cut.return_sum.mean, 999.0);
  for (const EvaluatedEpisode& episode : cut.each) {
    EXPECT_TRUE(episode.cut);
    EXPECT_EQ(episode.length, 999);
  }
  for (const int64_t bound : {1000, 0}) {
    const EvaluationResult whole = Evaluate(LongConfig(), 2, {.episodes = 5, .max_episode_steps = bound});
    EXPECT_EQ(whole.cut, 0) << bound;
    EXPECT_EQ(whole.return_sum.mean, 1000.0);
    EXPECT_FALSE(whole.each[4].cut);
  }
}

TEST(EvaluatorTest, OneThatIsCancelledEndsAtTheNextStepAndPlaysAgain) {
  class Watcher final : public EpisodeWatcher {
   public:
    absl::Status OnState(const WatchedState& state) override {
      ++states;
      if (state.episode == 3 && state.step == 100) cancelled = true;
      return absl::OkStatus();
    }
    std::atomic<bool> cancelled{false};
    int64_t states = 0;
  };
  Watcher watcher;
  std::atomic<int64_t> ended{0};
  const RolloutConfig config = LongConfig();
  const auto weights = ScriptedWeights(config, 3);
  const auto evaluator = *Evaluator::Create(config, 2);
  const EvaluationRequest request = {
      .episodes = 1000, .watcher = &watcher, .cancelled = &watcher.cancelled, .ended = &ended};
  EXPECT_TRUE(absl::IsCancelled(evaluator->Run(request, weights).status()));
  EXPECT_EQ(watcher.states, 2 * (1001 + 101)) << "no step more";
  EXPECT_EQ(ended, 2);
  EXPECT_EQ(evaluator->Run({.episodes = 5}, weights)->return_sum.mean, 1000.0);
}

TEST(EvaluatorTest, RunsAgainWithTheSameResult) {
  const RolloutConfig config = RandomConfig();
  auto evaluator = *Evaluator::Create(config, 4);
  const auto weights = ScriptedWeights(config, 3);
  const auto first = Each(*evaluator->Run({.episodes = 9}, weights));
  EXPECT_EQ(first, Each(*evaluator->Run({.episodes = 9}, weights)));
}

TEST(EvaluatorTest, ARewardBeforeAnAgentsFirstActionCountsIntoItsReturn) {
  const Script folded = {{.observe = {0}}, {.observe = {0}, .rewards = {{0, -1.0f}, {1, 1.0f}}, .terminate_all = true}};
  const RolloutConfig config = ScriptedConfig(
      {}, [=] { return MakeScriptedEnv({}, folded); }, 2);
  const EvaluationResult result = Evaluate(config, 2, {.episodes = 3});
  EXPECT_EQ(result.return_sum.mean, 0.0);
  EXPECT_EQ(result.agents[1].episode_return.mean, 1.0);
  EXPECT_EQ(result.each[0].policies, policy::SlotsForTesting({0, 1}));
}

TEST(EvaluatorTest, AddsUpRewardsAndSteps) {
  const ScriptedOptions options = {.agents = 3};
  const Script script = {
      {.observe = {0}},
      {.observe = {1}, .rewards = {{0, 1.0f}}},
      {.observe = {1}, .rewards = {{0, 2.0f}, {1, 10.0f}}, .truncate = {0}},
      {.observe = {1}, .rewards = {{1, 20.0f}}, .terminate_all = true},
  };
  const RolloutConfig config = ScriptedConfig(options, [=] { return MakeScriptedEnv(options, script); });
  const EvaluationResult result = Evaluate(config, 2, {.episodes = 3, .deterministic = true});
  EXPECT_EQ(result.episodes, 3);
  EXPECT_EQ(result.return_sum.mean, 33);
  EXPECT_EQ(result.return_sum.std, 0);
  EXPECT_EQ(result.return_mean.mean, 16.5) << "over the two agents that appeared";
  EXPECT_EQ(result.episode_length_mean, 3);
  ASSERT_EQ(result.agents.size(), 3u);
  EXPECT_EQ(result.agents[0].id, "agent_0");
  EXPECT_EQ(result.agents[0].episode_return.mean, 3);
  EXPECT_EQ(result.agents[1].episode_return.mean, 30);
  EXPECT_TRUE(std::isnan(result.agents[2].episode_return.mean));
  EXPECT_EQ(result.each[0].policies, policy::SlotsForTesting({0, 0, -1}));
}

TEST(EvaluatorTest, AnAgentThatReturnsHasSeveralTrajectories) {
  const Script script = {
      {.observe = {0, 1}},
      {.observe = {0, 1}, .rewards = {{1, 5.0f}}, .terminate = {1}},
      {.observe = {0}, .rewards = {{0, 1.0f}}},
      {.observe = {0, 1}},
      {.observe = {0, 1}, .rewards = {{1, 3.0f}}, .terminate_all = true},
  };
  const RolloutConfig config = ScriptedConfig({}, [=] { return MakeScriptedEnv({}, script); });
  const EvaluationResult result = Evaluate(config, 1, {.episodes = 2});
  EXPECT_EQ(result.agents[1].episode_return.mean, 4) << "the mean of 5 and 3";
  EXPECT_EQ(result.each[0].trajectories, std::vector<int32_t>({1, 2}));
  EXPECT_EQ(result.return_sum.mean, 9) << "all that was given";
  EXPECT_EQ(result.return_mean.mean, 2.5);
}

TEST(EvaluatorTest, AnEpisodeIsToldWithTheSeedThatItsResetGot) {
  const auto seeds = [](int num_envs, const EvaluationRequest& request) {
    std::vector<uint64_t> each;
    for (const EvaluatedEpisode& episode : Evaluate(RandomConfig(), num_envs, request).each) {
      each.push_back(episode.seed);
    }
    return each;
  };
  const std::vector<uint64_t> all = seeds(8, {.episodes = 9, .seed = 5});
  EXPECT_EQ(std::set<uint64_t>(all.begin(), all.end()).size(), 9u);
  EXPECT_EQ(seeds(2, {.episodes = 9, .seed = 5}), all);
  EXPECT_EQ(seeds(2, {.episodes = 2, .first_episode = 7, .seed = 5}),
            std::vector<uint64_t>(all.begin() + 7, all.end()));
  EXPECT_NE(seeds(2, {.episodes = 9, .seed = 6}), all);
  // Of the evaluation's stream, as env::EpisodeSeed says it, and of no episode of training.
  EXPECT_NE(all[0], (env::EpisodeSeed{5, base::EnvId(0), 0}.ResetSeed()));
}

TEST(EvaluatorTest, AggregatesByTheirDefinition) {
  const ScriptedOptions options = {.agents = 2};
  const double nan = std::nan("");
  const EvaluationResult result = Aggregate(ScriptedSpec(options), {{10, {1, 3}}, {20, {5, nan}}});
  EXPECT_EQ(result.return_sum.mean, 4.5);
  EXPECT_EQ(result.return_sum.std, 0.5);
  EXPECT_EQ(result.return_mean.mean, 3.5);
  EXPECT_EQ(result.return_mean.std, 1.5);
  EXPECT_EQ(result.agents[0].episode_return.mean, 3);
  EXPECT_EQ(result.agents[0].episode_return.std, 2);
  EXPECT_EQ(result.agents[1].episode_return.mean, 3);
  EXPECT_EQ(result.agents[1].episode_return.std, 0);
  EXPECT_EQ(result.episode_length_mean, 15);
}

TEST(EvaluatorTest, DeterministicPlayIgnoresTheActionStream) {
  // The scripted environment has no randomness of its own, so only sampling could differ.
  const ScriptedOptions options = {.agents = 2};
  ScriptedLog sampled, deterministic;
  for (ScriptedLog* log : {&sampled, &deterministic}) {
    const Script script = {
        {.observe = {0, 1}}, {.observe = {0, 1}}, {.observe = {0, 1}}, {.observe = {0, 1}, .terminate_all = true}};
    const RolloutConfig config = ScriptedConfig(options, [=] { return MakeScriptedEnv(options, script, log); });
    Evaluate(config, 1, {.episodes = 30, .deterministic = log == &deterministic});
  }
  const auto distinct_first_actions = [](const ScriptedLog& log) {
    std::set<float> seen;
    for (const ScriptedLog::Event& e : log.events) {
      if (e.kind == ScriptedLog::Event::Kind::kAction && e.step == 0 && e.slot == 0) seen.insert(e.value);
    }
    return seen.size();
  };
  EXPECT_EQ(distinct_first_actions(sampled), 3u);
  EXPECT_LE(distinct_first_actions(deterministic), 2u) << "the observation's env id is the episode's number";
}

TEST(EvaluatorTest, WhatFailsOnceIsPlayedAgain) {
  const Script fine = {{.observe = {0, 1}}, {.observe = {0, 1}, .rewards = {{0, 1.0f}}, .terminate_all = true}};
  const Script fails = {{.observe = {0, 1}}, {.observe = {0, 1}, .rewards = {{0, 9.0f}}, .fail = true}};
  for (const bool elsewhere : {false, true}) {
    // Works in every second of its episodes.
    class Shaky final : public env::MultiAgentEnv {
     public:
      Shaky(std::unique_ptr<env::MultiAgentEnv> good, std::unique_ptr<env::MultiAgentEnv> bad)
          : good_(std::move(good)), bad_(std::move(bad)) {}
      const env::EnvSpec& spec() const override { return good_->spec(); }
      absl::Status Reset(const env::EpisodeSeed& seed, env::StepWriter& out) override {
        std::swap(good_, bad_);
        return good_->Reset(seed, out);
      }
      absl::Status Step(env::ActionRows actions, env::StepWriter& out) override { return good_->Step(actions, out); }

     private:
      std::unique_ptr<env::MultiAgentEnv> good_, bad_;
    };
    env::testing::ElsewhereEnv::Calls calls;
    const RolloutConfig config = ScriptedConfig({}, [&]() -> absl::StatusOr<std::unique_ptr<env::MultiAgentEnv>> {
      auto shaky = std::make_unique<Shaky>(MakeScriptedEnv({}, fine), MakeScriptedEnv({}, fails));
      if (!elsewhere) return shaky;
      return std::make_unique<env::testing::ElsewhereEnv>(std::move(shaky), calls);
    });
    const EvaluationResult result = Evaluate(config, 3, {.episodes = 7});
    EXPECT_EQ(result.episodes, 7);
    EXPECT_EQ(result.return_sum.mean, 1) << "nothing of the tries that failed";
    EXPECT_EQ(result.return_sum.std, 0);
    EXPECT_EQ(calls.out_of_order, 0);
    EXPECT_EQ(calls.most_in_flight, elsewhere ? 3 : 0);
  }
}

/// What agents did, by env id, step and slot.
using Actions = std::map<std::tuple<uint32_t, int, int>, float>;
Actions ActionsOf(const ScriptedLog& log) {
  Actions actions;
  for (const ScriptedLog::Event& event : log.events) {
    if (event.kind == ScriptedLog::Event::Kind::kAction) {
      actions[{event.env_id, event.step, event.slot}] = event.value;
    }
  }
  return actions;
}

/// The same episodes, one after the other and one agent at a time.
Actions PlayByHand(const RolloutConfig& config, const ScriptedOptions& options, int64_t episodes, uint64_t seed) {
  const base::PhiloxKey key = base::PhiloxKey::Make(seed, base::RandomStream::kEvaluation);
  const uint64_t episode_seed = (static_cast<uint64_t>(key.k1) << 32) | key.k0;
  std::vector<std::unique_ptr<inference::PolicyActor>> actors;
  const std::vector<policy::WeightSnapshotPtr> weights = ScriptedWeights(config, 3);
  for (size_t p = 0; p < config.policies.size(); ++p) {
    actors.push_back(*inference::MakePolicyActor(config.policies[policy::PolicySlot(p)], episode_seed));
    EXPECT_TRUE(actors.back()->SetWeights(weights[p]).ok());
  }
  ScriptedLog log;
  const std::unique_ptr<env::MultiAgentEnv> env = MakeRandomEnv(options, &log);
  env::SlotBuffers buffers(config.env_spec, 1);
  for (uint32_t episode = 0; episode < episodes; ++episode) {
    std::map<int32_t, std::vector<float>> memory;  // by slot
    uint32_t step = 0;
    EXPECT_TRUE(env->Reset({episode_seed, base::EnvId(episode), 0}, buffers.BeginStep(0)).ok());
    while (!buffers.all_done(0)) {
      std::vector<space::ActionWord> words(static_cast<size_t>(options.agents));
      std::vector<const space::ActionWord*> actions(words.size());
      for (int32_t slot = 0; slot < options.agents; ++slot) {
        if (!buffers.ready(0, slot)) continue;
        const size_t policy = static_cast<size_t>(slot) % actors.size();
        memory[slot].resize(static_cast<size_t>(config.policies[policy::PolicySlot(policy)].actor_state_size()));
        const inference::RowKey row = {base::EnvId(episode), 0, base::AgentSlot(slot), step};
        std::vector<float> after(memory[slot].size());
        inference::ActInput input;
        input.rows = 1;
        input.obs = buffers.observation_bytes(0, slot).data();
        input.action_mask = buffers.action_mask(0, slot).data();
        input.keys = &row;
        if (!after.empty()) {
          input.state_in = memory[slot].data();
          input.state_out = after.data();
        }
        float logp = 0;
        EXPECT_TRUE(actors[policy]->Act(input, &words[static_cast<size_t>(slot)], &logp).ok());
        memory[slot] = after;
        actions[static_cast<size_t>(slot)] = &words[static_cast<size_t>(slot)];
      }
      EXPECT_TRUE(env->Step(actions, buffers.BeginStep(0)).ok());
      ++step;
    }
  }
  return ActionsOf(log);
}

TEST(EvaluatorTest, PoliciesThatRememberPlayAsWhenEachAgentIsPlayedByHand) {
  const ScriptedOptions options = {.agents = 4, .action_mask = true};
  for (const policy::CoreKind kind : {policy::CoreKind::kGru, policy::CoreKind::kLstm}) {
    ScriptedLog log;
    RolloutConfig config = ScriptedConfig(
        options, [&] { return MakeRandomEnv(options, &log); }, 3);
    config.policies[policy::PolicySlot(0)].actor.core = {kind, 5, 1};
    config.policies[policy::PolicySlot(2)].actor.core = {kind, 3, 2};
    config.policies[policy::PolicySlot(0)].sequence_length = config.policies[policy::PolicySlot(2)].sequence_length = 4;
    const Actions by_hand = PlayByHand(config, options, 40, 5);
    EXPECT_GT(by_hand.size(), 400u);
    for (const int num_envs : {1, 7}) {
      auto evaluator = *Evaluator::Create(config, num_envs);
      // Twice, so that something is left over.
      for (int run = 0; run < 2; ++run) {
        log.events.clear();
        ASSERT_TRUE(evaluator->Run({.episodes = 40, .seed = 5}, ScriptedWeights(config, 3)).ok());
        EXPECT_EQ(ActionsOf(log), by_hand) << num_envs;
      }
    }
  }
}

TEST(EvaluatorTest, AnEpisodeThatIsPlayedAgainBeginsWithNothingInMind) {
  const ScriptedOptions options = {.agents = 2};
  Script script(5, ScriptedCall{.observe = {0, 1}});
  script.push_back({.observe = {0, 1}, .truncate_all = true});
  RolloutConfig config = ScriptedConfig(options, [&] { return MakeScriptedEnv(options, script); });
  MakeCounting(config.policies[policy::PolicySlot(0)], {policy::CoreKind::kGru, 4, 1}, 3);
  const auto host = std::make_shared<CountingHost>();
  config.actor_host = host;
  host->failures = 2;
  auto evaluator = *Evaluator::Create(config, 3);
  const std::vector<policy::WeightSnapshotPtr> no_weights(1);
  ASSERT_TRUE(evaluator->Run({.episodes = 10}, no_weights).ok());
  EXPECT_GT(host->decisions.size(), 10u * 5 * 2) << "some of them twice";
  for (const CountingHost::Decision& decision : host->decisions) {
    EXPECT_EQ(decision.number, static_cast<int64_t>(decision.key.env_step)) << "agents act at every step";
  }
}

TEST(EvaluatorTest, AnEnvironmentErrorEndsIt) {
  const Script script = {{.observe = {0, 1}}, {.observe = {0, 1}, .fail = true}};
  const RolloutConfig config = ScriptedConfig({}, [=] { return MakeScriptedEnv({}, script); });
  auto evaluator = *Evaluator::Create(config, 2);
  EXPECT_EQ(evaluator->Run({.episodes = 3}, ScriptedWeights(config, 3)).status().code(), absl::StatusCode::kInternal);
  EXPECT_EQ(evaluator->Run({.episodes = 0}, ScriptedWeights(config, 3)).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(evaluator->Run({.episodes = 3}, {}).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace troupe::rollout
