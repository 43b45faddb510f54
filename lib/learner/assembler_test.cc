#include "lib/learner/assembler.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "lib/learner/testing/naive_gather.h"
#include "lib/sample/columns.h"
#include "lib/sample/testing/batch_maker.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::learner {
namespace {

using policy::NetworkInput;
using sample::BatchSchema;
using sample::MultiAgentBatchPtr;
using sample::PolicyRows;
using sample::SegmentEnd;

/// What the joint observation of a step should be.
std::vector<float> Joint(const NaiveBatch& batch, const BatchSchema& schema, const StepKey& key, bool with_finals) {
  std::vector<std::vector<float>> parts;
  std::vector<float> bits(schema.agent_ids.size(), 0.0f);
  for (const int64_t size : schema.agent_observation_sizes) parts.emplace_back(static_cast<size_t>(size), 0.0f);
  for (const auto& [policy, segments] : batch) {
    for (const NaiveSegment& segment : segments) {
      for (const NaiveRow& row : segment.rows) {
        if (row.key != key) continue;
        parts[segment.slot] = row.obs;
        bits[segment.slot] = 1;
      }
      if (with_finals && segment.has_final && segment.final_row.key == key) {
        parts[segment.slot] = segment.final_row.obs;
        bits[segment.slot] = 1;
      }
    }
  }
  std::vector<float> joint;
  for (const auto& part : parts) joint.insert(joint.end(), part.begin(), part.end());
  joint.insert(joint.end(), bits.begin(), bits.end());
  return joint;
}

float SharedReward(const NaiveBatch& batch, const StepKey& key, CommonReward kind) {
  double sum = 0;
  int count = 0;
  for (const auto& [policy, segments] : batch) {
    for (const NaiveSegment& segment : segments) {
      for (const NaiveRow& row : segment.rows) {
        if (row.key != key) continue;
        sum += row.reward;
        ++count;
      }
    }
  }
  return static_cast<float>(kind == CommonReward::kMean ? sum / count : sum);
}

/// The whole row, as far as it may be read.
std::vector<float> Row(const RowMatrix& matrix, int64_t row) {
  return std::vector<float>(matrix.row(row), matrix.row(row) + matrix.stride);
}

std::vector<float> All(const RowMatrix& matrix) {
  return std::vector<float>(matrix.data, matrix.data + matrix.rows * matrix.stride);
}

/// What a padded row should be: the values, the one-hot of `slot` where there is one, zeros.
std::vector<float> Padded(std::vector<float> values, int64_t one_hot, int32_t slot) {
  const size_t size = values.size();
  values.resize(static_cast<size_t>(RowMatrix::PaddedStride(static_cast<int64_t>(size) + one_hot)), 0.0f);
  if (one_hot > 0) values[size + static_cast<size_t>(slot)] = 1;
  return values;
}

template <typename T>
std::vector<T> Row(absl::Span<const T> values, int64_t row, int64_t width) {
  return std::vector<T>(values.begin() + row * width, values.begin() + (row + 1) * width);
}

/// Matrices as networks read them.
void ExpectForm(const PolicyTrainBatch& got, const policy::PolicySpec& spec, int64_t critic_one_hot) {
  EXPECT_TRUE(got.obs.padded() && got.final_obs.padded());
  EXPECT_EQ(got.obs.columns, spec.actor_input_size());
  EXPECT_EQ(got.obs.rows, got.rows);
  EXPECT_EQ(got.final_obs.rows, got.final_rows);
  EXPECT_EQ(got.final_obs.data, got.obs.row(got.rows)) << "actor and critic may read one matrix";
  ASSERT_NE(got.in_place, nullptr);
  EXPECT_EQ(got.in_place->data, got.obs.data);
  EXPECT_FALSE(got.in_place->normalized);
  EXPECT_EQ(got.critic_state.rows, got.critic_rows);
  if (spec.critic_input() == NetworkInput::kObservation) return;
  EXPECT_TRUE(got.critic_state.padded());
  EXPECT_EQ(got.critic_state.columns, spec.critic_state_size() + critic_one_hot);
}

void ExpectEqual(const TrainBatch& batch, const NaiveBatch& expected, const BatchSchema& schema, CommonReward common) {
  ASSERT_EQ(batch.policies.size(), expected.size());
  size_t place = 0;
  int64_t agent_steps = 0;
  for (const auto& [policy, segments] : expected) {
    SCOPED_TRACE(policy);
    const PolicyTrainBatch& got = batch.policies[place++];
    const policy::PolicySpec& spec = schema.policies[policy::PolicySlot(policy)];
    ASSERT_EQ(got.policy.value(), policy);
    ASSERT_EQ(got.segments.size(), segments.size());
    const auto critic = [&](int32_t row) { return Row(got.critic_state, row); };
    const bool has_own_states = spec.critic_input() == NetworkInput::kState && schema.env_state_size == 0;
    const int64_t critic_one_hot = has_own_states && spec.critic_agent_id() ? spec.agent_id_size : 0;
    const auto state = [&](const NaiveRow& row, int32_t slot, bool with_finals) {
      return Padded(spec.critic_input() == NetworkInput::kJointObservation
                        ? Joint(expected, schema, row.key, with_finals)
                    : schema.env_state_size > 0 ? row.env_state
                                                : row.agent_state,
                    critic_one_hot, slot);
    };
    ExpectForm(got, spec, critic_one_hot);
    int64_t r = 0;
    int64_t f = 0;
    std::set<int32_t> critic_rows;
    for (size_t s = 0; s < segments.size(); ++s) {
      const NaiveSegment& want = segments[s];
      EXPECT_EQ(got.segments[s].first_row, r);
      ASSERT_EQ(got.segments[s].rows, static_cast<int64_t>(want.rows.size()));
      EXPECT_EQ(got.segments[s].slot.value(), want.slot);
      EXPECT_EQ(got.segments[s].env_id, std::get<0>(want.rows[0].key));
      EXPECT_EQ(got.segments[s].episode, std::get<1>(want.rows[0].key));
      for (const NaiveRow& row : want.rows) {
        ASSERT_EQ(Row(got.obs, r), Padded(row.obs, spec.agent_id_size, want.slot));
        for (int64_t w = 0; w < spec.action_words(); ++w) {
          EXPECT_EQ(got.actions[r * spec.action_words() + w].i32, row.actions[w]);
        }
        EXPECT_EQ(got.action_logp[r], row.logp);
        const float reward = common == CommonReward::kNone ? row.reward : SharedReward(expected, row.key, common);
        EXPECT_NEAR(got.rewards[r], reward, 1e-6);
        if (spec.mask_size() > 0) {
          EXPECT_EQ(Row(got.action_mask, r, spec.mask_size()), row.mask);
        }
        EXPECT_EQ(got.agent_mask.empty(), !schema.has_agent_mask);
        if (schema.has_agent_mask) {
          EXPECT_EQ(got.agent_mask[r], row.agent_mask);
        }
        agent_steps += row.agent_mask;
        EXPECT_EQ(got.slot[r], want.slot);
        if (spec.critic_input() != NetworkInput::kObservation) {
          ASSERT_EQ(critic(got.critic_row[r]), state(row, want.slot, false));
          critic_rows.insert(got.critic_row[r]);
        }
        ++r;
      }
      EXPECT_EQ(got.segments[s].final_row, want.has_final ? f : -1);
      EXPECT_EQ(got.segments[s].truncated, want.has_final && !want.cut);
      if (!want.has_final) continue;
      ASSERT_EQ(Row(got.final_obs, f), Padded(want.final_row.obs, spec.agent_id_size, want.slot));
      const auto mask = got.final_action_mask.subspan(static_cast<size_t>(f * spec.mask_size()),
                                                      static_cast<size_t>(spec.mask_size()));
      EXPECT_EQ(std::vector<uint8_t>(mask.begin(), mask.end()), want.final_row.mask);
      EXPECT_EQ(got.final_slot[f], want.slot);
      if (spec.critic_input() != NetworkInput::kObservation) {
        ASSERT_EQ(critic(got.final_critic_row[f]), state(want.final_row, want.slot, true));
        critic_rows.insert(got.final_critic_row[f]);
      }
      ++f;
    }
    EXPECT_EQ(got.rows, r);
    EXPECT_EQ(got.final_rows, f);
    EXPECT_EQ(static_cast<int64_t>(got.final_action_mask.size()), f * spec.mask_size());
    // No critic row that nobody points at, none out of range.
    EXPECT_EQ(static_cast<int64_t>(critic_rows.size()), got.critic_rows);
    if (!critic_rows.empty()) {
      EXPECT_EQ(*critic_rows.rbegin(), got.critic_rows - 1);
    }
  }
  EXPECT_EQ(batch.agent_steps, agent_steps);
}

TEST(AssemblerTest, EqualsTheNaiveReferenceOnRandomBatches) {
  int64_t dropped = 0, waited = 0;
  bool joined = false;
  for (uint64_t seed = 0; seed < 120; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const BatchSchema schema = WithAgentIds(sample::RandomSchema(seed), seed);
    ASSERT_TRUE(Assembler::CheckSchema(schema).ok()) << Assembler::CheckSchema(schema);
    const int64_t max_lag = static_cast<int64_t>(seed % 2);
    const CommonReward common = static_cast<CommonReward>(1 + seed % 3);
    Assembler assembler(schema, {common, max_lag});
    // The same assembler twice: buffers are used again.
    for (int64_t iteration = 1; iteration < 3; ++iteration) {
      const auto fragments = RandomFragments(schema, seed + 1000 * iteration, iteration);
      const Assembly& assembly = assembler.Assemble(fragments, iteration);
      const NaiveBatch expected = NaiveGather(fragments, iteration, max_lag, schema);
      ExpectEqual(assembly.batch, expected, schema, common);
      EXPECT_EQ(assembly.batch.env_steps, 2 * 3 * 13);
      std::map<int32_t, int64_t> sum;
      for (const PolicyRowCount& count : assembly.trained) sum[count.policy.value()] += count.rows;
      for (const PolicyRowCount& count : assembly.aged) {
        sum[count.policy.value()] += count.rows;
        dropped += count.rows;
      }
      for (const PolicyRowCount& count : assembly.waited) waited += count.rows;
      std::map<int32_t, int64_t> arrived;
      int64_t segments = 0;
      for (const auto& fragment : fragments) {
        for (const PolicyRows& rows : fragment->policies) {
          arrived[rows.policy.value()] += rows.rows;
          segments += rows.num_segments;
        }
      }
      EXPECT_EQ(sum, arrived);
      int64_t left = 0;
      for (const auto& policy : assembly.batch.policies) left += static_cast<int64_t>(policy.segments.size());
      joined = joined || left < segments;
    }
  }
  EXPECT_GT(dropped, 0);
  EXPECT_GT(waited, 0);
  EXPECT_TRUE(joined);
}

void ChangeFirst(const sample::ColumnView& column) {
  ASSERT_GT(column.bytes(), 0u);
  if (column.dtype == tensor::DType::kFloat32) {
    sample::MutableColumn<float>(column)[0] += 1;
  } else {
    const_cast<std::byte&>(column.data[0]) ^= std::byte{1};
  }
}

// A column that is only in the table fails here, until the assembler gathers it and BytesOf (naive_gather.h) has it.
TEST(AssemblerTest, EveryColumnOfTheTableIsInTheTrainBatch) {
  BatchSchema agent_states = sample::FullSchema();
  agent_states.env_state_size = 0;
  agent_states.policies[policy::PolicySlot(0)].SetCriticInput(NetworkInput::kState, agent_states.agent_state_size);
  std::map<std::string, bool> is_in;
  for (const BatchSchema& schema : {sample::FullSchema(), agent_states}) {
    sample::FakeRolloutOptions options;
    options.terminated_probability = 0;  // every segment has a final row
    const auto fragment = [&] { return sample::MakeBatch(schema, options, 2, 6); };
    Assembler assembler(schema, {});
    const std::string plain = BytesOf(assembler.Assemble({fragment()}, 0).batch);
    const auto change = [&](const std::string& name, sample::Contents contents, const auto& column_of) {
      if (contents == sample::Contents::kIndices) return;  // which say where the others lie
      bool& in = is_in[name];
      const auto batch = fragment();
      const sample::ColumnView column = column_of(*batch);
      if (!column.present()) return;
      ChangeFirst(column);
      in = in || BytesOf(assembler.Assemble({batch}, 0).batch) != plain;
    };
    for (const auto& column : sample::StepColumns()) {
      change(std::string("step ") + column.name, column.contents,
             [&](const sample::MultiAgentBatch& batch) { return batch.*column.member; });
    }
    for (const auto& column : sample::PolicyColumns()) {
      change(column.name, column.contents,
             [&](const sample::MultiAgentBatch& batch) { return batch.policies[0].*column.member; });
    }
  }
  for (const auto& [name, in] : is_in) EXPECT_TRUE(in) << name;
}

TEST(AssemblerTest, OrderOfArrivalDoesNotMatter) {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    SCOPED_TRACE(seed);
    const BatchSchema plain = sample::RandomSchema(seed);
    const BatchSchema schema = seed % 2 == 0 ? plain : sample::WithCores(plain, seed);
    auto fragments = RandomFragments(schema, seed, 1);
    Assembler assembler(schema, {CommonReward::kSum, 1});
    Assembler other(schema, {CommonReward::kSum, 1});
    const Assembly& a = assembler.Assemble(fragments, 1);
    std::reverse(fragments.begin(), fragments.end());
    const Assembly& b = other.Assemble(fragments, 1);
    ASSERT_EQ(a.batch.policies.size(), b.batch.policies.size());
    for (size_t p = 0; p < a.batch.policies.size(); ++p) {
      const PolicyTrainBatch& x = a.batch.policies[p];
      const PolicyTrainBatch& y = b.batch.policies[p];
      EXPECT_EQ(All(x.obs), All(y.obs));
      EXPECT_EQ(x.action_logp, y.action_logp);
      EXPECT_EQ(x.rewards, y.rewards);
      EXPECT_EQ(All(x.final_obs), All(y.final_obs));
      EXPECT_EQ(All(x.critic_state), All(y.critic_state));
      EXPECT_EQ(x.critic_row, y.critic_row);
      EXPECT_EQ(x.final_critic_row, y.final_critic_row);
      EXPECT_EQ(x.sequences, y.sequences);
      EXPECT_EQ(All(x.memory), All(y.memory));
    }
  }
}

/// One grant in one fragment or in many: the same train batch, since cuts inside it are joined. (Agents that always
/// act, so that no transition waits for a later fragment.)
TEST(AssemblerTest, CutsInsideABatchDoNotShow) {
  const BatchSchema schema = sample::SimpleSchema(3, 4);
  std::vector<Assembly> assemblies;
  std::vector<std::unique_ptr<Assembler>> assemblers;
  for (const int32_t ticks : {1 << 20, 7, 1}) {
    sample::FakeRolloutOptions options;
    options.min_episode_steps = 3;
    options.max_episode_steps = 20;
    options.agents_come_and_go = true;
    options.max_ticks_per_fragment = ticks;
    sample::FakeRollout rollout(schema, options);
    std::vector<MultiAgentBatchPtr> fragments;
    for (auto& fragment : rollout.Play(sample::MakeGrant(4, 30, {}), {})) fragments.push_back(fragment);
    assemblers.push_back(std::make_unique<Assembler>(schema, Assembler::Options{}));
    assemblies.push_back(assemblers.back()->Assemble(fragments, 0));
  }
  const PolicyTrainBatch& whole = assemblies[0].batch.policies[0];
  for (size_t i = 1; i < assemblies.size(); ++i) {
    const PolicyTrainBatch& pieces = assemblies[i].batch.policies[0];
    EXPECT_EQ(All(whole.obs), All(pieces.obs));
    EXPECT_EQ(whole.rewards, pieces.rewards);
    EXPECT_EQ(All(whole.final_obs), All(pieces.final_obs));
    EXPECT_EQ(All(whole.critic_state), All(pieces.critic_state));
    EXPECT_EQ(whole.critic_row, pieces.critic_row);
    ASSERT_EQ(whole.segments.size(), pieces.segments.size());
  }
}

/// A fragment in the middle was refused: what came before it is cut there and bootstraps from its own final row.
TEST(AssemblerTest, AHoleIsNotBridged) {
  const BatchSchema schema = sample::SimpleSchema(2, 3);
  sample::FakeRolloutOptions options;
  options.min_episode_steps = options.max_episode_steps = 40;
  options.max_ticks_per_fragment = 5;
  sample::FakeRollout rollout(schema, options);
  const auto fragments = rollout.Play(sample::MakeGrant(1, 15, {}), {});
  ASSERT_EQ(fragments.size(), 3u);
  Assembler assembler(schema, {});
  const PolicyTrainBatch& rows = assembler.Assemble({fragments[0], fragments[2]}, 0).batch.policies[0];
  ASSERT_EQ(rows.segments.size(), 4u);
  for (int64_t s = 0; s < 4; ++s) {
    EXPECT_EQ(rows.segments[s].rows, 5);
    EXPECT_EQ(rows.segments[s].final_row, s);
  }
}

/// Separate policies that all see every step share the joint observations instead of copying them.
TEST(AssemblerTest, PoliciesShareJointObservationsTheyAllNeed) {
  BatchSchema schema = sample::SimpleSchema(2, 4);
  schema.policies.push_back(schema.policies[policy::PolicySlot(0)]);
  schema.policies[policy::PolicySlot(1)].id = policy::PolicyId("other");
  sample::FakeRolloutOptions options;
  options.terminated_probability = 0;
  options.policies_of_slot = {{0}, {1}};
  const MultiAgentBatchPtr batch = sample::MakeBatch(schema, options, 2, 30);
  Assembler assembler(schema, {});
  const Assembly& assembly = assembler.Assemble({batch}, 0);
  ASSERT_EQ(assembly.batch.policies.size(), 2u);
  EXPECT_EQ(assembly.batch.policies[0].critic_state.data, assembly.batch.policies[1].critic_state.data);
}

TEST(AssemblerTest, WhoTrainsIsMarked) {
  const BatchSchema schema = sample::RandomSchema(1);
  ASSERT_GE(schema.policies.size(), 3u);
  std::vector<bool> trains(schema.policies.size(), true);
  trains[1] = false;
  Assembler some(schema, {CommonReward::kNone, 1, trains});
  Assembler all(schema, {CommonReward::kNone, 1});
  const auto fragments = RandomFragments(schema, 1, 1);
  for (const PolicyTrainBatch& rows : some.Assemble(fragments, 1).batch.policies) {
    EXPECT_EQ(rows.train, rows.policy.value() != 1);
  }
  for (const PolicyTrainBatch& rows : all.Assemble(fragments, 1).batch.policies) EXPECT_TRUE(rows.train);
  // A class that is not trained never is, whatever was asked for.
  BatchSchema other = schema;
  other.policies[policy::PolicySlot(2)].policy_class.kind = policy::PolicyClass::Kind::kRandom;
  Assembler classes(other, {CommonReward::kNone, 1});
  for (const PolicyTrainBatch& rows : classes.Assemble(fragments, 1).batch.policies) {
    EXPECT_EQ(rows.train, rows.policy.value() != 2);
  }
}

// An honest worker's fragments do not differ so, but each of these is valid by its revision.
TEST(AssemblerTest, TheStateOfAStepComesFromTheFragmentThatHasIt) {
  BatchSchema schema = sample::SimpleSchema(2, 3);
  schema.env_state_size = 2;
  schema.policies[policy::PolicySlot(0)].SetCriticInput(NetworkInput::kObservation, 0);
  schema.policies.push_back(schema.policies[policy::PolicySlot(0)]);
  schema.policies[policy::PolicySlot(1)].id = policy::PolicyId("reader");
  schema.policies[policy::PolicySlot(1)].SetCriticInput(NetworkInput::kState, 2);
  schema.state_readings = {{0, false}, {1, true}};
  schema.newest_revision = 1;
  const auto make = [&schema](int policy, int64_t revision) {
    sample::BatchBuilder builder(schema);
    builder.header().policies_revision = builder.header().oldest_revision = revision;
    builder.header().num_env_steps = 1;
    builder.AddEpisode(base::EnvId(0), 0, 0, false,
                       {{base::AgentSlot(0), policy::PolicySlot(0)}, {base::AgentSlot(1), policy::PolicySlot(1)}});
    const std::vector<float> state = revision == 0 ? std::vector<float>() : std::vector<float>{3, 4};
    const int row = builder.AddEnvRow(0, 0, state);
    const int final_row = builder.AddFinalEnvRow(0, 1, revision == 0 ? state : std::vector<float>{5, 6});
    sample::RowValues values;
    values.obs = {1, 2, 3};
    values.actions.resize(1);
    builder.AddRow(policy, builder.AddSegment(policy, 0, base::AgentSlot(policy)), row, values);
    builder.EndSegment(policy, 0, SegmentEnd::kCut, final_row, values);
    const MultiAgentBatchPtr batch = builder.Build();
    const absl::Status valid = sample::ValidateBatch(*batch, schema, {});
    EXPECT_TRUE(valid.ok()) << valid;
    EXPECT_EQ(batch->state.present(), revision == 1);
    return batch;
  };
  const MultiAgentBatchPtr without = make(0, 0);
  const MultiAgentBatchPtr with = make(1, 1);
  for (const bool reversed : {false, true}) {
    Assembler assembler(schema, {});
    const std::vector<MultiAgentBatchPtr> fragments =
        reversed ? std::vector<MultiAgentBatchPtr>{with, without} : std::vector<MultiAgentBatchPtr>{without, with};
    const Assembly& assembly = assembler.Assemble(fragments, 0);
    ASSERT_EQ(assembly.batch.policies.size(), 2u);
    const RowMatrix& states = assembly.batch.policies[1].critic_state;
    ASSERT_EQ(states.rows, 2);
    EXPECT_EQ(Row(states, 0), Padded({3, 4}, 0, 0));
    EXPECT_EQ(Row(states, 1), Padded({5, 6}, 0, 0));
  }
}

TEST(AssemblerTest, NothingToAssemble) {
  const BatchSchema schema = sample::SimpleSchema();
  Assembler assembler(schema, {});
  const Assembly& assembly = assembler.Assemble({}, 3);
  EXPECT_TRUE(assembly.batch.policies.empty());
  EXPECT_EQ(assembly.batch.env_steps, 0);
}

TEST(AssemblerTest, MeanLagIsOfTheRows) {
  const BatchSchema schema = sample::SimpleSchema(2, 3);
  const MultiAgentBatchPtr now = sample::MakeBatch(schema, {}, 1, 5, policy::WeightVersion{1, 7});
  const MultiAgentBatchPtr before = sample::MakeBatch(schema, {}, 1, 5, policy::WeightVersion{1, 6});
  Assembler assembler(schema, {CommonReward::kNone, 1});
  EXPECT_EQ(assembler.Assemble({now}, 7).mean_lag, 0);
  EXPECT_EQ(assembler.Assemble({before}, 7).mean_lag, 1);
  EXPECT_EQ(assembler.Assemble({before}, 8).mean_lag, 0) << "all too old";
  EXPECT_EQ(assembler.Assemble({before}, 8).aged[0].rows, 10);
  EXPECT_TRUE(assembler.Assemble({before}, 8).waited.empty());
}

TEST(AssemblerTest, SchemaMustFitTheCritics) {
  const auto error = [](auto change) {
    BatchSchema schema = sample::SimpleSchema();
    change(schema);
    return std::string(Assembler::CheckSchema(schema).message());
  };
  EXPECT_THAT(error([](BatchSchema& s) {
                s.policies[policy::PolicySlot(0)].SetCriticInput(NetworkInput::kJointObservation, 5);
              }),
              testing::HasSubstr("expected 57"));
  EXPECT_THAT(error([](BatchSchema& s) { s.agent_observation_sizes.clear(); }), testing::HasSubstr("has no"));
  EXPECT_THAT(error([](BatchSchema& s) { s.agent_observation_sizes.pop_back(); }), testing::HasSubstr("2 entries"));
  EXPECT_THAT(error([](BatchSchema& s) { s.policies[policy::PolicySlot(0)].SetCriticInput(NetworkInput::kState, 57); }),
              testing::HasSubstr("environment has none"));
}

}  // namespace
}  // namespace troupe::learner
