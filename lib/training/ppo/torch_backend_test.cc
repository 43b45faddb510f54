#include "lib/training/torch/torch_backend.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "lib/policy/testing.h"
#include "lib/policy/testing/same_bits.h"
#include "lib/training/core/state_blocks.h"
#include "lib/training/core/trainer_host.h"
#include "lib/training/testing/full_memory.h"
#include "lib/training/testing/ppo_host.h"
#include "lib/training/testing/random_batch.h"
#include "lib/training/testing/small_update.h"
#include "lib/training/testing/test_device.h"
#include "lib/training/torch/torch_status.h"
#include <ATen/record_function.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::training {
namespace {

using testing::HasSubstr;

const policy::PolicySlot kSlot(0);

/// Both paths, the device's on the device that is tested.
class TorchBackendTest : public testing::TestWithParam<TorchPath> {
 protected:
  static Device Place() { return GetParam() == TorchPath::kHost ? Device{} : TestDevice(); }

  static std::unique_ptr<TrainerHost> Make(const PpoOptions& options = SmallUpdateOptions()) {
    const auto team = std::make_shared<ThreadTeam>(2);
    const auto make = [team](const policy::PolicySpec& spec) {
      return MakeTorchBackend(spec, Place(), GetParam(), team);
    };
    return *MakePpoHost({policy::SmallSpecForTesting()}, {options}, 1, make, team, BatchAllocator(Place()));
  }
};

TEST_P(TorchBackendTest, SkipsWhatIsNotFinite) {
  const auto trainer = Make();
  RandomBatch batch(policy::SmallSpecForTesting(), kSmallUpdateSegments, 1);
  RandomBatch bad(policy::SmallSpecForTesting(), kSmallUpdateSegments, 1);
  bad.rewards[3] = std::numeric_limits<float>::infinity();
  ASSERT_TRUE(trainer->Update(batch.batch, SmallUpdateContext(0)).ok());
  const policy::PolicyState before = *trainer->ExportState(kSlot);
  const auto reports = trainer->Update(bad.batch, SmallUpdateContext(1));
  ASSERT_TRUE(reports.ok()) << reports.status();
  EXPECT_EQ(reports->at(0).minibatch_steps, 0);
  EXPECT_EQ(reports->at(0).skipped_steps, 12);
  // Also what went to the device and back.
  const policy::PolicyState after = *trainer->ExportState(kSlot);
  EXPECT_EQ(before.parameters(), after.parameters());
  EXPECT_EQ(before.Floats(kAdamExpAvg), after.Floats(kAdamExpAvg));
  EXPECT_EQ(before.Floats(kAdamExpAvgSq), after.Floats(kAdamExpAvgSq));
  EXPECT_EQ(before.Integer(kAdamSteps), after.Integer(kAdamSteps));
  EXPECT_EQ(after.Integer(kSkippedUpdates), 1);
}

TEST_P(TorchBackendTest, AMinibatchOfDeadAgentsMovesTheCriticAlone) {
  PpoOptions options = SmallUpdateOptions();
  options.use_value_active_masks = false;
  const auto trainer = Make(options);
  RandomBatch batch(policy::SmallSpecForTesting(), kSmallUpdateSegments, 1);
  const std::vector<uint8_t> nobody(55, 0);
  batch.rows().agent_mask = nobody;
  const std::vector<float> before = trainer->ExportState(kSlot)->parameters();
  const auto reports = trainer->Update(batch.batch, SmallUpdateContext(0));
  ASSERT_TRUE(reports.ok()) << reports.status();
  EXPECT_EQ(reports->at(0).minibatch_steps, 12);
  EXPECT_EQ(reports->at(0).skipped_steps, 0);
  const std::vector<float> after = trainer->ExportState(kSlot)->parameters();
  const auto actor = policy::ParameterLayout::For(policy::SmallSpecForTesting()).acting_size();
  EXPECT_TRUE(std::equal(before.begin(), before.begin() + actor, after.begin()));
  EXPECT_FALSE(std::equal(before.begin() + actor, before.end(), after.begin() + actor));
}

TEST_P(TorchBackendTest, SkipsAFirstStep) {
  const auto trainer = Make();
  RandomBatch bad(policy::SmallSpecForTesting(), kSmallUpdateSegments, 1);
  bad.rewards[3] = std::numeric_limits<float>::quiet_NaN();
  const policy::PolicyState before = *trainer->ExportState(kSlot);
  ASSERT_TRUE(trainer->Update(bad.batch, SmallUpdateContext(0)).ok());
  EXPECT_EQ(trainer->ExportState(kSlot)->parameters(), before.parameters());
  EXPECT_EQ(trainer->ExportState(kSlot)->Integer(kAdamSteps), 0);
}

TEST_P(TorchBackendTest, TrainsOnTheSameBitsAfterAResume) {
  RandomBatch batch(policy::SmallSpecForTesting(), kSmallUpdateSegments, 1);
  const auto whole = Make();
  ASSERT_TRUE(whole->Update(batch.batch, SmallUpdateContext(0)).ok());
  const auto resumed = Make();
  ASSERT_TRUE(resumed->ImportState(*whole->ExportState(kSlot), kSlot).ok());
  ASSERT_TRUE(whole->Update(batch.batch, SmallUpdateContext(1)).ok());
  ASSERT_TRUE(resumed->Update(batch.batch, SmallUpdateContext(1)).ok());
  policy::ExpectSameBits(*whole->ExportState(kSlot), *resumed->ExportState(kSlot));
}

TEST_P(TorchBackendTest, MemoryThatEndsInMidUpdateFailsTheUpdateAlone) {
  const std::vector<int64_t> segments(2000, 10);
  PpoOptions options = SmallUpdateOptions();
  options.minibatch_size = 10000;
  RandomBatch batch(policy::SmallSpecForTesting(), segments, 1);
  const auto trainer = Make(options);
  const auto undisturbed = Make(options);
  for (const auto& each : {trainer.get(), undisturbed.get()})
    ASSERT_TRUE(each->Update(batch.batch, SmallUpdateContext(0)).ok());
  const policy::PolicyState before = *trainer->ExportState(kSlot);
  int failed = 0;
  // On the CPU another allocation fails each time: while loading, in the values, in a step, at its end. A GPU is full
  // from the start of the update.
  for (const int allocations : {0, 3, 20, 100, 200}) {
    const FullMemory full(Place(), allocations);
    const absl::Status status = trainer->Update(batch.batch, SmallUpdateContext(1)).status();
    if (status.ok()) continue;
    ++failed;
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("no device memory left while "));
    EXPECT_THAT(std::string(status.message()), HasSubstr("Lower algorithm.minibatch_size"));
    policy::ExpectSameBits(before, *trainer->ExportState(kSlot));
  }
  EXPECT_EQ(failed, 5);
  // With memory again the update is the one that it would have been.
  ASSERT_TRUE(trainer->Update(batch.batch, SmallUpdateContext(1)).ok());
  ASSERT_TRUE(undisturbed->Update(batch.batch, SmallUpdateContext(1)).ok());
  policy::ExpectSameBits(*undisturbed->ExportState(kSlot), *trainer->ExportState(kSlot));
}

/// Operations in minibatch steps of this thread, while it lives, that wait for a GPU. A GPU's backward pass runs in
/// another thread, and copies are not looked at: bench/gpu/check sees both in a profile.
class Waits {
 public:
  Waits() {
    seen_.clear();
    in_step_ = in_adam_ = false;
    handle_ = at::addThreadLocalCallback(at::RecordFunctionCallback(&Waits::Begin, &Waits::End));
  }
  ~Waits() { at::removeCallback(handle_); }

  static const std::vector<std::string>& seen() { return seen_; }

 private:
  // On the CPU it reads the count of steps as a number; on CUDA its kernel does.
  static constexpr char kFusedAdam[] = "aten::_fused_adam_";

  static std::unique_ptr<at::ObserverContext> Begin(const at::RecordFunction& function) {
    const std::string name = function.name();
    if (name == "troupe::minibatch_step") in_step_ = true;
    if (name == kFusedAdam) in_adam_ = true;
    for (const char* waits : {"aten::item", "aten::_local_scalar_dense", "aten::is_nonzero", "aten::nonzero",
                              "aten::equal", "aten::masked_select"}) {
      if (in_step_ && !in_adam_ && name == waits) seen_.push_back(name);
    }
    return nullptr;
  }
  static void End(const at::RecordFunction& function, at::ObserverContext*) {
    const std::string name = function.name();
    if (name == "troupe::minibatch_step") in_step_ = false;
    if (name == kFusedAdam) in_adam_ = false;
  }

  static inline thread_local std::vector<std::string> seen_;
  static inline thread_local bool in_step_ = false;
  static inline thread_local bool in_adam_ = false;
  at::CallbackHandle handle_;
};

TEST_P(TorchBackendTest, OnlyTheHostsPathAsksForNumbersInAStep) {
  const auto trainer = Make();
  RandomBatch batch(policy::SmallSpecForTesting(), kSmallUpdateSegments, 1);
  const Waits waits;
  ASSERT_TRUE(trainer->Update(batch.batch, SmallUpdateContext(0)).ok());
  if (GetParam() == TorchPath::kHost) {
    EXPECT_FALSE(waits.seen().empty());
  } else {
    EXPECT_THAT(waits.seen(), testing::IsEmpty());
  }
}

INSTANTIATE_TEST_SUITE_P(All, TorchBackendTest, testing::Values(TorchPath::kHost, TorchPath::kDevice),
                         [](const testing::TestParamInfo<TorchPath>& info) {
                           return info.param == TorchPath::kHost ? "Host" : "Device";
                         });

TEST(TorchStatusTest, MemoryThatEndsOutsideOfLibTorchsAllocator) {
  for (const char* words : {"CUDA error: out of memory\nCUDA kernel errors might be", "CUBLAS_STATUS_ALLOC_FAILED"}) {
    const absl::Status status = CatchTorch("loading", [&]() -> absl::Status { throw std::runtime_error(words); });
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_EQ(std::string(status.message()).find('\n'), std::string::npos) << "one sentence";
  }
  const auto other = [] { return CatchTorch("loading", []() -> absl::Status { throw std::runtime_error("x"); }); };
  EXPECT_EQ(other(), absl::InternalError("LibTorch failed while loading: x"));
}

TEST(TorchBackendDeviceTest, CudaHasNoPathOverTheHostsMemory) {
  const Device cuda{DeviceKind::kCuda};
  EXPECT_EQ(MakeTorchBackend(policy::SmallSpecForTesting(), cuda, TorchPath::kHost, nullptr).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(TorchBackendDeviceTest, SaysWhichNetworksItCannotCompute) {
  policy::PolicySpec spec = policy::SmallSpecForTesting();
  spec.actor.encoder = policy::EncoderKind(9);
  EXPECT_EQ(
      MakeTorchBackend(spec, Device{}, TorchPath::kHost, nullptr).status(),
      absl::UnimplementedError(
          "LibTorch's back end computes encoders of kind mlp, cnn, leaves, attention, torchscript and shared, got "
          "unknown for the actor"));
}

}  // namespace
}  // namespace troupe::training
