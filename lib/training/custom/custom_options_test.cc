#include "lib/training/custom/custom_options.h"

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "lib/policy/module_files.h"
#include "lib/policy/testing.h"
#include "lib/training/algorithm_options.h"
#include "lib/training/core/trainer_host.h"
#include "lib/training/registry.h"
#include "lib/training/testing/idle_backend.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::training {
namespace {

using testing::HasSubstr;

const std::string kHash(64, 'c');

CustomOptions Options() {
  CustomOptions options;
  options.loss = kHash;
  return options;
}

TEST(CustomOptionsTest, ReadsWhatItWrites) {
  CustomOptions options = Options();
  options.num_epochs = 3;
  options.minibatch_size = 17;
  options.gae_lambda = 0.5;
  const auto read = ParseCustomOptions(CustomSpec(options));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->loss, kHash);
  EXPECT_EQ(read->num_epochs, 3);
  EXPECT_EQ(read->minibatch_size, 17);
  EXPECT_EQ(read->gae_lambda, 0.5);
}

TEST(CustomOptionsTest, SaysWhatIsWrong) {
  policy::AlgorithmSpec without = CustomSpec(Options());
  without.options.erase("loss");
  EXPECT_EQ(CheckAlgorithm(without).message(),
            "algorithm.loss: got nothing, expected a TorchScript file (torch.jit.save) with the loss: custom and "
            "macustom have none of their own");
  const auto error_of = [](const char* key, policy::OptionValue value) {
    policy::AlgorithmSpec spec = CustomSpec(Options());
    spec.options[key] = std::move(value);
    return std::string(CheckAlgorithm(spec).message());
  };
  EXPECT_EQ(error_of("loss", kHash),
            absl::StrCat("algorithm.loss: got \"", kHash,
                         "\", expected sha256: and 64 hexadecimal digits of a file that the run began with"));
  EXPECT_THAT(error_of("loss", std::string("sha256:12")), HasSubstr("algorithm.loss: got \"sha256:12\", expected "));
  EXPECT_THAT(error_of("num_epochs", int64_t{0}), HasSubstr("algorithm.num_epochs is 0"));
  EXPECT_THAT(error_of("minibatch_size", int64_t{0}), HasSubstr("algorithm.minibatch_size is 0"));
  EXPECT_THAT(error_of("clip_param", 0.2), HasSubstr("clip_param"));
}

TEST(CustomOptionsTest, AProgramWithoutLibTorchSaysSo) {
  policy::ModuleFiles::OfProcess().Put(kHash, {"loss.pt", "bytes"});
  const auto make = [](const policy::PolicySpec&) { return std::make_unique<IdleBackend>(); };
  const auto host =
      TrainerHost::Make({policy::SmallSpecForTesting()}, {CustomSpec(Options())}, {.seed = 1}, &FindAlgorithm, make);
  EXPECT_EQ(host.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(host.status().message()),
              HasSubstr("the loss of policy \"p\" is a TorchScript module, which trains with LibTorch; this program is "
                        "without"));
}

TEST(CustomOptionsTest, ItsStateIsNotPposToSwap) {
  const std::string custom = *StateShape(policy::SmallSpecForTesting(), CustomSpec(Options()));
  policy::AlgorithmSpec ppo = CustomSpec(Options());
  ppo.name = "ppo";
  ppo.options.erase("loss");
  EXPECT_NE(custom, *StateShape(policy::SmallSpecForTesting(), ppo)) << "another back end computes them";
}

}  // namespace
}  // namespace troupe::training
