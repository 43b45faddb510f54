// An actor that has seen a batch allocates nothing for another one that is not larger, with and without a core.

#include <memory>
#include <string>
#include <vector>

#include "lib/inference/testing/backends.h"
#include "lib/policy/parameter_layout.h"
#include "lib/rollout/testing/malloc_counter.h"
#include <gtest/gtest.h>

namespace troupe::inference {
namespace {

class ActorAllocationTest : public BackendTest {};
INSTANTIATE_TEST_SUITE_P(Backends, ActorAllocationTest, kBackends, BackendCaseName);

TEST_P(ActorAllocationTest, NoneAfterTheFirstBatchOfASize) {
  if (!rollout::CountsAllocations()) GTEST_SKIP() << "sanitizers replace malloc themselves";
  for (const policy::CoreKind kind : {policy::CoreKind::kNone, policy::CoreKind::kGru, policy::CoreKind::kLstm}) {
    policy::PolicySpec spec;
    spec.id = policy::PolicyId("p");
    spec.observation_space = *space::Space::Box(-1, 1, {18});
    spec.action_space = *space::Space::Discrete(5);
    spec.normalize_observations = true;
    if (kind != policy::CoreKind::kNone) {
      spec.actor.hidden_sizes = {64};
      spec.actor.core = {kind, 64, 2};
      spec.actor.head_hidden_sizes = {32};
      spec.sequence_length = 8;
    }
    auto weights = std::make_shared<policy::WeightSnapshot>();
    weights->id = spec.id;
    weights->actor.resize(static_cast<size_t>(policy::ParameterLayout::For(spec).acting_size()), 0.01f);
    weights->observation_mean.resize(18, 0.0f);
    weights->observation_inverse_std.resize(18, 1.0f);
    auto actor = *Actor::Create(spec, 1, GetParam());
    ASSERT_TRUE(actor->SetWeights(weights).ok());

    constexpr int64_t kRows = 100;
    const std::vector<float> obs(kRows * 18, 0.5f);
    const std::vector<RowKey> keys(kRows);
    std::vector<float> state(static_cast<size_t>(kRows * spec.actor_state_size())), logp(kRows), outputs(kRows * 5);
    std::vector<space::ActionWord> actions(kRows);
    const auto act = [&](int64_t rows) {
      const ActInput input = {rows, obs.data(), nullptr, keys.data(), false, state.data(), state.data()};
      return actor->Act(input, actions.data(), logp.data()).ok() &&
             actor->Forward(input, absl::MakeSpan(outputs).first(static_cast<size_t>(rows * 5))).ok();
    };
    const int64_t at_first = rollout::AllocationCount();
    ASSERT_TRUE(act(kRows));
    const int64_t before = rollout::AllocationCount();
    EXPECT_GT(before, at_first) << "its buffers";
    for (const int64_t rows : {int64_t{1}, int64_t{3}, int64_t{50}, kRows}) ASSERT_TRUE(act(rows));
    const int64_t after = rollout::AllocationCount();
    EXPECT_EQ(after - before, 0) << "core " << static_cast<int>(kind);
  }
}

}  // namespace
}  // namespace troupe::inference
