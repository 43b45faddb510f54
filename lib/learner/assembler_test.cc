#include "lib/learner/assembler.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "lib/sample/testing/batch_maker.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::learner {
namespace {

using policy::CriticInput;
using sample::BatchSchema;
using sample::MultiAgentBatchPtr;
using sample::PolicyRows;
using sample::SegmentEnd;
using StepKey = std::tuple<uint32_t, uint32_t, int32_t>;  // env, episode, step

/// One row of a fragment, with everything it points at looked up.
struct NaiveRow {
  StepKey key;
  std::vector<float> obs;
  std::vector<int32_t> actions;
  float logp = 0;
  float reward = 0;
  std::vector<uint8_t> mask;
  uint8_t agent_mask = 1;
  std::vector<float> agent_state;
  std::vector<float> env_state;
};
struct NaiveSegment {
  int32_t slot = 0;
  std::vector<NaiveRow> rows;
  bool has_final = false;
  bool cut = false;
  NaiveRow final_row;  ///< obs and states only
};
/// By policy, then in the order of the train batch.
using NaiveBatch = std::map<int32_t, std::vector<NaiveSegment>>;

std::vector<float> Floats(const sample::ColumnView& column, int64_t row) {
  std::vector<float> values;
  for (int64_t i = 0; i < column.row_elements; ++i) {
    const int64_t at = row * column.row_elements + i;
    values.push_back(column.dtype == tensor::DType::kUint8
                         ? static_cast<float>(column.As<uint8_t>()[at]) * (1.0f / 255.0f)
                         : column.As<float>()[at]);
  }
  return values;
}

/// The reference: everything by maps, nothing shared with the assembler.
NaiveBatch Gather(const std::vector<MultiAgentBatchPtr>& fragments, int64_t iteration, int64_t max_lag,
                  const BatchSchema& schema) {
  NaiveBatch all;
  for (const MultiAgentBatchPtr& fragment : fragments) {
    const auto key_of = [&](int32_t env_row) {
      const sample::EpisodeEntry& e = fragment->episodes[fragment->step_episode.As<int32_t>()[env_row]];
      return StepKey{e.env_id, e.episode, fragment->step_index.As<int32_t>()[env_row]};
    };
    const auto env_state = [&](int32_t env_row) {
      return schema.env_state_size > 0 ? Floats(fragment->state, env_row) : std::vector<float>{};
    };
    for (const PolicyRows& rows : fragment->policies) {
      for (int32_t s = 0; s < rows.num_segments; ++s) {
        const int32_t* words = rows.segments.As<int32_t>().data() + s * sample::kSegmentFields;
        if (iteration - rows.version.n + words[sample::kSegmentVersionLag] > max_lag) continue;
        NaiveSegment segment;
        segment.slot = words[sample::kSegmentSlot];
        segment.cut = words[sample::kSegmentEnd] == static_cast<int32_t>(SegmentEnd::kCut);
        for (int64_t r = 0; r < rows.rows; ++r) {
          if (rows.segment.As<int32_t>()[r] != s) continue;
          NaiveRow row;
          const int32_t env_row = rows.env_row.As<int32_t>()[r];
          row.key = key_of(env_row);
          row.obs = Floats(rows.obs, r);
          for (int64_t w = 0; w < rows.actions.row_elements; ++w) {
            row.actions.push_back(rows.actions.As<int32_t>()[r * rows.actions.row_elements + w]);
          }
          row.logp = rows.action_logp.As<float>()[r];
          row.reward = rows.rewards.As<float>()[r];
          for (int64_t m = 0; m < rows.action_mask.row_elements; ++m) {
            row.mask.push_back(rows.action_mask.As<uint8_t>()[r * rows.action_mask.row_elements + m]);
          }
          if (schema.has_agent_mask) row.agent_mask = rows.agent_mask.As<uint8_t>()[r];
          if (schema.agent_state_size > 0) row.agent_state = Floats(rows.state, r);
          row.env_state = env_state(env_row);
          segment.rows.push_back(std::move(row));
        }
        if (words[sample::kSegmentFinalRow] >= 0) {
          const int32_t f = words[sample::kSegmentFinalRow];
          const int32_t env_row = rows.final_env_row.As<int32_t>()[f];
          segment.has_final = true;
          segment.final_row.key = key_of(env_row);
          segment.final_row.obs = Floats(rows.final_obs, f);
          if (schema.agent_state_size > 0) segment.final_row.agent_state = Floats(rows.final_state, f);
          segment.final_row.env_state = env_state(env_row);
        }
        all[rows.policy.value()].push_back(std::move(segment));
      }
    }
  }
  for (auto& [policy, segments] : all) {
    std::sort(segments.begin(), segments.end(), [](const NaiveSegment& a, const NaiveSegment& b) {
      const auto order = [](const NaiveSegment& s) {
        const auto& [env, episode, step] = s.rows[0].key;
        return std::make_tuple(env, episode, s.slot, step);
      };
      return order(a) < order(b);
    });
    // A cut is no cut where the rest of the trajectory is here.
    std::vector<NaiveSegment> joined;
    for (NaiveSegment& segment : segments) {
      if (!joined.empty() && joined.back().cut && joined.back().slot == segment.slot &&
          joined.back().final_row.key == segment.rows[0].key) {
        NaiveSegment& to = joined.back();
        to.rows.insert(to.rows.end(), segment.rows.begin(), segment.rows.end());
        to.has_final = segment.has_final;
        to.cut = segment.cut;
        to.final_row = segment.final_row;
      } else {
        joined.push_back(std::move(segment));
      }
    }
    segments = std::move(joined);
  }
  return all;
}

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

template <typename T>
std::vector<T> Row(absl::Span<const T> values, int64_t row, int64_t width) {
  return std::vector<T>(values.begin() + row * width, values.begin() + (row + 1) * width);
}

void ExpectEqual(const TrainBatch& batch, const NaiveBatch& expected, const BatchSchema& schema, CommonReward common) {
  ASSERT_EQ(batch.policies.size(), expected.size());
  size_t place = 0;
  int64_t agent_steps = 0;
  for (const auto& [policy, segments] : expected) {
    SCOPED_TRACE(policy);
    const PolicyTrainBatch& got = batch.policies[place++];
    const policy::PolicySpec& spec = schema.policies[policy];
    ASSERT_EQ(got.policy.value(), policy);
    ASSERT_EQ(got.segments.size(), segments.size());
    const auto critic = [&](int32_t row) { return Row(got.critic_state, row, spec.critic_state_size); };
    int64_t r = 0;
    int64_t f = 0;
    std::set<int32_t> critic_rows;
    for (size_t s = 0; s < segments.size(); ++s) {
      const NaiveSegment& want = segments[s];
      EXPECT_EQ(got.segments[s].first_row, r);
      ASSERT_EQ(got.segments[s].rows, static_cast<int64_t>(want.rows.size()));
      EXPECT_EQ(got.segments[s].slot, want.slot);
      EXPECT_EQ(got.segments[s].env_id, std::get<0>(want.rows[0].key));
      EXPECT_EQ(got.segments[s].episode, std::get<1>(want.rows[0].key));
      for (const NaiveRow& row : want.rows) {
        ASSERT_EQ(Row(got.obs, r, spec.observation_size()), row.obs);
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
        if (spec.critic_input == CriticInput::kJointObservation) {
          ASSERT_EQ(critic(got.critic_row[r]), Joint(expected, schema, row.key, false));
        } else if (spec.critic_input == CriticInput::kGlobalState) {
          ASSERT_EQ(critic(got.critic_row[r]), schema.env_state_size > 0 ? row.env_state : row.agent_state);
        }
        if (spec.critic_input != CriticInput::kObservation) critic_rows.insert(got.critic_row[r]);
        ++r;
      }
      EXPECT_EQ(got.segments[s].final_row, want.has_final ? f : -1);
      if (!want.has_final) continue;
      ASSERT_EQ(Row(got.final_obs, f, spec.observation_size()), want.final_row.obs);
      EXPECT_EQ(got.final_slot[f], want.slot);
      if (spec.critic_input == CriticInput::kJointObservation) {
        ASSERT_EQ(critic(got.final_critic_row[f]), Joint(expected, schema, want.final_row.key, true));
      } else if (spec.critic_input == CriticInput::kGlobalState) {
        ASSERT_EQ(critic(got.final_critic_row[f]),
                  schema.env_state_size > 0 ? want.final_row.env_state : want.final_row.agent_state);
      }
      if (spec.critic_input != CriticInput::kObservation) critic_rows.insert(got.final_critic_row[f]);
      ++f;
    }
    EXPECT_EQ(got.rows, r);
    EXPECT_EQ(got.final_rows, f);
    // No critic row that nobody points at, none out of range.
    EXPECT_EQ(static_cast<int64_t>(critic_rows.size()), got.critic_rows);
    if (!critic_rows.empty()) {
      EXPECT_EQ(*critic_rows.rbegin(), got.critic_rows - 1);
    }
    EXPECT_EQ(static_cast<int64_t>(got.critic_state.size()), got.critic_rows * spec.critic_state_size);
  }
  EXPECT_EQ(batch.agent_steps, agent_steps);
}

/// Fragments of two iterations on the same environments by two workers, as an assembly at `iteration` meets them.
std::vector<MultiAgentBatchPtr> RandomFragments(const BatchSchema& schema, uint64_t seed, int64_t iteration) {
  std::vector<MultiAgentBatchPtr> fragments;
  for (uint64_t worker = 0; worker < 2; ++worker) {
    sample::FakeRollout rollout(schema, sample::RandomRolloutOptions(schema, seed));
    sample::Grant grant;
    for (uint32_t lane = 0; lane < 3; ++lane) {
      grant.lanes.push_back({static_cast<uint32_t>(worker) * 3 + lane, 2, true, 13});
    }
    // An earlier iteration, so that episodes are under way and transitions pending.
    rollout.Play(grant, policy::WeightVersion{1, iteration - 1});
    for (sample::GrantLane& lane : grant.lanes) lane.fresh = false;
    for (auto& fragment : rollout.Play(grant, policy::WeightVersion{1, iteration})) fragments.push_back(fragment);
  }
  return fragments;
}

TEST(AssemblerTest, EqualsTheNaiveReferenceOnRandomBatches) {
  int64_t dropped = 0;
  bool joined = false;
  for (uint64_t seed = 0; seed < 120; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const BatchSchema schema = sample::RandomSchema(seed);
    ASSERT_TRUE(Assembler::CheckSchema(schema).ok()) << Assembler::CheckSchema(schema);
    const int64_t max_lag = static_cast<int64_t>(seed % 2);
    const CommonReward common = static_cast<CommonReward>(1 + seed % 3);
    Assembler assembler(schema, {common, max_lag});
    // The same assembler twice: buffers are used again.
    for (int64_t iteration = 1; iteration < 3; ++iteration) {
      const auto fragments = RandomFragments(schema, seed + 1000 * iteration, iteration);
      const Assembly& assembly = assembler.Assemble(fragments, iteration);
      const NaiveBatch expected = Gather(fragments, iteration, max_lag, schema);
      ExpectEqual(assembly.batch, expected, schema, common);
      EXPECT_EQ(assembly.batch.env_steps, 2 * 3 * 13);
      std::map<int32_t, int64_t> sum;
      for (const PolicyRowCount& count : assembly.trained) sum[count.policy] += count.rows;
      for (const PolicyRowCount& count : assembly.dropped) {
        sum[count.policy] += count.rows;
        dropped += count.rows;
      }
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
  EXPECT_TRUE(joined);
}

TEST(AssemblerTest, OrderOfArrivalDoesNotMatter) {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    SCOPED_TRACE(seed);
    const BatchSchema schema = sample::RandomSchema(seed);
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
      EXPECT_EQ(x.obs, y.obs);
      EXPECT_EQ(x.action_logp, y.action_logp);
      EXPECT_EQ(x.rewards, y.rewards);
      EXPECT_EQ(x.final_obs, y.final_obs);
      EXPECT_EQ(x.critic_state, y.critic_state);
      EXPECT_EQ(x.critic_row, y.critic_row);
      EXPECT_EQ(x.final_critic_row, y.final_critic_row);
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
    EXPECT_EQ(whole.obs, pieces.obs);
    EXPECT_EQ(whole.rewards, pieces.rewards);
    EXPECT_EQ(whole.final_obs, pieces.final_obs);
    EXPECT_EQ(whole.critic_state, pieces.critic_state);
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
  schema.policies.push_back(schema.policies[0]);
  schema.policies[1].id = policy::PolicyId("other");
  sample::FakeRolloutOptions options;
  options.terminated_probability = 0;
  options.policies_of_slot = {{0}, {1}};
  const MultiAgentBatchPtr batch = sample::MakeBatch(schema, options, 2, 30);
  Assembler assembler(schema, {});
  const Assembly& assembly = assembler.Assemble({batch}, 0);
  ASSERT_EQ(assembly.batch.policies.size(), 2u);
  EXPECT_EQ(assembly.batch.policies[0].critic_state.data(), assembly.batch.policies[1].critic_state.data());
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
  other.policies[2].policy_class.kind = policy::PolicyClass::Kind::kRandom;
  Assembler classes(other, {CommonReward::kNone, 1});
  for (const PolicyTrainBatch& rows : classes.Assemble(fragments, 1).batch.policies) {
    EXPECT_EQ(rows.train, rows.policy.value() != 2);
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
  EXPECT_EQ(assembler.Assemble({before}, 8).dropped[0].rows, 10);
}

TEST(AssemblerTest, SchemaMustFitTheCritics) {
  const auto error = [](auto change) {
    BatchSchema schema = sample::SimpleSchema();
    change(schema);
    return std::string(Assembler::CheckSchema(schema).message());
  };
  EXPECT_THAT(error([](BatchSchema& s) { s.policies[0].critic_state_size = 5; }), testing::HasSubstr("expected 57"));
  EXPECT_THAT(error([](BatchSchema& s) { s.agent_observation_sizes.clear(); }), testing::HasSubstr("has no"));
  EXPECT_THAT(error([](BatchSchema& s) { s.agent_observation_sizes.pop_back(); }), testing::HasSubstr("2 entries"));
  EXPECT_THAT(error([](BatchSchema& s) { s.policies[0].critic_input = CriticInput::kGlobalState; }),
              testing::HasSubstr("environment has none"));
  EXPECT_THAT(error([](BatchSchema& s) { s.policies[0].critic_input = CriticInput::kObservation; }),
              testing::HasSubstr("expected 0"));
}

}  // namespace
}  // namespace troupe::learner
