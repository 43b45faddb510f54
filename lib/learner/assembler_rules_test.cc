// policies_to_train asked per trajectory, where the assembler asks.

#include <map>
#include <utility>
#include <vector>

#include "lib/learner/assembler.h"
#include "lib/policy/policy_spec.h"
#include "lib/sample/testing/batch_maker.h"
#include <gtest/gtest.h>

namespace troupe::learner {
namespace {

using policy::PolicyId;

/// Two agents that come and go; policies main, rival and old play either.
sample::BatchSchema ThreePolicies(bool has_agent_mask) {
  sample::BatchSchema schema = sample::SimpleSchema(2, 3);
  schema.has_agent_mask = has_agent_mask;
  schema.policies.resize(3, schema.policies[policy::PolicySlot(0)]);
  const char* const ids[] = {"main", "rival", "old"};
  for (const policy::PolicySlot p : schema.policies.ids()) schema.policies[p].id = PolicyId(ids[p.value()]);
  return schema;
}

std::vector<sample::MultiAgentBatchPtr> Fragments(const sample::BatchSchema& schema, uint64_t seed, int32_t max_ticks) {
  sample::FakeRolloutOptions options;
  options.seed = seed;
  options.min_episode_steps = 4;
  options.max_episode_steps = 9;
  options.agents_come_and_go = true;
  options.max_ticks_per_fragment = max_ticks;
  options.policies_of_slot = {{0, 1, 2}, {0, 1, 2}};
  sample::FakeRollout rollout(schema, options);
  std::vector<sample::MultiAgentBatchPtr> fragments;
  for (auto& fragment : rollout.Play(sample::MakeGrant(5, 40, {1, 0}), {1, 0})) fragments.push_back(fragment);
  return fragments;
}

sample::TrainRules Rules(std::vector<sample::TrainRule> rules) { return *sample::TrainRules::Make(std::move(rules)); }

template <typename T>
std::vector<T> Copy(absl::Span<const T> values) {
  return {values.begin(), values.end()};
}

std::vector<float> Copy(const RowMatrix& matrix) { return {matrix.data, matrix.data + matrix.rows * matrix.stride}; }

TEST(AssemblerRulesTest, RowsThatAreLeftOutStayForEverythingButLosses) {
  int64_t left_out = 0;
  int64_t kept = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    const sample::BatchSchema schema = ThreePolicies(seed % 2 == 0);
    const auto fragments = Fragments(schema, seed, /*max_ticks=*/7);
    ASSERT_GT(fragments.size(), 1u);
    Assembler all(schema, {CommonReward::kSum, 0});
    Assembler some(schema,
                   {.common_reward = CommonReward::kSum,
                    .rules = Rules({{.policies = {"main"}, .only_against = {"rival"}}, {.policies = {"rival"}}})});
    const TrainBatch& expected = all.Assemble(fragments, 0).batch;
    const Assembly& assembly = some.Assemble(fragments, 0);
    const TrainBatch& batch = assembly.batch;
    // Whoever played in an episode, wherever its table stood.
    std::map<std::pair<base::EnvId, uint32_t>, std::map<base::AgentSlot, int32_t>> played;
    for (const auto& fragment : fragments) {
      for (const sample::EpisodeEntry& entry : fragment->episodes) {
        for (const sample::AgentEntry& agent : entry.agents) {
          played[{entry.env_id, entry.episode}][agent.slot] = agent.policy.value();
        }
      }
    }
    EXPECT_EQ(batch.agent_steps, expected.agent_steps);
    int64_t trained = 0;
    for (const PolicyRowCount& count : assembly.trained) trained += count.rows;
    int64_t rows = 0;
    ASSERT_EQ(batch.policies.size(), 3u);
    for (size_t p = 0; p < 3; ++p) {
      const PolicyTrainBatch& got = batch.policies[p];
      const PolicyTrainBatch& want = expected.policies[p];
      rows += got.rows;
      EXPECT_EQ(Copy(got.obs), Copy(want.obs));
      EXPECT_EQ(Copy(got.rewards), Copy(want.rewards)) << "shared over all that acted";
      EXPECT_EQ(Copy(got.final_obs), Copy(want.final_obs));
      ASSERT_EQ(got.segments.size(), want.segments.size());
      bool any = false;
      for (const TrainSegment& segment : got.segments) {
        bool trains = p == 1;
        for (const auto& [slot, policy] : played[{segment.env_id, segment.episode}]) {
          trains = trains || (p == 0 && slot != segment.slot && policy == 1);
        }
        any = any || trains;
        if (p < 2) {
          EXPECT_EQ(segment.trains, trains);
        }
        for (int64_t r = segment.first_row; r < segment.first_row + segment.rows; ++r) {
          const uint8_t active = want.agent_mask.empty() ? 1 : want.agent_mask[static_cast<size_t>(r)];
          const uint8_t mask = got.agent_mask.empty() ? 1 : got.agent_mask[static_cast<size_t>(r)];
          if (p < 2) {
            EXPECT_EQ(mask, trains ? active : 0);
          }
          ++(trains ? kept : left_out);
        }
      }
      EXPECT_EQ(got.train, any) << "old may not train at all";
    }
    EXPECT_EQ(rows, trained) << "counted as rows of the batch, as those of policies that do not train";
  }
  EXPECT_GT(left_out, 500);
  EXPECT_GT(kept, 500);
}

TEST(AssemblerRulesTest, WhereFragmentsWereCutDoesNotMatter) {
  const sample::BatchSchema schema = ThreePolicies(false);
  std::vector<std::vector<uint8_t>> masks;
  for (const int32_t max_ticks : {1000, 3}) {
    Assembler assembler(schema, {.rules = Rules({{.only_against = {"rival"}}})});
    masks.emplace_back();
    const auto fragments = Fragments(schema, 4, max_ticks);
    for (const PolicyTrainBatch& rows : assembler.Assemble(fragments, 0).batch.policies) {
      masks.back().insert(masks.back().end(), rows.agent_mask.begin(), rows.agent_mask.end());
    }
  }
  EXPECT_GT(masks[0].size(), 100u);
  EXPECT_EQ(masks[0], masks[1]);
}

TEST(AssemblerRulesTest, OnlyTheNewestByRevisionAndSlot) {
  const sample::BatchSchema schema = ThreePolicies(false);
  Assembler assembler(schema, {.rules = Rules({{.only_newest = 1}})});
  const auto fragments = Fragments(schema, 2, 1000);
  std::vector<bool> trains;
  for (const PolicyTrainBatch& rows : assembler.Assemble(fragments, 0).batch.policies) trains.push_back(rows.train);
  EXPECT_EQ(trains, (std::vector<bool>{false, false, true}));
}

}  // namespace
}  // namespace troupe::learner
