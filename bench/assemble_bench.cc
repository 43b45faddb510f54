// What lies between the last fragment's arrival and the update: validation, the critical section of ingest, and
// assembly of the train batch. Setting: simple_spread, 80 environments of 2 workers, 4000 env steps, 12,000 rows of 18
// floats with joint observations. Floors in the same run: memcpy of the bytes that a stage reads or writes.

#include <cstring>
#include <memory>
#include <vector>

#include "lib/base/all_finite.h"
#include "lib/learner/assembler.h"
#include "lib/learner/checked_fragment.h"
#include "lib/policy/policy_spec.h"
#include "lib/sample/testing/batch_maker.h"
#include <benchmark/benchmark.h>

namespace {

using troupe::learner::Assembler;
using troupe::learner::Assembly;
using troupe::sample::BatchSchema;
using troupe::sample::MultiAgentBatchPtr;

constexpr int32_t kWorkers = 2;
constexpr uint32_t kLanesPerWorker = 40;
constexpr int32_t kStepsPerLane = 50;

const BatchSchema& Schema() {
  static const BatchSchema schema = troupe::sample::SimpleSchema(3, 18);
  return schema;
}

const std::vector<MultiAgentBatchPtr>& Fragments() {
  static const std::vector<MultiAgentBatchPtr> fragments = [] {
    std::vector<MultiAgentBatchPtr> made;
    for (uint32_t worker = 0; worker < kWorkers; ++worker) {
      troupe::sample::FakeRolloutOptions options;
      options.terminated_probability = 0;
      troupe::sample::FakeRollout rollout(Schema(), options);
      troupe::sample::Grant grant;
      for (uint32_t lane = 0; lane < kLanesPerWorker; ++lane) {
        grant.lanes.push_back({troupe::base::EnvId(worker * kLanesPerWorker + lane), 0, true, kStepsPerLane});
      }
      for (auto& fragment : rollout.Play(grant, {})) made.push_back(std::move(fragment));
    }
    return made;
  }();
  return fragments;
}

int64_t FragmentBytes() {
  int64_t bytes = 0;
  for (const MultiAgentBatchPtr& fragment : Fragments()) {
    bytes += troupe::learner::CheckFragment(fragment, Schema(), {}).bytes;
  }
  return bytes;
}

int64_t BatchBytes(const Assembly& assembly) {
  int64_t bytes = 0;
  for (const auto& rows : assembly.batch.policies) {
    const int64_t matrices = rows.obs.rows * rows.obs.stride + rows.final_obs.rows * rows.final_obs.stride +
                             rows.critic_state.rows * rows.critic_state.stride;
    bytes += 4 * matrices + static_cast<int64_t>(4 * (rows.actions.size() + rows.action_logp.size() +
                                                      rows.rewards.size() + rows.slot.size() + rows.critic_row.size() +
                                                      rows.final_slot.size() + rows.final_critic_row.size()));
  }
  return bytes;
}

/// 12,000 rows into the train batch, joint observations included.
void BM_Assemble(benchmark::State& state) {
  Assembler assembler(Schema(), {});
  int64_t bytes = 0;
  int64_t rows = 0;
  for (auto _ : state) {
    const Assembly& assembly = assembler.Assemble(Fragments(), 0);
    benchmark::DoNotOptimize(assembly.batch.policies.data());
    bytes = BatchBytes(assembly);
    rows = assembly.batch.policies[0].rows;
  }
  state.counters["rows"] = static_cast<double>(rows);
  state.SetBytesProcessed(state.iterations() * bytes);
}
BENCHMARK(BM_Assemble)->Unit(benchmark::kMicrosecond);

/// What ingest_bench assembles in its iterations: 72,000 rows of 18 floats out of fragments of 4 MiB, no joint
/// observations.
void BM_AssembleRows(benchmark::State& state) {
  BatchSchema schema = Schema();
  schema.policies[troupe::policy::PolicySlot(0)].SetCriticInput(troupe::policy::NetworkInput::kObservation, 0);
  troupe::sample::FakeRolloutOptions options;
  options.min_episode_steps = options.max_episode_steps = 200;
  options.max_ticks_per_fragment = 100;
  troupe::sample::FakeRollout rollout(schema, options);
  std::vector<MultiAgentBatchPtr> fragments;
  int64_t bytes = 0;
  for (auto& fragment : rollout.Play(troupe::sample::MakeGrant(120, 200, {1, 0}), {1, 0})) {
    bytes += troupe::learner::CheckFragment(fragment, schema, {}).bytes;
    fragments.push_back(std::move(fragment));
  }
  Assembler assembler(schema, {});
  for (auto _ : state) {
    benchmark::DoNotOptimize(assembler.Assemble(fragments, 0).batch.policies.data());
  }
  state.SetBytesProcessed(state.iterations() * bytes);
}
BENCHMARK(BM_AssembleRows)->Unit(benchmark::kMicrosecond);

/// Floor of BM_Assemble: one copy of what it writes.
void BM_AssembleFloorMemcpy(benchmark::State& state) {
  Assembler assembler(Schema(), {});
  const int64_t bytes = BatchBytes(assembler.Assemble(Fragments(), 0));
  const std::vector<char> from(static_cast<size_t>(bytes), 1);
  std::vector<char> to(from.size());
  for (auto _ : state) {
    std::memcpy(to.data(), from.data(), from.size());
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * bytes);
}
BENCHMARK(BM_AssembleFloorMemcpy)->Unit(benchmark::kMicrosecond);

/// Shapes, indices, invariants and finiteness of the same fragments.
void BM_Validate(benchmark::State& state) {
  const int64_t bytes = FragmentBytes();
  for (auto _ : state) {
    for (const MultiAgentBatchPtr& fragment : Fragments()) {
      const auto checked = troupe::learner::CheckFragment(fragment, Schema(), {});
      benchmark::DoNotOptimize(checked.bytes);
    }
  }
  state.SetBytesProcessed(state.iterations() * bytes);
}
BENCHMARK(BM_Validate)->Unit(benchmark::kMicrosecond);

/// The vectorized part of BM_Validate alone, on 4 MiB.
void BM_AllFinite(benchmark::State& state) {
  const std::vector<float> values(1 << 20, 1.5f);
  for (auto _ : state) {
    bool finite = troupe::base::AllFinite(values);
    benchmark::DoNotOptimize(finite);
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(values.size()) * 4);
}
BENCHMARK(BM_AllFinite)->Unit(benchmark::kMicrosecond);

/// Floor of BM_AllFinite: a copy of the same 4 MiB.
void BM_AllFiniteFloorMemcpy(benchmark::State& state) {
  const std::vector<float> from(1 << 20, 1.5f);
  std::vector<float> to(from.size());
  for (auto _ : state) {
    std::memcpy(to.data(), from.data(), from.size() * 4);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(from.size()) * 4);
}
BENCHMARK(BM_AllFiniteFloorMemcpy)->Unit(benchmark::kMicrosecond);

}  // namespace
