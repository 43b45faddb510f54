// The policy map: batches of 64 lookups among 1,000 resident policies, from one thread and from two, beside as many
// atomic increments that nobody contends for; a miss of a 0.35 MB policy from the host's memory, beside its memcpy; and
// the hits of one thread while another one misses all the time.

#include <atomic>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "lib/base/check.h"
#include "lib/base/philox.h"
#include "lib/policy/policy_map.h"
#include "lib/policy/policy_state_codec.h"
#include "lib/policy/policy_state_tier.h"
#include "lib/policy/testing.h"
#include "lib/policy/testing/random_state.h"
#include "lib/policy/testing/state_form.h"
#include "lib/storage/disk_blob_store.h"
#include "lib/storage/testing/scratch_directory.h"
#include <benchmark/benchmark.h>

namespace {

using troupe::base::PhiloxKey;
using troupe::base::PhiloxSequence;
using troupe::base::RandomStream;
using troupe::policy::PolicyMapCore;
using troupe::policy::PolicySlot;
using troupe::policy::PolicyState;
using troupe::policy::PolicyTier;

constexpr int32_t kPolicies = 1000;
constexpr int kLookups = 64;
constexpr size_t kPolicyBytes = 350'000;

/// Host memory: policies that are copied in.
class HostTier final : public PolicyTier {
 public:
  explicit HostTier(size_t bytes) : kept_(bytes, 'x') {}
  absl::StatusOr<Value> Load(PolicySlot) override { return Value(std::make_shared<std::string>(kept_)); }
  absl::Status Store(PolicySlot, const Value&) override { return absl::OkStatus(); }
  int64_t Bytes(const Value&) const override { return static_cast<int64_t>(kept_.size()); }

 private:
  const std::string kept_;
};

std::unique_ptr<PolicyMapCore> MakeMap(PolicyTier* tier, int64_t capacity) {
  PolicyMapCore::Options options;
  options.capacity = capacity;
  options.max_slots = kPolicies;
  auto map = *PolicyMapCore::Make(options, tier, &troupe::base::Clock::Real());
  for (int32_t p = 0; p < kPolicies; ++p) TROUPE_CHECK(map->Add(PolicySlot(p)).ok());
  return map;
}

std::vector<std::vector<PolicySlot>> RandomBatches(uint64_t seed, int32_t first, int32_t policies) {
  PhiloxSequence random(PhiloxKey::Make(seed, RandomStream::kTest), {});
  std::vector<std::vector<PolicySlot>> batches(256);
  for (std::vector<PolicySlot>& batch : batches) {
    for (int i = 0; i < kLookups; ++i) {
      batch.emplace_back(first + static_cast<int32_t>(random.Below(static_cast<uint32_t>(policies))));
    }
  }
  return batches;
}

void AcquireAll(PolicyMapCore& map, int32_t first, int32_t count) {
  PolicyMapCore::Reader reader(&map);
  for (int32_t p = first; p < first + count; ++p) {
    TROUPE_CHECK(reader.Acquire({PolicySlot(p)}, PolicyMapCore::Access::kRead).ok());
  }
}

HostTier small_tier(8);
std::unique_ptr<PolicyMapCore> all_resident;

void MakeAllResident(const benchmark::State&) {
  all_resident = MakeMap(&small_tier, kPolicies);
  AcquireAll(*all_resident, 0, kPolicies);
}

void BM_Lookups(benchmark::State& state) {
  PolicyMapCore::Reader reader(all_resident.get());
  const auto batches = RandomBatches(static_cast<uint64_t>(state.thread_index()), 0, kPolicies);
  size_t next = 0;
  for (auto _ : state) {
    const auto batch = reader.Acquire(batches[next++ % batches.size()], PolicyMapCore::Access::kRead);
    benchmark::DoNotOptimize(batch->value(kLookups - 1));
  }
}
BENCHMARK(BM_Lookups)->Setup(MakeAllResident)->Threads(1)->Threads(2)->UseRealTime();

void BM_LookupsFloorIncrements(benchmark::State& state) {
  std::atomic<int64_t> count{0};
  for (auto _ : state) {
    for (int i = 0; i < kLookups; ++i) count.fetch_add(1);
  }
}
BENCHMARK(BM_LookupsFloorIncrements)->UseRealTime();

void BM_MissFromHost(benchmark::State& state) {
  HostTier tier(kPolicyBytes);
  const auto map = MakeMap(&tier, 16);
  PolicyMapCore::Reader reader(map.get());
  int32_t next = 0;
  for (auto _ : state) {
    const auto batch = reader.Acquire({PolicySlot(next)}, PolicyMapCore::Access::kRead);
    benchmark::DoNotOptimize(batch->value(0));
    next = (next + 1) % kPolicies;
  }
}
BENCHMARK(BM_MissFromHost)->UseRealTime();

void BM_MissFloorMemcpy(benchmark::State& state) {
  const std::string from(kPolicyBytes, 'x');
  for (auto _ : state) {
    std::string to(from);
    benchmark::DoNotOptimize(to.data());
  }
}
BENCHMARK(BM_MissFloorMemcpy)->UseRealTime();

/// Argument: whether the host budget holds the states; else they are files.
void BM_MissThroughTheTier(benchmark::State& state) {
  constexpr int32_t kStates = 64;
  troupe::policy::PolicySpec spec = troupe::policy::SmallSpecForTesting();
  spec.actor.hidden_sizes = {113, 113};
  spec.mutable_critic()->hidden_sizes = {113, 113};
  const std::vector<troupe::policy::PolicySpec> specs(kStates, spec);
  const PolicyState kept = troupe::policy::RandomState(spec, 1);
  const troupe::storage::ScratchDirectory scratch;
  troupe::storage::DiskBlobStore blobs(scratch.path() + "/blobs");
  troupe::policy::StateForm form;
  const auto tier = *troupe::policy::PolicyStateTier::Make(
      &specs, {state.range(0) == 1 ? int64_t{1} << 30 : 0},
      {&blobs, &form, [&](PolicySlot) { return absl::StatusOr<PolicyState>(kept); }, nullptr});
  for (int32_t p = 0; p < kStates; ++p) tier->Put(PolicySlot(p), kept);
  const auto map = MakeMap(tier.get(), 16);
  PolicyMapCore::Reader reader(map.get());
  int32_t next = 0;
  for (auto _ : state) {
    const auto batch = reader.Acquire({PolicySlot(next)}, PolicyMapCore::Access::kRead);
    TROUPE_CHECK(batch.ok());
    next = (next + 1) % kStates;
  }
  state.counters["bytes"] = static_cast<double>(troupe::policy::BytesOf(kept));
}
BENCHMARK(BM_MissThroughTheTier)->ArgName("host")->Arg(1)->Arg(0)->UseRealTime();

/// Half of the capacity is looked up here, all the time; another thread (argument 1) goes through the other policies.
void BM_LookupsBesideMisses(benchmark::State& state) {
  constexpr int32_t kHot = 64;
  HostTier tier(kPolicyBytes);
  const auto map = MakeMap(&tier, 2 * kHot);
  AcquireAll(*map, 0, kHot);
  std::atomic<bool> stop{false};
  std::thread other;
  if (state.range(0) == 1) {
    other = std::thread([&] {
      PolicyMapCore::Reader reader(map.get());
      for (int32_t next = kHot; !stop; next = next + 1 < kPolicies ? next + 1 : kHot) {
        TROUPE_CHECK(reader.Acquire({PolicySlot(next)}, PolicyMapCore::Access::kRead).ok());
      }
    });
  }
  {
    PolicyMapCore::Reader reader(map.get());
    const auto batches = RandomBatches(1, 0, kHot);
    size_t next = 0;
    for (auto _ : state) {
      const auto batch = reader.Acquire(batches[next++ % batches.size()], PolicyMapCore::Access::kRead);
      benchmark::DoNotOptimize(batch->value(0));
    }
  }
  stop = true;
  if (other.joinable()) other.join();
}
BENCHMARK(BM_LookupsBesideMisses)->Arg(0)->Arg(1)->UseRealTime();

}  // namespace
