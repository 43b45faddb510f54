// Which columns fragments have, and how many entries their tables: what follows from policies as they change, and from
// the width of an index.

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lib/policy/policy_spec.h"
#include "lib/rollout/testing/scripted_env.h"
#include "lib/sample/columns.h"
#include "lib/sample/multi_agent_batch.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::rollout {
namespace {

/// The scripted run, whose policies read the state, and the same with policies that do not.
RolloutConfig StateConfig(const ScriptedOptions& options, bool reads) {
  RolloutConfig config = ScriptedConfig(options, [options] { return MakeRandomEnv(options, nullptr); });
  if (reads) return config;
  for (policy::PolicySpec& spec : config.policies) {
    spec.SetCriticInput(policy::NetworkInput::kObservation, 0);
  }
  return config;
}

struct UncheckedSink final : SampleSink {
  absl::Status Submit(sample::MultiAgentBatchPtr fragment) override {
    fragments.push_back(std::move(fragment));
    return absl::OkStatus();
  }
  std::vector<sample::MultiAgentBatchPtr> fragments;
};

TEST(CollectorColumnsTest, RowsAreTheSameWithAndWithoutTheState) {
  for (const env::StateKind kind : {env::StateKind::kPerEnv, env::StateKind::kPerAgent}) {
    const ScriptedOptions options = {.agents = 4, .state_kind = kind, .action_mask = true};
    RolloutConfig config = StateConfig(options, /*reads=*/false);
    std::vector<std::vector<SeenRow>> rows;
    for (const bool always : {true, false}) {
      config.options.always_sends_state = always;
      Rig rig(config);
      for (int i = 0; i < 5; ++i) {
        sample::Grant grant = ScriptedGrant(6, 23);
        grant.id = sample::GrantId(i + 1);
        ASSERT_TRUE(rig.Run(grant).ok());
      }
      for (const sample::MultiAgentBatchPtr& batch : rig.sink.fragments) {
        EXPECT_EQ(batch->state.present(), always && kind == env::StateKind::kPerEnv);
        for (const sample::PolicyRows& policy : batch->policies) {
          EXPECT_EQ(policy.state.present(), always && kind == env::StateKind::kPerAgent);
          EXPECT_EQ(policy.final_state.present(), always && kind == env::StateKind::kPerAgent);
        }
      }
      rows.push_back(RowsOf(rig.sink.fragments));
      for (SeenRow& row : rows.back()) row.state.clear();
    }
    EXPECT_GT(rows[0].size(), 100u);
    EXPECT_EQ(rows[0], rows[1]);
  }
}

/// Run of "p", which does not read the state, to which "reader" comes, and goes again.
class StateInALiveRunTest : public testing::Test {
 protected:
  StateInALiveRunTest()
      : config_(StateConfig(kOptions, /*reads=*/false)),
        reader_(StateConfig(kOptions, /*reads=*/true).policies[policy::PolicySlot(0)]),
        schema_() {
    reader_.id = policy::PolicyId("reader");
    config_.policies[policy::PolicySlot(0)].id = policy::PolicyId("p");
    std::vector<std::string> agents;
    for (const env::AgentSpec& agent : config_.env_spec.possible_agents) agents.push_back(agent.id.value());
    table_ = *policy::PolicyTable::Make(config_.policies.values(), {true}, To("p"), std::move(agents));
    config_.mapping = std::shared_ptr<const policy::PolicyMapping>(table_, &table_->mapping());
    schema_ = ScriptedSchema(config_);
    schema_.SetPolicies(*table_);
    collector_ = *Collector::Create(config_);
  }
  static std::vector<policy::MappingRule> To(const std::string& id) { return {{"*", {{policy::PolicyId(id), 1.0}}}}; }

  /// Grants by `table`; true when all fragments are valid by their revision.
  bool Run(const policy::PolicyTablePtr& table, int grants) {
    sink_.fragments.clear();
    RolloutConfig all = config_;
    all.policies = table->Specs();
    for (policy::PolicySpec& spec : all.policies) {
      if (spec.id.value().empty()) spec = config_.policies[policy::PolicySlot(0)];
    }
    FixedWeights weights(ScriptedWeights(all, 5));
    for (int i = 0; i < grants; ++i) {
      sample::Grant grant = ScriptedGrant(4, 5);
      grant.id = sample::GrantId(++grants_);
      grant.policies = table;
      const absl::Status status = collector_->RunGrant(grant, weights, sink_);
      EXPECT_TRUE(status.ok()) << status;
    }
    return std::all_of(sink_.fragments.begin(), sink_.fragments.end(), [&](const auto& batch) {
      const absl::Status status = sample::ValidateBatch(*batch, schema_, {});
      EXPECT_TRUE(status.ok()) << status;
      return status.ok();
    });
  }

  /// Rows of `slot` whose states, and those of what follows them, are the steps'.
  int64_t RightStates(int32_t slot) const {
    int64_t right = 0;
    for (const sample::MultiAgentBatchPtr& batch : sink_.fragments) {
      const auto is_right = [&](sample::Index env_row) {
        const float* const state = batch->state.As<float>().data() + 2 * env_row;
        return state[0] == static_cast<float>(batch->step_index.As<int32_t>()[env_row]) && state[1] == -1;
      };
      for (const sample::PolicyRows& rows : batch->policies) {
        if (rows.policy.value() != slot) continue;
        for (const sample::Index env_row : rows.env_row.As<sample::Index>()) {
          EXPECT_TRUE(is_right(env_row));
          ++right;
        }
        for (const sample::Index env_row : rows.final_env_row.As<sample::Index>()) EXPECT_TRUE(is_right(env_row));
      }
    }
    return right;
  }

  static constexpr ScriptedOptions kOptions = {.agents = 4, .state_kind = env::StateKind::kPerEnv};
  RolloutConfig config_;
  policy::PolicySpec reader_;
  sample::BatchSchema schema_;  ///< the learner's
  policy::PolicyTablePtr table_;
  std::unique_ptr<Collector> collector_;
  UncheckedSink sink_;
  uint64_t grants_ = 0;
};

TEST_F(StateInALiveRunTest, ItComesWithTheFirstReaderAndGoesWithTheLast) {
  const auto has_state = [](const sample::MultiAgentBatchPtr& batch) { return batch->state.present(); };
  ASSERT_TRUE(Run(table_, 3));
  EXPECT_TRUE(std::none_of(sink_.fragments.begin(), sink_.fragments.end(), has_state));
  const int64_t carried = collector_->stats().carried_rows;
  EXPECT_GT(carried, 0) << "decisions wait for their outcome where grants end";

  // Episodes in progress go on, with decisions that were made when nobody kept the state.
  const policy::PolicyTablePtr with_reader = *(*table_->Add(reader_, true))->SetMapping(To("reader"));
  schema_.SetPolicies(*with_reader);
  ASSERT_TRUE(Run(with_reader, 1));
  EXPECT_TRUE(sink_.fragments[0]->episodes[0].continues);
  EXPECT_TRUE(std::all_of(sink_.fragments.begin(), sink_.fragments.end(), has_state));
  EXPECT_GT(collector_->stats().carried_rows, carried);
  RightStates(1);
  ASSERT_TRUE(Run(with_reader, 20));
  EXPECT_TRUE(std::all_of(sink_.fragments.begin(), sink_.fragments.end(), has_state));
  EXPECT_GT(RightStates(1), 100);

  // A reader that was removed still plays episodes; when its slot is free, none does.
  const policy::PolicyTablePtr removed = *(*with_reader->SetMapping(To("p")))->Remove(policy::PolicyId("reader"));
  schema_.SetPolicies(*removed);
  ASSERT_TRUE(Run(removed, 1));
  EXPECT_TRUE(std::all_of(sink_.fragments.begin(), sink_.fragments.end(), has_state));
  EXPECT_GT(RightStates(1), 0);
  const policy::PolicyTablePtr released = *removed->Release({{policy::PolicySlot(1)}});
  schema_.SetPolicies(*released);
  ASSERT_TRUE(Run(released, 3));
  EXPECT_TRUE(std::none_of(sink_.fragments.begin(), sink_.fragments.end(), has_state));
}

TEST(CollectorColumnsTest, AFragmentEndsBeforeATableHasMoreEntriesThanAnIndexCanName) {
  const ScriptedOptions options = {.agents = 1};
  const Script script(20001, ScriptedCall{.observe = {0}});
  Rig rig(ScriptedConfig(options, [&] { return MakeScriptedEnv(options, script); }));
  ASSERT_TRUE(rig.Run(ScriptedGrant(4, 20000)).ok());
  ASSERT_EQ(rig.sink.fragments.size(), 2u) << "80,000 steps of 35 bytes are not full by their bytes";
  int64_t env_steps = 0;
  for (const sample::MultiAgentBatchPtr& batch : rig.sink.fragments) env_steps += batch->num_env_steps;
  EXPECT_EQ(env_steps, 80000);
  const int64_t entries = sample::NumRows(*rig.sink.fragments[0]);
  EXPECT_LE(entries, sample::kMaxIndexed);
  EXPECT_GT(entries, sample::kMaxIndexed - 100) << "nor before it must";
  const sample::PolicyRows& rows = rig.sink.fragments[0]->policies[0];
  EXPECT_GT(*std::max_element(rows.env_row.As<sample::Index>().begin(), rows.env_row.As<sample::Index>().end()), 40000);
}

/// Begins one episode in ten.
class StartsRarely final : public env::MultiAgentEnv {
 public:
  explicit StartsRarely(std::unique_ptr<env::MultiAgentEnv> env) : env_(std::move(env)) {}
  const env::EnvSpec& spec() const override { return env_->spec(); }
  absl::Status Reset(const env::EpisodeSeed& seed, env::StepWriter& out) override {
    const absl::Status status = env_->Reset(seed, out);
    if (!status.ok() || seed.episode % 10 == 9) return status;
    return absl::InternalError("not yet");
  }
  absl::Status Step(env::ActionRows actions, env::StepWriter& out) override { return env_->Step(actions, out); }

 private:
  const std::unique_ptr<env::MultiAgentEnv> env_;
};

TEST(CollectorColumnsTest, EpisodesThatCannotBeginFillNoTable) {
  const ScriptedOptions options = {.agents = 2};
  RolloutConfig config = StateConfig(options, /*reads=*/false);
  config.env_factory = [options] { return std::make_unique<StartsRarely>(MakeRandomEnv(options, nullptr)); };
  Rig rig(config);
  ASSERT_TRUE(rig.Run(ScriptedGrant(3, 40)).ok());
  EXPECT_GT(rig.collector->stats().env_errors, 50);
  for (const sample::MultiAgentBatchPtr& batch : rig.sink.fragments) {
    EXPECT_GT(batch->episodes.size(), 5u);
    for (const sample::EpisodeEntry& episode : batch->episodes) EXPECT_EQ(episode.episode % 10, 9u);
  }
  EXPECT_FALSE(RowsOf(rig.sink.fragments).empty());
}

}  // namespace
}  // namespace troupe::rollout
