// TrainBatch::joint, as the assembler gives it.

#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "lib/learner/assembler.h"
#include "lib/learner/testing/naive_gather.h"
#include "lib/sample/testing/batch_builder.h"
#include "lib/sample/testing/batch_maker.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::learner {
namespace {

using sample::BatchSchema;
using sample::MultiAgentBatchPtr;
using sample::SegmentEnd;
using testing::ElementsAre;

/// An entry for comparing: slot, whether it is a final row, policy, row.
using Entry = std::tuple<int32_t, bool, int32_t, int32_t>;

struct NaiveStep {
  std::multiset<Entry> entries;
  std::vector<float> state;
};
struct NaiveJoint {
  std::map<StepKey, NaiveStep> steps;
  /// From one step of an agent to what is known of it next.
  std::vector<std::pair<StepKey, StepKey>> transitions;
};

NaiveJoint Join(const NaiveBatch& batch) {
  NaiveJoint joint;
  for (const auto& [policy, segments] : batch) {
    int32_t row = 0;
    int32_t final_row = 0;
    for (const NaiveSegment& segment : segments) {
      const StepKey* before = nullptr;
      // clang 14 captures no structured binding by reference.
      const auto add = [&, policy = policy](const NaiveRow& at, bool is_final, int32_t number) {
        NaiveStep& step = joint.steps[at.key];
        step.entries.insert({segment.slot, is_final, policy, number});
        if (!at.env_state.empty()) step.state = at.env_state;
        if (before != nullptr) joint.transitions.emplace_back(*before, at.key);
        before = &at.key;
      };
      for (const NaiveRow& at : segment.rows) add(at, false, row++);
      if (segment.has_final) add(segment.final_row, true, final_row++);
    }
  }
  return joint;
}

/// Whether `b`, which follows `a` in the episode, is known to be next.
bool Follows(const NaiveJoint& joint, const StepKey& a, const StepKey& b) {
  if (std::get<2>(b) == std::get<2>(a) + 1) return true;
  for (const auto& [from, to] : joint.transitions) {
    if (from <= a && to >= b) return true;
  }
  return false;
}

struct Seen {
  int64_t gaps = 0;
  int64_t bridged = 0;
  int64_t absent = 0;
  int64_t two_of_an_agent = 0;
  int64_t finals_only = 0;
  int64_t states = 0;
};

void ExpectEqual(const TrainBatch& batch, const NaiveJoint& expected, const BatchSchema& schema, Seen* seen) {
  ASSERT_NE(batch.joint, nullptr);
  const JointSteps& joint = *batch.joint;
  ASSERT_EQ(joint.steps.size(), expected.steps.size());
  std::map<int32_t, const PolicyTrainBatch*> parts;
  size_t rows = 0;
  for (const PolicyTrainBatch& part : batch.policies) {
    parts[part.policy.value()] = &part;
    ASSERT_EQ(static_cast<int64_t>(part.joint_place.size()), part.rows);
    ASSERT_EQ(static_cast<int64_t>(part.final_joint_place.size()), part.final_rows);
    rows += static_cast<size_t>(part.rows + part.final_rows);
  }
  ASSERT_EQ(joint.entries.size(), rows);
  int32_t s = 0;
  int32_t state_rows = 0;
  int32_t next_entry = 0;
  for (auto it = expected.steps.begin(); it != expected.steps.end(); ++it, ++s) {
    const auto& [key, want] = *it;
    const JointStep& step = joint.steps[s];
    ASSERT_EQ(StepKey(step.env_id, step.episode, step.step), key);
    const auto after = std::next(it);
    const bool same_episode = after != expected.steps.end() && std::get<0>(after->first) == step.env_id &&
                              std::get<1>(after->first) == step.episode;
    const bool follows = same_episode && Follows(expected, key, after->first);
    ASSERT_EQ(step.next, follows ? s + 1 : -1);
    seen->gaps += same_episode && !follows ? 1 : 0;
    seen->bridged += follows && std::get<2>(after->first) > step.step + 1 ? 1 : 0;

    // Fragments have states where a policy of their revision reads them.
    if (!want.state.empty()) {
      ASSERT_EQ(step.state_row, state_rows++);
      const float* const state = joint.state.row(step.state_row);
      ASSERT_EQ(std::vector<float>(state, state + joint.state.columns), want.state);
      ++seen->states;
    } else {
      ASSERT_EQ(step.state_row, -1);
    }

    ASSERT_EQ(step.first_entry, next_entry);
    ASSERT_EQ(step.num_entries, static_cast<int32_t>(want.entries.size()));
    next_entry += step.num_entries;
    bool acted = false;
    std::set<base::AgentSlot> slots;
    auto entry_wanted = want.entries.begin();
    for (int32_t e = step.first_entry; e < next_entry; ++e, ++entry_wanted) {
      const JointEntry& entry = joint.entries[e];
      const bool is_final = entry.final_row >= 0;
      ASSERT_NE(entry.row >= 0, is_final);
      ASSERT_EQ(Entry(entry.slot.value(), is_final, entry.policy.value(), is_final ? entry.final_row : entry.row),
                *entry_wanted);
      const PolicyTrainBatch& part = *parts[entry.policy.value()];
      const JointPlace place = is_final ? part.final_joint_place[entry.final_row] : part.joint_place[entry.row];
      ASSERT_EQ(place.step, s);
      ASSERT_EQ(place.entry, e);
      acted = acted || !is_final;
      seen->two_of_an_agent += slots.insert(entry.slot).second ? 0 : 1;
    }
    seen->finals_only += acted ? 0 : 1;
    seen->absent += slots.size() < schema.agent_ids.size() ? 1 : 0;
  }
  EXPECT_EQ(joint.state.rows, state_rows);
}

TEST(JointStepBuilderTest, EqualsTheNaiveReferenceOnRandomBatches) {
  Seen seen;
  int64_t stale = 0;
  for (uint64_t seed = 0; seed < 120; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const BatchSchema schema = sample::RandomSchema(seed);
    const auto max_lag = static_cast<int64_t>(seed % 2);
    Assembler asked(schema, {.max_policy_lag = max_lag, .joint_steps = true});
    Assembler not_asked(schema, {.max_policy_lag = max_lag});
    for (int64_t iteration = 1; iteration < 4; ++iteration) {
      auto fragments = RandomFragments(schema, seed + 1000 * iteration, iteration);
      // Some never arrive: episodes have holes.
      if (iteration == 2 && fragments.size() > 2) fragments.erase(fragments.begin() + 1);
      const Assembly& assembly = asked.Assemble(fragments, iteration);
      ExpectEqual(assembly.batch, Join(NaiveGather(fragments, iteration, max_lag, schema)), schema, &seen);
      for (const PolicyRowCount& count : assembly.aged) stale += count.rows;
      // Asked for in between, too.
      not_asked.SetJointSteps(iteration == 2);
      const TrainBatch& other = not_asked.Assemble(fragments, iteration).batch;
      EXPECT_EQ(other.joint != nullptr, iteration == 2);
      if (iteration == 2) {
        EXPECT_EQ(other.joint->steps.size(), assembly.batch.joint->steps.size());
      }
      if (iteration != 2 && !other.policies.empty()) {
        EXPECT_TRUE(other.policies[0].joint_place.empty());
      }
    }
  }
  EXPECT_GT(stale, 100);
  EXPECT_GT(seen.gaps, 10);
  EXPECT_GT(seen.bridged, 10);
  EXPECT_GT(seen.absent, 100);
  EXPECT_GT(seen.finals_only, 100);
  EXPECT_GT(seen.states, 100);
}

/// Two players in turns; the first wins at step 2.
TEST(JointStepBuilderTest, TurnsFollowEachOther) {
  const BatchSchema schema = sample::SimpleSchema(2, 3);
  sample::BatchBuilder builder(schema);
  const int episode =
      builder.AddEpisode(base::EnvId(5), 7, 0, false,
                         {{base::AgentSlot(0), policy::PolicySlot(0)}, {base::AgentSlot(1), policy::PolicySlot(0)}});
  const int segments[] = {builder.AddSegment(0, episode, base::AgentSlot(0)),
                          builder.AddSegment(0, episode, base::AgentSlot(1))};
  for (int32_t step = 0; step < 3; ++step) {
    sample::RowValues values;
    values.obs = {static_cast<float>(step), 0, 0};
    values.actions.resize(1);
    builder.AddRow(0, segments[step % 2], builder.AddEnvRow(episode, step), values);
  }
  builder.EndSegment(0, segments[0], SegmentEnd::kTerminated);
  builder.EndSegment(0, segments[1], SegmentEnd::kTerminated);
  Assembler assembler(schema, {.joint_steps = true});
  const TrainBatch& batch = assembler.Assemble({builder.Build()}, 0).batch;
  const JointSteps& joint = *batch.joint;
  std::vector<int32_t> nexts, slots, rows;
  for (const JointStep& step : joint.steps) {
    EXPECT_EQ(step.env_id, base::EnvId(5));
    EXPECT_EQ(step.episode, 7u);
    ASSERT_EQ(step.num_entries, 1);
    nexts.push_back(step.next);
    slots.push_back(joint.entries[step.first_entry].slot.value());
    rows.push_back(joint.entries[step.first_entry].row);
  }
  EXPECT_THAT(nexts, ElementsAre(1, 2, -1));
  EXPECT_THAT(slots, ElementsAre(0, 1, 0));
  EXPECT_THAT(rows, ElementsAre(0, 2, 1)) << "the first player's two rows come first in the batch";
}

/// An agent that is truncated and comes back at once has an entry for either.
TEST(JointStepBuilderTest, AnAgentThatEndsAndBeginsHasTwoEntries) {
  const BatchSchema schema = sample::SimpleSchema(1, 3);
  sample::BatchBuilder builder(schema);
  const int episode = builder.AddEpisode(base::EnvId(0), 0, 0, false, {{base::AgentSlot(0), policy::PolicySlot(0)}});
  sample::RowValues values;
  values.obs = {0, 0, 0};
  values.actions.resize(1);
  const int first = builder.AddSegment(0, episode, base::AgentSlot(0));
  const int second = builder.AddSegment(0, episode, base::AgentSlot(0));
  const int step_0 = builder.AddEnvRow(episode, 0);
  const int step_1 = builder.AddEnvRow(episode, 1);
  builder.AddRow(0, first, step_0, values);
  builder.AddRow(0, second, step_1, values);
  builder.EndSegment(0, first, SegmentEnd::kTruncated, step_1, values);
  builder.EndSegment(0, second, SegmentEnd::kTerminated);
  Assembler assembler(schema, {.joint_steps = true});
  const JointSteps& joint = *assembler.Assemble({builder.Build()}, 0).batch.joint;
  ASSERT_EQ(joint.steps.size(), 2u);
  EXPECT_EQ(joint.steps[0].next, 1);
  ASSERT_EQ(joint.steps[1].num_entries, 2);
  EXPECT_EQ(joint.entries[1].row, 1);
  EXPECT_EQ(joint.entries[2].final_row, 0);
}

TEST(JointStepBuilderTest, NothingToJoin) {
  const BatchSchema schema = sample::SimpleSchema();
  Assembler assembler(schema, {.joint_steps = true});
  const TrainBatch& batch = assembler.Assemble({}, 3).batch;
  ASSERT_NE(batch.joint, nullptr);
  EXPECT_TRUE(batch.joint->steps.empty());
  EXPECT_TRUE(batch.joint->entries.empty());
}

}  // namespace
}  // namespace troupe::learner
