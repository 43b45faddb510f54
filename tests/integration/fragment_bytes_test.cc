// What a fragment of simple_spread costs on the wire, an env step: MAPPO's critics see joint observations, so that the
// global state stays at the worker.

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lib/config/resolved_run.h"
#include "lib/config/run_config.h"
#include "lib/envs/register_all.h"
#include "lib/policy/parameter_layout.h"
#include "lib/policy/policy_spec.h"
#include "lib/rollout/collector.h"
#include "lib/rollout/testing/fixed_weights.h"
#include "lib/rpc/codec/fragment_codec.h"
#include "lib/run/rollout_setup.h"
#include "lib/sample/columns.h"
#include "lib/sample/multi_agent_batch.h"
#include <gtest/gtest.h>

namespace troupe::integration {
namespace {

struct Kept final : rollout::SampleSink {
  absl::Status Submit(sample::MultiAgentBatchPtr fragment) override {
    fragments.push_back(std::move(fragment));
    return absl::OkStatus();
  }
  std::vector<sample::MultiAgentBatchPtr> fragments;
};

/// 40 environments, two episodes of 25 steps each: one fragment.
sample::MultiAgentBatchPtr PlaySpread(const std::vector<std::string>& overrides) {
  env::EnvRegistry registry;
  envs::RegisterAllEnvs(registry);
  const auto config = config::RunConfig::FromYaml(
      "env: {name: mpe/simple_spread}\nalgorithm: {name: mappo}\nnum_workers: 1\nnum_envs_per_worker: 40\n", "test",
      overrides);
  TROUPE_CHECK(config.ok());
  const auto run = config::ResolveRun(*config, registry);
  TROUPE_CHECK(run.ok());
  auto collector = rollout::Collector::Create(*run::MakeRolloutConfig(*run, registry));
  TROUPE_CHECK(collector.ok());
  std::vector<policy::WeightSnapshotPtr> weights;
  for (const policy::PolicySpec& spec : run->policies) {
    auto snapshot = std::make_shared<policy::WeightSnapshot>();
    snapshot->id = spec.id;
    snapshot->version = {1, 0};
    snapshot->actor.resize(static_cast<size_t>(policy::ParameterLayout::For(spec).acting_size()));
    weights.push_back(std::move(snapshot));
  }
  rollout::FixedWeights fixed(std::move(weights));
  sample::Grant grant;
  grant.id = sample::GrantId(1);
  grant.min_version = {1, 0};
  for (uint32_t env = 0; env < 40; ++env) grant.lanes.push_back({base::EnvId(env), 0, true, 50});
  Kept sink;
  TROUPE_CHECK((*collector)->RunGrant(grant, fixed, sink).ok());
  TROUPE_CHECK(sink.fragments.size() == 1);
  const absl::Status valid = sample::ValidateBatch(*sink.fragments[0], run->schema, run->limits);
  EXPECT_TRUE(valid.ok()) << valid;
  return sink.fragments[0];
}

/// The whole message, header and gaps between columns included.
double EncodedBytesAnEnvStep(const sample::MultiAgentBatchPtr& batch) {
  const auto encoded = rpc::EncodeFragment(1, batch);
  TROUPE_CHECK(encoded.ok());
  return static_cast<double>(encoded->message.Length()) / static_cast<double>(batch->num_env_steps);
}

/// Bytes of the columns that protocol 1 had for the same steps: words for indices and actions, two flags a row, the
/// state always.
double ColumnBytesOfProtocol1(const sample::MultiAgentBatch& batch) {
  constexpr int64_t kObservation = 18 * 4;
  constexpr int64_t kState = 54 * 4;
  int64_t bytes = sample::NumRows(batch) * (4 + 4 + kState);
  for (const sample::PolicyRows& rows : batch.policies) {
    bytes += rows.rows * (kObservation + 4 + 4 + 4 + 1 + 1 + 4 + 4) + rows.num_segments * 20;
    bytes += rows.final_rows * (kObservation + 4);
  }
  return static_cast<double>(bytes) / static_cast<double>(batch.num_env_steps);
}

TEST(FragmentBytesTest, AnEnvStepOfSimpleSpreadTakesLittleMoreThanHalfOfWhatItDid) {
  const sample::MultiAgentBatchPtr batch = PlaySpread({});
  ASSERT_EQ(batch->num_env_steps, 2000);
  ASSERT_EQ(batch->num_agent_steps, 6000);
  const double before = ColumnBytesOfProtocol1(*batch);
  const double now = EncodedBytesAnEnvStep(batch);
  RecordProperty("before", std::to_string(before));
  RecordProperty("now", std::to_string(now));
  EXPECT_NEAR(before, 526, 1);
  EXPECT_LE(now, 0.53 * before);
  EXPECT_LE(now, 276);
}

TEST(FragmentBytesTest, TheRowsAndStepsAreThoseOfTheTable) {
  const sample::MultiAgentBatchPtr batch = PlaySpread({});
  ASSERT_EQ(batch->policies.size(), 1u);
  int64_t row = 0;
  for (const auto& column : sample::PolicyColumns()) {
    const sample::ColumnView& view = batch->policies[0].*column.member;
    if (column.extent == sample::Extent::kRow) row += static_cast<int64_t>(view.bytes()) / batch->policies[0].rows;
  }
  EXPECT_EQ(row, 72 + 1 + 4 + 4 + 2 + 2) << "observation, action, log-probability, reward, env row, segment";
  int64_t step = 0;
  for (const auto& column : sample::StepColumns()) {
    step += static_cast<int64_t>((*batch.*column.member).bytes()) / sample::NumRows(*batch);
  }
  EXPECT_EQ(step, 2 + 4) << "episode, step";
}

TEST(FragmentBytesTest, TheStateIsThereWhereItIsReadOrAskedFor) {
  const double without = EncodedBytesAnEnvStep(PlaySpread({}));
  for (const char* const key : {"algorithm.use_global_state=true", "env.send_state=always"}) {
    const sample::MultiAgentBatchPtr batch = PlaySpread({key});
    EXPECT_EQ(batch->state.row_elements, 54) << key;
    EXPECT_GT(EncodedBytesAnEnvStep(batch), without + 54 * 4) << key;
  }
}

}  // namespace
}  // namespace troupe::integration
