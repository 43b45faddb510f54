#include "lib/sample/testing/fake_rollout.h"

#include <set>

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
    const BatchSchema schema = RandomSchema(seed);
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
