// Networks that are users' modules, of the built-in ones' shape and weights, train with the built-in ones: the same
// losses and gradients after one step and the same parameters after several updates, to 1e-5, on both of LibTorch's
// paths.

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "lib/policy/testing.h"
#include "lib/training/core/optimizer_options.h"
#include "lib/training/core/trainer_host.h"
#include "lib/training/testing/ppo_host.h"
#include "lib/training/testing/random_batch.h"
#include "lib/training/testing/script_modules.h"
#include "lib/training/testing/test_device.h"
#include "lib/training/torch/torch_backend.h"
#include <gtest/gtest.h>

namespace troupe::training {
namespace {

constexpr int kUpdates = 5;
const policy::PolicySlot kOnly(0);

struct ScriptCase {
  const char* name;
  policy::PolicySpec spec;
  bool actor = true;  ///< is a module
  bool critic = true;

  policy::PolicySpec Scripted() const {
    policy::PolicySpec scripted = WithTestModules(spec, 21);
    if (!actor) scripted.actor = spec.actor;
    if (!critic) scripted.learner_networks = spec.learner_networks;
    return scripted;
  }
};

std::vector<ScriptCase> Cases() {
  policy::PolicySpec masked = policy::SmallSpecForTesting();
  masked.action_space = *space::Space::MultiDiscrete({3, 4});
  masked.has_action_mask = true;
  masked.agent_id_size = 3;
  masked.SetCriticInput(policy::NetworkInput::kJointObservation, 12);
  masked.SetCriticAgentId(true);
  policy::PolicySpec continuous = policy::SmallSpecForTesting();
  continuous.action_space = *space::Space::Box(-1, 1, {2});
  continuous.normalize_observations = true;
  const auto with_cores = [](policy::PolicySpec spec, policy::CoreKind kind, int64_t layers) {
    spec.actor.hidden_sizes = {4};
    spec.actor.core = {kind, 5, layers};
    spec.actor.head_hidden_sizes = {6};
    spec.mutable_critic()->hidden_sizes = {};
    spec.mutable_critic()->core = {kind, 3, layers};
    spec.sequence_length = 7;
    return spec;
  };
  const policy::PolicySpec gru = with_cores(masked, policy::CoreKind::kGru, 1);
  policy::PolicySpec critic_alone = gru;
  critic_alone.actor = policy::SmallSpecForTesting().actor;
  return {{"Masked", masked},
          {"Continuous", continuous},
          {"MaskedGru", gru},
          {"ContinuousLstm", with_cores(continuous, policy::CoreKind::kLstm, 2)},
          {"GruActorBesideACore", gru, true, false},
          {"GruCriticBesideACore", gru, false, true},
          {"GruCriticBesideLayers", critic_alone, false, true}};
}

TrainerHost::BackendFactory Path(bool on_device) {
  return [=](const policy::PolicySpec& spec) {
    return on_device ? MakeTorchBackend(spec, TestDevice(), TorchPath::kDevice, std::make_shared<ThreadTeam>(1))
                     : MakeTorchBackend(spec, Device{}, TorchPath::kHost, std::make_shared<ThreadTeam>(2));
  };
}

learner::PolicyUpdateReport Update(TrainerHost* host, const policy::PolicySpec& spec, int number) {
  RandomBatch batch(spec, {20, 31, 13}, 100 + static_cast<uint64_t>(number), /*inactive_rows=*/true);
  const auto reports = host->Update(batch.batch, {.seed = 1, .iteration = number, .next_version = {1, number + 1}});
  EXPECT_TRUE(reports.ok()) << reports.status();
  return reports->at(0);
}

void ExpectClose(const std::vector<float>& got, const std::vector<float>& expected, double tolerance,
                 const std::string& what) {
  ASSERT_EQ(got.size(), expected.size());
  float largest = 0;
  for (const float value : expected) largest = std::max(largest, std::abs(value));
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], tolerance * largest) << what << " " << i;
}

class ScriptParityTest : public testing::TestWithParam<std::tuple<size_t, bool>> {};

TEST_P(ScriptParityTest, TrainsAsTheBuiltInOneOfItsShape) {
  const auto [number, on_device] = GetParam();
  const policy::PolicySpec built_in = Cases()[number].spec;
  const policy::PolicySpec scripted = Cases()[number].Scripted();
  PpoOptions options;
  options.num_epochs = 2;
  options.minibatch_size = 20;
  const auto script = *MakePpoHost({scripted}, {options}, 1, Path(on_device));
  const auto host = *MakePpoHost({built_in}, {options}, 1, Path(on_device));
  // The same numbers lie in the same places under other names.
  policy::PolicyState state = *host->ExportState(kOnly);
  state.Set(policy::kParameters, std::vector<float>(script->ExportState(kOnly)->parameters()));
  ASSERT_TRUE(host->ImportState(state, kOnly).ok());
  for (int i = 0; i < kUpdates; ++i) {
    const learner::PolicyUpdateReport got = Update(script.get(), scripted, i);
    const learner::PolicyUpdateReport expected = Update(host.get(), built_in, i);
    ASSERT_EQ(got.metrics.size(), expected.metrics.size());
    for (size_t m = 0; m < got.metrics.size(); ++m) {
      EXPECT_NEAR(got.metrics[m].second, expected.metrics[m].second,
                  1e-5 * std::max(1.0, std::abs(expected.metrics[m].second)))
          << got.metrics[m].first << " of update " << i;
    }
    const policy::PolicyState ours = *script->ExportState(kOnly);
    const policy::PolicyState theirs = *host->ExportState(kOnly);
    ExpectClose(ours.parameters(), theirs.parameters(), 1e-5, "parameters");
    ExpectClose(ours.Floats("adam.exp_avg"), theirs.Floats("adam.exp_avg"), 1e-5, "gradients");
  }
}

INSTANTIATE_TEST_SUITE_P(All, ScriptParityTest,
                         testing::Combine(testing::Range<size_t>(0, Cases().size()), testing::Bool()),
                         [](const testing::TestParamInfo<std::tuple<size_t, bool>>& info) {
                           return std::string(Cases()[std::get<0>(info.param)].name) +
                                  (std::get<1>(info.param) ? "Device" : "Host");
                         });

class ScriptBuffersTest : public testing::TestWithParam<bool> {};

TEST_P(ScriptBuffersTest, TravelAndAreNeverTrained) {
  policy::PolicySpec spec = policy::SmallSpecForTesting();
  torch::jit::Module module =
      MakeTestModule({{"w", torch::ones({2, 3}) * 0.1}}, "def f(self, x: Tensor) -> Tensor:\n    return x\n");
  module.register_buffer("scale", torch::tensor({0.5f, 2.0f, 4.0f}));
  module.define(ForwardSource("    return torch.linear(obs * self.scale, self.w), state\n"));
  ASSERT_EQ(SetTestModule(BytesOfModule(module), &spec, &spec.actor), absl::OkStatus());
  PpoOptions options;
  options.optimizer = OptimizerKind::kAdamW;
  options.weight_decay = 0.1;  // of everything that it steps over
  const auto host = *MakePpoHost({spec}, {options}, 1, Path(GetParam()));
  const std::vector<float> before = host->ExportState(kOnly)->parameters();
  Update(host.get(), spec, 0);
  const std::vector<float> after = host->ExportState(kOnly)->parameters();
  const policy::ParameterLayout layout = policy::ParameterLayout::For(spec);
  const policy::ParameterEntry& scale = *layout.Find("actor.buffers.scale");
  const policy::ParameterEntry& weight = *layout.Find("actor.w");
  for (int64_t i = 0; i < 3; ++i) EXPECT_EQ(after[scale.offset + i], before[scale.offset + i]);
  for (int64_t i = 0; i < 6; ++i) EXPECT_NE(after[weight.offset + i], before[weight.offset + i]);
  // The state that workers get holds them.
  EXPECT_EQ((*host->Snapshot(kOnly))->actor[static_cast<size_t>(scale.offset) + 2], 4.0f);
}

INSTANTIATE_TEST_SUITE_P(All, ScriptBuffersTest, testing::Bool(), [](const testing::TestParamInfo<bool>& info) {
  return std::string(info.param ? "Device" : "Host");
});

}  // namespace
}  // namespace troupe::training
