// Every row of two episodes of testing/turn_based, as a worker hands it on, against a record written by hand from the
// rules in lib/envs/testing/turn_based.h. Everybody plays the first action that is allowed: alice and bob, whose masks
// forbid action t mod 3, play 1 at t = 0 and t = 3 and 0 else; carol plays 0.

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "lib/rollout/testing/fixed_weights.h"
#include "lib/sample/columns.h"
#include "tests/integration/turn_based_run.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::integration {
namespace {

using testing::ElementsAre;

struct Kept final : rollout::SampleSink {
  absl::Status Submit(sample::MultiAgentBatchPtr fragment) override {
    fragments.push_back(std::move(fragment));
    return absl::OkStatus();
  }
  std::vector<sample::MultiAgentBatchPtr> fragments;
};

std::string Numbers(absl::Span<const float> values) {
  return absl::StrCat("[", absl::StrJoin(values.begin(), values.end(), " "), "]");
}

/// "ENV alice@STEP OBSERVATION plays ACTION gets REWARD", then how it ended with the last look, and "-" when inactive.
std::vector<std::string> RowsOf(const sample::MultiAgentBatch& batch) {
  const char* const agents[] = {"alice", "bob", "carol"};
  std::vector<std::string> lines;
  for (const sample::PolicyRows& rows : batch.policies) {
    const size_t width = static_cast<size_t>(rows.obs.row_elements);
    const auto segments = rows.segment.As<sample::Index>();
    for (size_t r = 0; r < static_cast<size_t>(rows.rows); ++r) {
      const auto segment =
          rows.segments.As<int32_t>().subspan(size_t{segments[r]} * sample::kSegmentFields, sample::kSegmentFields);
      const size_t step = rows.env_row.As<sample::Index>()[r];
      const auto end = static_cast<sample::SegmentEnd>(segment[sample::kSegmentEnd]);
      const bool is_last = std::count(segments.begin() + r + 1, segments.end(), segments[r]) == 0;
      const bool terminated = is_last && end == sample::SegmentEnd::kTerminated;
      const bool truncated = is_last && end == sample::SegmentEnd::kTruncated;
      std::string line =
          absl::StrCat(batch.episodes[batch.step_episode.As<sample::Index>()[step]].env_id.value(), " ",
                       agents[segment[sample::kSegmentSlot]], "@", batch.step_index.As<int32_t>()[step], " ",
                       Numbers(rows.obs.As<float>().subspan(r * width, width)), " plays ",
                       sample::ActionAt(rows.actions, static_cast<int64_t>(r), 0).i32, " gets ",
                       rows.rewards.As<float>()[r], terminated ? " terminated" : "", truncated ? " truncated" : "");
      if (truncated) {
        const size_t last = static_cast<size_t>(segment[sample::kSegmentFinalRow]);
        absl::StrAppend(&line, " at ", Numbers(rows.final_obs.As<float>().subspan(last * width, width)));
      }
      if (rows.agent_mask.As<uint8_t>()[r] == 0) absl::StrAppend(&line, " -");
      lines.push_back(std::move(line));
    }
  }
  std::sort(lines.begin(), lines.end());
  return lines;
}

TEST(TurnBasedRecordTest, EveryRowEqualsTheRecord) {
  env::EnvRegistry registry;
  envs::RegisterAllEnvs(registry);
  const auto run = ResolveTurnBased(R"(
algorithm: {name: ippo, train_batch_size: 20}
multi_agent:
  policies: {players: {class: "scripted:always_same"}, guest: {class: "scripted:always_same"}}
  policy_mapping: {carol: guest, "*": players}
  policies_to_train: []
)",
                                    registry);
  ASSERT_TRUE(run.ok()) << run.status();
  auto collector = rollout::Collector::Create(*run::MakeRolloutConfig(*run, registry));
  ASSERT_TRUE(collector.ok()) << collector.status();
  rollout::FixedWeights none({});
  Kept kept;
  sample::Grant grant;
  grant.lanes = {{.env_id = base::EnvId(1), .env_steps = 5}, {.env_id = base::EnvId(2), .env_steps = 6}};
  ASSERT_TRUE((*collector)->RunGrant(grant, none, kept).ok());
  ASSERT_EQ(kept.fragments.size(), 1u);
  const sample::MultiAgentBatch& batch = *kept.fragments[0];

  EXPECT_THAT(
      RowsOf(batch),
      ElementsAre("1 alice@0 [0 0 -1 5] plays 1 gets -0.5",  // -0.5 now, bob's 0 later
                  "1 alice@2 [0 2 1 5] plays 0 gets 0.5",    // and bob's 1
                  "1 alice@4 [0 4 0 5] plays 0 gets -0.5 truncated at [0 5 0 5]",
                  "1 bob@1 [1 1 -1 5] plays 0 gets -0.5",  // alice's 0
                  "1 bob@3 [1 3 0 5] plays 1 gets -0.5 truncated at [1 5 1 5] -",
                  "1 carol@2 [2 -1] plays 0 gets 1",  //
                  "1 carol@3 [3 0] plays 0 gets 1 truncated at [4 0] -", "2 alice@0 [0 0 -1 6] plays 1 gets -0.5",
                  "2 alice@2 [0 2 1 6] plays 0 gets 0.5", "2 alice@4 [0 4 0 6] plays 0 gets -0.5 terminated",
                  "2 bob@1 [1 1 -1 6] plays 0 gets -0.5",   //
                  "2 bob@3 [1 3 0 6] plays 1 gets -0.5 -",  //
                  "2 bob@5 [1 5 1 6] plays 0 gets -0.5 terminated",
                  "2 carol@2 [2 -1] plays 0 gets 1",  //
                  "2 carol@3 [3 0] plays 0 gets 1 terminated -"));
  EXPECT_EQ(batch.num_env_steps, 5 + 6);
  EXPECT_EQ(batch.num_agent_steps, 5 + 6) << "15 rows, of which 4 are inactive";
  ASSERT_EQ(batch.finished.size(), 2u);
  EXPECT_EQ(batch.finished[0].length, 5);
  EXPECT_THAT(batch.finished[0].returns, ElementsAre(-0.5f, -1.0f, 2.0f));
  EXPECT_EQ(batch.finished[1].length, 6);
  EXPECT_THAT(batch.finished[1].returns, ElementsAre(-0.5f, -1.5f, 2.0f));
  EXPECT_EQ((*collector)->stats().env_steps, 11);
  EXPECT_EQ((*collector)->stats().agent_steps, 11);
}

}  // namespace
}  // namespace troupe::integration
