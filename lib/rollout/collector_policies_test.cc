// Many policies, of which few are resident, and policies that come and go.

#include <algorithm>
#include <cmath>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/policy/policy_spec.h"
#include "lib/rollout/testing/scripted_env.h"
#include "lib/sample/multi_agent_batch.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::rollout {
namespace {

using testing::HasSubstr;

/// `count` policies of one shape, one drawn per agent and episode by Zipf's law.
policy::PolicyTablePtr ManyPolicies(const RolloutConfig& config, int count) {
  std::vector<policy::PolicySpec> specs;
  policy::MappingRule rule{"*", {}};
  for (int i = 0; i < count; ++i) {
    policy::PolicySpec spec = config.policies[policy::PolicySlot(0)];
    spec.id = policy::PolicyId(absl::StrCat("p", i));
    rule.policies.push_back({spec.id, 1.0 / (i + 1)});
    specs.push_back(std::move(spec));
  }
  std::vector<std::string> agents;
  for (const env::AgentSpec& agent : config.env_spec.possible_agents) agents.push_back(agent.id.value());
  return *policy::PolicyTable::Make(std::move(specs), std::vector<bool>(count, true), {rule}, std::move(agents));
}

/// Two agents and 20 policies; `capacity` of them are kept.
RolloutConfig Config(int64_t capacity, int count = 20) {
  RolloutConfig config = ScriptedConfig({}, [] { return MakeRandomEnv({}, nullptr); });
  const policy::PolicyTablePtr table = ManyPolicies(config, count);
  config.policies = table->Specs();
  config.mapping = std::shared_ptr<const policy::PolicyMapping>(table, &table->mapping());
  config.options.policy_map_capacity = capacity;
  return config;
}

/// Other weights for every policy.
std::vector<policy::WeightSnapshotPtr> WeightsOf(const policy::BySlot<policy::PolicySpec>& specs, uint64_t epoch = 1) {
  std::vector<policy::WeightSnapshotPtr> weights;
  for (const policy::PolicySlot slot : specs.ids()) {
    RolloutConfig one;
    one.policies = {specs[slot]};
    const bool free = specs[slot].id.value().empty();
    weights.push_back(free ? nullptr : ScriptedWeights(one, 5, epoch, static_cast<uint32_t>(slot.value()))[0]);
  }
  return weights;
}

std::vector<SeenRow> Play(const RolloutConfig& config, FixedWeights& weights, RolloutStats* stats,
                          size_t* most_resident = nullptr) {
  Rig rig(config);
  for (int i = 0; i < 12; ++i) {
    sample::Grant grant = ScriptedGrant(5, 17);
    grant.id = sample::GrantId(i + 1);
    EXPECT_TRUE(rig.collector->RunGrant(grant, weights, rig.sink).ok());
    if (most_resident != nullptr) *most_resident = std::max(*most_resident, rig.collector->num_resident());
  }
  *stats = rig.collector->stats();
  return RowsOf(rig.sink.fragments);
}

TEST(CollectorPoliciesTest, AFewResidentPoliciesPlayAsAllOfThemDo) {
  const RolloutConfig all = Config(100);
  const RolloutConfig few = Config(2);
  FixedWeights weights(WeightsOf(all.policies));
  FixedWeights weights_of_few(WeightsOf(all.policies));
  RolloutStats with_all, with_few;
  size_t most_resident = 0;
  const std::vector<SeenRow> expected = Play(all, weights, &with_all);
  EXPECT_EQ(Play(few, weights_of_few, &with_few, &most_resident), expected);
  EXPECT_GT(expected.size(), 1000u);
  std::set<int32_t> played;
  for (const SeenRow& row : expected) played.insert(row.policy);
  EXPECT_EQ(played.size(), 20u);
  EXPECT_EQ(with_all.policy_misses, 20);
  EXPECT_EQ(with_all.policy_evictions, 0);
  EXPECT_GT(with_few.policy_misses, 100);
  EXPECT_GT(with_few.policy_evictions, 100);
  EXPECT_EQ(with_few.weight_waits, 0);
  EXPECT_LE(most_resident, 2u + 2 * 5) << "beyond what ten agents play";
  EXPECT_LE(weights_of_few.most_subscribed(), 2 + 2 * 10) << "what is resident and what ten agents play next";
}

/// Has weights of the policies that were subscribed to, some calls later; and says when somebody was not.
class DistantWeights final : public WeightSource {
 public:
  explicit DistantWeights(std::vector<policy::WeightSnapshotPtr> weights)
      : weights_(std::move(weights)), asked_(weights_.size(), -1) {}
  void Subscribe(policy::PolicySlot policy) override { asked_[policy.value()] = calls_; }
  void Unsubscribe(policy::PolicySlot policy) override { asked_[policy.value()] = -1; }
  absl::StatusOr<CurrentWeights> AwaitWeights(policy::PolicySlot policy, policy::WeightVersion,
                                              absl::Duration timeout) override {
    ++calls_;
    EXPECT_GE(asked_[policy.value()], 0) << "not subscribed to";
    if (closed) return absl::CancelledError("closed");
    if (calls_ < asked_[policy.value()] + delay && timeout == absl::ZeroDuration()) {
      return absl::DeadlineExceededError("on its way");
    }
    const policy::WeightSnapshotPtr& weights = weights_[static_cast<size_t>(policy.value())];
    return CurrentWeights{weights, weights->version};
  }
  int64_t delay = 0;
  bool closed = false;

 private:
  std::vector<policy::WeightSnapshotPtr> weights_;
  std::vector<int64_t> asked_;
  int64_t calls_ = 0;
};

TEST(CollectorPoliciesTest, WhatIsFetchedAheadIsThereInTime) {
  const RolloutConfig config = Config(2);
  Rig rig(config);
  DistantWeights weights(WeightsOf(config.policies));
  weights.delay = 2;  // an episode is asked for long before it begins
  ASSERT_TRUE(rig.collector->PrepareGrant(ScriptedGrant(5, 100), weights, absl::Seconds(1)).ok());
  const int64_t first = rig.collector->stats().weight_waits;
  EXPECT_GT(first, 0) << "nobody could know of the first ones";
  ASSERT_TRUE(rig.collector->RunGrant(ScriptedGrant(5, 100), weights, rig.sink).ok());
  EXPECT_LT(rig.collector->stats().weight_waits - first, rig.collector->stats().policy_misses / 2);
}

TEST(CollectorPoliciesTest, APortThatClosesInTheMiddleHandsInWhatThereIs) {
  const RolloutConfig config = Config(1);
  Rig rig(config);
  DistantWeights weights(WeightsOf(config.policies));
  const sample::Grant grant = ScriptedGrant(5, 200);
  ASSERT_TRUE(rig.collector->PrepareGrant(grant, weights, absl::Seconds(1)).ok());
  weights.closed = true;  // what the first steps need is there
  EXPECT_EQ(rig.collector->RunGrant(grant, weights, rig.sink).code(), absl::StatusCode::kCancelled);
  ASSERT_EQ(rig.sink.fragments.size(), 1u);
  EXPECT_FALSE(rig.sink.fragments[0]->last_of_grant);
  EXPECT_GT(rig.sink.fragments[0]->num_env_steps, 0);
  weights.closed = false;
  sample::Grant next = ScriptedGrant(5, 20);
  next.id = sample::GrantId(2);
  EXPECT_TRUE(rig.collector->RunGrant(next, weights, rig.sink).ok()) << "the lanes go on";
  EXPECT_FALSE(RowsOf(rig.sink.fragments).empty());
}

/// A run with policies p0 and p1 for all agents, changed as it goes.
class LiveChangesTest : public testing::Test {
 protected:
  LiveChangesTest() : config_(Config(100, 2)), table_(ManyPolicies(config_, 2)), rig_(config_) {}

  absl::Status Run(policy::PolicyTablePtr table, int32_t steps = 3, uint64_t epoch = 1) {
    sample::Grant grant = ScriptedGrant(4, steps);
    grant.id = sample::GrantId(++grants_);
    grant.min_version.learner_epoch = epoch;
    FixedWeights weights(WeightsOf(table == nullptr ? config_.policies : table->Specs(), epoch));
    grant.policies = std::move(table);
    sink_.fragments.clear();
    return rig_.collector->RunGrant(grant, weights, sink_);
  }
  policy::PolicySpec Spec(const std::string& id) const {
    policy::PolicySpec spec = config_.policies[policy::PolicySlot(0)];
    spec.id = policy::PolicyId(id);
    return spec;
  }
  static std::vector<policy::MappingRule> AllTo(const std::string& id) {
    return {{"*", {{policy::PolicyId(id), 1.0}}}};
  }
  const sample::MultiAgentBatch& Last() const { return *sink_.fragments.back(); }

  /// Keeps fragments without looking at them: the schema changes.
  struct Sink final : SampleSink {
    absl::Status Submit(sample::MultiAgentBatchPtr fragment) override {
      fragments.push_back(std::move(fragment));
      return absl::OkStatus();
    }
    std::vector<sample::MultiAgentBatchPtr> fragments;
  };

  const RolloutConfig config_;
  const policy::PolicyTablePtr table_;
  Rig rig_;
  Sink sink_;
  uint64_t grants_ = 0;
};

TEST_F(LiveChangesTest, EpisodesThatBeginFollowTheNewMappingOthersGoOn) {
  ASSERT_TRUE(Run(nullptr, 2).ok());
  EXPECT_EQ(Last().policies_revision, 0);
  EXPECT_EQ(Last().oldest_revision, 0);
  const policy::PolicyTablePtr changed =
      *(*(*table_->Add(Spec("new"), true))->SetMapping(AllTo("new")))->Remove(policy::PolicyId("p0"));
  ASSERT_EQ(changed->revision(), 3);
  ASSERT_TRUE(Run(changed, 1).ok());
  EXPECT_EQ(Last().policies_revision, 3);
  EXPECT_EQ(Last().oldest_revision, 0) << "old episodes go on";
  for (const sample::EpisodeEntry& episode : Last().episodes) {
    for (const sample::AgentEntry& agent : episode.agents) {
      EXPECT_EQ(agent.policy.value() == 2, !episode.continues);
    }
  }
  ASSERT_TRUE(Run(changed, 200).ok());
  EXPECT_EQ(Last().oldest_revision, 3) << "they have ended";
  EXPECT_EQ(rig_.collector->stats().given_up, 0);
}

// Agent 1 comes when agent 0 has taken two steps; by then the mapping has changed.
TEST(LateAgentTest, AnAgentThatComesLateIsMappedAsItsEpisodeBegan) {
  const Script script = {
      {.observe = {0}},
      {.observe = {0}},
      {.observe = {0, 1}},
      {.observe = {0, 1}},
      {.observe = {0, 1}, .terminate_all = true},
  };
  RolloutConfig config = ScriptedConfig({}, [script] { return MakeScriptedEnv({}, script); });
  const auto all_to = [](const char* id) {
    return std::vector<policy::MappingRule>{{"*", {{policy::PolicyId(id), 1.0}}}};
  };
  const policy::PolicyTablePtr first = *ManyPolicies(config, 2)->SetMapping(all_to("p0"));
  const policy::PolicyTablePtr second = *first->SetMapping(all_to("p1"));
  config.policies = first->Specs();
  config.mapping = std::shared_ptr<const policy::PolicyMapping>(first, &first->mapping());
  Rig rig(config);
  FixedWeights weights(WeightsOf(config.policies));
  sample::Grant grant = ScriptedGrant(1, 1);
  grant.policies = first;
  ASSERT_TRUE(rig.collector->RunGrant(grant, weights, rig.sink).ok());
  grant = ScriptedGrant(1, 5);
  grant.id = sample::GrantId(8);
  grant.policies = second;
  ASSERT_TRUE(rig.collector->RunGrant(grant, weights, rig.sink).ok());
  EXPECT_EQ(rig.collector->stats().given_up, 0);
  int late = 0;
  for (const SeenRow& row : RowsOf(rig.sink.fragments)) {
    EXPECT_EQ(row.policy, row.episode == 0 ? 0 : 1) << "episode " << row.episode << " step " << row.step;
    late += static_cast<int>(row.episode == 0 && row.slot == 1);
  }
  EXPECT_EQ(late, 2) << "it acted at steps 2 and 3";
}

TEST_F(LiveChangesTest, AnEpisodeWhosePolicyIsGoneBeginsAnew) {
  ASSERT_TRUE(Run(nullptr, 2).ok());
  policy::PolicyTablePtr changed =
      *(*(*table_->Add(Spec("new"), true))->SetMapping(AllTo("new")))->Remove(policy::PolicyId("p0"));
  changed = *changed->Remove(policy::PolicyId("p1"));
  const policy::PolicySlot both[] = {policy::PolicySlot(0), policy::PolicySlot(1)};
  changed = *changed->Release(both);
  ASSERT_TRUE(Run(changed, 1).ok());
  EXPECT_EQ(rig_.collector->stats().given_up, 4);
  EXPECT_EQ(Last().oldest_revision, changed->revision());
  ASSERT_EQ(Last().policies.size(), 1u);
  EXPECT_EQ(Last().policies[0].policy.value(), 2);
  // A slot that is taken again has another policy, of its own weights.
  changed = *(*changed->Add(Spec("third"), true))->SetMapping(AllTo("third"));
  ASSERT_TRUE(Run(changed, 200).ok());
  EXPECT_EQ(Last().policies[0].policy.value(), 0);
  EXPECT_EQ(rig_.collector->stats().given_up, 4);
}

TEST_F(LiveChangesTest, ATableNeverGoesBackInOneLearnerEpoch) {
  const policy::PolicyTablePtr one = *table_->SetMapping(AllTo("p0"));
  const policy::PolicyTablePtr two = *one->SetMapping(AllTo("p1"));
  ASSERT_TRUE(Run(two).ok());
  const absl::Status status = Run(one);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("revision 1 after 2"));
  EXPECT_FALSE(Run(nullptr).ok());
  ASSERT_TRUE(Run(two).ok());
  // A learner that was restored from before the changes: everything begins anew.
  ASSERT_TRUE(Run(one, 3, 2).ok());
  EXPECT_EQ(Last().policies_revision, 1);
  EXPECT_EQ(rig_.collector->stats().given_up, 4);
}

// What answers at the learner's address may be anything: such a table was read beyond its end.
TEST_F(LiveChangesTest, ATableOfOtherAgentsIsRefused) {
  ASSERT_TRUE(Run(nullptr).ok());
  std::vector<std::string> agents = table_->agent_ids();
  ASSERT_EQ(agents.size(), 2u);
  const auto refused = [&](std::vector<std::string> ids) {
    const policy::PolicyTablePtr table = *policy::PolicyTable::Make(
        table_->Specs().values(), std::vector<bool>(table_->num_slots(), true), table_->rules(), std::move(ids));
    const absl::Status status = Run(table->AtLeast(1));
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    return std::string(status.message());
  };
  EXPECT_THAT(refused({agents[0]}), HasSubstr("the policy table of revision 1 has 1 agents, expected 2, those of env"));
  EXPECT_THAT(refused({}), HasSubstr("has 0 agents, expected 2"));
  EXPECT_THAT(refused({agents[0], agents[1], "more"}), HasSubstr("has 3 agents, expected 2"));
  EXPECT_THAT(refused({agents[1], agents[0]}),
              HasSubstr(absl::StrCat("has agent \"", agents[1], "\" in slot 0, expected \"", agents[0], "\"")));
  EXPECT_TRUE(Run(nullptr).ok()) << "the old one goes on";
}

// A learner that changes its table for every environment would have them all kept.
TEST_F(LiveChangesTest, EpisodesGoByAFewTablesAtMost) {
  constexpr auto kMost = static_cast<int64_t>(Collector::kMaxTablesInProgress);
  constexpr int64_t kTables = 2 * kMost;
  std::vector<std::weak_ptr<const policy::PolicyTable>> tables;
  policy::PolicyTablePtr table = table_;
  for (int64_t i = 0; i < kTables; ++i) {
    table = table->AtLeast(table->revision() + 1);
    tables.push_back(table);
    // One environment more each time, whose first episode goes on.
    sample::Grant grant = ScriptedGrant(1, 1);
    grant.id = sample::GrantId(i + 1);
    grant.lanes[0].env_id = base::EnvId(static_cast<uint32_t>(i));
    grant.min_version.learner_epoch = 1;
    grant.policies = table;
    FixedWeights weights(WeightsOf(table->Specs()));
    ASSERT_TRUE(rig_.collector->RunGrant(grant, weights, sink_).ok()) << i;
  }
  const auto alive =
      std::count_if(tables.begin(), tables.end(), [](const auto& weak) { return weak.lock() != nullptr; });
  EXPECT_LE(alive, kMost + 1);
  EXPECT_GT(alive, 2) << "episodes go on by the table that they began with";
  EXPECT_GT(rig_.collector->stats().given_up, 0);
}

TEST_F(LiveChangesTest, APolicyThatCannotPlayIsRefusedWithItsTable) {
  policy::PolicySpec spec = Spec("nobody");
  spec.policy_class = *policy::ParsePolicyClass("scripted:nobody");
  const policy::PolicyTablePtr table = *table_->Add(std::move(spec), false);
  EXPECT_EQ(Run(table).code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(Run(nullptr).ok()) << "the old one goes on";
}

}  // namespace
}  // namespace troupe::rollout
