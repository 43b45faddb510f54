// One thing wrong at a time: every row of the table takes a valid fragment, corrupts it, and names the error it
// expects. What can be wrong with any column is in columns_test.cc.

#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/policy/policy_spec.h"
#include "lib/policy/testing/slots.h"
#include "lib/sample/testing/batch_maker.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::sample {
namespace {

using tensor::DType;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();

/// Two agents: "a" with a float observation, a masked Discrete(3), a core and a cut, a terminated and a truncated
/// segment; "b" with bytes and a continuous action. Env state, agent mask, one info.
BatchSchema Schema() {
  BatchSchema schema;
  schema.agent_ids = {"a", "b"};
  schema.agent_observation_sizes = {2, 3};
  schema.num_envs = 4;
  schema.env_state_size = 2;
  schema.has_agent_mask = true;
  schema.num_info_columns = 1;
  schema.policies.resize(2);
  schema.policies[policy::PolicySlot(0)].id = policy::PolicyId("pa");
  schema.policies[policy::PolicySlot(0)].observation_space = *space::Space::Box(-1, 1, {2});
  schema.policies[policy::PolicySlot(0)].action_space = *space::Space::Discrete(3, 1);
  schema.policies[policy::PolicySlot(0)].has_action_mask = true;
  schema.policies[policy::PolicySlot(0)].SetCriticInput(policy::NetworkInput::kState, 2);
  schema.policies[policy::PolicySlot(0)].actor.core = {policy::CoreKind::kGru, 2, 1};
  schema.policies[policy::PolicySlot(0)].sequence_length = 2;
  schema.policies[policy::PolicySlot(1)].id = policy::PolicyId("pb");
  schema.policies[policy::PolicySlot(1)].observation_space = *space::Space::Box(0, 255, {3}, DType::kUint8);
  schema.policies[policy::PolicySlot(1)].action_space = *space::Space::Box(-1, 1, {2});
  return schema;
}

RowValues A(float x, int32_t decision = 0) {
  RowValues values;
  values.decision = decision;
  values.memory = {x, 1};
  values.obs = {x, -x};
  values.actions.resize(1);
  values.actions[0].i32 = 2;
  values.action_mask = {1, 1, 0};
  values.action_logp = -1;
  return values;
}

RowValues B(float x) {
  RowValues values;
  values.obs = {x, x, x};
  values.actions.resize(2);
  values.actions[0].f32 = 0.5f;
  values.actions[1].f32 = -0.5f;
  return values;
}

/// Policy 0: segment 0 (env 0, rows 0 and 2, terminated), 1 (env 1, row 1 and 3, truncated), 2 (env 2, row 4, cut); the
/// decisions of their first rows are 0, 7 and 0, so that memories are of the rows 0, 1, 3 and 4.
/// Policy 1: segment 0 (env 2, row 0, cut).
std::shared_ptr<MultiAgentBatch> Valid(const BatchSchema& schema) {
  BatchBuilder builder(schema);
  const AgentEntry a{base::AgentSlot(0), policy::PolicySlot(0)};
  const AgentEntry b{base::AgentSlot(1), policy::PolicySlot(1)};
  builder.AddEpisode(base::EnvId(0), 3, 0, false, {a});
  builder.AddEpisode(base::EnvId(1), 4, 7, true, {a});
  builder.AddEpisode(base::EnvId(2), 0, 0, false, {a, b});
  const int e0 = builder.AddEnvRow(0, 0, {0.1f, 0.2f});
  const int e1 = builder.AddEnvRow(1, 7, {0.3f, 0.4f});
  const int e2 = builder.AddEnvRow(0, 1, {0.5f, 0.6f});
  const int e3 = builder.AddEnvRow(1, 8, {0.7f, 0.8f});
  const int e4 = builder.AddEnvRow(2, 0, {0.9f, 1.0f});
  const int f1 = builder.AddFinalEnvRow(1, 9, {1.1f, 1.2f});
  const int f2 = builder.AddFinalEnvRow(2, 1, {1.3f, 1.4f});
  const int s0 = builder.AddSegment(0, 0, base::AgentSlot(0));
  const int s1 = builder.AddSegment(0, 1, base::AgentSlot(0), 1);
  const int s2 = builder.AddSegment(0, 2, base::AgentSlot(0));
  builder.AddRow(0, s0, e0, A(0.1f));
  builder.AddRow(0, s1, e1, A(0.2f, 7));
  builder.AddRow(0, s0, e2, A(0.3f, 1));
  RowValues last = A(0.4f, 8);
  last.agent_mask = 0;
  builder.AddRow(0, s1, e3, last);
  builder.AddRow(0, s2, e4, A(0.5f));
  builder.EndSegment(0, s0, SegmentEnd::kTerminated);
  builder.EndSegment(0, s1, SegmentEnd::kTruncated, f1, A(0.6f));
  builder.EndSegment(0, s2, SegmentEnd::kCut, f2, A(0.7f));
  const int t0 = builder.AddSegment(1, 2, base::AgentSlot(1));
  builder.AddRow(1, t0, e4, B(7));
  builder.EndSegment(1, t0, SegmentEnd::kCut, f2, B(9));
  builder.SetVersion(0, policy::WeightVersion{1, 5});
  builder.SetVersion(1, policy::WeightVersion{1, 5});
  builder.header().num_env_steps = 5;
  builder.header().finished.push_back(
      FinishedEpisode{base::EnvId(0), 3, 2, {1.0f, kNaN}, policy::SlotsForTesting({0, -1}), {kNaN}});
  builder.header().finished.push_back(
      FinishedEpisode{base::EnvId(1), 4, 9, {2.0f, kNaN}, policy::SlotsForTesting({0, -1}), {0.5f}});
  return builder.Build();
}

struct Hostile {
  const char* name;
  std::function<void(MultiAgentBatch&)> corrupt;
  const char* error;   ///< part of the message
  bool shape = false;  ///< ValidateShapes finds it already
};

template <typename T>
void Set(const ColumnView& column, size_t i, T value) {
  MutableColumn<T>(column).at(i) = value;
}
void Word(PolicyRows& rows, int segment, SegmentField field, int32_t value) {
  Set<int32_t>(rows.segments, segment * kSegmentFields + field, value);
}

PolicyRows& RowsA(MultiAgentBatch& b) { return b.policies[0]; }
PolicyRows& RowsB(MultiAgentBatch& b) { return b.policies[1]; }

/// Counts and ids of the header, and its tables.
void AddHeaders(std::vector<Hostile>& t) {
  t.push_back({"negative env steps", [](auto& b) { b.num_env_steps = -1; }, "num_env_steps is -1", true});
  t.push_back({"absurd env steps", [](auto& b) { b.num_env_steps = kHuge; }, "num_env_steps", true});
  t.push_back({"negative iteration", [](auto& b) { b.iteration = -1; }, "iteration", true});
  t.push_back({"negative env rows", [](auto& b) { b.env_rows = -1; }, "env_rows", true});
  t.push_back({"absurd env rows", [](auto& b) { b.env_rows = kHuge; }, "env_rows", true});
  t.push_back({"negative final env rows", [](auto& b) { b.final_env_rows = -5; }, "final_env_rows", true});
  t.push_back({"absurd final env rows", [](auto& b) { b.final_env_rows = kHuge; }, "final_env_rows", true});
  t.push_back({"more env rows than an index can name", [](auto& b) { b.env_rows = 65537; }, "env_rows is 65537", true});
  t.push_back({"more env rows of both kinds than an index can name", [](auto& b) { b.final_env_rows = 65532; },
               "final_env_rows is 65532, expected 0 to 65531", true});
  t.push_back({"wrong agent steps", [](auto& b) { b.num_agent_steps -= 1; }, "num_agent_steps is 4, expected 5"});
  t.push_back({"absurd agent steps", [](auto& b) { b.num_agent_steps = kHuge; }, "num_agent_steps", true});
  t.push_back({"negative agent steps", [](auto& b) { b.num_agent_steps = -1; }, "num_agent_steps", true});
  t.push_back(
      {"unknown policy", [](auto& b) { RowsA(b).policy = policy::PolicySlot(2); }, "unknown policy slot 2", true});
  t.push_back({"negative policy", [](auto& b) { RowsA(b).policy = policy::PolicySlot(-1); }, "unknown policy", true});
  t.push_back({"policy twice", [](auto& b) { RowsB(b).policy = policy::PolicySlot(0); }, "ascending slots", true});
  t.push_back({"no rows", [](auto& b) { RowsA(b).rows = 0; }, "rows is 0", true});
  t.push_back({"absurd rows", [](auto& b) { RowsA(b).rows = kHuge; }, "rows is", true});
  t.push_back({"indices as words, as protocol 1 had them", [](auto& b) { RowsA(b).env_row.dtype = DType::kInt32; },
               "column 'env_row' is int32[5, 1], expected uint16[5, 1]", true});
  t.push_back({"actions as words, as protocol 1 had them", [](auto& b) { RowsA(b).actions.dtype = DType::kInt32; },
               "column 'actions' is int32[5, 1], expected uint8[5, 1]", true});
  t.push_back({"more episodes than an index can name", [](auto& b) { b.episodes.resize(65537); },
               "number of episodes is 65537, expected 0 to 65536", true});
  t.push_back({"no segments", [](auto& b) { RowsA(b).num_segments = 0; }, "num_segments is 0", true});
  t.push_back({"more segments than rows", [](auto& b) { RowsA(b).num_segments = 6; }, "num_segments is 6", true});
  t.push_back({"more finals than segments", [](auto& b) { RowsA(b).final_rows = 4; }, "final_rows is 4", true});
  t.push_back({"negative finals", [](auto& b) { RowsA(b).final_rows = -1; }, "final_rows is -1", true});
  t.push_back({"negative version", [](auto& b) { RowsA(b).version.n = -1; }, "weights version is -1", true});
  t.push_back({"state that this run has not",
               [](auto& b) {
                 RowsA(b).state = ColumnView{RowsA(b).obs.data, DType::kFloat32, 5, 2};
               },
               "expected none", true});
  t.push_back({"mask that this policy has not",
               [](auto& b) {
                 RowsB(b).action_mask = ColumnView{RowsA(b).obs.data, DType::kUint8, 1, 2};
               },
               "expected none", true});
  t.push_back({"elements whose product overflows", [](auto& b) { RowsA(b).obs.row_elements = kHuge; }, "obs", true});

  // Episodes.
  t.push_back({"env id too high", [](auto& b) { b.episodes[0].env_id = base::EnvId(4); }, "env id below 4", true});
  t.push_back({"negative first step", [](auto& b) { b.episodes[0].first_step = -1; }, "first_step is -1", true});
  t.push_back({"agent slot too high", [](auto& b) { b.episodes[0].agents[0].slot = base::AgentSlot(2); },
               "agent slot 2", true});
  t.push_back({"negative agent slot", [](auto& b) { b.episodes[0].agents[0].slot = base::AgentSlot(-2); },
               "agent slot -2", true});
  t.push_back(
      {"agent twice", [](auto& b) { b.episodes[2].agents[1].slot = base::AgentSlot(0); }, "ascending slots", true});
  t.push_back({"agent of unknown policy", [](auto& b) { b.episodes[0].agents[0].policy = policy::PolicySlot(9); },
               "has policy slot 9", true});
  t.push_back(
      {"episode twice", [](auto& b) { b.episodes[1].env_id = base::EnvId(0), b.episodes[1].episode = 3; }, "twice"});
  t.push_back(
      {"rows without an env step", [](auto& b) { b.num_env_steps = 0; },
       "num_env_steps is 0, but there are 6 rows of policies, expected at most 0: one an agent (2) in each step",
       true});
  t.push_back({"more rows than the env steps can have", [](auto& b) { b.num_env_steps = 2; },
               "num_env_steps is 2, but there are 6 rows of policies, expected at most 4", true});
}

/// Episodes that ended.
void AddFinished(std::vector<Hostile>& t) {
  t.push_back({"finished env id", [](auto& b) { b.finished[0].env_id = base::EnvId(99); }, "env id below 4", true});
  t.push_back({"finished length", [](auto& b) { b.finished[0].length = -1; }, "length is -1", true});
  t.push_back({"finished returns", [](auto& b) { b.finished[0].returns.pop_back(); }, "1 returns", true});
  t.push_back({"finished policies", [](auto& b) { b.finished[0].policies.pop_back(); }, "1 policies", true});
  t.push_back({"finished infos", [](auto& b) { b.finished[0].infos.clear(); }, "0 infos, expected 1", true});
  t.push_back(
      {"finished policy", [](auto& b) { b.finished[0].policies[0] = policy::PolicySlot(2); }, "policy slot 2", true});
  t.push_back({"finished policy below none", [](auto& b) { b.finished[0].policies[0] = policy::PolicySlot(-2); },
               "policy slot -2, expected -1 to 1", true});
  t.push_back({"infinite return", [](auto& b) { b.finished[0].returns[0] = kInf; },
               "finished episode 3 of env 0: the return of agent slot 0 is inf, expected -1e+12 to 1e+12"});
  t.push_back({"return of minus infinity", [](auto& b) { b.finished[1].returns[0] = -kInf; },
               "finished episode 4 of env 1: the return of agent slot 0 is -inf, expected -1e+12 to 1e+12"});
  t.push_back({"return of an agent that played is NaN", [](auto& b) { b.finished[0].returns[0] = kNaN; },
               "the return of agent slot 0 is nan, expected -1e+12 to 1e+12"});
  t.push_back({"return beyond belief", [](auto& b) { b.finished[0].returns[0] = 1e38f; },
               "the return of agent slot 0 is 1e+38, expected -1e+12 to 1e+12"});
  t.push_back({"return just beyond belief", [](auto& b) { b.finished[0].returns[0] = -1.001e12f; },
               "the return of agent slot 0 is -1.001e+12, expected -1e+12 to 1e+12"});
  t.push_back({"return beyond belief of an agent that nobody plays any more",
               [](auto& b) { b.finished[0].returns[1] = 1e38f; }, "the return of agent slot 1 is 1e+38"});
  t.push_back({"trajectories", [](auto& b) { b.finished[0].trajectories = {1}; }, "expected none or 2", true});
  t.push_back({"no trajectory",
               [](auto& b) {
                 b.finished[0].trajectories = {0, 1};
               },
               "finished episode 3 of env 0: agent slot 0 has 0 trajectories, expected 1 to 2"});
  t.push_back({"more trajectories than steps",
               [](auto& b) {
                 b.finished[0].trajectories = {1, 3};
               },
               "agent slot 1 has 3 trajectories, expected 1 to 2"});
  t.push_back({"returns beyond belief together",
               [](auto& b) {
                 b.finished[0].trajectories = {2, 1};
                 b.finished[0].returns[0] = 6e11f;
               },
               "the returns of agent slot 0 sum up to 1.2e+12"});
  t.push_back({"infinite info", [](auto& b) { b.finished[1].infos[0] = -kInf; }, "an info is infinite"});
}

/// Indices inside columns.
void AddIndices(std::vector<Hostile>& t) {
  t.push_back({"step of no episode", [](auto& b) { Set<Index>(b.step_episode, 0, 3); }, "episode index 3"});
  t.push_back({"step of the last episode there can be", [](auto& b) { Set<Index>(b.step_episode, 6, 65535); },
               "episode index 65535"});
  t.push_back({"negative step", [](auto& b) { Set<int32_t>(b.step_index, 0, -1); }, "has step -1"});
  t.push_back({"row of no env row", [](auto& b) { Set<Index>(RowsA(b).env_row, 0, 5); }, "env_row 5"});
  t.push_back({"row of the last env row there can be", [](auto& b) { Set<Index>(RowsA(b).env_row, 0, 65535); },
               "env_row 65535"});
  t.push_back({"row of no segment", [](auto& b) { Set<Index>(RowsA(b).segment, 0, 3); }, "segment 3"});
  t.push_back({"row of the last segment there can be", [](auto& b) { Set<Index>(RowsA(b).segment, 0, 65535); },
               "segment 65535"});
  t.push_back({"row of another episode", [](auto& b) { Set<Index>(RowsA(b).segment, 0, 1); }, "another episode"});
  t.push_back({"rows out of order", [](auto& b) { Set<Index>(RowsA(b).env_row, 2, 0); }, "time order"});
  t.push_back({"segment of no episode", [](auto& b) { Word(RowsA(b), 0, kSegmentEpisode, 3); }, "episode index 3"});
  t.push_back({"segment of negative episode", [](auto& b) { Word(RowsA(b), 0, kSegmentEpisode, -1); }, "index -1"});
  t.push_back({"segment without rows",
               [](auto& b) {
                 Set<Index>(RowsA(b).segment, 4, 1);
                 Set<Index>(RowsA(b).env_row, 4, 3);
               },
               "segment"});
  t.push_back({"segment of unknown agent", [](auto& b) { Word(RowsA(b), 0, kSegmentSlot, 1); }, "agent slot 1"});
  t.push_back({"segment of absurd agent", [](auto& b) { Word(RowsA(b), 0, kSegmentSlot, 1 << 30); }, "agent slot"});
  t.push_back({"segment of another policy's agent", [](auto& b) { Word(RowsA(b), 2, kSegmentSlot, 1); }, "plays"});
  t.push_back({"segment with no such end", [](auto& b) { Word(RowsA(b), 0, kSegmentEnd, 3); }, "has end 3"});
  t.push_back({"segment with a negative end", [](auto& b) { Word(RowsA(b), 0, kSegmentEnd, -1); }, "has end -1"});
  t.push_back(
      {"cut that terminated", [](auto& b) { Word(RowsA(b), 0, kSegmentEnd, 0); }, "has final row -1, expected 0 to 1"});
  t.push_back({"termination that was a cut", [](auto& b) { Word(RowsA(b), 2, kSegmentEnd, 1); },
               "terminated with final row 1, expected -1"});
  t.push_back({"terminated with final row", [](auto& b) { Word(RowsA(b), 0, kSegmentFinalRow, 0); }, "expected -1"});
  t.push_back({"cut without final row", [](auto& b) { Word(RowsA(b), 2, kSegmentFinalRow, -1); }, "final row -1"});
  t.push_back({"final row too high", [](auto& b) { Word(RowsA(b), 2, kSegmentFinalRow, 2); }, "final row 2"});
  t.push_back({"final row shared", [](auto& b) { Word(RowsA(b), 2, kSegmentFinalRow, 0); }, "segment"});
  t.push_back({"negative version lag", [](auto& b) { Word(RowsA(b), 0, kSegmentVersionLag, -1); }, "version lag -1"});
  t.push_back({"waited twice", [](auto& b) { Word(RowsA(b), 0, kSegmentWaited, 2); }, "has waited 2, expected 0 or 1"});
  t.push_back({"lag before version 0", [](auto& b) { Word(RowsA(b), 0, kSegmentVersionLag, 6); }, "version lag 6"});
  t.push_back({"final env row too high", [](auto& b) { Set<Index>(RowsA(b).final_env_row, 0, 7); }, "env row 7"});
  t.push_back({"the last final env row there can be", [](auto& b) { Set<Index>(RowsA(b).final_env_row, 0, 65535); },
               "env row 65535"});
  t.push_back({"final of another episode", [](auto& b) { Set<Index>(RowsA(b).final_env_row, 0, 6); }, "another"});
  t.push_back({"final before the last row", [](auto& b) { Set<int32_t>(b.step_index, 5, 8); }, "expected one after 8"});
}

/// What a policy remembered.
void AddMemories(std::vector<Hostile>& t) {
  const auto at = [](MultiAgentBatch& b, int memory, MemoryField field, int32_t value) {
    Set<int32_t>(RowsA(b).memory_at, memory * kMemoryFields + field, value);
  };
  t.push_back({"memories of a policy without a core", [](auto& b) { RowsB(b).num_memories = 1; },
               "policy 'pb': num_memories is 1, expected 0 to 0", true});
  t.push_back({"fewer memories than segments", [](auto& b) { RowsA(b).num_memories = 2; },
               "policy 'pa': num_memories is 2, expected 3 to 5", true});
  t.push_back({"more memories than rows", [](auto& b) { RowsA(b).num_memories = 6; }, "num_memories is 6", true});
  t.push_back({"negative memories", [](auto& b) { RowsA(b).num_memories = -1; }, "num_memories is -1", true});
  t.push_back({"absurd memories", [](auto& b) { RowsA(b).num_memories = kHuge; }, "num_memories", true});
  t.push_back({"memory that this policy has not",
               [](auto& b) {
                 RowsB(b).memory = ColumnView{RowsA(b).obs.data, DType::kFloat32, 1, 2};
               },
               "policy 'pb': column 'memory' is float32[1, 2], expected none", true});
  t.push_back({"memory of another width", [](auto& b) { RowsA(b).memory.row_elements = 1; },
               "column 'memory' is float32[4, 1], expected float32[4, 2]", true});
  t.push_back({"no word of when", [](auto& b) { RowsA(b).memory_at = ColumnView{}; },
               "column 'memory_at' is absent, expected int32[4, 2]", true});
  t.push_back(
      {"NaN memory", [](auto& b) { Set(RowsA(b).memory, 3, kNaN); }, "column 'memory' has nan at row 1, element 1"});
  t.push_back({"infinite memory", [](auto& b) { Set(RowsA(b).memory, 6, -kInf); }, "column 'memory' has -inf"});
  t.push_back({"memory of no row", [=](auto& b) { at(b, 3, kMemoryRow, 5); },
               "memory 3 is of row 5, expected row 4, the first of segment 2"});
  t.push_back({"memory of a negative row", [=](auto& b) { at(b, 0, kMemoryRow, -1); },
               "memory 0 is of row -1, expected row 0, the first of segment 0"});
  t.push_back({"memory of a row in the middle of a sequence", [=](auto& b) { at(b, 1, kMemoryRow, 2); },
               "memory 1 is of row 2, expected row 1, the first of segment 1"});
  t.push_back({"a sequence without a memory", [=](auto& b) { at(b, 2, kMemoryRow, 4); },
               "memory 2 is of row 4, expected row 3, which is decision 8 of its agent, a multiple of 2"});
  t.push_back({"memories out of order",
               [=](auto& b) {
                 at(b, 0, kMemoryRow, 1);
                 at(b, 1, kMemoryRow, 0);
               },
               "memory 0 is of row 1, expected row 0"});
  t.push_back({"negative decision", [=](auto& b) { at(b, 1, kMemoryDecision, -1); },
               "memory 1 is of decision -1, expected 0 to 2147483647"});
  t.push_back({"decisions with a gap", [=](auto& b) { at(b, 2, kMemoryDecision, 10); },
               "memory 2 is of decision 10, expected 8: row 3 comes so far behind the first of segment 1"});
  t.push_back({"decisions that stand still", [=](auto& b) { at(b, 2, kMemoryDecision, 7); },
               "memory 2 is of decision 7, expected 8"});
  t.push_back({"more decisions than can be counted",
               [=](auto& b) { at(b, 1, kMemoryDecision, std::numeric_limits<int32_t>::max()); },
               "row 3 of segment 1 is decision 2147483648 of its agent, expected at most 2147483647"});
  t.push_back({"a row on the grid without a memory", [=](auto& b) { at(b, 0, kMemoryDecision, 1); },
               "memory 2 is of row 3, expected row 2, which is decision 2 of its agent"});
  t.push_back({"a memory of a row that is not on the grid", [=](auto& b) { at(b, 1, kMemoryDecision, 6); },
               "memory 2 is of row 3, expected row 4, the first of segment 2"});
}

void AddValues(std::vector<Hostile>& t) {
  t.push_back({"NaN observation", [](auto& b) { Set(RowsA(b).obs, 3, kNaN); }, "'obs' has nan at row 1, element 1"});
  t.push_back({"infinite observation", [](auto& b) { Set(RowsA(b).obs, 0, kInf); }, "'obs' has inf"});
  t.push_back({"NaN log-probability", [](auto& b) { Set(RowsA(b).action_logp, 0, kNaN); }, "'action_logp' has nan"});
  t.push_back({"infinite log-probability", [](auto& b) { Set(RowsA(b).action_logp, 1, -kInf); }, "'action_logp'"});
  t.push_back({"NaN reward", [](auto& b) { Set(RowsA(b).rewards, 4, kNaN); }, "'rewards' has nan at row 4"});
  t.push_back({"infinite final observation", [](auto& b) { Set(RowsA(b).final_obs, 0, kInf); }, "'final_obs' has inf"});
  t.push_back({"NaN state", [](auto& b) { Set(b.state, 13, kNaN); }, "'state' has nan at row 6, element 1"});
  t.push_back({"NaN action", [](auto& b) { Set(RowsB(b).actions, 1, kNaN); }, "'actions' has nan at row 0, word 1"});
  t.push_back({"action too low", [](auto& b) { Set<uint8_t>(RowsA(b).actions, 0, 0); }, "expected 1 to 3"});
  t.push_back({"action too high", [](auto& b) { Set<uint8_t>(RowsA(b).actions, 0, 4); }, "expected 1 to 3"});
  t.push_back({"the highest action there can be", [](auto& b) { Set<uint8_t>(RowsA(b).actions, 4, 255); },
               "'actions' has 255 at row 4"});
  t.push_back({"forbidden action", [](auto& b) { Set<uint8_t>(RowsA(b).actions, 3, 3); }, "its mask forbids"});
  t.push_back({"mask of twos", [](auto& b) { Set<uint8_t>(RowsA(b).action_mask, 0, 2); }, "'action_mask' has 2"});
  t.push_back({"final mask of twos", [](auto& b) { Set<uint8_t>(RowsA(b).final_action_mask, 0, 255); }, "has 255"});
  t.push_back({"agent mask of twos", [](auto& b) { Set<uint8_t>(RowsA(b).agent_mask, 0, 2); }, "'agent_mask' has 2"});
  t.push_back({"unaligned column", [](auto& b) { RowsA(b).rewards.data += 1; }, "'rewards' is not aligned"});
  t.push_back({"unaligned table", [](auto& b) { b.step_index.data += 2; }, "'step_index' is not aligned"});
}

std::vector<Hostile> Table() {
  std::vector<Hostile> table;
  AddHeaders(table);
  AddFinished(table);
  AddIndices(table);
  AddMemories(table);
  AddValues(table);
  return table;
}

TEST(HostileBatchTest, EveryCorruptionHasItsError) {
  const BatchSchema schema = Schema();
  ASSERT_TRUE(ValidateBatch(*Valid(schema), schema, {}).ok()) << ValidateBatch(*Valid(schema), schema, {});
  const std::vector<Hostile> table = Table();
  EXPECT_GE(table.size(), 115u);
  for (size_t i = 0; i < table.size(); ++i) {
    SCOPED_TRACE(absl::StrCat("row ", i, ": ", table[i].name));
    const auto batch = Valid(schema);
    table[i].corrupt(*batch);
    const absl::Status status = ValidateBatch(*batch, schema, {});
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), testing::HasSubstr(table[i].error));
    EXPECT_EQ(ValidateShapes(*batch, schema, {}).ok(), !table[i].shape);
  }
}

TEST(HostileBatchTest, WhatIsBelievedOfReturnsIsALimit) {
  const BatchSchema schema = Schema();
  const auto batch = Valid(schema);
  BatchLimits limits;
  limits.max_abs_return = 2;
  EXPECT_TRUE(ValidateBatch(*batch, schema, limits).ok()) << "2.0 is the largest of it";
  limits.max_abs_return = 1.5;
  EXPECT_THAT(std::string(ValidateBatch(*batch, schema, limits).message()),
              testing::HasSubstr("the return of agent slot 0 is 2, expected -1.5 to 1.5"));
  batch->finished[1].returns[0] = 1e38f;
  limits.max_abs_return = 2e38;
  EXPECT_TRUE(ValidateBatch(*batch, schema, limits).ok());
}

TEST(HostileBatchTest, WhatIsBelievedOfARewardIsTheSameLimit) {
  const BatchSchema schema = Schema();
  const auto batch = Valid(schema);
  BatchLimits limits;
  limits.max_abs_return = 1000;
  auto* const rewards = reinterpret_cast<float*>(const_cast<std::byte*>(batch->policies[0].rewards.data));
  const auto last = static_cast<size_t>(batch->policies[0].rows - 1);
  for (const float believed : {1000.0f, -1000.0f, 0.0f}) {
    rewards[last] = believed;
    EXPECT_TRUE(ValidateBatch(*batch, schema, limits).ok()) << believed;
  }
  for (const float refused : {1000.1f, -3e38f, std::numeric_limits<float>::infinity(), std::nanf("")}) {
    rewards[last] = refused;
    const std::string message(ValidateBatch(*batch, schema, limits).message());
    EXPECT_THAT(message, testing::HasSubstr(absl::StrCat("column 'rewards' has ", refused, " at row ", last,
                                                         ", expected -1000 to 1000 (env.max_abs_return)")));
  }
}

/// One segment of two rows, of which the first is made by `decision`, with sequences of two.
std::shared_ptr<MultiAgentBatch> TwoRows(const BatchSchema& schema, int32_t decision) {
  BatchBuilder builder(schema);
  builder.AddEpisode(base::EnvId(0), 0, 5, true, {{base::AgentSlot(0), policy::PolicySlot(0)}});
  const int segment = builder.AddSegment(0, 0, base::AgentSlot(0));
  for (int32_t i = 0; i < 2; ++i) {
    builder.AddRow(0, segment, builder.AddEnvRow(0, 5 + i, {0, 0}), A(0.1f, decision + i));
  }
  builder.EndSegment(0, segment, SegmentEnd::kTerminated);
  builder.header().num_env_steps = 2;
  return builder.Build();
}

TEST(HostileBatchTest, MemoriesBehindTheLastThatIsDue) {
  const BatchSchema schema = Schema();
  const auto batch = TwoRows(schema, 1);
  ASSERT_EQ(batch->policies[0].num_memories, 2);
  ASSERT_TRUE(ValidateBatch(*batch, schema, {}).ok()) << ValidateBatch(*batch, schema, {});
  Set<int32_t>(batch->policies[0].memory_at, kMemoryDecision, 2);
  EXPECT_THAT(std::string(ValidateBatch(*batch, schema, {}).message()),
              testing::HasSubstr("policy 'pa': memory 1 is of row 1, expected no more than 1 memories"));
}

TEST(HostileBatchTest, FewerMemoriesThanAreDue) {
  const BatchSchema schema = Schema();
  const auto batch = TwoRows(schema, 2);
  ASSERT_EQ(batch->policies[0].num_memories, 1);
  ASSERT_TRUE(ValidateBatch(*batch, schema, {}).ok()) << ValidateBatch(*batch, schema, {});
  Set<int32_t>(batch->policies[0].memory_at, kMemoryDecision, 1);
  EXPECT_THAT(std::string(ValidateBatch(*batch, schema, {}).message()),
              testing::HasSubstr("policy 'pa': has 1 memories, expected one more, of row 1, which is decision 2 of its "
                                 "agent, a multiple of 2"));
}

// A critic with a core has no memory on the wire, but the same places.
TEST(HostileBatchTest, MemoriesOfACriticAlone) {
  BatchSchema schema = Schema();
  schema.policies[policy::PolicySlot(0)].actor.core = {};
  schema.policies[policy::PolicySlot(0)].mutable_critic()->core = {policy::CoreKind::kLstm, 2, 1};
  const auto batch = TwoRows(schema, 1);
  EXPECT_FALSE(batch->policies[0].memory.present());
  ASSERT_EQ(batch->policies[0].num_memories, 2);
  ASSERT_TRUE(ValidateBatch(*batch, schema, {}).ok()) << ValidateBatch(*batch, schema, {});
  Set<int32_t>(batch->policies[0].memory_at, kMemoryFields + kMemoryDecision, 4);
  EXPECT_THAT(std::string(ValidateBatch(*batch, schema, {}).message()),
              testing::HasSubstr("memory 1 is of decision 4, expected 2"));
}

// Where a Beta has no density, a loss would be infinite.
TEST(HostileBatchTest, AnActionThatABetaDoesNotDraw) {
  BatchSchema schema = Schema();
  policy::PolicySpec& spec = schema.policies[policy::PolicySlot(1)];
  spec.continuous = policy::ContinuousDistribution::kBeta;
  spec.action_scaling = true;
  const auto batch = Valid(schema);
  Set<float>(batch->policies[1].actions, 1, -policy::kMaxBetaAction);
  EXPECT_TRUE(ValidateBatch(*batch, schema, {}).ok()) << ValidateBatch(*batch, schema, {});
  for (const float action : {-1.0f, 1.0f, 3.0f, kNaN}) {
    Set<float>(batch->policies[1].actions, 1, action);
    const absl::Status status = ValidateBatch(*batch, schema, {});
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()),
                testing::AllOf(testing::HasSubstr("policy 'pb': column 'actions' has "),
                               testing::HasSubstr(" at row 0, word 1, expected numbers between -1 and 1")));
  }
}

/// Final columns must hold what segments point at: a final row that no segment owns is refused, too.
TEST(HostileBatchTest, FinalRowWithoutSegment) {
  const BatchSchema schema = Schema();
  const auto batch = Valid(schema);
  PolicyRows& rows = batch->policies[0];
  Word(rows, 2, kSegmentEnd, static_cast<int32_t>(SegmentEnd::kTerminated));
  Word(rows, 2, kSegmentFinalRow, -1);
  const absl::Status status = ValidateBatch(*batch, schema, {});
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("2 final rows, but 1 segments"));
}

}  // namespace
}  // namespace troupe::sample
