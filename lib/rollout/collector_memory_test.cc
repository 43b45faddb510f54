// Policies with a core: what they remember of each agent goes from decision to decision, whatever comes between, and
// into fragments where sequences begin.

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/env/testing/elsewhere_env.h"
#include "lib/inference/make_policy_actor.h"
#include "lib/rollout/testing/counting_host.h"
#include "lib/rollout/testing/scripted_env.h"
#include "lib/sample/columns.h"
#include "lib/sample/multi_agent_batch.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::rollout {
namespace {

using testing::ElementsAre;

constexpr policy::CoreSpec kNarrow = {policy::CoreKind::kGru, 4, 1};
constexpr policy::CoreSpec kWide = {policy::CoreKind::kLstm, 3, 2};

/// One memory with everything that belongs to it, by value.
struct SeenMemory {
  AgentKey agent;
  int32_t policy = 0;
  int32_t step = 0;
  int32_t decision = 0;
  bool on_grid = false;       ///< its decision is a multiple of the sequences' length
  bool is_first = false;      ///< its row is its segment's first
  std::vector<float> before;  ///< empty where the actor has no core
};

/// All memories of `fragments`, in their order.
std::vector<SeenMemory> MemoriesOf(const RolloutConfig& config,
                                   const std::vector<sample::MultiAgentBatchPtr>& fragments) {
  std::vector<SeenMemory> seen;
  for (const sample::MultiAgentBatchPtr& batch : fragments) {
    for (const sample::PolicyRows& rows : batch->policies) {
      const auto segment_of = rows.segment.As<sample::Index>();
      for (int64_t m = 0; m < rows.num_memories; ++m) {
        const int32_t* const at = rows.memory_at.As<int32_t>().data() + m * sample::kMemoryFields;
        const int32_t row = at[sample::kMemoryRow];
        const sample::Index segment = segment_of[row];
        const int32_t* const words = rows.segments.As<int32_t>().data() + segment * sample::kSegmentFields;
        const sample::EpisodeEntry& episode = batch->episodes[words[sample::kSegmentEpisode]];
        SeenMemory memory;
        memory.agent = {episode.env_id.value(), episode.episode, words[sample::kSegmentSlot]};
        memory.policy = rows.policy.value();
        memory.step = batch->step_index.As<int32_t>()[rows.env_row.As<sample::Index>()[row]];
        memory.decision = at[sample::kMemoryDecision];
        memory.on_grid = memory.decision % config.policies[rows.policy].sequence_length == 0;
        memory.is_first = std::count(segment_of.begin(), segment_of.begin() + row, segment) == 0;
        if (rows.memory.present()) {
          const float* const before = rows.memory.As<float>().data() + m * rows.memory.row_elements;
          memory.before.assign(before, before + rows.memory.row_elements);
        }
        seen.push_back(std::move(memory));
      }
    }
  }
  return seen;
}

/// The steps at which agents acted, as their environments saw it.
std::map<AgentKey, std::vector<int32_t>> Decisions(const ScriptedLog& log) {
  std::map<AgentKey, std::vector<int32_t>> steps;
  for (const ScriptedLog::Event& event : log.events) {
    if (event.kind != ScriptedLog::Event::Kind::kAction) continue;
    steps[{event.env_id, event.episode, event.slot}].push_back(event.step);
  }
  return steps;
}

/// Rows of counting policies were made from the state after the decision before, and memories are of the decisions that
/// they tell. That they are of the right rows is what CollectingSink has checked.
void ExpectCounted(const RolloutConfig& config, const std::vector<sample::MultiAgentBatchPtr>& fragments,
                   const ScriptedLog& log) {
  const std::map<AgentKey, std::vector<int32_t>> decisions = Decisions(log);
  const auto number_of = [&decisions](const AgentKey& agent, int32_t step) {
    const std::vector<int32_t>& steps = decisions.at(agent);
    const auto found = std::lower_bound(steps.begin(), steps.end(), step);
    EXPECT_TRUE(found != steps.end() && *found == step) << "nobody acted at step " << step;
    return static_cast<int32_t>(found - steps.begin());
  };
  for (const SeenRow& row : RowsOf(fragments)) {
    const policy::PolicySpec& spec = config.policies[policy::PolicySlot(row.policy)];
    if (spec.policy_class.kind != policy::PolicyClass::Kind::kPython) continue;
    EXPECT_EQ(row.logp, static_cast<float>(number_of({row.env_id, row.episode, row.slot}, row.step)));
  }
  for (const SeenMemory& memory : MemoriesOf(config, fragments)) {
    const policy::PolicySpec& spec = config.policies[policy::PolicySlot(memory.policy)];
    const int32_t number = number_of(memory.agent, memory.step);
    EXPECT_EQ(memory.decision, number);
    if (spec.policy_class.kind != policy::PolicyClass::Kind::kPython) continue;
    const int32_t last_step = number == 0 ? 0 : decisions.at(memory.agent)[static_cast<size_t>(number) - 1];
    EXPECT_EQ(memory.before, Counted(memory.agent, number, last_step, spec.actor_state_size()));
  }
}

/// Of up to four policies the first two count, with states of other widths, the third one has a core only in its
/// critic, and the fourth none. Sequences have three decisions.
RolloutConfig CountingConfig(const ScriptedOptions& options, EnvFactory factory, int policies,
                             const std::shared_ptr<CountingHost>& host = std::make_shared<CountingHost>()) {
  RolloutConfig config = ScriptedConfig(options, std::move(factory), policies);
  MakeCounting(config.policies[policy::PolicySlot(0)], kNarrow, 3);
  if (policies > 1) MakeCounting(config.policies[policy::PolicySlot(1)], kWide, 3);
  if (policies > 2) {
    config.policies[policy::PolicySlot(2)].mutable_critic()->core = kNarrow;
    config.policies[policy::PolicySlot(2)].sequence_length = 3;
  }
  config.actor_host = host;
  return config;
}

/// "agent 1 step 3 decision 2", in the order of policies and rows.
std::vector<std::string> MemoryTexts(const RolloutConfig& config, const sample::MultiAgentBatchPtr& fragment) {
  std::vector<std::string> texts;
  for (const SeenMemory& memory : MemoriesOf(config, {fragment})) {
    texts.push_back(absl::StrCat("agent ", std::get<2>(memory.agent), " step ", memory.step, " decision ",
                                 memory.decision, memory.is_first ? " first" : ""));
  }
  return texts;
}

TEST(CollectorMemoryTest, EveryDecisionIsMadeFromWhatWasRememberedOfItsAgentAndIsSentSo) {
  int64_t carried = 0, dropped = 0, begins_off_grid = 0, on_grid_inside = 0;
  for (const bool elsewhere : {false, true}) {
    for (const int64_t steps : {0, 1, 2, 5}) {
      for (const int policies : {1, 2, 4}) {
        for (const double failures : {0.0, 0.1}) {
          SCOPED_TRACE(
              absl::StrCat("elsewhere ", elsewhere, " steps ", steps, " policies ", policies, " failures ", failures));
          const ScriptedOptions options = {.agents = 5, .agent_mask = true};
          ScriptedLog log;
          env::testing::ElsewhereEnv::Calls calls;
          const auto factory = [&]() -> absl::StatusOr<std::unique_ptr<env::MultiAgentEnv>> {
            std::unique_ptr<env::MultiAgentEnv> env = MakeRandomEnv(options, &log, failures);
            if (!elsewhere) return env;
            return std::make_unique<env::testing::ElsewhereEnv>(std::move(env), calls);
          };
          RolloutConfig config = CountingConfig(options, factory, policies);
          config.options.max_fragment_env_steps = steps;
          Rig rig(config);
          for (int g = 0; g < 6; ++g) ASSERT_TRUE(rig.Run(ScriptedGrant(7, 9), 5 + g).ok());
          ExpectCounted(config, rig.sink.fragments, log);
          carried += rig.collector->stats().carried_rows;
          dropped += rig.collector->stats().dropped_rows;
          for (const SeenMemory& memory : MemoriesOf(config, rig.sink.fragments)) {
            begins_off_grid += memory.is_first && !memory.on_grid ? 1 : 0;
            on_grid_inside += memory.on_grid && !memory.is_first ? 1 : 0;
          }
        }
      }
    }
  }
  EXPECT_GT(carried, 1000);
  EXPECT_GT(dropped, 100);
  EXPECT_GT(begins_off_grid, 1000);
  EXPECT_GT(on_grid_inside, 100);
}

TEST(CollectorMemoryTest, CutsChangeNeitherRowsNorWhatIsRememberedWhereSequencesBegin) {
  const ScriptedOptions options = {.agents = 4};
  std::vector<SeenRow> uncut;
  std::map<std::pair<AgentKey, int32_t>, std::vector<float>> uncut_memories;
  for (const int64_t steps : {0, 1, 3, -1}) {
    RolloutConfig config = CountingConfig(
        options, [&] { return MakeRandomEnv(options, nullptr); }, 2);
    if (steps >= 0) {
      config.options.max_fragment_env_steps = steps;
    } else {
      config.options.max_fragment_bytes = 11000;
    }
    Rig rig(config);
    sample::Grant grant = ScriptedGrant(6, 40);
    grant.complete_episodes = true;
    ASSERT_TRUE(rig.Run(grant).ok());
    std::map<std::pair<AgentKey, int32_t>, std::vector<float>> memories;
    size_t others = 0;
    for (const SeenMemory& memory : MemoriesOf(config, rig.sink.fragments)) {
      others += memory.on_grid ? 0 : 1;
      if (!memory.on_grid) continue;
      EXPECT_TRUE(memories.emplace(std::pair(memory.agent, memory.decision), memory.before).second) << "twice";
    }
    const std::vector<SeenRow> rows = RowsOf(rig.sink.fragments);
    if (steps == 0) {
      EXPECT_EQ(rig.sink.fragments.size(), 1u);
      EXPECT_GT(memories.size(), 200u);
      EXPECT_EQ(others, 0u) << "each segment is a trajectory from its beginning";
      uncut = rows;
      uncut_memories = memories;
    } else {
      EXPECT_GT(rig.sink.fragments.size(), 2u);
      EXPECT_GT(others, 20u);
      EXPECT_EQ(rows, uncut);
      EXPECT_EQ(memories, uncut_memories);
    }
  }
}

// Turns: agent 0 at even steps, agent 1 at odd ones.
const Script kTakingTurns = {
    {.observe = {0}},
    {.observe = {1}, .rewards = {{0, 1.0f}}},
    {.observe = {0}, .rewards = {{1, 10.0f}}},
    {.observe = {1}, .rewards = {{0, 4.0f}}},
    {.observe = {0}, .rewards = {{1, 40.0f}}},
    {.observe = {}, .rewards = {{0, 16.0f}}, .terminate_all = true},
};

TEST(CollectorMemoryTest, ADecisionThatIsCarriedTakesAlongWhatItWasMadeFrom) {
  ScriptedLog log;
  RolloutConfig config = CountingConfig(
      {}, [&] { return MakeScriptedEnv({}, kTakingTurns, &log); }, 1);
  config.policies[policy::PolicySlot(0)].sequence_length =
      1;  // so that the decision that leaves the fragment has a memory there
  Rig rig(config);
  // After three steps agent 0 has acted at 0 and 2, which waits for its outcome.
  ASSERT_TRUE(rig.Run(ScriptedGrant(1, 3)).ok());
  ASSERT_TRUE(rig.Run(ScriptedGrant(1, 2)).ok());
  ASSERT_EQ(rig.sink.fragments.size(), 2u);
  EXPECT_THAT(MemoryTexts(config, rig.sink.fragments[0]),
              ElementsAre("agent 0 step 0 decision 0 first", "agent 1 step 1 decision 0 first"));
  EXPECT_THAT(MemoryTexts(config, rig.sink.fragments[1]),
              ElementsAre("agent 0 step 2 decision 1 first", "agent 1 step 3 decision 1 first",
                          "agent 0 step 4 decision 2 first"));
  ExpectCounted(config, rig.sink.fragments, log);
}

TEST(CollectorMemoryTest, ADecisionCanBeCarriedThroughManyFragments) {
  // Agent 0 waits from step 1 on, while agent 1 goes on.
  Script script(9, ScriptedCall{.observe = {1}});
  script[0] = script[1] = {.observe = {0, 1}};
  script.push_back({.observe = {0, 1}});
  script.push_back({.observe = {0, 1}, .truncate_all = true});
  ScriptedLog log;
  const RolloutConfig config = CountingConfig(
      {}, [&] { return MakeScriptedEnv({}, script, &log); }, 1);
  Rig rig(config);
  for (int g = 0; g < 10; ++g) ASSERT_TRUE(rig.Run(ScriptedGrant(1, 1)).ok());
  ASSERT_EQ(rig.sink.fragments.size(), 10u);
  EXPECT_THAT(MemoryTexts(config, rig.sink.fragments[0]),
              ElementsAre("agent 0 step 0 decision 0 first", "agent 1 step 0 decision 0 first"));
  for (int step = 1; step < 8; ++step) {
    EXPECT_THAT(MemoryTexts(config, rig.sink.fragments[static_cast<size_t>(step)]),
                ElementsAre(absl::StrCat("agent 1 step ", step, " decision ", step, " first")));
  }
  EXPECT_THAT(MemoryTexts(config, rig.sink.fragments[8]),
              ElementsAre("agent 0 step 1 decision 1 first", "agent 1 step 8 decision 8 first"));
  EXPECT_THAT(MemoryTexts(config, rig.sink.fragments[9]),
              ElementsAre("agent 0 step 9 decision 2 first", "agent 1 step 9 decision 9 first"));
  ExpectCounted(config, rig.sink.fragments, log);
}

TEST(CollectorMemoryTest, ADecisionOfAnotherLearnerEpochIsDroppedButCounts) {
  ScriptedLog log;
  const RolloutConfig config = CountingConfig(
      {}, [&] { return MakeScriptedEnv({}, kTakingTurns, &log); }, 1);
  Rig rig(config);
  sample::Grant grant = ScriptedGrant(1, 3);
  grant.min_version = {1, 5};
  ASSERT_TRUE(rig.Run(grant).ok());
  grant = ScriptedGrant(1, 2);
  grant.min_version = {2, 5};
  ASSERT_TRUE(rig.Run(grant).ok());
  EXPECT_EQ(rig.collector->stats().dropped_rows, 1);
  EXPECT_THAT(MemoryTexts(config, rig.sink.fragments.at(1)),
              ElementsAre("agent 1 step 3 decision 1 first", "agent 0 step 4 decision 2 first"));
  ExpectCounted(config, rig.sink.fragments, log);
}

TEST(CollectorMemoryTest, WhatACallThatFailsUndoesHasNoMemory) {
  Script script(4, ScriptedCall{.observe = {0, 1}});
  script.push_back({.observe = {0, 1}, .fail = true});
  ScriptedLog log;
  RolloutConfig config = CountingConfig(
      {}, [&] { return MakeScriptedEnv({}, script, &log); }, 1);
  config.policies[policy::PolicySlot(0)].sequence_length = 1;
  Rig rig(config);
  ASSERT_TRUE(rig.Run(ScriptedGrant(1, 3)).ok());
  ASSERT_TRUE(rig.Run(ScriptedGrant(1, 2)).ok());
  EXPECT_EQ(rig.collector->stats().env_errors, 1);
  // The step that failed was the first of this fragment; the two that count are of the next episode.
  EXPECT_THAT(MemoryTexts(config, rig.sink.fragments.at(1)),
              ElementsAre("agent 0 step 0 decision 0 first", "agent 1 step 0 decision 0 first",
                          "agent 0 step 1 decision 1", "agent 1 step 1 decision 1"));
  ExpectCounted(config, rig.sink.fragments, log);
}

TEST(CollectorMemoryTest, AnEpisodeInWhichAPolicyCannotActTakesItsMemoryAlong) {
  const ScriptedOptions options = {.agents = 4};
  ScriptedLog log;
  const auto host = std::make_shared<CountingHost>();
  RolloutConfig config = CountingConfig(
      options, [&] { return MakeRandomEnv(options, &log); }, 2, host);
  config.options.max_fragment_env_steps = 3;
  Rig rig(config);
  host->failures = 20;
  ASSERT_TRUE(rig.Run(ScriptedGrant(4, 100)).ok());
  EXPECT_GE(rig.collector->stats().env_errors, 20);
  ExpectCounted(config, rig.sink.fragments, log);
  for (const CountingHost::Decision& decision : host->decisions) {
    EXPECT_LE(decision.number, static_cast<int64_t>(decision.key.env_step)) << "of an episode before";
  }
}

TEST(CollectorMemoryTest, ACriticAloneHasPlacesAndNoMemory) {
  ScriptedLog log;
  RolloutConfig config = ScriptedConfig({}, [&] { return MakeRandomEnv({}, &log); });
  config.policies[policy::PolicySlot(0)].mutable_critic()->core = kWide;
  config.policies[policy::PolicySlot(0)].sequence_length = 4;
  config.options.max_fragment_env_steps = 2;
  Rig rig(config);
  ASSERT_TRUE(rig.Run(ScriptedGrant(4, 60)).ok());
  size_t memories = 0;
  for (const sample::MultiAgentBatchPtr& batch : rig.sink.fragments) {
    for (const sample::PolicyRows& rows : batch->policies) {
      EXPECT_FALSE(rows.memory.present());
      EXPECT_TRUE(rows.memory_at.present());
      memories += static_cast<size_t>(rows.num_memories);
    }
  }
  EXPECT_GT(memories, 100u);
  ExpectCounted(config, rig.sink.fragments, log);
}

TEST(CollectorMemoryTest, FragmentsKeepTheByteLimitWithWideStates) {
  const ScriptedOptions options = {.agents = 4};
  for (const int64_t limit : {40000, 100000}) {
    RolloutConfig config = ScriptedConfig(options, [&] { return MakeRandomEnv(options, nullptr); });
    MakeCounting(config.policies[policy::PolicySlot(0)], {policy::CoreKind::kLstm, 64, 2}, 1);
    config.actor_host = std::make_shared<CountingHost>();
    config.options.max_fragment_bytes = limit;
    Rig rig(config);
    ASSERT_TRUE(rig.Run(ScriptedGrant(6, 30)).ok());
    size_t most = 0;
    for (const auto& fragment : rig.sink.fragments) most = std::max(most, sample::ColumnBytes(*fragment));
    EXPECT_LE(static_cast<int64_t>(most), limit);
    EXPECT_GT(static_cast<int64_t>(most), limit / 4) << "nor is more left over than must be";
  }
  // Two states of 64 KiB for each of the four agents are more than a fragment of this size has.
  RolloutConfig config = ScriptedConfig(options, [&] { return MakeRandomEnv(options, nullptr); });
  MakeCounting(config.policies[policy::PolicySlot(0)], {policy::CoreKind::kLstm, 4096, 2}, 1);
  config.actor_host = std::make_shared<CountingHost>();
  config.options.max_fragment_bytes = 500000;
  const absl::Status status = Collector::Create(config).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("max_fragment_bytes is 500000, but a step of"));
}

/// Run of "narrow", to which "wide" comes, and goes again.
class MemoryInALiveRunTest : public testing::Test {
 protected:
  MemoryInALiveRunTest() {
    config_.policies[policy::PolicySlot(0)].id = policy::PolicyId("narrow");
    wide_ = config_.policies[policy::PolicySlot(0)];
    wide_.id = policy::PolicyId("wide");
    wide_.actor.core = kWide;
    std::vector<std::string> agents;
    for (const env::AgentSpec& agent : config_.env_spec.possible_agents) agents.push_back(agent.id.value());
    table_ = *policy::PolicyTable::Make(config_.policies.values(), {false}, To("narrow"), std::move(agents));
    config_.mapping = std::shared_ptr<const policy::PolicyMapping>(table_, &table_->mapping());
    schema_ = ScriptedSchema(config_);
    collector_ = *Collector::Create(config_);
  }
  static std::vector<policy::MappingRule> To(const std::string& id) { return {{"*", {{policy::PolicyId(id), 1.0}}}}; }

  /// Grants by `table`, whose fragments are as they must be. Returns how many memories of each policy they have of
  /// episodes that had begun before.
  std::map<int32_t, int> Run(const policy::PolicyTablePtr& table, int grants) {
    schema_.SetPolicies(*table);
    CollectingSink sink(schema_);
    FixedWeights weights({nullptr, nullptr});
    for (int i = 0; i < grants; ++i) {
      sample::Grant grant = ScriptedGrant(6, 3);
      grant.id = sample::GrantId(++grants_);
      grant.policies = table;
      const absl::Status status = collector_->RunGrant(grant, weights, sink);
      EXPECT_TRUE(status.ok()) << status;
    }
    RolloutConfig both = config_;
    both.policies = policy::BySlot<policy::PolicySpec>({config_.policies[policy::PolicySlot(0)], wide_});
    ExpectCounted(both, sink.fragments, log_);
    std::map<int32_t, int> later;
    for (const SeenMemory& memory : MemoriesOf(both, sink.fragments)) {
      EXPECT_EQ(memory.before.size(), memory.policy == 0 ? 4u : 12u);
      later[memory.policy] += memory.is_first && memory.decision > 0 ? 1 : 0;
    }
    return later;
  }

  static constexpr ScriptedOptions kOptions = {.agents = 4};
  ScriptedLog log_;
  RolloutConfig config_ = CountingConfig(
      kOptions, [this] { return MakeRandomEnv(kOptions, &log_); }, 1);
  policy::PolicySpec wide_;
  sample::BatchSchema schema_;
  policy::PolicyTablePtr table_;
  std::unique_ptr<Collector> collector_;
  uint64_t grants_ = 0;
};

TEST_F(MemoryInALiveRunTest, WhatIsRememberedStaysWhenWiderPoliciesComeAndGo) {
  EXPECT_GT(Run(table_, 3)[0], 0);
  const policy::PolicyTablePtr with_wide = *(*table_->Add(wide_, false))->SetMapping(To("wide"));
  std::map<int32_t, int> later = Run(with_wide, 1);
  EXPECT_GT(later[0], 0) << "episodes of before go on";
  later = Run(with_wide, 10);
  EXPECT_GT(later[1], 20);
  const policy::PolicyTablePtr removed = *(*with_wide->SetMapping(To("narrow")))->Remove(policy::PolicyId("wide"));
  later = Run(removed, 1);
  EXPECT_GT(later[1], 0) << "and here, too";
  Run(removed, 10);
  // Nobody plays it any more: lanes become narrow again, in the middle of episodes.
  const policy::PolicyTablePtr released = *removed->Release({{policy::PolicySlot(1)}});
  later = Run(released, 1);
  EXPECT_GT(later[0], 0);
  EXPECT_EQ(later[1], 0);
  Run(released, 3);
  EXPECT_EQ(collector_->stats().given_up, 0);
}

/// Networks with cores for two policies: of `kind`, one layer of 5 and two of 3, and a head with a hidden layer.
RolloutConfig NetworkConfig(const ScriptedOptions& options, policy::CoreKind kind) {
  RolloutConfig config = ScriptedConfig(
      options, [options] { return MakeRandomEnv(options, nullptr); }, 2);
  for (policy::PolicySpec& spec : config.policies) {
    spec.actor.core = {kind, 5, 1};
    spec.actor.head_hidden_sizes = {6};
    spec.sequence_length = 4;
  }
  config.policies[policy::PolicySlot(1)].actor.core = {kind, 3, 2};
  return config;
}

/// Plays the agents of fragments by hand, one decision at a time.
class ByHand {
 public:
  explicit ByHand(const RolloutConfig& config) : config_(config) {}

  /// Acts for row `r`, whose agent is `agent` and whose weights are of version `n`, from `before`. Returns its
  /// log-probability; `actions` are what it did, `after` what it remembers then.
  float Act(const sample::PolicyRows& rows, int64_t r, const inference::RowKey& key, int64_t n,
            const std::vector<float>& before, std::vector<float>* after, std::vector<space::ActionWord>* actions) {
    const auto slot = static_cast<size_t>(rows.policy.value());
    const policy::PolicySpec& spec = config_.policies[policy::PolicySlot(slot)];
    std::unique_ptr<inference::PolicyActor>& actor = actors_[{slot, n}];
    if (actor == nullptr) {
      actor = *inference::MakePolicyActor(spec, config_.options.seed, config_.backend);
      EXPECT_TRUE(actor->SetWeights(ScriptedWeights(config_, n)[slot]).ok());
    }
    inference::ActInput input;
    input.rows = 1;
    input.obs = rows.obs.data + r * spec.observation_size() * static_cast<int64_t>(sizeof(float));
    if (rows.action_mask.present()) {
      input.action_mask = rows.action_mask.As<uint8_t>().data() + r * rows.action_mask.row_elements;
    }
    input.keys = &key;
    input.state_in = before.data();
    after->assign(before.size(), 0.0f);
    input.state_out = after->data();
    actions->resize(static_cast<size_t>(spec.action_words()));
    float logp = 0;
    const absl::Status status = actor->Act(input, actions->data(), &logp);
    EXPECT_TRUE(status.ok()) << status;
    return logp;
  }

 private:
  const RolloutConfig config_;
  std::map<std::pair<size_t, int64_t>, std::unique_ptr<inference::PolicyActor>> actors_;
};

void ExpectNear(const std::vector<float>& got, const std::vector<float>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 1e-5) << i;
}

TEST(CollectorMemoryTest, NetworksActAsWhenEachAgentIsPlayedByHand) {
  for (const policy::CoreKind kind : {policy::CoreKind::kGru, policy::CoreKind::kLstm}) {
    RolloutConfig config = NetworkConfig({.agents = 4, .action_mask = true}, kind);
    config.options.max_fragment_env_steps = 3;
    Rig rig(config);
    for (int g = 0; g < 8; ++g) ASSERT_TRUE(rig.Run(ScriptedGrant(5, 10), 5 + g).ok());
    EXPECT_GT(rig.collector->stats().carried_rows, 50);
    ByHand hand(config);
    std::map<AgentKey, std::vector<float>> states;  // after the agents' last decisions
    int64_t rows_seen = 0, differ_without = 0, memories_seen = 0;
    for (const sample::MultiAgentBatchPtr& batch : rig.sink.fragments) {
      for (const sample::PolicyRows& rows : batch->policies) {
        const policy::PolicySpec& spec = config.policies[rows.policy];
        const auto size = static_cast<size_t>(spec.actor_state_size());
        int64_t memory = 0;
        for (int64_t r = 0; r < rows.rows; ++r) {
          const int32_t* const words =
              rows.segments.As<int32_t>().data() + rows.segment.As<sample::Index>()[r] * sample::kSegmentFields;
          const sample::EpisodeEntry& episode = batch->episodes[words[sample::kSegmentEpisode]];
          const inference::RowKey key = {
              episode.env_id, episode.episode, base::AgentSlot(words[sample::kSegmentSlot]),
              static_cast<uint32_t>(batch->step_index.As<int32_t>()[rows.env_row.As<sample::Index>()[r]])};
          std::vector<float>& state = states[{key.env_id.value(), key.episode, key.slot.value()}];
          state.resize(size);
          const int64_t n = rows.version.n - words[sample::kSegmentVersionLag];
          std::vector<float> after;
          std::vector<space::ActionWord> actions;
          const float without = hand.Act(rows, r, key, n, std::vector<float>(size), &after, &actions);
          const float logp = hand.Act(rows, r, key, n, state, &after, &actions);
          EXPECT_NEAR(logp, rows.action_logp.As<float>()[r], 1e-5);
          EXPECT_EQ(actions[0].i32, sample::ActionAt(rows.actions, r, 0).i32);
          if (memory < rows.num_memories &&
              rows.memory_at.As<int32_t>()[static_cast<size_t>(memory * sample::kMemoryFields)] == r) {
            const float* const before = rows.memory.As<float>().data() + memory * rows.memory.row_elements;
            ExpectNear(std::vector<float>(before, before + size), state);
            ++memory;
          }
          ++rows_seen;
          differ_without += std::abs(without - logp) > 1e-4 ? 1 : 0;
          state = after;
        }
        EXPECT_EQ(memory, rows.num_memories);
        memories_seen += memory;
      }
    }
    EXPECT_GT(rows_seen, 500);
    EXPECT_GT(memories_seen, 100);
    EXPECT_GT(differ_without, rows_seen / 4) << "what is remembered must matter";
  }
}

TEST(CollectorMemoryTest, PoliciesThatAreNotResidentLoseNothing) {
  // One drawn per agent and episode, of which few are kept.
  RolloutConfig config = NetworkConfig({.agents = 2}, policy::CoreKind::kGru);
  const policy::PolicySpec spec = config.policies[policy::PolicySlot(0)];
  config.policies.clear();
  policy::MappingRule rule{"*", {}};
  for (int i = 0; i < 12; ++i) {
    config.policies.push_back(spec);
    policy::PolicySpec& added = config.policies.back();
    added.id = policy::PolicyId(absl::StrCat("p", i));
    rule.policies.push_back({added.id, 1.0});
  }
  const policy::PolicyTablePtr table =
      *policy::PolicyTable::Make(config.policies.values(), std::vector<bool>(12, true), {rule}, {"agent_0", "agent_1"});
  config.mapping = std::shared_ptr<const policy::PolicyMapping>(table, &table->mapping());
  std::vector<std::vector<SeenRow>> rows;
  for (const int64_t capacity : {100, 1}) {
    config.options.policy_map_capacity = capacity;
    Rig rig(config);
    for (int g = 0; g < 8; ++g) ASSERT_TRUE(rig.Run(ScriptedGrant(5, 17), 5 + g).ok());
    EXPECT_EQ(rig.collector->stats().policy_evictions > 50, capacity == 1);
    rows.push_back(RowsOf(rig.sink.fragments));
  }
  EXPECT_GT(rows[0].size(), 500u);
  EXPECT_EQ(rows[0], rows[1]);
}

TEST(CollectorMemoryTest, NetworksRememberTheSameWhateverTheFragmentsCut) {
  for (const policy::CoreKind kind : {policy::CoreKind::kGru, policy::CoreKind::kLstm}) {
    std::vector<SeenRow> uncut;
    std::map<std::pair<AgentKey, int32_t>, std::vector<float>> uncut_memories;
    for (const int64_t steps : {0, 1, 4}) {
      RolloutConfig config = NetworkConfig({.agents = 4}, kind);
      config.options.max_fragment_env_steps = steps;
      Rig rig(config);
      sample::Grant grant = ScriptedGrant(6, 30);
      grant.complete_episodes = true;
      ASSERT_TRUE(rig.Run(grant).ok());
      std::map<std::pair<AgentKey, int32_t>, std::vector<float>> memories;
      for (const SeenMemory& memory : MemoriesOf(config, rig.sink.fragments)) {
        if (memory.on_grid) memories.emplace(std::pair(memory.agent, memory.decision), memory.before);
      }
      if (steps == 0) {
        EXPECT_GT(memories.size(), 150u);
        uncut = RowsOf(rig.sink.fragments);
        uncut_memories = memories;
      }
      EXPECT_EQ(RowsOf(rig.sink.fragments), uncut);
      EXPECT_EQ(memories, uncut_memories) << "to the bit";
    }
  }
}

}  // namespace
}  // namespace troupe::rollout
