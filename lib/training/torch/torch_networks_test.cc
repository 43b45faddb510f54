// Networks that remember in LibTorch's back end, built in or users' modules: what they compute is in tests/parity; here
// is that it does not depend on how rows are put together.

#include "lib/training/torch/torch_networks.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/policy/testing.h"
#include "lib/training/core/critic_values.h"
#include "lib/training/testing/ppo_host.h"
#include "lib/training/testing/random_batch.h"
#include "lib/training/testing/script_modules.h"
#include "lib/training/testing/small_update.h"
#include "lib/training/testing/test_device.h"
#include "lib/training/torch/torch_backend.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::training {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

struct Memory {
  policy::CoreKind kind;
  bool is_module;
};

policy::PolicySpec Spec(const Memory& memory, int64_t layers = 1) {
  policy::PolicySpec spec = policy::SmallSpecForTesting();
  spec.actor.core = {memory.kind, 5, layers};
  spec.mutable_critic()->core = {memory.kind, 4, layers};
  spec.sequence_length = 4;
  return memory.is_module ? WithTestModules(spec, 9) : spec;
}

TEST(PackTest, PutsTheLongestFirstAndStepsSideBySide) {
  const Packed packed = Pack({{0, 2}, {2, 4}, {6, 2}});
  EXPECT_THAT(packed.sequences, ElementsAre(1, 0, 2));
  EXPECT_THAT(packed.rows, ElementsAre(2, 0, 6, 3, 1, 7, 4, 5));
  EXPECT_TRUE(packed.batch_sizes.equal(torch::tensor({3, 3, 1, 1}, torch::kInt64)));
}

class RecurrentTorchTest : public testing::TestWithParam<Memory> {
 protected:
  /// A back end at work on `batch`.
  struct AtWork {
    AtWork(const policy::PolicySpec& spec, const learner::PolicyTrainBatch& batch)
        : parameters(InitialParameters(spec, 3)),
          backend(*MakeTorchBackend(spec, Device{}, TorchPath::kHost, std::make_shared<ThreadTeam>(1))) {
      EXPECT_EQ(AddModuleValues(spec, &parameters), absl::OkStatus());
      EXPECT_EQ(prepared.Prepare(spec, {}, batch), absl::OkStatus());
      EXPECT_EQ(backend->Begin(prepared, &parameters, NetworkBackend::kWholeTeam), absl::OkStatus());
    }
    FlatParameters parameters;
    PreparedBatch prepared;
    std::unique_ptr<NetworkBackend> backend;
  };
};

TEST_P(RecurrentTorchTest, ValuesDoNotDependOnWhatRunsBesideThem) {
  const policy::PolicySpec spec = Spec(GetParam(), 2);
  const auto state_size = static_cast<size_t>(spec.critic().state_size());
  // More rows than one pass takes.
  const std::vector<int32_t> lengths = {600, 1, 599, 600};
  constexpr int kRepeats = 40;
  const int64_t rows = 1800 * kRepeats;
  ASSERT_GT(rows, 65536);
  RandomBatch batch(spec, {600}, 1);
  AtWork work(spec, batch.rows());
  std::vector<int32_t> all_rows, all_lengths;
  for (int i = 0; i < kRepeats; ++i) {
    for (const int32_t length : lengths) {
      all_lengths.push_back(length);
      for (int32_t row = 0; row < length; ++row) all_rows.push_back((row * 7 + length + i) % 600);
    }
  }
  std::vector<float> states(all_lengths.size() * state_size);
  for (size_t i = 0; i < states.size(); ++i) states[i] = 0.01f * static_cast<float>(i % 90) - 0.4f;
  const absl::StatusOr<SequenceOutputs> together = work.backend->SequenceValues({all_rows, all_lengths, states});
  ASSERT_TRUE(together.ok()) << together.status();
  size_t first = 0;
  for (size_t i = 0; i < all_lengths.size(); ++i) {
    const auto length = static_cast<size_t>(all_lengths[i]);
    if (i < 6 || i + 3 > all_lengths.size()) {
      const absl::StatusOr<SequenceOutputs> alone = work.backend->SequenceValues(
          {absl::MakeConstSpan(all_rows).subspan(first, length), absl::MakeConstSpan(all_lengths).subspan(i, 1),
           absl::MakeConstSpan(states).subspan(i * state_size, state_size)});
      ASSERT_TRUE(alone.ok()) << alone.status();
      for (size_t row = 0; row < length; ++row) {
        ASSERT_NEAR(together->values[first + row], alone->values[row], 1e-5) << i << " " << row;
      }
      for (size_t k = 0; k < state_size; ++k) {
        ASSERT_NEAR(together->states[i * state_size + k], alone->states[k], 1e-5) << i << " " << k;
      }
    }
    first += length;
  }
}

TEST_P(RecurrentTorchTest, TheCarryEqualsAComputationFromTheEpisodesStart) {
  const policy::PolicySpec spec = Spec(GetParam());
  // One trajectory of 11 rows whole, and the same in batches of 3, 5 and 3.
  RandomBatch whole(spec, {11}, 4);
  CriticCarry none;
  AtWork at_once(spec, whole.rows());
  const auto expected = ValuesOf(spec, whole.rows(), at_once.backend.get(), &at_once.prepared, &none);
  ASSERT_TRUE(expected.ok()) << expected.status();
  CriticCarry carry;
  int64_t done = 0;
  const int64_t observation = spec.observation_size();
  for (const int64_t rows : {3, 5, 3}) {
    // Beside a trajectory of one row, whose final row is the part's: it goes on.
    RandomBatch part(spec, {rows, 1}, 4);
    std::swap(part.rows().segments[0].final_row, part.rows().segments[1].final_row);
    std::copy_n(whole.obs.begin() + done * observation, rows * observation, part.obs.begin());
    part.rows().sequences.clear();
    for (int64_t row = 0; row < rows; ++row) {
      if (row == 0 || (done + row) % spec.sequence_length == 0) part.rows().sequences.push_back({row, 0, done + row});
      ++part.rows().sequences.back().rows;
    }
    part.rows().sequences.push_back({rows, 1, 0});
    part.memory.assign(part.rows().sequences.size() * static_cast<size_t>(spec.actor_state_size()), 0.0f);
    part.rows().memory = {part.memory.data(), static_cast<int64_t>(part.rows().sequences.size()),
                          spec.actor_state_size(), spec.actor_state_size()};
    AtWork work(spec, part.rows());
    const auto values = ValuesOf(spec, part.rows(), work.backend.get(), &work.prepared, &carry);
    ASSERT_TRUE(values.ok()) << values.status();
    EXPECT_EQ(values->broken_streams, 0);
    for (int64_t row = 0; row < rows; ++row) {
      EXPECT_NEAR(values->rows[static_cast<size_t>(row)], expected->rows[static_cast<size_t>(done + row)], 1e-5);
    }
    carry.Commit();
    done += rows;
  }
}

TEST_P(RecurrentTorchTest, BothPathsTakeTheSameSteps) {
  std::vector<policy::PolicyState> states;
  for (const TorchPath path : {TorchPath::kHost, TorchPath::kDevice}) {
    const Device place = path == TorchPath::kHost ? Device{} : TestDevice();
    const auto team = std::make_shared<ThreadTeam>(2);
    const auto make = [&](const policy::PolicySpec& spec) { return MakeTorchBackend(spec, place, path, team); };
    const auto trainer = *MakePpoHost({Spec(GetParam())}, {SmallUpdateOptions()}, 1, make, team, BatchAllocator(place));
    RandomBatch batch(Spec(GetParam()), {9, 7, 12, 5, 4}, 2, /*inactive_rows=*/true);
    for (int64_t update = 0; update < 2; ++update) {
      const auto reports = trainer->Update(batch.batch, SmallUpdateContext(update));
      ASSERT_TRUE(reports.ok()) << reports.status();
      EXPECT_EQ(reports->at(0).skipped_steps, 0);
    }
    states.push_back(*trainer->ExportState(policy::PolicySlot(0)));
  }
  for (size_t i = 0; i < states[0].parameters().size(); ++i) {
    ASSERT_NEAR(states[0].parameters()[i], states[1].parameters()[i], 1e-4) << i;
  }
}

TEST_P(RecurrentTorchTest, RowsAloneAreRefused) {
  const policy::PolicySpec spec = Spec(GetParam());
  RandomBatch batch(spec, {4}, 1);
  AtWork work(spec, batch.rows());
  const std::vector<int32_t> rows = {0};
  const auto outputs =
      work.backend->Forward({policy::kActorRole, work.parameters.values(), work.prepared.actor_input(), rows});
  EXPECT_EQ(outputs.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(outputs.status().message()),
              HasSubstr(absl::StrCat("what the actor, a network with a ", GetParam().is_module ? "state" : "core",
                                     ", remembers")));
}

INSTANTIATE_TEST_SUITE_P(All, RecurrentTorchTest,
                         testing::Values(Memory{policy::CoreKind::kGru, false}, Memory{policy::CoreKind::kLstm, false},
                                         Memory{policy::CoreKind::kGru, true}, Memory{policy::CoreKind::kLstm, true}),
                         [](const testing::TestParamInfo<Memory>& info) {
                           return absl::StrCat(info.param.is_module ? "Module" : "",
                                               info.param.kind == policy::CoreKind::kGru ? "Gru" : "Lstm");
                         });

}  // namespace
}  // namespace troupe::training
