// One update of PQN, alone and as a team, against the plain PyTorch one of pqn_reference.py, on the paths of host and
// device.

#include <algorithm>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "lib/training/pqn/pqn_options.h"
#include "lib/training/pqn/pqn_torch.h"
#include "tests/parity/update_parity.h"
#include <gtest/gtest.h>

namespace troupe::training {
namespace {

/// PQN on a path of the test's choice.
class PqnOnPath final : public Algorithm {
 public:
  explicit PqnOnPath(TorchPath path) : path_(path) {}
  std::string_view name() const override { return pqn().name(); }
  absl::StatusOr<StateForm> FormOf(const policy::AlgorithmSpec& spec) const override { return pqn().FormOf(spec); }
  std::vector<std::vector<policy::PolicySlot>> Groups(absl::Span<const GroupMember> members) const override {
    return pqn().Groups(members);
  }
  absl::StatusOr<std::unique_ptr<GroupTrainer>> MakeGroup(absl::Span<const GroupMember> members,
                                                          const TrainingContext& context) const override {
    return MakePqnGroup(members, context, path_);
  }

 private:
  static const Algorithm& pqn() { return **FindAlgorithm("pqn"); }
  const TorchPath path_;
};

PqnOptions Options(const json& from) {
  PqnOptions options;
  options.adam_epsilon = from["adam_epsilon"].get<double>();
  options.gamma = from["gamma"].get<double>();
  options.discount_by = from["discount_by"] == "env_step" ? DiscountBy::kEnvStep : DiscountBy::kDecision;
  options.q_lambda = from["q_lambda"].get<double>();
  options.time_limit_bootstrap = from["time_limit_bootstrap"].get<bool>();
  options.num_epochs = from["num_epochs"].get<int64_t>();
  options.minibatch_size = from["minibatch_size"].get<int64_t>();
  options.max_grad_norm = from["max_grad_norm"].get<double>();
  options.mixer = from["mixer"] == "vdn" ? Mixer::kVdn : Mixer::kNone;
  return options;
}

class PqnParityTest : public testing::TestWithParam<std::tuple<size_t, TorchPath>> {
 protected:
  static const json& Recorded() {
    static const json& recorded = *new json(ReadRecord("pqn_reference.json"));
    return recorded;
  }
  const json& record() const { return Recorded()["cases"][std::get<0>(GetParam())]; }
  static TorchPath path() { return std::get<1>(GetParam()); }
  static double tolerance() { return path() == TorchPath::kDevice && TestDevice().is_cuda() ? 1e-4 : 1e-5; }

  static policy::PolicySpec SpecOf(const json& policy) {
    policy::PolicySpec spec = Spec(policy);
    EXPECT_TRUE(SetNetworks(PqnSpec({}), &spec).ok());
    return spec;
  }

  /// One update as `expected` has it.
  void ExpectUpdate(const json& expected) {
    const PqnOnPath pqn(path());
    policy::AlgorithmSpec options = PqnSpec(Options(expected["options"]));
    options.options["lr"] = Schedule(expected["options"]["learning_rate"]);
    std::vector<policy::PolicySpec> specs;
    for (const json& policy : record()["policies"]) specs.push_back(SpecOf(policy));
    const Device device = path() == TorchPath::kDevice ? TestDevice() : Device{};
    const auto trainer = TrainerHost::Make(
        specs, std::vector<policy::AlgorithmSpec>(specs.size(), options), {.seed = 1, .device = device},
        [&pqn](std::string_view) -> absl::StatusOr<const Algorithm*> { return &pqn; },
        [](const policy::PolicySpec&) -> absl::StatusOr<std::unique_ptr<NetworkBackend>> {
          return absl::InternalError("nobody asks for one");
        });
    ASSERT_TRUE(trainer.ok()) << trainer.status();
    learner::TrainBatch batch;
    learner::JointSteps joint = Joint();
    batch.joint = &joint;
    std::vector<std::unique_ptr<Batch>> batches;
    std::vector<std::vector<learner::JointPlace>> places;
    for (size_t p = 0; p < specs.size(); ++p) {
      const json& from = record()["policies"][p];
      const policy::PolicySlot slot(static_cast<int32_t>(p));
      policy::PolicyState state = *(*trainer)->ExportState(slot);
      state.Set(policy::kParameters, Flat(from["parameters"], policy::ParameterLayout::For(specs[p])));
      ASSERT_TRUE((*trainer)->ImportState(state, slot).ok());
      Batch& one = *batches.emplace_back(std::make_unique<Batch>(from));
      one.final_action_mask = from["batch"]["final_action_mask"].get<std::vector<uint8_t>>();
      std::vector<learner::JointPlace>& of_rows = places.emplace_back();
      for (const json& step : from["batch"]["joint_place"]) of_rows.push_back({step.get<int32_t>(), 0});
      batch.policies.push_back(one.batch.policies[0]);
      batch.policies.back().policy = slot;
      batch.policies.back().final_action_mask = one.final_action_mask;
      batch.policies.back().joint_place = of_rows;
    }
    const json& context = record()["context"];
    const auto reports = (*trainer)->Update(batch, {.seed = context["seed"].get<uint64_t>(),
                                                    .iteration = context["iteration"].get<int64_t>(),
                                                    .env_steps = context["env_steps"].get<int64_t>(),
                                                    .next_version = {1, 1}});
    ASSERT_TRUE(reports.ok()) << reports.status();
    for (size_t p = 0; p < specs.size(); ++p) {
      const learner::PolicyUpdateReport& report = (*reports)[p];
      EXPECT_EQ(report.minibatch_steps, expected["minibatch_steps"].get<int64_t>());
      EXPECT_EQ(report.epochs, expected["epochs"].get<int64_t>());
      EXPECT_EQ(report.trained_rows, expected["trained_rows"][p].get<int64_t>());
      EXPECT_EQ(report.skipped_steps, 0);
      size_t compared = 0;
      for (const auto& [tag, value] : report.metrics) {
        if (!expected["metrics"].contains(tag)) continue;
        const double number = expected["metrics"][tag].get<double>();
        EXPECT_NEAR(value, number, tolerance() * std::max(1.0, std::abs(number))) << tag;
        ++compared;
      }
      EXPECT_EQ(compared, expected["metrics"].size());
      const policy::PolicyState after = *(*trainer)->ExportState(policy::PolicySlot(static_cast<int32_t>(p)));
      const policy::ParameterLayout layout = policy::ParameterLayout::For(specs[p]);
      ExpectClose(layout, after.parameters(), Flat(expected["parameters"][p], layout), tolerance(), "parameters");
      ExpectClose(layout, after.Floats(kAdamExpAvg), Flat(expected["exp_avg"][p], layout), tolerance(), "gradients");
    }
  }

 private:
  /// As the assembler joins: segments bridge what lies between their first row and their last place.
  learner::JointSteps Joint() const {
    learner::JointSteps joint;
    for (const json& from : record()["joint"]) {
      learner::JointStep step;
      step.env_id = base::EnvId(from["env_id"].get<uint32_t>());
      step.step = from["step"].get<int32_t>();
      step.first_entry = static_cast<int32_t>(joint.entries.size());
      for (const json& entry : from["entries"]) {
        const auto row = entry[3].get<int32_t>();
        const bool is_final = entry[1].get<int32_t>() != 0;
        joint.entries.push_back({base::AgentSlot(entry[0].get<int32_t>()), policy::PolicySlot(entry[2].get<int32_t>()),
                                 is_final ? -1 : row, is_final ? row : -1});
      }
      step.num_entries = static_cast<int32_t>(joint.entries.size()) - step.first_entry;
      joint.steps.push_back(step);
    }
    // No world has a gap within an episode.
    for (size_t s = 0; s + 1 < joint.steps.size(); ++s) {
      if (joint.steps[s].env_id == joint.steps[s + 1].env_id) joint.steps[s].next = static_cast<int32_t>(s) + 1;
    }
    return joint;
  }
};

TEST_P(PqnParityTest, OneStep) { ExpectUpdate(record()["one_step"]); }
TEST_P(PqnParityTest, Update) { ExpectUpdate(record()["update"]); }

INSTANTIATE_TEST_SUITE_P(Cases, PqnParityTest,
                         testing::Combine(testing::Range(size_t{0}, size_t{5}),
                                          testing::Values(TorchPath::kHost, TorchPath::kDevice)));

}  // namespace
}  // namespace troupe::training
