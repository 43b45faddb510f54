// Attention over agents in LibTorch's back end: that it is torch's, and that neither the order of agents nor those who
// are absent matter. What an update makes of it is in tests/parity.

#include "lib/training/torch/torch_attention.h"

#include <memory>
#include <string>
#include <vector>

#include "lib/policy/testing.h"
#include "lib/training/fused/fused_backend.h"
#include "lib/training/testing/random_batch.h"
#include "lib/training/torch/torch_backend.h"
#include "lib/training/torch/torch_inputs.h"
#include "lib/training/torch/torch_networks.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::training {
namespace {

using policy::AttendingSpecForTesting;
using policy::PolicySpec;
using torch::Tensor;

/// The critic of a policy with first weights and random biases.
struct Critic {
  explicit Critic(const PolicySpec& of) : spec(of), parameters(InitialParameters(of, 3)) {
    module = MakeModule(spec, spec.critic(), [this](const std::string& name) { return Find(name); });
    torch::manual_seed(1);
    for (const policy::ParameterEntry& entry : parameters.layout().entries()) {
      if (entry.shape.size() == 1) Find(entry.name).uniform_(-0.5, 0.5);
    }
  }
  Tensor Find(const std::string& name) {
    const policy::ParameterEntry& entry = *parameters.layout().Find(name);
    return torch::from_blob(parameters.values().data() + entry.offset, entry.shape);
  }
  Tensor Values(const Tensor& x) const { return RunNetwork(spec.critic().activation, module, x).squeeze(1); }

  const PolicySpec spec;
  FlatParameters parameters;
  Module module;
};

/// [rows, 18]: agents of 3, 5, 3 and 3 numbers and their bits; absent ones are zeros.
Tensor JointRows(const std::vector<std::vector<int>>& is_there) {
  torch::manual_seed(2);
  std::vector<Tensor> rows;
  for (const std::vector<int>& bits : is_there) {
    std::vector<Tensor> parts;
    for (size_t slot = 0; slot < bits.size(); ++slot) {
      parts.push_back(torch::randn({slot == 1 ? 5 : 3}) * static_cast<float>(bits[slot]));
    }
    parts.push_back(torch::tensor(bits).to(torch::kFloat32));
    rows.push_back(torch::cat(parts));
  }
  return torch::stack(rows);
}
const std::vector<std::vector<int>>& Bits() {
  static const auto* const kBits =
      new std::vector<std::vector<int>>{{1, 1, 1, 1}, {0, 1, 0, 1}, {1, 0, 1, 1}, {0, 0, 0, 1}, {1, 1, 0, 0}};
  return *kBits;
}

/// Columns of the observations of slots {0, 1, 2, 3} and of their bits, for slots in another order.
Tensor InOrder(const Tensor& x, const std::vector<int64_t>& slots) {
  const std::vector<int64_t> first = {0, 3, 8, 11};
  std::vector<Tensor> parts;
  for (const int64_t slot : slots) parts.push_back(x.narrow(1, first[static_cast<size_t>(slot)], slot == 1 ? 5 : 3));
  for (const int64_t slot : slots) parts.push_back(x.narrow(1, 14 + slot, 1));
  return torch::cat(parts, 1);
}

double Largest(const Tensor& difference) { return difference.abs().max().item<double>(); }

TEST(TorchAttentionTest, IsTorchsMultiheadAttentionBetweenEmbeddingAndMean) {
  Critic critic(AttendingSpecForTesting());
  const Tensor x = JointRows(Bits());
  torch::nn::MultiheadAttention attention(torch::nn::MultiheadAttentionOptions(6, 2));
  const torch::NoGradGuard no_grad;
  attention->in_proj_weight.copy_(critic.Find("critic.attention.in_proj_weight"));
  attention->in_proj_bias.copy_(critic.Find("critic.attention.in_proj_bias"));
  attention->out_proj->weight.copy_(critic.Find("critic.attention.out_proj.weight"));
  attention->out_proj->bias.copy_(critic.Find("critic.attention.out_proj.bias"));
  const Tensor made = Attend(policy::Activation::kTanh, critic.module.attention, x);
  ASSERT_EQ(made.sizes(), (std::vector<int64_t>{5, 6}));
  for (int64_t row = 0; row < 5; ++row) {
    // [agents, 1, 6], those alone who are there.
    std::vector<Tensor> embedded;
    const std::vector<int64_t> first = {0, 3, 8, 11};
    for (size_t slot = 0; slot < 4; ++slot) {
      if (Bits()[static_cast<size_t>(row)][slot] == 0) continue;
      const std::string name = slot == 1 ? "critic.embedding.1" : "critic.embedding.0";
      const Tensor observation = x[row].narrow(0, first[slot], slot == 1 ? 5 : 3);
      embedded.push_back(torch::tanh(critic.Find(name + ".weight").matmul(observation) + critic.Find(name + ".bias")));
    }
    const Tensor e = torch::stack(embedded).unsqueeze(1);
    const Tensor expected = (e + std::get<0>(attention->forward(e, e, e))).mean(0).squeeze(0);
    EXPECT_LT(Largest(made[row] - expected), 1e-6) << row;
  }
}

TEST(TorchAttentionTest, TheOrderOfAgentsOfASpaceDoesNotMatter) {
  const Critic critic(AttendingSpecForTesting());
  const Tensor x = JointRows(Bits());
  for (const std::vector<int64_t>& slots :
       std::vector<std::vector<int64_t>>{{2, 1, 0, 3}, {3, 1, 2, 0}, {2, 1, 3, 0}}) {
    const Tensor moved = InOrder(x, slots);
    ASSERT_GT(Largest(moved - x), 0.5);
    EXPECT_LT(Largest(critic.Values(moved) - critic.Values(x)), 1e-6);
  }
  // Nor where in the environment's list a space's agents stand.
  PolicySpec other = AttendingSpecForTesting();
  other.mutable_critic()->attention.agents = {0, 0, 1, 0};
  const Critic elsewhere(other);
  EXPECT_LT(Largest(elsewhere.Values(InOrder(x, {0, 2, 1, 3})) - critic.Values(x)), 1e-6);
  EXPECT_GT(Largest(critic.Values(x).diff()), 1e-2) << "values differ by row";
}

TEST(TorchAttentionTest, AbsentAgentsTakeNoPart) {
  Critic critic(AttendingSpecForTesting());
  const Tensor x = JointRows(Bits());
  // Two more slots of the second space and one of the first, nobody in them: the same weights, the same values.
  PolicySpec more = AttendingSpecForTesting();
  more.mutable_critic()->attention.observation_sizes = {5, 3};
  more.mutable_critic()->attention.agents = {0, 1, 0, 1, 1, 1, 0};
  more.joint_observation_size = 3 * 5 + 4 * 3 + 7;
  ASSERT_TRUE(more.Validate().ok()) << more.Validate();
  Critic wider(more);
  for (const policy::ParameterEntry& entry : critic.parameters.layout().entries()) {
    std::string name = entry.name;
    if (const size_t at = name.find("embedding."); at != std::string::npos) {
      name[at + 10] = name[at + 10] == '0' ? '1' : '0';
    }
    wider.Find(name).copy_(critic.Find(entry.name));
  }
  const auto zeros = [&](int64_t columns) { return torch::zeros({x.size(0), columns}); };
  const Tensor wide = torch::cat({zeros(5), x.narrow(1, 0, 8), x.narrow(1, 8, 6), zeros(3), zeros(5),  //
                                  zeros(1), x.narrow(1, 14, 4), zeros(2)},
                                 1);
  EXPECT_LT(Largest(wider.Values(wide) - critic.Values(x)), 1e-6);
  // What stands in an absent agent's place is not read, and has no gradient.
  const Tensor inputs = wide.clone();
  inputs.narrow(1, 0, 5).fill_(1e3);
  inputs.requires_grad_(true);
  const Tensor values = wider.Values(inputs);
  EXPECT_LT(Largest(values - critic.Values(x)), 1e-6);
  const Tensor gradient = torch::autograd::grad({values.sum()}, {inputs})[0];
  EXPECT_EQ(Largest(gradient.narrow(1, 0, 5)), 0);
  EXPECT_EQ(Largest(gradient.narrow(1, 19, 8)), 0);
  EXPECT_GT(Largest(gradient.narrow(1, 5, 14)), 1e-3);
}

TEST(TorchAttentionTest, WhereNobodyIsThereTheMeanIsZeros) {
  PolicySpec spec = AttendingSpecForTesting();
  spec.SetCriticAgentId(true);
  const Critic critic(spec);
  const Tensor x = torch::zeros({2, 22}).requires_grad_(true);
  const Tensor made = Attend(policy::Activation::kTanh, critic.module.attention, x);
  ASSERT_EQ(made.size(1), 6 + 4) << "the one-hot lies behind the mean";
  EXPECT_EQ(Largest(made), 0);
  const Tensor gradient = torch::autograd::grad({critic.Values(x).sum()}, {x})[0];
  EXPECT_TRUE(torch::isfinite(gradient).all().item<bool>()) << gradient;
  EXPECT_EQ(Attend(policy::Activation::kTanh, critic.module.attention, x.narrow(0, 0, 0)).sizes(),
            (std::vector<int64_t>{0, 10}))
      << "a minibatch without rows";
}

TEST(TorchAttentionTest, APassHasTheRowsWhoseAttentionFitsItsMemory) {
  PolicySpec spec = AttendingSpecForTesting();
  EXPECT_EQ(RowsOfPass(spec, spec.critic(), 1000), 1000);
  spec.mutable_critic()->attention.agents.assign(256, 0);
  spec.mutable_critic()->attention.agents[1] = 1;
  spec.joint_observation_size = spec.critic().attention.joint_observation_size();
  ASSERT_TRUE(spec.Validate().ok()) << spec.Validate();
  EXPECT_EQ(RowsOfPass(spec, spec.critic(), 1000), (16 << 20) / (1026 + 8 * 256 * 6 + 3 * 2 * 256 * 256))
      << "each agent attends to each";
}

TEST(TorchAttentionTest, RowsThatAreAskedForAreThoseOfABatch) {
  const PolicySpec spec = AttendingSpecForTesting();
  RandomBatch batch(spec, {6, 9, 4}, 5);
  FlatParameters parameters = InitialParameters(spec, 3);
  PreparedBatch prepared;
  ASSERT_EQ(prepared.Prepare(spec, {}, batch.rows()), absl::OkStatus());
  const auto backend = *MakeTorchBackend(spec, Device{}, TorchPath::kHost, std::make_shared<ThreadTeam>(1));
  ASSERT_EQ(backend->Begin(prepared, &parameters, NetworkBackend::kWholeTeam), absl::OkStatus());
  const std::vector<float> values = *backend->Values();
  ASSERT_EQ(backend->End(), absl::OkStatus());
  const std::vector<int32_t> rows = {7, 0, 3};
  const NetworkCall call{policy::kCriticRole, parameters.values(), prepared.critic_input(), rows};
  const std::vector<float> asked = *backend->Forward(call);
  const std::vector<float> ones(3, 1.0f);
  std::vector<float> gradients(static_cast<size_t>(parameters.layout().size()), 0.0f);
  std::vector<float> of_inputs(3 * 18);
  ASSERT_EQ(backend->Backward(call, ones, absl::MakeSpan(gradients), absl::MakeSpan(of_inputs)), absl::OkStatus());
  for (size_t i = 0; i < 3; ++i) EXPECT_NEAR(asked[i], values[static_cast<size_t>(rows[i])], 1e-6);
  const policy::ParameterEntry& query = *parameters.layout().Find("critic.attention.in_proj_weight");
  // By difference of one number of it.
  float& number = parameters.values()[static_cast<size_t>(query.offset + 8)];
  const float was = number;
  double sums[2] = {0, 0};
  for (int side = 0; side < 2; ++side) {
    number = was + (side == 0 ? 0.02f : -0.02f);
    const std::vector<float> outputs = *backend->Forward(call);
    for (const float value : outputs) sums[side] += value;
  }
  EXPECT_NEAR(gradients[static_cast<size_t>(query.offset + 8)], (sums[0] - sums[1]) / 0.04, 1e-4);
}

TEST(TorchAttentionTest, TheFusedBackEndRefusesItInWords) {
  for (const VectorUnit unit : {VectorUnit::kAvx2, VectorUnit::kAvx512}) {
    const auto backend = MakeFusedBackend(AttendingSpecForTesting(), std::make_shared<ThreadTeam>(1), unit);
    ASSERT_EQ(backend.status().code(), absl::StatusCode::kUnimplemented);
    EXPECT_THAT(std::string(backend.status().message()),
                testing::AnyOf("the fused back end computes encoders of kind mlp, got attention for the critic",
                               testing::HasSubstr("the processor has no")));
  }
}

}  // namespace
}  // namespace troupe::training
