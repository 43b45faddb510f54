// A loss of a user's own: as PPO's, it trains as PPO does; and what becomes of one that cannot be served.

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/policy/testing.h"
#include "lib/policy/testing/same_bits.h"
#include "lib/training/core/trainer_host.h"
#include "lib/training/custom/custom_options.h"
#include "lib/training/make_trainer.h"
#include "lib/training/registry.h"
#include "lib/training/script/loss_probe.h"
#include "lib/training/testing/loss_modules.h"
#include "lib/training/testing/ppo_host.h"
#include "lib/training/testing/random_batch.h"
#include "lib/training/testing/small_update.h"
#include "lib/training/testing/test_device.h"
#include "lib/training/torch/torch_backend.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::training {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

constexpr int kUpdates = 20;
const policy::PolicySlot kSlot(0);

TrainerHost::BackendFactory OnPath(TorchPath path) {
  return [path](const policy::PolicySpec& spec) {
    const Device place = path == TorchPath::kHost ? Device{} : TestDevice();
    return MakeTorchBackend(spec, place, path, std::make_shared<ThreadTeam>(path == TorchPath::kHost ? 2 : 1));
  };
}

absl::StatusOr<std::unique_ptr<TrainerHost>> MakeCustom(const policy::PolicySpec& spec, const CustomOptions& options,
                                                        TorchPath path = TorchPath::kHost) {
  return TrainerHost::Make({spec}, {CustomSpec(options)}, {.seed = 1}, &FindAlgorithm, OnPath(path),
                           tensor::TensorAllocator::Pageable(), {}, {.make_module_backend = OnPath(path)});
}

CustomOptions SmallOptions(const std::string& loss) {
  CustomOptions options;
  options.loss = loss;
  options.num_epochs = 2;
  options.minibatch_size = 20;
  return options;
}

struct Case {
  const char* name;
  policy::PolicySpec spec;
  MinibatchBy minibatch_by = MinibatchBy::kRows;
  bool use_policy_active_masks = true;
  bool use_value_active_masks = false;
};

std::vector<Case> Cases() {
  policy::PolicySpec masked = policy::SmallSpecForTesting();
  masked.action_space = *space::Space::MultiDiscrete({3, 4});
  masked.has_action_mask = true;
  masked.agent_id_size = 3;
  masked.SetCriticInput(policy::NetworkInput::kJointObservation, 12);
  masked.SetCriticAgentId(true);
  policy::PolicySpec joint = masked;
  joint.SetCriticAgentId(false);
  policy::PolicySpec continuous = policy::SmallSpecForTesting();
  continuous.action_space = *space::Space::Box(-1, 1, {2});
  continuous.normalize_observations = true;
  policy::PolicySpec gru = masked;
  gru.actor.hidden_sizes = {4};
  gru.actor.core = {policy::CoreKind::kGru, 5, 1};
  gru.mutable_critic()->hidden_sizes = {};
  gru.mutable_critic()->core = {policy::CoreKind::kGru, 3, 1};
  gru.sequence_length = 7;
  return {{"Masked", masked},
          {"Continuous", continuous},
          {"Gru", gru},
          {"Shared", policy::SharedSpecForTesting()},
          {"EnvSteps", joint, MinibatchBy::kEnvSteps},
          {"ValuesOfTheLiving", joint, MinibatchBy::kEnvSteps, false, true},
          {"TheLivingAlone", masked, MinibatchBy::kRows, true, true}};
}

void ExpectClose(const std::vector<float>& got, const std::vector<float>& expected, double tolerance) {
  ASSERT_EQ(got.size(), expected.size());
  float largest = 0;
  for (const float value : expected) largest = std::max(largest, std::abs(value));
  for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], expected[i], tolerance * largest) << i;
}

std::map<std::string, double> MetricsOf(const learner::PolicyUpdateReport& report) {
  return {report.metrics.begin(), report.metrics.end()};
}

class CustomLossParityTest : public testing::TestWithParam<std::tuple<size_t, TorchPath>> {};

// The rows of a minibatch are added up in another order where some of them are dead.
TEST_P(CustomLossParityTest, PposLossTrainsAsPpoDoes) {
  const Case test = Cases()[std::get<0>(GetParam())];
  const TorchPath path = std::get<1>(GetParam());
  const double tolerance = path == TorchPath::kHost ? 1e-5 : 1e-4;
  CustomOptions options = SmallOptions(PutLoss(PpoLossModule()));
  options.minibatch_by = test.minibatch_by;
  options.use_policy_active_masks = test.use_policy_active_masks;
  options.use_value_active_masks = test.use_value_active_masks;
  PpoOptions ppo;
  static_cast<OnPolicyOptions&>(ppo) = options;
  ppo.num_epochs = options.num_epochs;
  ppo.minibatch_size = options.minibatch_size;
  const auto custom = MakeCustom(test.spec, options, path);
  ASSERT_TRUE(custom.ok()) << custom.status();
  const auto host = *MakePpoHost({test.spec}, {ppo}, 1, OnPath(path));
  for (int i = 0; i < kUpdates; ++i) {
    const learner::UpdateContext context = {.seed = 1, .iteration = i, .next_version = {1, i + 1}};
    RandomBatch batch(test.spec, {20, 31, 13}, 100 + static_cast<uint64_t>(i), /*inactive_rows=*/true);
    RandomBatch same(test.spec, {20, 31, 13}, 100 + static_cast<uint64_t>(i), /*inactive_rows=*/true);
    const auto got = (*custom)->Update(batch.batch, context);
    const auto expected = host->Update(same.batch, context);
    ASSERT_TRUE(got.ok()) << got.status();
    ASSERT_TRUE(expected.ok()) << expected.status();
    EXPECT_EQ(got->at(0).minibatch_steps, expected->at(0).minibatch_steps);
    EXPECT_EQ(got->at(0).trained_rows, expected->at(0).trained_rows);
    const auto ours = MetricsOf(got->at(0));
    const auto theirs = MetricsOf(expected->at(0));
    for (const char* name : {"Policy/Entropy", "Policy/Gradient norm", "Policy/Critic gradient norm"}) {
      EXPECT_NEAR(ours.at(name), theirs.at(name), 10 * tolerance * std::max(1.0, theirs.at(name))) << name;
    }
    ExpectClose((*custom)->ExportState(kSlot)->parameters(), host->ExportState(kSlot)->parameters(), tolerance);
  }
}

INSTANTIATE_TEST_SUITE_P(All, CustomLossParityTest,
                         testing::Combine(testing::Range<size_t>(0, Cases().size()),
                                          testing::Values(TorchPath::kHost, TorchPath::kDevice)),
                         [](const testing::TestParamInfo<std::tuple<size_t, TorchPath>>& info) {
                           return std::string(Cases()[std::get<0>(info.param)].name) +
                                  (std::get<1>(info.param) == TorchPath::kHost ? "Host" : "Device");
                         });

class CustomLossTest : public testing::TestWithParam<TorchPath> {
 protected:
  static std::unique_ptr<TrainerHost> Make(const std::string& body,
                                           const std::vector<std::string>& columns = {"advantages"}) {
    return *MakeCustom(policy::SmallSpecForTesting(), SmallOptions(PutLoss(LossModule(columns, body))), GetParam());
  }
  static absl::StatusOr<std::vector<learner::PolicyUpdateReport>> Update(TrainerHost* host, float reward = 0) {
    RandomBatch batch(policy::SmallSpecForTesting(), kSmallUpdateSegments, 1);
    batch.rewards[3] += reward;
    return host->Update(batch.batch, SmallUpdateContext(0));
  }
};

TEST_P(CustomLossTest, MetricsAreMeansOverStepsAndTheLossIsOneOfThem) {
  const auto host = Make(
      "    loss = (outputs[\"logp\"] * columns[\"advantages\"]).mean() * 0.0 + 3.0\n"
      "    return loss, {\"z\": torch.tensor(2.0), \"a b\": loss * 2.0}\n");
  const auto reports = Update(host.get());
  ASSERT_TRUE(reports.ok()) << reports.status();
  std::vector<std::string> losses;
  for (const auto& [name, value] : reports->at(0).metrics) {
    if (name.rfind("Loss/", 0) == 0) losses.push_back(absl::StrCat(name, "=", value));
  }
  EXPECT_THAT(losses, ElementsAre("Loss/Loss=3", "Loss/z=2", "Loss/a b=6"));
  EXPECT_GT(reports->at(0).minibatch_steps, 1);
}

TEST_P(CustomLossTest, StepsThatAreNotFiniteAreSkippedAndCounted) {
  const auto host =
      Make("    return (outputs[\"logp\"] * columns[\"advantages\"]).mean(), {\"one\": torch.tensor(1.0)}\n");
  const policy::PolicyState before = *host->ExportState(kSlot);
  const auto skipped = Update(host.get(), std::numeric_limits<float>::infinity());
  ASSERT_TRUE(skipped.ok()) << skipped.status();
  EXPECT_EQ(skipped->at(0).minibatch_steps, 0);
  EXPECT_GT(skipped->at(0).skipped_steps, 0);
  EXPECT_EQ(host->ExportState(kSlot)->parameters(), before.parameters());
  const auto taken = Update(host.get());
  ASSERT_TRUE(taken.ok()) << taken.status();
  EXPECT_EQ(taken->at(0).skipped_steps, 0);
  EXPECT_EQ(MetricsOf(taken->at(0)).at("Loss/one"), 1) << "of steps that were taken";
  EXPECT_NE(host->ExportState(kSlot)->parameters(), before.parameters());
}

TEST_P(CustomLossTest, MetricsOfStepsThatWereSkippedDoNotCount) {
  CustomOptions options = SmallOptions(PutLoss(
      LossModule({"advantages"},
                 "    return (outputs[\"logp\"] * columns[\"advantages\"]).mean(), {\"one\": torch.tensor(1.0)}\n")));
  options.use_advnorm = options.use_value_norm = false;  // one row that is not finite stays one
  options.minibatch_size = 5;
  const auto host = *MakeCustom(policy::SmallSpecForTesting(), options, GetParam());
  const auto reports = Update(host.get(), std::numeric_limits<float>::infinity());
  ASSERT_TRUE(reports.ok()) << reports.status();
  EXPECT_GT(reports->at(0).minibatch_steps, 0);
  EXPECT_GT(reports->at(0).skipped_steps, 0);
  EXPECT_EQ(MetricsOf(reports->at(0)).at("Loss/one"), 1);
}

TEST_P(CustomLossTest, ALossOfTheActorLeavesTheCriticAsItIs) {
  const auto host = Make("    return (outputs[\"logp\"] * columns[\"advantages\"]).mean(), {}\n");
  const std::vector<float> before = host->ExportState(kSlot)->parameters();
  ASSERT_TRUE(Update(host.get()).ok());
  const std::vector<float> after = host->ExportState(kSlot)->parameters();
  const auto actor = policy::ParameterLayout::For(policy::SmallSpecForTesting()).acting_size();
  EXPECT_FALSE(std::equal(before.begin(), before.begin() + actor, after.begin()));
  EXPECT_TRUE(std::equal(before.begin() + actor, before.end(), after.begin() + actor));
}

TEST_P(CustomLossTest, OneThatFailsInTrainingEndsTheUpdateInItsWords) {
  const auto host = Make(
      "    if float(columns[\"advantages\"].abs().max()) > 0.0:\n"
      "        assert False, \"no advantage, please\"\n"
      "    return outputs[\"logp\"].mean(), {}\n");
  const policy::PolicyState before = *host->ExportState(kSlot);
  const absl::Status status = Update(host.get()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()), HasSubstr("no advantage, please"));
  policy::ExpectSameBits(before, *host->ExportState(kSlot));
}

TEST_P(CustomLossTest, MetricsHaveTheSameNamesAtEveryStep) {
  const auto host = Make(
      "    name = \"more\" if float(columns[\"advantages\"].sum()) > 0.0 else \"less\"\n"
      "    return outputs[\"logp\"].mean(), {name: outputs[\"logp\"].mean()}\n");
  EXPECT_THAT(std::string(Update(host.get()).status().message()),
              HasSubstr("gives other metrics than at the update's "));
}

TEST_P(CustomLossTest, AnotherLossMayTakeItsPlace) {
  const auto host = Make("    return outputs[\"logp\"].mean(), {\"first\": torch.tensor(1.0)}\n");
  ASSERT_TRUE(Update(host.get()).ok());
  const std::string other =
      PutLoss(LossModule({"advantages"}, "    return outputs[\"critic\"].mean(), {\"second\": torch.tensor(1.0)}\n"));
  const absl::Status changed = host->SetAlgorithm(kSlot, CustomSpec(SmallOptions(other)));
  ASSERT_TRUE(changed.ok()) << changed;
  const auto reports = Update(host.get());
  ASSERT_TRUE(reports.ok()) << reports.status();
  EXPECT_EQ(MetricsOf(reports->at(0)).count("Loss/first"), 0u);
  EXPECT_EQ(MetricsOf(reports->at(0)).count("Loss/second"), 1u);
}

INSTANTIATE_TEST_SUITE_P(Paths, CustomLossTest, testing::Values(TorchPath::kHost, TorchPath::kDevice),
                         [](const testing::TestParamInfo<TorchPath>& info) {
                           return info.param == TorchPath::kHost ? "Host" : "Device";
                         });

/// The error of a module as the loss of the policy, before training; empty: none.
std::string Complaint(const torch::jit::Module& module,
                      const policy::PolicySpec& spec = policy::SmallSpecForTesting()) {
  InstallScriptModules();
  CustomOptions options = SmallOptions(PutLoss(module));
  return std::string(CheckAlgorithmOf(spec, CustomSpec(options)).message());
}
std::string Complaint(const std::string& body, const std::vector<std::string>& columns = {"advantages"}) {
  return Complaint(LossModule(columns, body));
}

constexpr char kLoss[] = "    return (outputs[\"logp\"] * columns[\"advantages\"]).mean(), {}\n";

TEST(CustomLossProbeTest, TakesWhatCanBeServedOfEveryPolicy) {
  for (const Case& test : Cases()) EXPECT_EQ(Complaint(PpoLossModule(), test.spec), "") << test.name;
}

// Types of numbers are integers to TorchScript: 4 is int64, 11 bool, 6 float32.
TEST(CustomLossProbeTest, ShapesAreWhatTheDocumentationSays) {
  policy::PolicySpec spec = Cases()[0].spec;
  EXPECT_EQ(Complaint(LossModule({"actions", "action_mask", "old_values"},
                                 "    assert columns[\"actions\"].dtype == 4\n"
                                 "    assert columns[\"action_mask\"].dtype == 11\n"
                                 "    assert list(columns[\"actions\"].shape) == [8, 2]\n"
                                 "    assert list(columns[\"action_mask\"].shape) == [8, 7]\n"
                                 "    assert list(columns[\"old_values\"].shape) == [8]\n"
                                 "    assert list(outputs[\"actor\"].shape) == [8, 7]\n"
                                 "    assert list(outputs[\"critic\"].shape) == [8, 1]\n"
                                 "    assert list(outputs[\"logp\"].shape) == [8]\n"
                                 "    assert len(columns) == 3 and len(outputs) == 4\n"
                                 "    return outputs[\"entropy\"].mean(), {}\n"),
                      spec),
            "");
  spec = Cases()[1].spec;
  EXPECT_EQ(Complaint(LossModule({"actions", "action_mask"},
                                 "    assert columns[\"actions\"].dtype == 6\n"
                                 "    assert list(columns[\"actions\"].shape) == [8, 2]\n"
                                 "    assert list(columns[\"action_mask\"].shape) == [8, 0]\n"
                                 "    assert list(outputs[\"log_std\"].shape) == [2]\n"
                                 "    return outputs[\"log_std\"].sum(), {}\n"),
                      spec),
            "");
}

TEST(CustomLossProbeTest, SaysWhatIsWrong) {
  EXPECT_THAT(Complaint("    return outputs[\"logp\"].mean(), {}\n", {"advantage"}),
              HasSubstr("algorithm.loss: TorchScript file loss.pt names the column \"advantage\", expected one of "
                        "actions, action_mask, old_logp, advantages, value_targets, old_values, policy_weights, "
                        "value_weights; the nearest is advantages"));
  EXPECT_THAT(Complaint("    return outputs[\"logp\"], {}\n"),
              HasSubstr("gives a loss [8] of Float, expected a scalar"));
  EXPECT_THAT(Complaint("    return outputs[\"logp\"].mean().detach(), {}\n"),
              HasSubstr("expected one with a gradient"));
  EXPECT_THAT(Complaint("    return outputs[\"logp\"].mean() / 0.0, {}\n"),
              HasSubstr("gives a loss, a gradient or a metric that is NaN or infinity"));
  EXPECT_THAT(Complaint("    return (outputs[\"logp\"] * 0.0).sqrt().mean(), {}\n"),
              HasSubstr("gives a loss, a gradient or a metric that is NaN or infinity"))
      << "of which the gradient is none";
  EXPECT_THAT(Complaint("    assert False, \"my own words\"\n    return outputs[\"logp\"].mean(), {}\n"),
              HasSubstr("fails on 8 rows of policy \"p\": LibTorch failed while trying it: forward of the "
                        "TorchScript module fails: "));
  EXPECT_THAT(Complaint("    assert False, \"my own words\"\n    return outputs[\"logp\"].mean(), {}\n"),
              HasSubstr("my own words"));
  EXPECT_THAT(Complaint("    return columns[\"old_logp\"].mean(), {}\n"), HasSubstr("old_logp")) << "it named another";
  EXPECT_THAT(Complaint("    return outputs[\"logp\"].mean(), {\"Loss\": outputs[\"logp\"].mean()}\n"),
              HasSubstr("gives a metric \"Loss\", expected a name of 1 to 64 printable characters; Loss is the loss"));
  EXPECT_THAT(Complaint("    return outputs[\"logp\"].mean(), {\"rows\": outputs[\"logp\"]}\n"),
              HasSubstr("gives a metric \"rows\" of sizes [8], expected a scalar"));
  EXPECT_THAT(Complaint("    metrics: Dict[str, Tensor] = {}\n    for i in range(31):\n"
                        "        metrics[str(i)] = outputs[\"logp\"].mean()\n"
                        "    return outputs[\"logp\"].mean(), metrics\n"),
              HasSubstr("gives 31 metrics, expected at most 30"));
}

TEST(CustomLossProbeTest, SaysWhatIsWrongWithTheFile) {
  torch::jit::Module module = LossModule({"advantages"}, kLoss);
  module.register_parameter("scale", torch::ones({1}), /*is_buffer=*/false);
  EXPECT_THAT(Complaint(module), HasSubstr("has the parameter scale, expected a loss without: nobody would train"));
  torch::jit::Module without("test.Loss");
  without.define(
      "def forward(self, outputs: Dict[str, Tensor], columns: Dict[str, Tensor]) -> Tuple[Tensor, Dict[str, "
      "Tensor]]:\n    return outputs[\"logp\"].mean(), {}\n");
  EXPECT_THAT(Complaint(without), HasSubstr("has no attribute columns, expected a List[str] of what forward reads of: "
                                            "actions, action_mask"));
  torch::jit::Module network("test.Network");
  network.define(ForwardSource("    return obs, state\n"));
  EXPECT_THAT(Complaint(network), HasSubstr("expected forward(self, outputs: Dict[str, Tensor], columns: Dict[str, "));
  torch::jit::Module nothing("test.Nothing");
  nothing.define("def other(self, x: Tensor) -> Tensor:\n    return x\n");
  EXPECT_THAT(Complaint(nothing), HasSubstr("has no method forward, expected forward(self, outputs: "));
  InstallScriptModules();
  const CustomOptions options = SmallOptions(PutTestModule("no archive of a loss", "loss.pt"));
  EXPECT_THAT(std::string(CheckAlgorithmOf(policy::SmallSpecForTesting(), CustomSpec(options)).message()),
              HasSubstr("algorithm.loss: TorchScript file loss.pt cannot be read, expected what torch.jit.save wrote"));
}

TEST(CustomLossProbeTest, ColumnsThatAreNamedAndIgnoredAreFound) {
  const auto unused = [](const std::vector<std::string>& columns, const std::string& body,
                         const policy::PolicySpec& spec) {
    const auto script = LossScript::Load({"loss.pt", BytesOfModule(LossModule(columns, body))}, torch::kCPU);
    EXPECT_TRUE(script.ok()) << script.status();
    return *TryLoss(spec, **script);
  };
  const policy::PolicySpec spec = Cases()[0].spec;
  EXPECT_THAT(unused({"advantages", "old_logp", "actions", "policy_weights"}, kLoss, spec),
              ElementsAre("actions", "old_logp", "policy_weights"));
  EXPECT_THAT(unused({"advantages", "value_weights"},
                     "    ignored = columns[\"value_weights\"] * 2.0\n" + std::string(kLoss), spec),
              ElementsAre("value_weights"));
  EXPECT_THAT(unused({"advantages", "actions", "action_mask"},
                     "    weights = (columns[\"actions\"].sum(1) + columns[\"action_mask\"].sum(1)).float()\n"
                     "    return (outputs[\"logp\"] * columns[\"advantages\"] * weights).mean(), {}\n",
                     spec),
              ElementsAre());
  EXPECT_THAT(unused({"action_mask", "advantages"}, kLoss, policy::SmallSpecForTesting()), ElementsAre())
      << "a policy without masks has an empty one";
  const auto ppo = LossScript::Load({"loss.pt", BytesOfModule(PpoLossModule())}, torch::kCPU);
  for (const Case& test : Cases()) EXPECT_THAT(*TryLoss(test.spec, **ppo), ElementsAre()) << test.name;
}

TEST(CustomLossProbeTest, AProcessWithoutTheFileCanResolveAndNotTrain) {
  InstallScriptModules();
  const CustomOptions options = SmallOptions(std::string(64, 'a'));
  EXPECT_EQ(CheckAlgorithmOf(policy::SmallSpecForTesting(), CustomSpec(options)), absl::OkStatus()) << "a worker";
  EXPECT_THAT(std::string(MakeCustom(policy::SmallSpecForTesting(), options).status().message()),
              HasSubstr("algorithm.loss: there is no TorchScript file with SHA-256 aaaa"));
}

TEST(CustomLossProbeTest, TheTrainerOfARunTakesLibTorchForIt) {
  const CustomOptions options = SmallOptions(PutLoss(PpoLossModule()));
  const policy::PolicySpec spec = policy::SmallSpecForTesting();
  auto trainer = MakeTrainer({spec}, {CustomSpec(options)}, {.num_threads = 2}, 1);
  ASSERT_TRUE(trainer.ok()) << trainer.status();
  RandomBatch batch(spec, kSmallUpdateSegments, 1);
  const auto reports = (*trainer)->Update(batch.batch, SmallUpdateContext(0));
  ASSERT_TRUE(reports.ok()) << reports.status();
  EXPECT_EQ(MetricsOf(reports->at(0)).count("Loss/Surrogate"), 1u);
}

}  // namespace
}  // namespace troupe::training
