#include "lib/learner/cut_out.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <vector>

#include "lib/base/philox.h"
#include "lib/learner/assembler.h"
#include "lib/sample/testing/batch_maker.h"
#include <gtest/gtest.h>

namespace troupe::learner {
namespace {

using sample::MultiAgentBatchPtr;

/// A row by where it belongs, and what it holds.
struct AssembledRow {
  std::vector<float> obs;
  float reward = 0;
  bool operator==(const AssembledRow& other) const = default;
};
using AssembledKey =
    std::tuple<int32_t, base::EnvId, uint32_t, int32_t, int64_t>;  ///< policy, env, episode, slot, row in it

/// Of an assembly of these fragments alone: rows, and how segments end.
std::map<AssembledKey, AssembledRow> AssembledRows(const sample::BatchSchema& schema,
                                                   const std::vector<MultiAgentBatchPtr>& fragments) {
  Assembler assembler(schema, {CommonReward::kNone, /*max_policy_lag=*/100});
  std::map<AssembledKey, AssembledRow> rows;
  for (const PolicyTrainBatch& policy : assembler.Assemble(fragments, 0).batch.policies) {
    for (const TrainSegment& segment : policy.segments) {
      for (int64_t r = 0; r <= segment.rows; ++r) {
        const bool is_final = r == segment.rows;
        if (is_final && segment.final_row < 0) continue;
        AssembledRow row;
        const RowMatrix& matrix = is_final ? policy.final_obs : policy.obs;
        const float* const obs = matrix.row(is_final ? segment.final_row : segment.first_row + r);
        row.obs.assign(obs, obs + matrix.columns);
        if (!is_final) row.reward = policy.rewards[static_cast<size_t>(segment.first_row + r)];
        rows[{policy.policy.value(), segment.env_id, segment.episode, segment.slot.value(), r}] = row;
      }
    }
  }
  return rows;
}

TEST(CutOutTest, HasTheChosenSegmentsAndIsAValidFragment) {
  int64_t chosen_segments = 0;
  int64_t left_out = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    const sample::BatchSchema schema = sample::RandomSchema(seed);
    const MultiAgentBatchPtr whole = sample::RandomBatch(schema, seed);
    base::PhiloxSequence random(base::PhiloxKey::Make(seed, base::RandomStream::kTest), {});
    std::vector<SegmentRange> ranges;
    std::set<std::tuple<int32_t, base::EnvId, uint32_t, int32_t>> chosen;
    int64_t rows = 0;
    for (size_t place = 0; place < whole->policies.size(); ++place) {
      const sample::PolicyRows& policy = whole->policies[place];
      for (int64_t s = 0; s < policy.num_segments; ++s) {
        if (random.Below(2) == 0) {
          ++left_out;
          continue;
        }
        ++chosen_segments;
        ranges.push_back({place, s, 1});
        const int32_t* const words = policy.segments.As<int32_t>().data() + s * sample::kSegmentFields;
        const sample::EpisodeEntry& episode = whole->episodes[words[sample::kSegmentEpisode]];
        chosen.insert({policy.policy.value(), episode.env_id, episode.episode, words[sample::kSegmentSlot]});
        const auto segment_of = policy.segment.As<sample::Index>();
        rows += std::count(segment_of.begin(), segment_of.end(), static_cast<sample::Index>(s));
      }
    }
    const MultiAgentBatchPtr cut = CutOut(whole, ranges);
    int64_t cut_rows = 0;
    for (const sample::PolicyRows& policy : cut->policies) cut_rows += policy.rows;
    EXPECT_EQ(cut_rows, rows);
    EXPECT_EQ(cut->num_env_steps, whole->num_env_steps);
    EXPECT_EQ(sample::ValidateBatch(*cut, schema, sample::BatchLimits()), absl::OkStatus());

    std::map<AssembledKey, AssembledRow> expected = AssembledRows(schema, {whole});
    for (auto it = expected.begin(); it != expected.end();) {
      const auto& [policy, env, episode, slot, row] = it->first;
      it = chosen.count({policy, env, episode, slot}) > 0 ? std::next(it) : expected.erase(it);
    }
    EXPECT_EQ(AssembledRows(schema, {cut}), expected);
  }
  EXPECT_GT(chosen_segments, 100);
  EXPECT_GT(left_out, 100);
}

TEST(CutOutTest, WhatWasCountedBeforeIsNotCountedAgain) {
  const sample::BatchSchema schema = sample::SimpleSchema(2, 3);
  sample::FakeRolloutOptions options;
  options.min_episode_steps = options.max_episode_steps = 2;
  const MultiAgentBatchPtr whole = sample::MakeBatch(schema, options, 2, 5);
  ASSERT_FALSE(whole->finished.empty());
  const MultiAgentBatchPtr counted = CountedBefore(*whole);
  EXPECT_EQ(counted->num_env_steps, 0);
  EXPECT_TRUE(counted->finished.empty());
  EXPECT_EQ(AssembledRows(schema, {counted}), AssembledRows(schema, {whole}));
  Assembler assembler(schema, {});
  EXPECT_EQ(assembler.Assemble({whole}, 0).batch.agent_steps, whole->num_agent_steps);
  EXPECT_EQ(assembler.Assemble({counted}, 0).batch.agent_steps, 0);
  EXPECT_GT(whole->num_agent_steps, 0);
}

}  // namespace
}  // namespace troupe::learner
