#include "lib/sample/testing/fake_rollout.h"

#include <map>
#include <set>
#include <tuple>
#include <vector>

#include "lib/policy/policy_spec.h"
#include "lib/sample/testing/batch_maker.h"
#include <gtest/gtest.h>

namespace troupe::sample {
namespace {

/// The scaffolding of other tests: fragments of a grant are valid, add up to it, and every kind of segment comes up.
TEST(FakeRolloutTest, FragmentsAreValidAndAddUp) {
  std::set<int32_t> ends;
  bool carried = false;
  bool several = false;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(seed);
    const BatchSchema schema = seed % 2 == 0 ? RandomSchema(seed) : WithCores(RandomSchema(seed), seed);
    FakeRollout rollout(schema, RandomRolloutOptions(schema, seed));
    Grant grant = MakeGrant(5, 11, policy::WeightVersion{1, 0});
    for (int64_t n = 0; n < 4; ++n) {
      const auto fragments = rollout.Play(grant, policy::WeightVersion{1, n});
      several = several || fragments.size() > 1;
      int64_t steps = 0;
      for (const auto& fragment : fragments) {
        const absl::Status status = ValidateBatch(*fragment, schema, {});
        ASSERT_TRUE(status.ok()) << status;
        EXPECT_EQ(fragment->last_of_grant, fragment == fragments.back());
        steps += fragment->num_env_steps;
        for (const PolicyRows& rows : fragment->policies) {
          const auto words = rows.segments.As<int32_t>();
          for (int64_t s = 0; s < rows.num_segments; ++s) {
            ends.insert(words[s * kSegmentFields + kSegmentEnd]);
            carried = carried || words[s * kSegmentFields + kSegmentVersionLag] > 0;
          }
        }
      }
      EXPECT_EQ(steps, 55);
      for (GrantLane& lane : grant.lanes) lane.fresh = false;
    }
  }
  EXPECT_EQ(ends, (std::set<int32_t>{0, 1, 2}));
  EXPECT_TRUE(carried);
  EXPECT_TRUE(several);
}

/// A sequence of a trajectory begins with the same memory however the fragments are cut.
TEST(FakeRolloutTest, MemoriesOnTheGridDoNotDependOnCuts) {
  const BatchSchema schema = WithCores(RandomSchema(1), 1);
  FakeRolloutOptions options = RandomRolloutOptions(schema, 1);
  options.ready_probability = 0.6;
  using Key = std::tuple<uint32_t, uint32_t, int32_t, int32_t>;  // env, episode, slot, decision
  std::vector<std::map<Key, std::vector<float>>> on_grid;
  for (const int32_t ticks : {1 << 20, 3, 1}) {
    options.max_ticks_per_fragment = ticks;
    FakeRollout rollout(schema, options);
    std::map<Key, std::vector<float>>& seen = on_grid.emplace_back();
    for (const auto& fragment : rollout.Play(MakeGrant(4, 30, policy::WeightVersion{}), policy::WeightVersion{})) {
      for (const PolicyRows& rows : fragment->policies) {
        const policy::PolicySpec& spec = schema.policies[rows.policy];
        for (int64_t m = 0; m < rows.num_memories; ++m) {
          const int32_t* const at = rows.memory_at.As<int32_t>().data() + m * kMemoryFields;
          if (at[kMemoryDecision] % spec.sequence_length != 0) continue;
          const int32_t* const words =
              rows.segments.As<int32_t>().data() + rows.segment.As<Index>()[at[kMemoryRow]] * kSegmentFields;
          const EpisodeEntry& episode = fragment->episodes[static_cast<size_t>(words[kSegmentEpisode])];
          const auto width = static_cast<size_t>(spec.actor_state_size());
          const auto memory = rows.memory.As<float>().subspan(width == 0 ? 0 : static_cast<size_t>(m) * width, width);
          const Key key(episode.env_id.value(), episode.episode, words[kSegmentSlot], at[kMemoryDecision]);
          EXPECT_TRUE(seen.emplace(key, std::vector<float>(memory.begin(), memory.end())).second);
        }
      }
    }
    EXPECT_GT(seen.size(), 50u);
    // What is still pending at the end is in no fragment, whatever the cuts.
    EXPECT_EQ(seen, on_grid[0]);
  }
}

TEST(FakeRolloutTest, CompleteEpisodesEndAtAnEpisodesEnd) {
  const BatchSchema schema = SimpleSchema();
  FakeRolloutOptions options;
  options.min_episode_steps = options.max_episode_steps = 4;
  FakeRollout rollout(schema, options);
  Grant grant = MakeGrant(3, 5, policy::WeightVersion{});
  grant.complete_episodes = true;
  const auto fragments = rollout.Play(grant, policy::WeightVersion{});
  ASSERT_EQ(fragments.size(), 1u);
  EXPECT_EQ(fragments[0]->num_env_steps, 3 * 8);
  EXPECT_EQ(fragments[0]->finished.size(), 6u);
}

}  // namespace
}  // namespace troupe::sample
