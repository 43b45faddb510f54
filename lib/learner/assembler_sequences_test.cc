// What the assembler makes for networks with a core: sequences, and what was remembered before each.

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/base/philox.h"
#include "lib/learner/assembler.h"
#include "lib/learner/checked_fragment.h"
#include "lib/learner/cut_out.h"
#include "lib/learner/testing/naive_gather.h"
#include "lib/sample/testing/batch_maker.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::learner {
namespace {

using policy::CoreKind;
using sample::BatchSchema;
using sample::MultiAgentBatchPtr;
using sample::SegmentEnd;
using testing::ElementsAre;
using testing::IsEmpty;

/// One agent, a policy whose actor has a GRU of 3 units; sequences of 4 decisions.
BatchSchema GruSchema(int32_t num_agents = 1) {
  BatchSchema schema = sample::SimpleSchema(num_agents, 2);
  policy::PolicySpec& spec = schema.policies[policy::PolicySlot(0)];
  spec.SetCriticInput(policy::NetworkInput::kObservation, 0);
  spec.actor.core = {CoreKind::kGru, 3, 1};
  spec.sequence_length = 4;
  return schema;
}

/// Row `row` of a padded matrix, whole.
std::vector<float> PaddedRow(const RowMatrix& matrix, int64_t row) {
  return {matrix.row(row), matrix.row(row) + matrix.stride};
}
std::vector<float> ToPadded(std::vector<float> values) {
  values.resize(static_cast<size_t>(RowMatrix::PaddedStride(static_cast<int64_t>(values.size()))), 0.0f);
  return values;
}

/// What the agent's policy remembers before a decision: other numbers for each, zeros for the first.
std::vector<float> StateBefore(int32_t decision, int64_t size) {
  std::vector<float> state(static_cast<size_t>(size), 0.0f);
  for (size_t i = 0; decision > 0 && i < state.size(); ++i) {
    state[i] = static_cast<float>(decision) + static_cast<float>(i) / 8;
  }
  return state;
}

/// Consecutive decisions of agent 0 in a fragment of environment 0, one an env step.
struct Piece {
  int32_t first_decision = 0;
  int32_t rows = 0;
  int32_t version_lag = 0;
  SegmentEnd end = SegmentEnd::kCut;
  bool waited = false;
};

/// A fragment of these pieces, each a segment. Decision d was made at step d - `late`.
MultiAgentBatchPtr PiecesOf(const BatchSchema& schema, const std::vector<Piece>& pieces, int64_t version = 0,
                            int32_t late = 0) {
  sample::BatchBuilder builder(schema);
  const int32_t first_step = pieces[0].first_decision - late;
  builder.AddEpisode(base::EnvId(0), 0, first_step, first_step > 0, {{base::AgentSlot(0), policy::PolicySlot(0)}});
  std::map<int32_t, int> env_rows;
  for (const Piece& piece : pieces) {
    for (int32_t i = 0; i < piece.rows; ++i) {
      const int32_t step = piece.first_decision + i - late;
      env_rows[step] = builder.AddEnvRow(0, step);
    }
  }
  builder.header().num_env_steps = static_cast<int64_t>(env_rows.size());
  for (const Piece& piece : pieces) {
    const int segment = builder.AddSegment(0, 0, base::AgentSlot(0), piece.version_lag, piece.waited);
    sample::RowValues values;
    values.actions.resize(1);
    values.decision = piece.first_decision;
    for (; values.decision < piece.first_decision + piece.rows; ++values.decision) {
      values.obs = {static_cast<float>(values.decision), 1};
      values.memory = StateBefore(values.decision, schema.policies[policy::PolicySlot(0)].actor_state_size());
      builder.AddRow(0, segment, env_rows.at(values.decision - late), values);
    }
    values.obs = {static_cast<float>(values.decision), 2};
    const int32_t final_step = values.decision - late;
    int final_env_row = 0;
    if (piece.end != SegmentEnd::kTerminated) {
      const auto acting = env_rows.find(final_step);
      final_env_row = acting != env_rows.end() ? acting->second : builder.AddFinalEnvRow(0, final_step);
    }
    builder.EndSegment(0, segment, piece.end, final_env_row, values);
  }
  builder.SetVersion(0, {1, version});
  MultiAgentBatchPtr batch = builder.Build();
  const absl::Status valid = sample::ValidateBatch(*batch, schema, {});
  EXPECT_TRUE(valid.ok()) << valid;
  return batch;
}

/// The sequences of the only policy, whose memories must be those of their decisions.
std::vector<TrainSequence> SequencesOf(const Assembly& assembly) {
  if (assembly.batch.policies.size() != 1) return {};
  const PolicyTrainBatch& rows = assembly.batch.policies[0];
  EXPECT_TRUE(rows.memory.padded());
  EXPECT_EQ(rows.memory.rows, static_cast<int64_t>(rows.sequences.size()));
  EXPECT_EQ(rows.memory.columns, 3);
  for (size_t s = 0; s < rows.sequences.size(); ++s) {
    const auto decision = static_cast<int32_t>(rows.sequences[s].decision);
    EXPECT_EQ(PaddedRow(rows.memory, static_cast<int64_t>(s)), ToPadded(StateBefore(decision, 3)));
  }
  return rows.sequences;
}

TEST(AssemblerSequencesTest, BeginOnTheGridOfDecisions) {
  const BatchSchema schema = GruSchema();
  Assembler assembler(schema, {});
  const std::vector<Piece> ten = {{0, 10, 0, SegmentEnd::kTruncated}};
  EXPECT_THAT(SequencesOf(assembler.Assemble({PiecesOf(schema, ten)}, 0)),
              ElementsAre(TrainSequence{0, 4, 0}, TrainSequence{4, 4, 4}, TrainSequence{8, 2, 8}));
  // A trajectory that began before the batch has its first sequence up to the grid.
  const std::vector<Piece> later = {{6, 7, 0, SegmentEnd::kTerminated}};
  EXPECT_THAT(SequencesOf(assembler.Assemble({PiecesOf(schema, later)}, 0)),
              ElementsAre(TrainSequence{0, 2, 6}, TrainSequence{2, 4, 8}, TrainSequence{6, 1, 12}));
}

TEST(AssemblerSequencesTest, WhereFragmentsWereJoinedNoneBegins) {
  const BatchSchema schema = GruSchema();
  const MultiAgentBatchPtr first = PiecesOf(schema, {{0, 5}});
  const MultiAgentBatchPtr second = PiecesOf(schema, {{5, 1}});
  const MultiAgentBatchPtr third = PiecesOf(schema, {{6, 3, 0, SegmentEnd::kTerminated}});
  Assembler assembler(schema, {});
  const auto whole = ElementsAre(TrainSequence{0, 4, 0}, TrainSequence{4, 4, 4}, TrainSequence{8, 1, 8});
  EXPECT_THAT(SequencesOf(assembler.Assemble({first, second, third}, 0)), whole);
  EXPECT_THAT(SequencesOf(assembler.Assemble({third, first, second}, 0)), whole);
  // One in the middle is missing: what comes after it begins with what was remembered there.
  const Assembly& hole = assembler.Assemble({first, third}, 0);
  EXPECT_THAT(SequencesOf(hole), ElementsAre(TrainSequence{0, 4, 0}, TrainSequence{4, 1, 4}, TrainSequence{5, 2, 6},
                                             TrainSequence{7, 1, 8}));
  EXPECT_EQ(hole.batch.policies[0].segments.size(), 2u);
}

TEST(AssemblerSequencesTest, ACarriedRowIsJoinedOrLeftOut) {
  const BatchSchema schema = GruSchema();
  // Decision 5 was made with the weights of before, and completed in this fragment.
  const MultiAgentBatchPtr before = PiecesOf(schema, {{0, 5}}, /*version=*/6);
  const MultiAgentBatchPtr after = PiecesOf(schema, {{5, 1, /*version_lag=*/1}, {6, 4}}, /*version=*/7);
  Assembler takes(schema, {.max_policy_lag = 1});
  EXPECT_THAT(SequencesOf(takes.Assemble({after}, 7)), ElementsAre(TrainSequence{0, 3, 5}, TrainSequence{3, 2, 8}));
  EXPECT_THAT(SequencesOf(takes.Assemble({before, after}, 7)),
              ElementsAre(TrainSequence{0, 4, 0}, TrainSequence{4, 4, 4}, TrainSequence{8, 2, 8}));
  Assembler refuses(schema, {.max_policy_lag = 0});
  const Assembly& fresh = refuses.Assemble({after}, 7);
  EXPECT_THAT(SequencesOf(fresh), ElementsAre(TrainSequence{0, 2, 6}, TrainSequence{2, 2, 8}));
  EXPECT_EQ(fresh.aged[0].rows, 1);
  EXPECT_EQ(fresh.batch.policies[0].obs.row(0)[0], 6) << "the row that the sequence begins with";
  EXPECT_TRUE(refuses.Assemble({before, after}, 8).batch.policies.empty()) << "all too old";
}

// Decision 5 waited for its outcome while the policy became two versions newer: it is trained on, whatever the lag.
TEST(AssemblerSequencesTest, ARowThatWaitedIsTrainedOnHoweverOldItIs) {
  const BatchSchema schema = GruSchema();
  const Piece waited{.first_decision = 5, .rows = 1, .version_lag = 3, .waited = true};
  const MultiAgentBatchPtr batch = PiecesOf(schema, {waited, {6, 4}}, /*version=*/7);
  Assembler assembler(schema, {.max_policy_lag = 1});
  const Assembly& assembly = assembler.Assemble({batch}, 7);
  EXPECT_EQ(assembly.batch.policies[0].obs.row(0)[0], 5);
  EXPECT_EQ(assembly.trained[0].rows, 5);
  ASSERT_EQ(assembly.waited.size(), 1u);
  EXPECT_EQ(assembly.waited[0].rows, 1);
  EXPECT_THAT(assembly.waited_ages.Filled(), ElementsAre(std::pair<int64_t, int64_t>(2, 1))) << "of 2 to 3 versions";
  EXPECT_TRUE(assembly.aged.empty());
  Assembler takes(schema, {.max_policy_lag = 3});
  EXPECT_TRUE(takes.Assemble({batch}, 7).waited.empty()) << "no older than others may be";
}

// No honest worker's decisions do not go on; without this a sequence could be as long as a batch.
TEST(AssemblerSequencesTest, SegmentsWhoseDecisionsDoNotGoOnAreNotJoined) {
  const BatchSchema schema = GruSchema();
  std::vector<MultiAgentBatchPtr> fragments;
  // Each says that its first decision is the second of the episode.
  for (int32_t step = 1; step < 13; ++step) fragments.push_back(PiecesOf(schema, {{1, 1}}, 0, 1 - step));
  Assembler assembler(schema, {});
  const PolicyTrainBatch& rows = assembler.Assemble(fragments, 0).batch.policies[0];
  ASSERT_EQ(rows.sequences.size(), 12u);
  ASSERT_EQ(rows.segments.size(), 12u);
  for (int64_t s = 0; s < 12; ++s) {
    EXPECT_EQ(rows.sequences[static_cast<size_t>(s)], (TrainSequence{s, 1, 1}));
    EXPECT_EQ(rows.segments[static_cast<size_t>(s)].final_row, s) << "it is bootstrapped where it was cut";
  }
}

TEST(AssemblerSequencesTest, OnlyTheCriticHasACore) {
  BatchSchema schema = GruSchema();
  schema.policies[policy::PolicySlot(0)].actor.core = {};
  schema.policies[policy::PolicySlot(0)].mutable_critic()->core = {CoreKind::kLstm, 5, 1};
  Assembler assembler(schema, {});
  const std::vector<Piece> six = {{3, 6, 0, SegmentEnd::kTerminated}};
  const PolicyTrainBatch& rows = assembler.Assemble({PiecesOf(schema, six)}, 0).batch.policies[0];
  EXPECT_THAT(rows.sequences, ElementsAre(TrainSequence{0, 1, 3}, TrainSequence{1, 4, 4}, TrainSequence{5, 1, 8}));
  EXPECT_EQ(rows.memory.data, nullptr);
  EXPECT_EQ(rows.memory.rows, 0);
}

/// What a policy's rows are, but for sequences and memory.
std::string RowsOf(const PolicyTrainBatch& rows) {
  TrainBatch alone;
  alone.policies.push_back(rows);
  alone.policies[0].memory = {};
  std::string bytes = BytesOf(alone);
  for (const TrainSegment& segment : rows.segments) {
    absl::StrAppend(&bytes, segment.env_id.value(), " ", segment.episode, " ", segment.slot.value(), ": ",
                    segment.first_row, " ", segment.rows, " ", segment.final_row, "\n");
  }
  for (const absl::Span<const int32_t> column : {rows.slot, rows.critic_row, rows.final_slot, rows.final_critic_row}) {
    for (const int32_t value : column) absl::StrAppend(&bytes, value, " ");
  }
  return bytes;
}

TEST(AssemblerSequencesTest, APolicyWithoutACoreIsAsBefore) {
  const BatchSchema plain = [] {
    BatchSchema schema = GruSchema(2);
    schema.policies[policy::PolicySlot(0)].actor.core = {};
    schema.policies[policy::PolicySlot(0)].sequence_length = 0;
    schema.policies.push_back(schema.policies[policy::PolicySlot(0)]);
    schema.policies[policy::PolicySlot(1)].id = policy::PolicyId("other");
    return schema;
  }();
  BatchSchema mixed = plain;
  mixed.policies[policy::PolicySlot(0)].actor.core = {CoreKind::kLstm, 2, 2};
  mixed.policies[policy::PolicySlot(0)].sequence_length = 5;
  std::vector<std::vector<std::string>> rows;
  for (const BatchSchema& schema : {plain, mixed}) {
    sample::FakeRolloutOptions options;
    options.policies_of_slot = {{0}, {1}};
    options.max_ticks_per_fragment = 7;
    sample::FakeRollout rollout(schema, options);
    std::vector<MultiAgentBatchPtr> fragments;
    for (const auto& fragment : rollout.Play(sample::MakeGrant(3, 30, {}), {})) fragments.push_back(fragment);
    Assembler assembler(schema, {});
    const TrainBatch& batch = assembler.Assemble(fragments, 0).batch;
    ASSERT_EQ(batch.policies.size(), 2u);
    EXPECT_EQ(batch.policies[0].sequences.empty(), !schema.policies[policy::PolicySlot(0)].remembers());
    EXPECT_THAT(batch.policies[1].sequences, IsEmpty());
    EXPECT_EQ(batch.policies[1].memory.rows, 0);
    rows.push_back({RowsOf(batch.policies[0]), RowsOf(batch.policies[1])});
  }
  EXPECT_GT(rows[0][0].size(), 1000u);
  EXPECT_EQ(rows[0], rows[1]) << "a core changes no row";
}

TEST(AssemblerSequencesTest, EqualTheNaiveReferenceOnRandomBatches) {
  int64_t begin_off_the_grid = 0;
  int64_t memories = 0;
  int64_t joined_away = 0;
  for (uint64_t seed = 0; seed < 120; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const BatchSchema schema = sample::WithCores(WithAgentIds(sample::RandomSchema(seed), seed), seed);
    const auto max_lag = static_cast<int64_t>(seed % 2);
    Assembler assembler(schema, {CommonReward::kNone, max_lag});
    // The same assembler twice: buffers are used again.
    for (int64_t iteration = 1; iteration < 3; ++iteration) {
      const auto fragments = RandomFragments(schema, seed + 1000 * iteration, iteration);
      for (const MultiAgentBatchPtr& fragment : fragments) {
        const absl::Status valid = sample::ValidateBatch(*fragment, schema, {});
        ASSERT_TRUE(valid.ok()) << valid;
        for (const sample::PolicyRows& rows : fragment->policies) joined_away += rows.num_memories;
      }
      const TrainBatch& batch = assembler.Assemble(fragments, iteration).batch;
      NaiveBatch expected = NaiveGather(fragments, iteration, max_lag, schema);
      ASSERT_EQ(batch.policies.size(), expected.size());
      for (const PolicyTrainBatch& rows : batch.policies) {
        SCOPED_TRACE(rows.policy.value());
        const policy::PolicySpec& spec = schema.policies[rows.policy];
        if (!spec.remembers()) {
          EXPECT_THAT(rows.sequences, IsEmpty());
          continue;
        }
        const std::vector<NaiveSequence> wanted = NaiveSequences(expected[rows.policy.value()], spec.sequence_length);
        ASSERT_EQ(rows.sequences.size(), wanted.size());
        const int64_t size = spec.actor_state_size();
        EXPECT_EQ(rows.memory.rows, size > 0 ? static_cast<int64_t>(wanted.size()) : 0);
        EXPECT_EQ(rows.memory.columns, size);
        int64_t next_row = 0;
        for (size_t s = 0; s < wanted.size(); ++s) {
          const TrainSequence& got = rows.sequences[s];
          ASSERT_EQ(got, wanted[s].sequence);
          ASSERT_EQ(got.first_row, next_row) << "all rows, ascending";
          ASSERT_LE(got.rows, spec.sequence_length);
          next_row += got.rows;
          if (size > 0) {
            ASSERT_EQ(PaddedRow(rows.memory, static_cast<int64_t>(s)), ToPadded(wanted[s].memory));
            ++memories;
          }
          begin_off_the_grid += got.decision % spec.sequence_length != 0 ? 1 : 0;
        }
        EXPECT_EQ(next_row, rows.rows);
        joined_away -= static_cast<int64_t>(wanted.size());
      }
    }
  }
  EXPECT_GT(begin_off_the_grid, 100);
  EXPECT_GT(memories, 1000);
  EXPECT_GT(joined_away, 100);
}

TEST(AssemblerSequencesTest, NeitherCutsNorTheNumberOfWorkersShow) {
  for (const double ready_probability : {1.0, 0.7}) {
    BatchSchema schema = GruSchema(3);
    schema.policies.push_back(schema.policies[policy::PolicySlot(0)]);
    schema.policies[policy::PolicySlot(1)].id = policy::PolicyId("lstm");
    schema.policies[policy::PolicySlot(1)].actor.core = {CoreKind::kLstm, 9, 2};
    schema.policies[policy::PolicySlot(1)].mutable_critic()->core = {CoreKind::kGru, 4, 1};
    schema.policies[policy::PolicySlot(1)].sequence_length = 7;
    std::vector<std::string> rows;
    std::vector<std::vector<TrainSequence>> sequences;
    for (const uint32_t workers : {1u, 2u, 4u}) {
      for (const int32_t ticks : {1 << 20, 7, 1}) {
        SCOPED_TRACE(absl::StrCat(workers, " workers, fragments of ", ticks, " steps, ready ", ready_probability));
        sample::FakeRolloutOptions options;
        options.min_episode_steps = 3;
        options.max_episode_steps = 24;
        options.agents_come_and_go = true;
        options.ready_probability = ready_probability;
        options.max_ticks_per_fragment = ticks;
        options.policies_of_slot = {{0, 1}, {0, 1}, {0, 1}};
        std::vector<MultiAgentBatchPtr> fragments;
        for (uint32_t worker = 0; worker < workers; ++worker) {
          sample::FakeRollout rollout(schema, options);
          sample::Grant grant;
          for (uint32_t env = worker; env < 4; env += workers) grant.lanes.push_back({base::EnvId(env), 0, true, 40});
          for (const auto& fragment : rollout.Play(grant, {})) fragments.push_back(fragment);
        }
        Assembler assembler(schema, {});
        const TrainBatch& batch = assembler.Assemble(fragments, 0).batch;
        ASSERT_EQ(batch.policies.size(), 2u);
        std::string bytes = BytesOf(batch);
        for (const PolicyTrainBatch& policy : batch.policies) bytes += RowsOf(policy);
        rows.push_back(std::move(bytes));
        sequences.push_back(batch.policies[0].sequences);
        sequences.push_back(batch.policies[1].sequences);
        ASSERT_GT(sequences.back().size(), 20u);
        EXPECT_TRUE(rows.back() == rows.front());
        EXPECT_EQ(sequences[sequences.size() - 2], sequences[0]);
        EXPECT_EQ(sequences[sequences.size() - 1], sequences[1]);
      }
    }
  }
}

TEST(CutOutMemoriesTest, ASegmentTakesAlongWhatWasRememberedInIt) {
  const BatchSchema schema = GruSchema();
  const MultiAgentBatchPtr whole = PiecesOf(schema, {{5, 1, /*version_lag=*/1}, {6, 4}}, /*version=*/7);
  Assembler assembler(schema, {.max_policy_lag = 1});
  const auto cut = [&](int64_t segment) {
    MultiAgentBatchPtr part = CutOut(whole, {{0, segment, 1}});
    const absl::Status valid = sample::ValidateBatch(*part, schema, {});
    EXPECT_TRUE(valid.ok()) << valid;
    return part;
  };
  EXPECT_EQ(cut(0)->policies[0].num_memories, 1);
  EXPECT_EQ(cut(1)->policies[0].num_memories, 2);
  EXPECT_THAT(SequencesOf(assembler.Assemble({cut(0)}, 7)), ElementsAre(TrainSequence{0, 1, 5}));
  EXPECT_THAT(SequencesOf(assembler.Assemble({cut(1)}, 7)),
              ElementsAre(TrainSequence{0, 2, 6}, TrainSequence{2, 2, 8}));
}

TEST(CutOutMemoriesTest, OfRandomFragmentsEachTrajectoryHasItsSequences) {
  int64_t chosen = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    const BatchSchema schema = sample::WithCores(sample::RandomSchema(seed), seed);
    const MultiAgentBatchPtr whole = sample::RandomBatch(schema, seed);
    base::PhiloxSequence random(base::PhiloxKey::Make(seed, base::RandomStream::kTest), {});
    std::vector<SegmentRange> ranges;
    for (size_t place = 0; place < whole->policies.size(); ++place) {
      for (int64_t s = 0; s < whole->policies[place].num_segments; ++s) {
        if (random.Below(2) == 0) ranges.push_back({place, s, 1});
      }
    }
    const MultiAgentBatchPtr part = CutOut(whole, ranges);
    const absl::Status valid = sample::ValidateBatch(*part, schema, {});
    ASSERT_TRUE(valid.ok()) << valid;
    using Key = std::tuple<int32_t, base::EnvId, uint32_t, int32_t, int64_t>;  // policy, env, episode, slot, decision
    const auto memories = [&](const MultiAgentBatchPtr& fragment) {
      Assembler assembler(schema, {CommonReward::kNone, 100});
      std::map<Key, std::vector<float>> by_decision;
      for (const PolicyTrainBatch& rows : assembler.Assemble({fragment}, 0).batch.policies) {
        for (size_t s = 0; s < rows.sequences.size(); ++s) {
          const TrainSequence& sequence = rows.sequences[s];
          const auto segment = std::find_if(
              rows.segments.begin(), rows.segments.end(),
              [&sequence](const TrainSegment& each) { return sequence.first_row < each.first_row + each.rows; });
          by_decision[{rows.policy.value(), segment->env_id, segment->episode, segment->slot.value(),
                       sequence.decision}] =
              rows.memory.rows > 0 ? PaddedRow(rows.memory, static_cast<int64_t>(s)) : std::vector<float>();
        }
      }
      return by_decision;
    };
    const std::map<Key, std::vector<float>> all = memories(whole);
    for (const auto& [key, memory] : memories(part)) {
      ++chosen;
      const auto found = all.find(key);
      ASSERT_NE(found, all.end());
      EXPECT_EQ(memory, found->second);
    }
  }
  EXPECT_GT(chosen, 100);
}

/// The bound that the start-up check of the ingest budget rests on.
TEST(CutOutMemoriesTest, MemoriesAreWithinTheBoundOfBytes) {
  BatchSchema schema = GruSchema(2);
  schema.policies[policy::PolicySlot(0)].actor.core = {CoreKind::kLstm, 64, 1};
  schema.policies[policy::PolicySlot(0)].sequence_length = 1;
  const MultiAgentBatchPtr batch = sample::MakeBatch(schema, {}, 2, 50);
  ASSERT_EQ(batch->policies[0].num_memories, 200) << "one a row";
  const CheckedFragment fragment = CheckFragment(batch, schema, {});
  ASSERT_TRUE(fragment.status.ok()) << fragment.status;
  EXPECT_GT(fragment.bytes, 200 * 128 * 4);
  EXPECT_LE(fragment.bytes, batch->num_env_steps * MaxBytesPerEnvStep(schema));
}

}  // namespace
}  // namespace troupe::learner
