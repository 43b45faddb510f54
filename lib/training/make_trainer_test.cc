#include "lib/training/make_trainer.h"

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/base/testing/processor.h"
#include "lib/policy/testing.h"
#include "lib/training/core/cuda_driver.h"
#include "lib/training/core/state_blocks.h"
#include "lib/training/testing/ppo_host.h"
#include "lib/training/testing/random_batch.h"
#include "lib/training/testing/small_update.h"
#include "lib/training/testing/test_device.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::training {
namespace {

const policy::PolicySlot kSlot(0);
const DeviceOptions kCpu = {.device = "cpu", .num_threads = 2};

absl::StatusOr<std::unique_ptr<learner::Trainer>> MakePpo(std::vector<policy::PolicySpec> specs,
                                                          const std::vector<PpoOptions>& options,
                                                          const DeviceOptions& device, uint64_t seed,
                                                          CpuBackend backend = CpuBackend::kAuto) {
  return MakeTrainer(std::move(specs), PpoSpecs(options), device, seed, backend);
}

TEST(MakeTrainerTest, TrainsOnTheCpu) {
  for (const CpuBackend backend : {CpuBackend::kAuto, CpuBackend::kLibTorch}) {
    const auto trainer = MakePpo({policy::SmallSpecForTesting()}, {SmallUpdateOptions()}, kCpu, 1, backend);
    ASSERT_TRUE(trainer.ok()) << trainer.status();
    RandomBatch batch(policy::SmallSpecForTesting(), kSmallUpdateSegments, 1);
    const auto reports = (*trainer)->Update(batch.batch, SmallUpdateContext(0));
    ASSERT_TRUE(reports.ok()) << reports.status();
    EXPECT_EQ(reports->at(0).minibatch_steps, 12);
    EXPECT_TRUE((*(*trainer)->Snapshot(kSlot))->Validate(policy::SmallSpecForTesting()).ok());
  }
}

// What nobody chose is the fused kernels wherever the processor can: LibTorch trains as well, several times slower.
TEST(MakeTrainerTest, TakesTheFusedKernelsWhereTheProcessorHasTheirUnit) {
  RandomBatch batch(policy::SmallSpecForTesting(), kSmallUpdateSegments, 1);
  const auto parameters_after = [&](CpuBackend backend) {
    const auto trainer = *MakePpo({policy::SmallSpecForTesting()}, {SmallUpdateOptions()}, kCpu, 1, backend);
    EXPECT_TRUE(trainer->Update(batch.batch, SmallUpdateContext(0)).ok());
    return trainer->ExportState(kSlot)->parameters();
  };
  const std::vector<float> chosen = parameters_after(CpuBackend::kAuto);
  if (!base::ProcessorHasAvx2()) {
    EXPECT_EQ(chosen, parameters_after(CpuBackend::kLibTorch));
    return;
  }
  EXPECT_EQ(chosen, parameters_after(CpuBackend::kFused));
  EXPECT_NE(chosen, parameters_after(CpuBackend::kLibTorch));
}

TEST(MakeTrainerTest, SameBitsWithLibTorchAndAfterAResume) {
  const auto make = [](uint64_t seed) {
    return *MakePpo({policy::SmallSpecForTesting()}, {SmallUpdateOptions()}, kCpu, seed, CpuBackend::kLibTorch);
  };
  RandomBatch batch(policy::SmallSpecForTesting(), kSmallUpdateSegments, 1);
  const auto whole = make(1);
  const auto half = make(1);
  ASSERT_TRUE(whole->Update(batch.batch, SmallUpdateContext(0)).ok());
  ASSERT_TRUE(half->Update(batch.batch, SmallUpdateContext(0)).ok());
  const auto resumed = make(2);
  ASSERT_TRUE(resumed->ImportState(*half->ExportState(kSlot), kSlot).ok());
  ASSERT_TRUE(whole->Update(batch.batch, SmallUpdateContext(1)).ok());
  ASSERT_TRUE(resumed->Update(batch.batch, SmallUpdateContext(1)).ok());
  EXPECT_EQ(whole->ExportState(kSlot)->parameters(), resumed->ExportState(kSlot)->parameters());
  EXPECT_EQ(whole->ExportState(kSlot)->Floats(kAdamExpAvgSq), resumed->ExportState(kSlot)->Floats(kAdamExpAvgSq));
}

TEST(MakeTrainerTest, LayersThatOnlyLibTorchTrains) {
  policy::PolicySpec spec = policy::SmallSpecForTesting();
  for (const policy::Activation activation : {policy::Activation::kGelu, policy::Activation::kTanh}) {
    spec.actor.activation = activation;
    spec.actor.layer_norm = true;
    spec.mutable_critic()->hidden_sizes = {1025};
    EXPECT_EQ(MakePpo({spec}, {SmallUpdateOptions()}, kCpu, 1, CpuBackend::kFused).status().code(),
              absl::StatusCode::kUnimplemented);
    const auto trainer = MakePpo({spec}, {SmallUpdateOptions()}, kCpu, 1);
    ASSERT_TRUE(trainer.ok()) << trainer.status();
    RandomBatch batch(spec, kSmallUpdateSegments, 1);
    const auto reports = (*trainer)->Update(batch.batch, SmallUpdateContext(0));
    ASSERT_TRUE(reports.ok()) << reports.status();
    EXPECT_EQ(reports->at(0).minibatch_steps, 12);
  }
}

TEST(MakeTrainerTest, LibTorchTrainsSmallPoliciesSideBySide) {
  constexpr int32_t kPolicies = 6;
  std::vector<policy::PolicySpec> specs(kPolicies, policy::SmallSpecForTesting());
  std::vector<std::unique_ptr<RandomBatch>> batches;
  learner::TrainBatch all;
  for (int32_t p = 0; p < kPolicies; ++p) {
    specs[p].id = policy::PolicyId(absl::StrCat("p", p));
    batches.push_back(std::make_unique<RandomBatch>(specs[p], kSmallUpdateSegments, static_cast<uint64_t>(p) + 1));
    batches.back()->rows().policy = policy::PolicySlot(p);
    all.policies.push_back(batches.back()->rows());
  }
  const auto make = [&] {
    const DeviceOptions device = {.device = "cpu", .num_threads = 2};
    return *MakePpo(specs, std::vector<PpoOptions>(kPolicies, SmallUpdateOptions()), device, 1, CpuBackend::kLibTorch);
  };
  const auto stacked = make();
  const auto again = make();
  const auto one_by_one = make();
  for (int64_t iteration = 0; iteration < 2; ++iteration) {
    ASSERT_TRUE(stacked->Update(all, SmallUpdateContext(iteration)).ok());
    ASSERT_TRUE(again->Update(all, SmallUpdateContext(iteration)).ok());
    for (const auto& batch : batches) ASSERT_TRUE(one_by_one->Update(batch->batch, SmallUpdateContext(iteration)).ok());
  }
  for (int32_t p = 0; p < kPolicies; ++p) {
    const std::vector<float> a = stacked->ExportState(policy::PolicySlot(p))->parameters();
    const std::vector<float> b = one_by_one->ExportState(policy::PolicySlot(p))->parameters();
    EXPECT_EQ(a, again->ExportState(policy::PolicySlot(p))->parameters());
    for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 1e-5) << p << " " << i;
  }
}

TEST(MakeTrainerTest, BadInput) {
  const auto status = [](const PpoOptions& options, const DeviceOptions& device, policy::PolicySpec spec) {
    return MakePpo({std::move(spec)}, {options}, device, 1).status();
  };
  PpoOptions options;
  options.gamma = 2;
  EXPECT_EQ(status(options, kCpu, policy::SmallSpecForTesting()).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(
      status({}, {.device = "tpu"}, policy::SmallSpecForTesting()).message(),
      "device: got \"tpu\", expected auto, cpu, cuda or cuda:N (N from 0 to 127); auto takes a GPU where there is one");
  EXPECT_EQ(status({}, {.device = "cpu", .num_threads = -1}, policy::SmallSpecForTesting()).code(),
            absl::StatusCode::kInvalidArgument);
  policy::PolicySpec spec = policy::SmallSpecForTesting();
  spec.id = policy::PolicyId("../x");
  EXPECT_EQ(status({}, kCpu, spec).code(), absl::StatusCode::kInvalidArgument);
}

TEST(DeviceTest, ADeviceThatIsNotThereIsAClearError) {
  // Also where there are some: nobody has so many.
  const absl::Status status =
      MakePpo({policy::SmallSpecForTesting()}, {PpoOptions()}, {.device = "cuda:127"}, 1).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), testing::StartsWith("device: got \"cuda:127\", but "));
  EXPECT_THAT(std::string(status.message()),
              testing::EndsWith(", expected a CUDA device; write cpu, or auto to take one where it is"));
}

TEST(DeviceTest, AutoTrainsWithWhatThereIs) {
  if (TestDevice().is_cuda()) {
    EXPECT_EQ(ResolveDevice("auto")->ToString(), "cuda:0");
  }
  const auto trainer = MakePpo({policy::SmallSpecForTesting()}, {SmallUpdateOptions()}, {.device = "auto"}, 1);
  ASSERT_TRUE(trainer.ok()) << trainer.status();
  RandomBatch batch(policy::SmallSpecForTesting(), kSmallUpdateSegments, 1);
  EXPECT_TRUE((*trainer)->Update(batch.batch, SmallUpdateContext(0)).ok());
}

TEST(DeviceTest, AMachineWithoutADriverIsNothingToSay) {
  if (!absl::IsNotFound(AskCudaDriver(0).status())) GTEST_SKIP() << "a CUDA device's driver is there";
  testing::internal::CaptureStderr();
  EXPECT_EQ(ResolveDevice("auto")->ToString(), "cpu");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST(DeviceTest, AllocatorsGiveAlignedMemory) {
  tensor::TensorAllocator& allocator = BatchAllocator(TestDevice());
  void* memory = allocator.Allocate(1000);
  ASSERT_NE(memory, nullptr);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(memory) % 64, 0u);
  static_cast<char*>(memory)[999] = 1;
  allocator.Deallocate(memory, 1000);
}

}  // namespace
}  // namespace troupe::training
