// A group whose loss is over tensors, with algorithms that are as small as they can be: Q-learning, and one with two
// critics of actions and a number.

#include "lib/training/torch/torch_group.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"
#include "lib/policy/testing.h"
#include "lib/training/core/state_blocks.h"
#include "lib/training/core/trainer_host.h"
#include "lib/training/testing/q_group.h"
#include "lib/training/testing/random_batch.h"
#include "lib/training/testing/test_device.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::training {
namespace {

using testing::HasSubstr;
using torch::Tensor;

const policy::PolicySlot kSlot(0);

/// Two critics of the action, and a number, each with losses of their own. Every other update leaves the actor alone.
class CriticsGroup final : public TorchGroup {
 public:
  CriticsGroup(absl::Span<const GroupMember> members, const TrainingContext& context, const QSettings& settings)
      : TorchGroup(members, context, settings.path), settings_(settings) {}

 protected:
  absl::StatusOr<std::vector<Tensor>> Inputs(const GroupUpdate& /*update*/) override {
    return std::vector<Tensor>{torch::scalar_tensor(settings_.learning_rate, torch::kFloat64)};
  }
  OptimizerOptions Optimizer() const override { return settings_.optimizer; }
  int64_t Variant(int64_t update) const override { return update % 2; }
  std::vector<TargetRule> Targets() const override { return {{"q1", 0.25, 1}, {"q2", 0.25, 1}}; }
  void Train(TorchStep* step) override {
    const TorchMember& m = *step->members()[0];
    const Tensor actions = m.Run("actor", Net::kOnline, At::kPlaces);
    Tensor next;
    for (const char* role : {"q1", "q2"}) {
      const Tensor q = m.AtNext(m.Run(role, Net::kTarget, At::kPlaces, actions.detach())).squeeze(1);
      next = next.defined() ? torch::minimum(next, q) : q;
    }
    const Tensor target = (m.rows().rewards + m.Discounts(settings_.gamma) * next).detach();
    Tensor loss;
    for (const char* role : {"q1", "q2"}) {
      const Tensor mean = m.Mean((m.Run(role, Net::kOnline, At::kRows, m.ActionInputs()).squeeze(1) - target).square());
      loss = loss.defined() ? loss + mean : mean;
    }
    step->Minimize(loss, {"q1", "q2"}, step->input(0));
    if (step->variant() == 0) {
      const Tensor value = m.Run("q1", Net::kOnline, At::kRows, m.AtRows(actions)).squeeze(1);
      step->Minimize(-m.Mean(value), {"actor"}, step->input(0));
    }
    step->Minimize((m.Number("temperature") - 3).square().sum(), {"temperature"}, step->input(0));
  }

 private:
  const QSettings settings_;
};

/// Policies that one group trains.
template <typename Group>
class Trained {
 public:
  Trained(std::vector<policy::PolicySpec> specs, const QSettings& settings) : algorithm(settings) {
    const auto find = [this](std::string_view) -> absl::StatusOr<const Algorithm*> { return &algorithm; };
    const auto no_backend = [](const policy::PolicySpec&) -> absl::StatusOr<std::unique_ptr<NetworkBackend>> {
      return absl::InternalError("nobody asks for one");
    };
    std::vector<policy::AlgorithmSpec> algorithms(specs.size(), {.name = "torch"});
    auto made =
        TrainerHost::Make(std::move(specs), algorithms, {.seed = 1, .device = settings.device}, find, no_backend);
    EXPECT_TRUE(made.ok()) << made.status();
    host = *std::move(made);
  }

  learner::PolicyUpdateReport Update(const learner::TrainBatch& batch) {
    const auto reports =
        host->Update(batch, {.seed = 1, .iteration = updates_, .env_steps = 0, .next_version = {1, updates_ + 1}});
    EXPECT_TRUE(reports.ok()) << reports.status();
    ++updates_;
    return reports.ok() ? reports->front() : learner::PolicyUpdateReport();
  }
  std::vector<float> Section(const char* role, policy::PolicySlot slot = kSlot) const {
    const policy::PolicyState state = *host->ExportState(slot);
    const policy::ParameterSection& section = *policy::ParameterLayout::For(Spec(slot)).FindSection(role);
    const auto first = state.parameters().begin() + section.offset;
    return {first, first + section.size};
  }
  std::vector<int64_t> Steps() const {
    return policy::BlockValues<int64_t>(host->ExportState(kSlot)->blocks, kBlockSteps);
  }
  policy::PolicySpec Spec(policy::PolicySlot slot) const { return specs_of(slot); }

  TorchAlgorithm<Group> algorithm;
  std::unique_ptr<TrainerHost> host;
  std::function<policy::PolicySpec(policy::PolicySlot)> specs_of;

 private:
  int64_t updates_ = 0;
};

template <typename Group>
std::unique_ptr<Trained<Group>> Make(std::vector<policy::PolicySpec> specs, const QSettings& settings) {
  auto made = std::make_unique<Trained<Group>>(specs, settings);
  made->specs_of = [specs](policy::PolicySlot slot) { return specs[static_cast<size_t>(slot.value())]; };
  return made;
}

policy::PolicySpec QSpec() { return QSpecOf(policy::SmallSpecForTesting()); }

policy::PolicySpec CriticsSpec() {
  policy::PolicySpec spec = policy::SmallSpecForTesting();
  spec.action_space = *space::Space::Box(-1, 1, {2});
  policy::NetworkSpec critic = spec.critic();
  critic.inputs = {policy::NetworkInput::kObservation, policy::NetworkInput::kAction};
  critic.has_target = true;
  spec.learner_networks = {critic, critic};
  spec.learner_networks[0].role = "q1";
  spec.learner_networks[1].role = "q2";
  spec.learner_numbers = {{"temperature", 0.5}};
  return spec;
}

void ExpectNear(const std::vector<float>& got, const std::vector<float>& expected, float tolerance) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(got[i], expected[i], tolerance * std::max(1.0f, std::abs(expected[i]))) << i;
  }
}

double Metric(const learner::PolicyUpdateReport& report, std::string_view tag) {
  for (const auto& [name, value] : report.metrics) {
    if (name == tag) return value;
  }
  ADD_FAILURE() << "no metric " << tag;
  return 0;
}

/// Linear layers of torch.nn with a section's numbers.
struct Eager {
  Eager(const std::vector<float>& numbers, const policy::PolicySpec& spec) {
    const policy::ParameterLayout layout = policy::ParameterLayout::For(spec);
    for (int i = 0; i < 3; ++i) {
      for (const char* const part : {"weight", "bias"}) {
        const policy::ParameterEntry& entry = *layout.Find(absl::StrCat("actor.", i, ".", part));
        const Tensor values = torch::from_blob(const_cast<float*>(numbers.data()) + entry.offset, entry.shape);
        parameters.push_back(values.clone().requires_grad_(true));
      }
    }
  }
  Tensor operator()(Tensor x) const {
    for (size_t i = 0; i < parameters.size(); i += 2) {
      x = torch::linear(x, parameters[i], parameters[i + 1]);
      if (i + 2 < parameters.size()) x = torch::tanh(x);
    }
    return x;
  }
  std::vector<float> Flat(const policy::PolicySpec& spec) const {
    const policy::ParameterLayout layout = policy::ParameterLayout::For(spec);
    std::vector<float> flat(static_cast<size_t>(layout.FindSection("actor")->size), 0.0f);
    for (size_t i = 0; i < parameters.size(); ++i) {
      const Tensor values = parameters[i].detach().contiguous();
      std::copy_n(values.data_ptr<float>(), values.numel(), flat.begin() + layout.entries()[i].offset);
    }
    return flat;
  }
  std::vector<Tensor> parameters;
};

// The same rows, losses and steps with torch.nn and torch.optim alone.
TEST(TorchGroupTest, AStepIsThatOfEagerLibTorch) {
  const policy::PolicySpec spec = QSpec();
  QSettings settings;
  settings.targets = {{"actor", 0.25, 1}};
  const auto trained = Make<QGroup>({spec}, settings);
  Eager online(trained->Section("actor"), spec), target(trained->Section("actor.target"), spec);
  EXPECT_EQ(trained->Section("actor"), trained->Section("actor.target")) << "a target begins as its network";
  torch::optim::Adam adam(online.parameters, torch::optim::AdamOptions(settings.learning_rate).eps(1e-5));
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    RandomBatch batch(spec, {4, 5, 6}, seed, /*inactive_rows=*/true);
    const Tensor obs = torch::from_blob(batch.obs.data(), {15, 3}).clone();
    const Tensor final_obs = torch::from_blob(batch.final_obs.data(), {2, 3}).clone();
    // Rows 3, 8 and 14 end a segment: the first its episode, the others at final rows.
    std::vector<int64_t> next = {1, 2, 3, 3, 5, 6, 7, 8, 15, 10, 11, 12, 13, 14, 16};
    Tensor continues = torch::ones({15});
    continues[3] = 0;
    Tensor counts = torch::zeros({15});
    Tensor actions = torch::zeros({15}, torch::kInt64);
    for (int64_t row = 0; row < 15; ++row) {
      counts[row] = batch.agent_mask[static_cast<size_t>(row)] != 0 ? 1 : 0;
      actions[row] = batch.actions[static_cast<size_t>(row)].i32;
    }
    const Tensor rewards = torch::from_blob(batch.rewards.data(), {15}).clone();
    adam.zero_grad();
    Tensor best;
    {
      const torch::NoGradGuard no_grad;
      best = target(torch::cat({obs, final_obs})).amax(1).index_select(0, torch::tensor(next));
    }
    const Tensor chosen = online(obs).gather(1, actions.unsqueeze(1)).squeeze(1);
    const Tensor error = chosen - (rewards + settings.gamma * continues * best);
    const Tensor loss = (0.5 * error.square() * counts).sum() / counts.sum();
    loss.backward();
    torch::nn::utils::clip_grad_norm_(online.parameters, 0.5);
    adam.step();
    {
      const torch::NoGradGuard no_grad;
      for (size_t i = 0; i < online.parameters.size(); ++i) target.parameters[i].lerp_(online.parameters[i], 0.25);
    }
    const learner::PolicyUpdateReport report = trained->Update(batch.batch);
    EXPECT_NEAR(Metric(report, "Loss/Value loss"), loss.item<double>(), 1e-5);
    EXPECT_EQ(report.trained_rows, counts.sum().item<int64_t>());
    EXPECT_EQ(report.minibatch_steps, 1);
    ExpectNear(trained->Section("actor"), online.Flat(spec), 1e-5f);
    ExpectNear(trained->Section("actor.target"), target.Flat(spec), 1e-5f);
  }
  EXPECT_EQ(trained->Steps(), std::vector<int64_t>{3});
}

struct Case {
  const char* name;
  policy::PolicySpec spec;
};

std::vector<Case> Cases() {
  std::vector<Case> cases = {{"plain", QSpec()}};
  policy::PolicySpec masked = QSpec();
  masked.action_space = *space::Space::MultiDiscrete({3, 2});
  masked.has_action_mask = true;
  cases.push_back({"masks of two leaves", masked});
  policy::PolicySpec gru = policy::SmallSpecWithCoresForTesting(policy::CoreKind::kGru, policy::CoreKind::kNone);
  gru.actor.action_values = gru.actor.has_target = true;
  gru.learner_networks.clear();
  cases.push_back({"gru", gru});
  return cases;
}

/// Rows of images, as bytes where the policy reads bytes, else as what they are scaled to.
class Pictures : public learner::OwnedTrainBatch {
 public:
  Pictures(const policy::PolicySpec& spec, uint64_t seed) {
    const RandomBatch random(QSpec(), {4, 9, 6}, seed);
    learner::PolicyTrainBatch rows;
    rows.policy = kSlot;
    rows.rows = random.batch.policies[0].rows;
    rows.final_rows = random.batch.policies[0].final_rows;
    rows.segments = random.batch.policies[0].segments;
    actions = random.actions;
    logp = random.logp;
    rewards = random.rewards;
    base::PhiloxSequence pixels(base::PhiloxKey::Make(seed, base::RandomStream::kTest), {});
    const auto fill = [&](int64_t count, std::vector<uint8_t>* bytes, std::vector<float>* floats) {
      for (int64_t i = 0; i < count * spec.observation_size(); ++i) {
        const auto pixel = static_cast<uint8_t>(pixels.Below(256));
        if (spec.image_bytes()) bytes->push_back(pixel);
        if (!spec.image_bytes()) floats->push_back(static_cast<float>(pixel) * (1.0f / 255.0f));
      }
    };
    fill(rows.rows, &images, &obs);
    fill(rows.final_rows, &final_images, &final_obs);
    Add(std::move(rows));
  }
};

TEST(TorchGroupTest, ImagesOfBytesAreScaledWhereTheyAreRead) {
  const auto learned = [](bool bytes, TorchPath path) {
    policy::PolicySpec spec = QSpec();
    spec.observation_space =
        bytes ? *space::Space::Box(0, 255, {6, 6, 1}, tensor::DType::kUint8) : *space::Space::Box(0, 1, {6, 6, 1});
    spec.actor.encoder = policy::EncoderKind::kCnn;
    spec.actor.conv_layers = {{4, 3, 1}};
    QSettings settings;
    settings.path = path;
    if (path == TorchPath::kDevice) settings.device = TestDevice();
    const auto trained = Make<QGroup>({spec}, settings);
    for (uint64_t seed = 1; seed <= 3; ++seed) trained->Update(Pictures(spec, seed).batch);
    return trained->Section("actor");
  };
  const std::vector<float> expected = learned(/*bytes=*/false, TorchPath::kHost);
  ExpectNear(learned(/*bytes=*/true, TorchPath::kHost), expected, 1e-5f);
  ExpectNear(learned(/*bytes=*/true, TorchPath::kDevice), expected, 1e-4f);
}

// The work of a device (on the CPU in its place): copies, captured steps, the optimizer without a look at a number.
TEST(TorchGroupTest, TheDevicesPathIsTheHosts) {
  for (const Case& one : Cases()) {
    for (const OptimizerKind kind : {OptimizerKind::kAdam, OptimizerKind::kRmsprop}) {
      SCOPED_TRACE(absl::StrCat(one.name, " ", static_cast<int>(kind)));
      QSettings host;
      host.optimizer.optimizer = kind;
      QSettings device = host;
      device.path = TorchPath::kDevice;
      device.device = TestDevice();
      const auto by_host = Make<QGroup>({one.spec}, host);
      const auto by_device = Make<QGroup>({one.spec}, device);
      for (uint64_t seed = 1; seed <= 5; ++seed) {
        RandomBatch batch(one.spec, {4, 9, 6}, seed);
        const learner::PolicyUpdateReport expected = by_host->Update(batch.batch);
        const learner::PolicyUpdateReport got = by_device->Update(batch.batch);
        ASSERT_EQ(got.metrics.size(), expected.metrics.size());
        for (size_t i = 0; i < got.metrics.size(); ++i) {
          EXPECT_NEAR(got.metrics[i].second, expected.metrics[i].second, 1e-4) << got.metrics[i].first;
        }
        ExpectNear(by_device->Section("actor"), by_host->Section("actor"), 1e-4f);
        ExpectNear(by_device->Section("actor.target"), by_host->Section("actor.target"), 1e-4f);
      }
      EXPECT_EQ(by_device->algorithm.last->replays_for_testing(), 4) << "a step that waits could not be captured";
      EXPECT_EQ(by_host->algorithm.last->replays_for_testing(), 0);
      EXPECT_EQ(by_device->Steps(), std::vector<int64_t>{5});
    }
  }
}

TEST(TorchGroupTest, EachSectionStepsByItself) {
  for (const TorchPath path : {TorchPath::kHost, TorchPath::kDevice}) {
    QSettings settings;
    settings.path = path;
    if (path == TorchPath::kDevice) settings.device = TestDevice();
    const policy::PolicySpec spec = CriticsSpec();
    const auto trained = Make<CriticsGroup>({spec}, settings);
    EXPECT_EQ(trained->Section("temperature")[0], 0.5f);
    std::vector<float> actor = trained->Section("actor");
    for (int64_t update = 0; update < 4; ++update) {
      const std::vector<float> q1 = trained->Section("q1"), target = trained->Section("q1.target");
      RandomBatch batch(spec, {4, 5, 6}, static_cast<uint64_t>(update) + 1);
      EXPECT_EQ(trained->Update(batch.batch).minibatch_steps, update % 2 == 0 ? 3 : 2);
      EXPECT_NE(trained->Section("q1"), q1);
      const std::vector<float> now = trained->Section("q1");
      std::vector<float> moved(target.size());
      for (size_t i = 0; i < moved.size(); ++i) moved[i] = target[i] + 0.25f * (now[i] - target[i]);
      ExpectNear(trained->Section("q1.target"), moved, 1e-6f);
      EXPECT_EQ(trained->Section("actor") == actor, update % 2 == 1) << "a critic's loss is not the actor's";
      actor = trained->Section("actor");
    }
    EXPECT_EQ(trained->Steps(), (std::vector<int64_t>{2, 4, 4, 4})) << "actor, q1, q2, temperature";
    EXPECT_GT(trained->Section("temperature")[0], 0.5f);
    // A variant is captured apart from the other.
    EXPECT_EQ(trained->algorithm.last->replays_for_testing(), path == TorchPath::kDevice ? 2 : 0);
  }
}

TEST(TorchGroupTest, WhatIsNotFiniteChangesNothing) {
  for (const TorchPath path : {TorchPath::kHost, TorchPath::kDevice}) {
    for (const double scale : {std::numeric_limits<double>::quiet_NaN(), 1e38}) {  // a loss, and a gradient's norm
      QSettings settings;
      settings.path = path;
      if (path == TorchPath::kDevice) settings.device = TestDevice();
      settings.scale = scale;
      settings.targets = {};
      const policy::PolicySpec spec = QSpec();
      const auto trained = Make<QGroup>({spec}, settings);
      const policy::PolicyState before = *trained->host->ExportState(kSlot);
      RandomBatch batch(spec, {4, 5, 6}, 1);
      for (float& reward : batch.rewards) reward = 1e3f;
      const learner::PolicyUpdateReport report = trained->Update(batch.batch);
      EXPECT_EQ(report.skipped_steps, 1);
      EXPECT_EQ(report.minibatch_steps, 0);
      const policy::PolicyState after = *trained->host->ExportState(kSlot);
      EXPECT_EQ(after.parameters(), before.parameters());
      EXPECT_EQ(after.Floats(kAdamExpAvg), before.Floats(kAdamExpAvg));
      EXPECT_EQ(trained->Steps(), std::vector<int64_t>{0});
      EXPECT_EQ(Metric(report, "Policy/Consecutive skips"), 1);
    }
  }
}

// Two sequences of one segment, and its final row: what torch.gru makes of them by hand.
TEST(TorchGroupTest, ACoreIsRunThroughSequencesAndTheirFinalRows) {
  class Look final : public TorchGroup {
   public:
    Look(absl::Span<const GroupMember> members, const TrainingContext& context, const QSettings& settings)
        : TorchGroup(members, context, settings.path) {}
    static Tensor& seen() {
      static Tensor outputs;
      return outputs;
    }
    static std::vector<Tensor>& parts() {
      static std::vector<Tensor> all;
      return all;
    }

   protected:
    void Train(TorchStep* step) override {
      const torch::NoGradGuard no_grad;
      const TorchMember& m = *step->members()[0];
      seen() = m.Run("actor", Net::kOnline, At::kPlaces).clone();
      parts() = {m.rows().actor.floats.clone(), m.rows().memory.clone(), m.Run("actor").clone()};
    }
  };
  const policy::PolicySpec spec = [] {
    policy::PolicySpec gru = policy::SmallSpecWithCoresForTesting(policy::CoreKind::kGru, policy::CoreKind::kNone);
    gru.learner_networks.clear();
    return gru;
  }();
  const auto trained = Make<Look>({spec}, {});
  RandomBatch batch(spec, {3, 9}, 1);  // the second one from decision 7: sequences of 7 and 2 rows, then a final row
  trained->Update(batch.batch);
  const policy::PolicyState state = *trained->host->ExportState(kSlot);
  const policy::ParameterLayout layout = policy::ParameterLayout::For(spec);
  const auto of = [&](const std::string& name) {
    const policy::ParameterEntry& entry = *layout.Find("actor." + name);
    return torch::from_blob(const_cast<float*>(state.parameters().data()) + entry.offset, entry.shape);
  };
  const std::vector<Tensor> core = {of("core.weight_ih_l0"), of("core.weight_hh_l0"), of("core.bias_ih_l0"),
                                    of("core.bias_hh_l0")};
  const auto run = [&](const std::vector<int64_t>& places, int64_t sequence) {
    Tensor x = Look::parts()[0].index_select(0, torch::tensor(places));
    x = torch::tanh(torch::linear(x, of("0.weight"), of("0.bias"))).unsqueeze(1);
    const Tensor before = Look::parts()[1][sequence].view({1, 1, 5});
    x = std::get<0>(torch::gru(x, before, core, true, 1, 0.0, false, false, false)).squeeze(1);
    x = torch::tanh(torch::linear(x, of("1.weight"), of("1.bias")));
    return torch::linear(x, of("2.weight"), of("2.bias"));
  };
  const Tensor expected = torch::cat({run({0, 1, 2}, 0), run({3, 4, 5, 6, 7, 8, 9}, 1), run({10, 11, 12}, 2)});
  EXPECT_TRUE(torch::allclose(Look::seen(), expected, 1e-5, 1e-6)) << Look::seen() << expected;
  EXPECT_TRUE(torch::allclose(Look::parts()[2], expected.narrow(0, 0, 12), 1e-5, 1e-6));
}

TEST(TorchGroupTest, DiscountsCountTheEnvStepsOfWaits) {
  class Look final : public TorchGroup {
   public:
    Look(absl::Span<const GroupMember> members, const TrainingContext& context, const QSettings& settings)
        : TorchGroup(members, context, settings.path) {}
    static std::vector<float>& seen() {
      static std::vector<float> discounts;
      return discounts;
    }

   protected:
    void Train(TorchStep* step) override {
      const Tensor discounts = step->members()[0]->Discounts(0.5).contiguous();
      EXPECT_TRUE(torch::equal(step->members()[0]->Discounts(torch::scalar_tensor(0.5)), discounts));
      seen().assign(discounts.data_ptr<float>(), discounts.data_ptr<float>() + discounts.numel());
    }
  };
  policy::PolicySpec spec = QSpec();
  const auto trained = Make<Look>({spec}, {});
  RandomBatch batch(spec, {2, 3}, 1);  // the first segment ends its episode
  trained->Update(batch.batch);
  EXPECT_EQ(Look::seen(), (std::vector<float>{0.5f, 0, 0.5f, 0.5f, 0.5f}));
  const std::vector<int32_t> waits = {2, 1, 1, 3, 2};
  batch.rows().waits = waits;
  trained->Update(batch.batch);
  EXPECT_EQ(Look::seen(), (std::vector<float>{0.25f, 0, 0.5f, 0.125f, 0.25f}));
}

TEST(TorchGroupTest, ATargetFollowsAtItsInterval) {
  const auto trained = Make<QGroup>({QSpec()}, {});  // every second update
  const std::vector<float> first = trained->Section("actor.target");
  for (uint64_t update = 1; update <= 4; ++update) {
    RandomBatch batch(QSpec(), {4, 5}, update);
    trained->Update(batch.batch);
    EXPECT_EQ(trained->Section("actor.target") == trained->Section("actor"), update % 2 == 0) << update;
    EXPECT_EQ(trained->Section("actor.target") == first, update == 1) << update;
  }
}

TEST(TorchGroupTest, ForbiddenActionsAreTheLeast) {
  class Look final : public TorchGroup {
   public:
    Look(absl::Span<const GroupMember> members, const TrainingContext& context, const QSettings& settings)
        : TorchGroup(members, context, settings.path) {}

   protected:
    void Train(TorchStep* step) override {
      const TorchMember& m = *step->members()[0];
      const Tensor values = torch::tensor({{1, 2, 3, 4, 5}, {1, 2, 3, 4, 5}, {1, 2, 3, 4, 5}}).to(torch::kFloat32);
      // Row 0: category 2 of the first leaf and 1 of the second are forbidden; row 1: all of the second leaf; the final
      // row: category 0 of the first.
      EXPECT_TRUE(torch::equal(m.IsAllowed(values),
                               torch::tensor({{1, 1, 0, 1, 0}, {1, 1, 1, 1, 1}, {0, 1, 1, 1, 1}}).to(torch::kFloat32)));
      EXPECT_TRUE(
          torch::equal(m.Greatest(m.Allowed(values)), torch::tensor({{2, 4}, {3, 5}, {3, 5}}).to(torch::kFloat32)));
      EXPECT_TRUE(torch::equal(m.GreatestAt(m.Allowed(values)), torch::tensor({{1, 3}, {2, 4}, {2, 4}})));
    }
  };
  policy::PolicySpec spec = policy::SmallSpecForTesting();
  spec.action_space = *space::Space::MultiDiscrete({3, 2});
  spec.has_action_mask = true;
  const auto trained = Make<Look>({QSpecOf(spec)}, {});
  RandomBatch batch(QSpecOf(spec), {1, 1}, 1);  // the second one has a final row
  const std::vector<uint8_t> mask = {1, 1, 0, 1, 0, 1, 1, 1, 0, 0}, final_mask = {0, 1, 1, 1, 1};
  batch.rows().action_mask = mask;
  batch.rows().final_action_mask = final_mask;
  trained->Update(batch.batch);
}

TEST(TorchGroupTest, MembersAndTheGroupsOwnAreSaved) {
  std::vector<policy::PolicySpec> specs = {QSpec(), QSpec()};
  specs[1].id = policy::PolicyId("q");
  QSettings settings;
  settings.own = true;
  settings.targets = {{"actor", 1, 2}, {"mixer", 1, 1}};
  const auto update = [&](Trained<QGroup>* trained, uint64_t seed) {
    RandomBatch one(specs[0], {4, 5}, seed), other(specs[1], {6}, seed + 100);
    one.batch.policies.push_back(other.rows());
    one.batch.policies[1].policy = policy::PolicySlot(1);
    trained->Update(one.batch);
  };
  const auto trained = Make<QGroup>(specs, settings);
  for (uint64_t seed = 1; seed <= 3; ++seed) update(trained.get(), seed);
  const std::vector<policy::GroupState> groups = *trained->host->ExportGroups();
  ASSERT_EQ(groups.size(), 1u);
  const std::vector<float>& own = policy::BlockValues<float>(groups[0].blocks, policy::kParameters);
  EXPECT_NE(own[0], 0);
  EXPECT_EQ(own[0], own[16]) << "its target";
  EXPECT_EQ(policy::BlockValues<int64_t>(groups[0].blocks, kBlockSteps), std::vector<int64_t>{3});
  const auto resumed = Make<QGroup>(specs, settings);
  for (const int32_t slot : {0, 1}) {
    const policy::PolicySlot member(slot);
    ASSERT_TRUE(resumed->host->ImportState(*trained->host->ExportState(member), member).ok());
  }
  ASSERT_TRUE(resumed->host->ImportGroup(groups[0]).ok());
  update(trained.get(), 4);
  update(resumed.get(), 4);
  EXPECT_EQ(resumed->Section("actor", policy::PolicySlot(1)), trained->Section("actor", policy::PolicySlot(1)));
  EXPECT_EQ(*resumed->host->ExportGroups(), *trained->host->ExportGroups());
  EXPECT_EQ(resumed->Steps(), trained->Steps());
  EXPECT_THAT(resumed->host->ImportGroup({groups[0].id, {groups[0].blocks[0]}}).ToString(), HasSubstr("adam.exp_avg"));
}

TEST(TorchGroupTest, AStateOfALossOfRowsBeginsItsSteps) {
  const auto trained = Make<QGroup>({QSpec()}, {});
  RandomBatch batch(QSpec(), {4, 5}, 1);
  trained->Update(batch.batch);
  policy::PolicyState state = *trained->host->ExportState(kSlot);
  state.Remove(kBlockSteps);
  ASSERT_TRUE(trained->host->ImportState(state, kSlot).ok());
  EXPECT_EQ(trained->Steps(), std::vector<int64_t>{0});
  state.Set(kBlockSteps, std::vector<int64_t>{1, 2});
  EXPECT_EQ(trained->host->ImportState(state, kSlot).code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace troupe::training
