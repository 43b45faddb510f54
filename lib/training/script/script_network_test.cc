// What is read out of a TorchScript file, and which files are refused with which words.

#include "lib/training/script/script_network.h"

#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/policy/parameter_layout.h"
#include "lib/policy/testing.h"
#include "lib/training/core/parameters.h"
#include "lib/training/testing/script_modules.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::training {
namespace {

using testing::HasSubstr;
using torch::Tensor;

const char* const kLinear = "    return torch.linear(obs, self.w), state\n";  // of SmallSpecForTesting's actor

Tensor Weight() { return torch::arange(6, torch::kFloat32).view({2, 3}) * 0.1; }

absl::Status StatusOf(const std::string& bytes) {
  policy::PolicySpec spec = policy::SmallSpecForTesting();
  return SetTestModule(bytes, &spec, &spec.actor);
}
std::string ErrorOf(const torch::jit::Module& module) {
  const absl::Status status = StatusOf(BytesOfModule(module));
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  return std::string(status.message());
}
std::string ErrorOfForward(const std::string& body) {
  return ErrorOf(MakeTestModule({{"w", Weight()}}, ForwardSource(body)));
}

/// A submodule whose class is called so, as torch.nn's are.
torch::jit::Module Submodule(const std::string& name, bool training) {
  torch::jit::Module module(c10::QualifiedName(absl::StrCat("__torch__.torch.nn.modules.", name)));
  module.register_attribute("training", c10::BoolType::get(), training);
  return module;
}

TEST(ScriptNetworkTest, NamesParametersAndBuffersOfSubmodules) {
  torch::jit::Module inner =
      MakeTestModule({{"weight", Weight()}}, "def scaled(self, x: Tensor) -> Tensor:\n    return x\n");
  inner.register_buffer("mean", torch::zeros({3}));
  inner.register_buffer("count", torch::zeros({1}, torch::kInt64));
  torch::jit::Module module("test.Outer");
  module.register_module("body", inner);
  module.define(ForwardSource("    return torch.linear(obs - self.body.mean, self.body.weight), state\n"));
  policy::PolicySpec spec = policy::SmallSpecForTesting();
  ASSERT_EQ(SetTestModule(BytesOfModule(module), &spec, &spec.actor), absl::OkStatus());
  EXPECT_EQ(spec.actor.module.tensors,
            (std::vector<policy::ModuleTensor>{{"body.weight", {2, 3}}, {"body.mean", {3}, true}}));
}

TEST(ScriptNetworkTest, ASharedParameterStandsOnceAndIsBoundToAllItsPlaces) {
  const Tensor shared = torch::eye(2) * 0.5;
  torch::jit::Module one = MakeTestModule({{"weight", shared}}, "def f(self, x: Tensor) -> Tensor:\n    return x\n");
  torch::jit::Module two = MakeTestModule({{"weight", shared}}, "def f(self, x: Tensor) -> Tensor:\n    return x\n");
  torch::jit::Module module("test.Outer");
  module.register_module("one", one);
  module.register_module("two", two);
  module.define(ForwardSource(
      "    x = torch.linear(obs[:, 0:2], self.one.weight)\n    return torch.linear(x, self.two.weight), state\n"));
  policy::PolicySpec spec = policy::SmallSpecForTesting();
  ASSERT_EQ(SetTestModule(BytesOfModule(module), &spec, &spec.actor), absl::OkStatus());
  EXPECT_EQ(spec.actor.module.tensors, (std::vector<policy::ModuleTensor>{{"one.weight", {2, 2}}}));
  const auto script = LoadScript(spec, spec.actor, Device{});
  ASSERT_TRUE(script.ok()) << script.status();
  (*script)->Bind([](const std::string& name) {
    EXPECT_EQ(name, "one.weight");
    return torch::eye(2) * 3;
  });
  const Tensor outputs = (*script)->Run(torch::ones({1, 3}), torch::empty({1, 0})).outputs;
  EXPECT_TRUE(torch::equal(outputs, torch::full({1, 2}, 9.0f))) << outputs;
}

TEST(ScriptNetworkTest, BoundBuffersAreRead) {
  policy::PolicySpec spec = policy::SmallSpecForTesting();
  torch::jit::Module module = MakeTestModule({{"w", Weight()}}, "def f(self, x: Tensor) -> Tensor:\n    return x\n");
  module.register_buffer("scale", torch::ones({3}));
  module.define(ForwardSource("    return torch.linear(obs * self.scale, self.w), state\n"));
  ASSERT_EQ(SetTestModule(BytesOfModule(module), &spec, &spec.actor), absl::OkStatus());
  const auto script = *LoadScript(spec, spec.actor, Device{});
  script->Bind([](const std::string& name) {
    EXPECT_TRUE(name == "w" || name == "buffers.scale") << name;
    return name == "w" ? torch::ones({2, 3}) : torch::tensor({1.0f, 10.0f, 100.0f});
  });
  const torch::Tensor outputs = script->Run(torch::ones({1, 3}), torch::empty({1, 0})).outputs;
  EXPECT_EQ(outputs[0][1].item<float>(), 111.0f);
}

TEST(ScriptNetworkTest, FirstValuesAreTheFiles) {
  const policy::PolicySpec spec = WithTestModules(policy::SmallSpecForTesting(), 3);
  FlatParameters parameters = InitialParameters(spec, 1);
  ASSERT_EQ(AddModuleValues(spec, &parameters), absl::OkStatus());
  torch::manual_seed(3);
  const Tensor first = torch::randn({4, 3}) * 0.3;  // as BuiltInTestModule draws it
  const policy::ParameterEntry& entry = *parameters.layout().Find("actor.w0");
  for (int64_t i = 0; i < entry.count; ++i) {
    EXPECT_EQ(parameters.values()[static_cast<size_t>(entry.offset + i)], first.data_ptr<float>()[i]);
  }
  policy::SetModuleReader(nullptr);
  EXPECT_THAT(std::string(AddModuleValues(spec, &parameters).message()), HasSubstr("this program has no LibTorch"));
  InstallScriptModules();
}

TEST(ScriptNetworkTest, RefusesWhatIsNoFileOfThisKind) {
  EXPECT_THAT(std::string(StatusOf("no archive").message()),
              testing::AllOf(HasSubstr("TorchScript file test.pt cannot be read, expected what torch.jit.save wrote"),
                             HasSubstr("LibTorch failed while reading a TorchScript file")));
  std::string cut = BytesOfModule(MakeTestModule({{"w", Weight()}}, ForwardSource(kLinear)));
  cut.resize(cut.size() / 2);
  EXPECT_THAT(std::string(StatusOf(cut).message()), HasSubstr("TorchScript file test.pt cannot be read"));
}

TEST(ScriptNetworkTest, RefusesAnotherSignature) {
  EXPECT_THAT(ErrorOf(MakeTestModule({{"w", Weight()}}, "def act(self, x: Tensor) -> Tensor:\n    return x\n")),
              HasSubstr("TorchScript file test.pt has no method forward, expected forward(self, obs: Tensor"));
  EXPECT_THAT(
      ErrorOf(MakeTestModule({{"w", Weight()}}, "def forward(self, x: Tensor) -> Tensor:\n    return x\n")),
      testing::AllOf(HasSubstr("has forward("), HasSubstr("Tensor x) -> "), HasSubstr("expected forward(self")));
  EXPECT_THAT(ErrorOf(MakeTestModule(
                  {{"w", Weight()}},
                  "def forward(self, a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> Tensor:\n    return a\n")),
              HasSubstr("-> Tuple[Tensor, Tensor]"));
}

TEST(ScriptNetworkTest, ReadsHowMuchItRemembers) {
  const auto with = [](const c10::TypePtr& type, const torch::IValue& size) {
    torch::jit::Module module = MakeTestModule({{"w", Weight()}}, ForwardSource(kLinear));
    module.register_attribute("state_size", type, size);
    return module;
  };
  policy::PolicySpec spec = policy::SmallSpecForTesting();
  spec.sequence_length = 5;
  ASSERT_EQ(SetTestModule(BytesOfModule(with(c10::IntType::get(), int64_t{7})), &spec, &spec.actor), absl::OkStatus());
  EXPECT_EQ(spec.actor_state_size(), 7);
  torch::jit::Module constant = MakeTestModule({{"w", Weight()}}, ForwardSource(kLinear));
  constant.type()->addConstant("state_size", int64_t{32768});  // Final[int]
  ASSERT_EQ(SetTestModule(BytesOfModule(constant), &spec, &spec.actor), absl::OkStatus());
  EXPECT_EQ(spec.actor_state_size(), policy::kMaxModuleState);
  EXPECT_EQ(StatusOf(BytesOfModule(with(c10::IntType::get(), int64_t{0}))), absl::OkStatus());
  for (const int64_t size : {int64_t{-1}, policy::kMaxModuleState + 1}) {
    EXPECT_THAT(ErrorOf(with(c10::IntType::get(), size)),
                HasSubstr(absl::StrCat("test.pt has state_size ", size, ", expected an integer from 0 to 32768")));
  }
  EXPECT_THAT(ErrorOf(with(c10::FloatType::get(), 64.0)), HasSubstr("has state_size 64., expected an integer"));
  EXPECT_THAT(ErrorOf(with(c10::ListType::ofInts(), c10::List<int64_t>({2, 3}))), HasSubstr("has state_size [2, 3], "));
}

/// The file's error where it remembers three numbers of an agent, has the weight w [2, 3] and u [3, 3], and this body.
std::string ErrorOfMemory(const std::string& body) {
  torch::jit::Module module = MakeTestModule({{"w", Weight()}, {"u", torch::eye(3) * 0.5 + 0.1}}, ForwardSource(body));
  module.register_attribute("state_size", c10::IntType::get(), int64_t{3});
  policy::PolicySpec spec = policy::SmallSpecForTesting();
  spec.sequence_length = 5;
  return std::string(SetTestModule(BytesOfModule(module), &spec, &spec.actor).message());
}

TEST(ScriptNetworkTest, TriesWhatItRemembersOnTwoDecisions) {
  const std::string made = "    after = torch.tanh(torch.linear(obs + state, self.u))\n";
  EXPECT_EQ(ErrorOfMemory(made + "    return torch.linear(after, self.w), after\n"), "");
  EXPECT_THAT(
      ErrorOfMemory(made + "    return torch.linear(after, self.w), after[:, 0:2]\n"),
      testing::AllOf(HasSubstr("TorchScript file test.pt fails on 4 rows of obs 3, agent_id 0, state 3 and mask "),
                     HasSubstr("gives a state [4, 2], expected [4, 3], as its state_size says")));
  EXPECT_THAT(ErrorOfMemory(made + "    return torch.linear(after, self.w), after.double()\n"),
              HasSubstr("gives a state of Double, expected Float"));
  EXPECT_THAT(ErrorOfMemory(made + "    return torch.linear(after, self.w), torch.zeros([4, 3])\n"),
              HasSubstr("gives a state [4, 3], expected [1, 3]"));
  EXPECT_THAT(ErrorOfMemory(made + "    return torch.linear(obs, self.w), torch.log(after * 0.0 - 1.0)\n"),
              HasSubstr("gives NaN or infinity, expected numbers"));
  EXPECT_THAT(ErrorOfMemory(made + "    return torch.linear(obs, self.w), torch.dropout(after, 0.5, True)\n"),
              HasSubstr("gives another state at a second try"));
  EXPECT_THAT(ErrorOfMemory(made + "    return torch.linear(obs, self.w), after - after.mean(0)\n"),
              HasSubstr("gives a row another state alone than among others"));
  EXPECT_THAT(ErrorOfMemory("    state.add_(0.0)\n    return torch.linear(obs, self.w), state\n"),
              HasSubstr("changes state in forward, expected a module that only reads"));
  // Right at the first decision, which sees zeros; wrong at the second.
  EXPECT_THAT(ErrorOfMemory("    return torch.linear(obs + state.mean(0), self.w), state + obs\n"),
              HasSubstr("gives a row other outputs alone than among others"));
  EXPECT_THAT(
      ErrorOfMemory(made + "    return torch.linear(1.0 / (1.0 - torch.ceil(state)), self.w) , obs * 0.0 + 0.5\n"),
      HasSubstr("gives NaN or infinity"));
}

TEST(ScriptNetworkTest, WhatParametersMakeOfAStateIsTrainedThroughIt) {
  const char* const wanted = "remembers what depends on its parameters, but gradients do not go through its state";
  const std::string made = "    after = torch.tanh(torch.linear(obs + state, self.u))\n";
  EXPECT_THAT(ErrorOfMemory(made + "    return torch.linear(after, self.w), after.detach()\n"), HasSubstr(wanted));
  EXPECT_THAT(ErrorOfMemory("    state = state.detach()\n" + made + "    return torch.linear(after, self.w), after\n"),
              HasSubstr(wanted));
  // No parameter makes a counter, a sum of observations, or what nothing reads.
  EXPECT_EQ(ErrorOfMemory("    return torch.linear(obs + torch.floor(state), self.w), state + 1.0\n"), "");
  EXPECT_EQ(ErrorOfMemory("    return torch.linear(obs + state, self.w), (state + obs).detach()\n"), "");
  EXPECT_EQ(ErrorOfMemory(made + "    return torch.linear(obs, self.w), after\n"), "");
}

TEST(ScriptNetworkTest, RefusesSubmodulesInTrainingMode) {
  const auto with = [](const char* name, bool training) {
    torch::jit::Module module = MakeTestModule({{"w", Weight()}}, ForwardSource(kLinear));
    module.register_module("drop", Submodule(name, training));
    return module;
  };
  EXPECT_THAT(ErrorOf(with("dropout.Dropout", true)),
              HasSubstr("has drop, a Dropout, in training mode, where what it gives depends on more than its row; "
                        "expected module.eval()"));
  EXPECT_THAT(ErrorOf(with("batchnorm.BatchNorm1d", true)), HasSubstr("has drop, a BatchNorm1d, in training mode"));
  EXPECT_EQ(StatusOf(BytesOfModule(with("batchnorm.BatchNorm1d", false))), absl::OkStatus());
  EXPECT_EQ(StatusOf(BytesOfModule(with("linear.Linear", true))), absl::OkStatus());
}

TEST(ScriptNetworkTest, RefusesTensorsThatCannotBeTrained) {
  const auto with = [](const Tensor& weight, const char* body) {
    return ErrorOf(MakeTestModule({{"w", weight}}, ForwardSource(body)));
  };
  Tensor nan = Weight();
  nan[0][1] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(with(nan, kLinear), HasSubstr("has w, which holds NaN or infinity, expected numbers"));
  EXPECT_THAT(with(Weight().to(torch::kFloat64), "    return torch.linear(obs, self.w.float()), state\n"),
              HasSubstr("has the parameter w of Double, expected Float"));
  EXPECT_THAT(ErrorOf(MakeTestModule({}, ForwardSource("    return obs[:, 0:2], state\n"))),
              HasSubstr("has no parameter, expected some that can be trained"));
  const Tensor whole = torch::ones({3, 3}) * 0.1;
  EXPECT_THAT(ErrorOf(MakeTestModule({{"a", whole.narrow(0, 0, 2)}, {"b", whole.narrow(0, 1, 2)}},
                                     ForwardSource("    return torch.linear(obs, self.a + self.b), state\n"))),
              HasSubstr("has a and b, which are different parts of one memory"));
}

TEST(ScriptNetworkTest, TriesItOnAFewRows) {
  EXPECT_THAT(ErrorOfForward("    return torch.linear(obs, self.w)[:, 0:1], state\n"),
              HasSubstr("fails on 4 rows of obs 3, agent_id 0, state 0 and mask 0 numbers: "));
  EXPECT_THAT(ErrorOfForward("    return torch.linear(obs, self.w)[:, 0:1], state\n"),
              HasSubstr("gives outputs [4, 1] of Float, expected [4, 2] of Float"));
  EXPECT_THAT(ErrorOfForward("    return torch.linear(obs, self.w).double(), state\n"),
              HasSubstr("of Double, expected"));
  EXPECT_THAT(ErrorOfForward("    return torch.linear(obs, self.w), obs\n"),
              HasSubstr("gives a state [4, 3], expected [4, 0], as its state_size says (without one 0)"));
  EXPECT_THAT(ErrorOfForward("    return torch.linear(obs[:, 0:2], self.w), state\n"),
              HasSubstr("forward of the TorchScript module fails: RuntimeError: mat1 and mat2 shapes"));
  EXPECT_THAT(ErrorOfForward("    return torch.linear(obs, self.w).detach(), state\n"),
              HasSubstr("outputs that do not depend on its parameters"));
  EXPECT_THAT(ErrorOfForward("    return torch.log(torch.linear(obs, self.w) * 0.0 - 1.0), state\n"),
              HasSubstr("gives NaN or infinity, expected numbers"));
  EXPECT_THAT(ErrorOfForward("    return torch.dropout(torch.linear(obs, self.w), 0.5, True), state\n"),
              HasSubstr("gives other outputs at a second try"));
  EXPECT_THAT(ErrorOfForward("    x = torch.linear(obs, self.w)\n    return x - x.mean(0), state\n"),
              HasSubstr("gives a row other outputs alone than among others"));
  torch::jit::Module counts = MakeTestModule({{"w", Weight()}}, "def f(self, x: Tensor) -> Tensor:\n    return x\n");
  counts.register_buffer("seen", torch::zeros({1}));
  counts.define(ForwardSource("    self.seen.add_(1.0)\n    return torch.linear(obs, self.w), state\n"));
  EXPECT_THAT(ErrorOf(counts), HasSubstr("changes seen in forward, expected a module that only reads"));
  // A buffer of integers is no tensor of the layout, and is read all the same.
  torch::jit::Module steps = MakeTestModule({{"w", Weight()}}, "def f(self, x: Tensor) -> Tensor:\n    return x\n");
  steps.register_buffer("step", torch::zeros({1}, torch::kInt64));
  steps.define(ForwardSource("    self.step.add_(1)\n    return torch.linear(obs, self.w), state\n"));
  EXPECT_THAT(ErrorOf(steps), HasSubstr("changes step in forward, expected a module that only reads"));
  // These rows are within the bounds, so that no number of them changes; others' would.
  EXPECT_THAT(ErrorOfForward("    obs.clamp_(-5.0, 5.0)\n    return torch.linear(obs, self.w), state\n"),
              HasSubstr("changes obs in forward, expected a module that only reads"));
}

TEST(ScriptNetworkTest, ASpecThatSaysOtherTensorsIsRefused) {
  policy::PolicySpec spec = WithTestModules(policy::SmallSpecForTesting(), 3);
  spec.actor.module.tensors[0].shape = {3, 4};
  EXPECT_THAT(std::string(LoadScript(spec, spec.actor, Device{}).status().message()),
              testing::AllOf(HasSubstr("policy \"p\": the actor is said to be "), HasSubstr("w0[3,4]"),
                             HasSubstr("but TorchScript file test.pt is "), HasSubstr("w0[4,3]")));
  spec = WithTestModules(policy::SmallSpecWithCoresForTesting(policy::CoreKind::kGru, policy::CoreKind::kLstm), 3);
  spec.actor.module.state_size = 4;
  EXPECT_THAT(std::string(LoadScript(spec, spec.actor, Device{}).status().message()),
              testing::AllOf(HasSubstr(")state[4], but TorchScript file test.pt is "), HasSubstr(")state[5]")));
  spec.actor.module.sha256 = std::string(64, '1');
  EXPECT_EQ(LoadScript(spec, spec.actor, Device{}).status().code(), absl::StatusCode::kNotFound);
}

TEST(ScriptNetworkTest, MasksAndSlotsAreItsInputs) {
  policy::PolicySpec spec = policy::SmallSpecForTesting();
  spec.has_action_mask = true;
  spec.agent_id_size = 2;
  const std::string bytes = BytesOfModule(MakeTestModule(
      {{"w", torch::zeros({2, 2})}},
      ForwardSource("    return torch.linear(agent_id, self.w) + mask.float() * 10.0 + obs[:, 0:2], state\n")));
  ASSERT_EQ(SetTestModule(bytes, &spec, &spec.actor), absl::OkStatus());
  const auto script = LoadScript(spec, spec.actor, Device{});
  ASSERT_TRUE(script.ok()) << script.status();
  (*script)->Bind([](const std::string&) { return torch::tensor({{1.0f, 2.0f}, {3.0f, 4.0f}}); });
  // Observation, slot 1, mask.
  const Tensor inputs = torch::tensor({{0.5f, 0.25f, 9.0f, 0.0f, 1.0f, 0.0f, 1.0f}});
  const Tensor outputs = (*script)->Run(inputs, torch::empty({1, 0})).outputs;
  EXPECT_TRUE(torch::equal(outputs, torch::tensor({{2.5f, 14.25f}}))) << outputs;
}

}  // namespace
}  // namespace troupe::training
