#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "lib/rollout/collector.h"
#include "lib/rollout/testing/scripted_env.h"
#include <gtest/gtest.h>

// Counts every heap allocation of the process: malloc itself is replaced, so that operator new, Abseil and Eigen are
// seen, too. Sanitizers bring their own malloc; there operator new's replacement is what counts.

namespace {
std::atomic<int64_t> g_allocations{0};
}  // namespace

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TROUPE_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define TROUPE_SANITIZED 1
#endif
#endif

#ifndef TROUPE_SANITIZED
extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);
void* malloc(size_t size) {
  g_allocations.fetch_add(1, std::memory_order_relaxed);
  return __libc_malloc(size);
}
void* calloc(size_t count, size_t size) {
  g_allocations.fetch_add(1, std::memory_order_relaxed);
  return __libc_calloc(count, size);
}
void* realloc(void* memory, size_t size) {
  g_allocations.fetch_add(1, std::memory_order_relaxed);
  return __libc_realloc(memory, size);
}
void* aligned_alloc(size_t alignment, size_t size) {
  g_allocations.fetch_add(1, std::memory_order_relaxed);
  return __libc_memalign(alignment, size);
}
int posix_memalign(void** out, size_t alignment, size_t size) {
  g_allocations.fetch_add(1, std::memory_order_relaxed);
  *out = __libc_memalign(alignment, size);
  return *out == nullptr ? 12 : 0;
}
}
#endif

namespace troupe::rollout {
namespace {

/// A sink that keeps nothing, so that memory returns to the pool.
class DroppingSink final : public SampleSink {
 public:
  absl::Status Submit(sample::MultiAgentBatchPtr fragment) override {
    rows += fragment->num_agent_steps;
    return absl::OkStatus();
  }
  int64_t rows = 0;
};

/// All agents act at every step; an episode has ten. Writes nothing but rows.
class SteadyEnv final : public env::MultiAgentEnv {
 public:
  explicit SteadyEnv(const ScriptedOptions& options) : options_(options), spec_(ScriptedSpec(options)) {}
  const env::EnvSpec& spec() const override { return spec_; }
  absl::Status Reset(const env::EpisodeSeed&, env::StepWriter& out) override {
    step_ = 0;
    Write(out);
    return absl::OkStatus();
  }
  absl::Status Step(env::ActionRows, env::StepWriter& out) override {
    ++step_;
    for (int i = 0; i < options_.agents; ++i) out.AddReward(env::AgentSlot(i), 1.0f);
    Write(out);
    if (step_ == 10) out.TruncateAll();
    return absl::OkStatus();
  }

 private:
  void Write(env::StepWriter& out) {
    for (int i = 0; i < options_.agents; ++i) {
      // Every third agent takes turns.
      if (i % 3 == 2 && step_ % 2 == 1) continue;
      float* row = out.ObserveFloat(env::AgentSlot(i));
      for (int k = 0; k < 4; ++k) row[k] = static_cast<float>(step_ + k);
      if (options_.action_mask) {
        uint8_t* mask = out.ActionMask(env::AgentSlot(i));
        mask[0] = mask[1] = mask[2] = 1;
      }
    }
    if (options_.state_kind == env::StateKind::kPerEnv) {
      float* state = out.State(env::AgentSlot(0));
      state[0] = state[1] = 0;
    }
  }

  const ScriptedOptions options_;
  const env::EnvSpec spec_;
  int step_ = 0;
};

TEST(AllocationTest, TheHookCounts) {
#ifdef TROUPE_SANITIZED
  GTEST_SKIP() << "sanitizers replace malloc themselves";
#endif
  const int64_t before = g_allocations.load();
  auto* volatile p = new int(3);
  delete p;
  free(malloc(10));
  EXPECT_EQ(g_allocations.load() - before, 2);
}

TEST(AllocationTest, NoneInTheSteadyStateOfRollout) {
#ifdef TROUPE_SANITIZED
  GTEST_SKIP() << "sanitizers replace malloc themselves";
#endif
  for (const bool continuous : {false, true}) {
    const ScriptedOptions options = {
        .agents = 3, .state_kind = env::StateKind::kPerEnv, .action_mask = !continuous, .continuous = continuous};
    RolloutConfig config = ScriptedConfig(
        options, [=] { return std::make_unique<SteadyEnv>(options); }, 2);
    auto collector = *Collector::Create(config);
    const auto weights = ScriptedWeights(config, 1);
    DroppingSink sink;
    const sample::Grant grant = ScriptedGrant(16, 53);
    // Odd steps, so that grants begin at different places of the episodes and buffers reach their full size.
    for (int i = 0; i < 12; ++i) ASSERT_TRUE(collector->RunGrant(grant, weights, sink).ok());
    const int64_t fragments = collector->stats().fragments;
    const int64_t before = g_allocations.load();
    for (int i = 0; i < 20; ++i) ASSERT_TRUE(collector->RunGrant(grant, weights, sink).ok());
    const int64_t allocations = g_allocations.load() - before;
    // What remains belongs to handing a fragment over (owners' counts), however many steps it has.
    EXPECT_LE(allocations, 3 * (collector->stats().fragments - fragments));
    EXPECT_EQ(collector->stats().fragments - fragments, 20);
    EXPECT_GT(sink.rows, 30 * 16 * 53);
  }
}

TEST(AllocationTest, LongerFragmentsAllocateNoMore) {
#ifdef TROUPE_SANITIZED
  GTEST_SKIP() << "sanitizers replace malloc themselves";
#endif
  const ScriptedOptions options = {.agents = 3};
  RolloutConfig config = ScriptedConfig(options, [=] { return std::make_unique<SteadyEnv>(options); });
  auto collector = *Collector::Create(config);
  const auto weights = ScriptedWeights(config, 1);
  DroppingSink sink;
  int64_t counted[2];
  for (int k = 0; k < 2; ++k) {
    const sample::Grant grant = ScriptedGrant(8, k == 0 ? 40 : 400);
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(collector->RunGrant(grant, weights, sink).ok());
    const int64_t before = g_allocations.load();
    ASSERT_TRUE(collector->RunGrant(grant, weights, sink).ok());
    counted[k] = g_allocations.load() - before;
  }
  EXPECT_EQ(counted[0], counted[1]) << "so a step allocates nothing";
}

}  // namespace
}  // namespace troupe::rollout
