#include "lib/training/torch/torch_attention.h"

#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "lib/training/torch/torch_networks.h"

namespace troupe::training {

using torch::Tensor;

Attention MakeAttention(const policy::NetworkSpec& network, const std::function<Tensor(const std::string&)>& find) {
  Attention attention;
  if (network.encoder != policy::EncoderKind::kAttention) return attention;
  const policy::AttentionSpec& spec = network.attention;
  for (size_t i = 0; i < spec.observation_sizes.size(); ++i) {
    attention.embeddings.push_back({find(absl::StrCat(network.role, ".embedding.", i, ".weight")),
                                    find(absl::StrCat(network.role, ".embedding.", i, ".bias")),
                                    {}});
  }
  attention.joint_observation_size = spec.joint_observation_size();
  attention.heads = spec.heads;
  attention.in_weight = find(network.role + ".attention.in_proj_weight");
  attention.in_bias = find(network.role + ".attention.in_proj_bias");
  attention.out_weight = find(network.role + ".attention.out_proj.weight");
  attention.out_bias = find(network.role + ".attention.out_proj.bias");
  int64_t column = 0;
  int64_t bit = attention.joint_observation_size - static_cast<int64_t>(spec.agents.size());
  for (size_t slot = 0; slot < spec.agents.size(); ++slot, ++bit) {
    const auto space = static_cast<size_t>(spec.agents[slot]);
    std::vector<Attention::Run>& runs = attention.embeddings[space].runs;
    if (slot == 0 || spec.agents[slot - 1] != spec.agents[slot]) runs.push_back({column, bit, 0});
    ++runs.back().agents;
    column += spec.observation_sizes[space];
  }
  return attention;
}

Tensor Attend(policy::Activation activation, const Attention& attention, const Tensor& x) {
  const int64_t rows = x.size(0);
  std::vector<Tensor> embedded;
  std::vector<Tensor> bits;
  for (const Attention::Embedding& embedding : attention.embeddings) {
    const int64_t width = embedding.weight.size(1);
    std::vector<Tensor> observed;
    for (const Attention::Run& run : embedding.runs) {
      observed.push_back(x.narrow(1, run.first_column, run.agents * width).reshape({rows, run.agents, width}));
      bits.push_back(x.narrow(1, run.first_bit, run.agents));
    }
    embedded.push_back(torch::linear(torch::cat(observed, 1), embedding.weight, embedding.bias));
  }
  const Tensor e = Activate(activation, torch::cat(embedded, 1));  // [rows, agents, size]
  const Tensor is_there = torch::cat(bits, 1).ne(0);               // [rows, agents]
  const int64_t agents = e.size(1);
  const int64_t size = e.size(2);
  const int64_t width = size / attention.heads;
  // [rows, heads, agents, width] of queries, keys and values.
  const Tensor projected = torch::linear(e, attention.in_weight, attention.in_bias)
                               .view({rows, agents, 3, attention.heads, width})
                               .permute({2, 0, 3, 1, 4});
  const Tensor scores = projected[0].matmul(projected[1].transpose(2, 3)) / std::sqrt(static_cast<double>(width));
  // A finite number, since a row in which nobody is there has no largest score else.
  const Tensor weights = scores
                             .masked_fill(is_there.logical_not().view({rows, 1, 1, agents}),
                                          static_cast<double>(std::numeric_limits<float>::lowest()))
                             .softmax(3);
  const Tensor attended = weights.matmul(projected[2]).transpose(1, 2).reshape({rows, agents, size});
  const Tensor h = e + torch::linear(attended, attention.out_weight, attention.out_bias);
  const Tensor there = is_there.to(h.scalar_type());
  const Tensor mean = (h * there.unsqueeze(2)).sum(1) / there.sum(1, /*keepdim=*/true).clamp_min(1);
  const int64_t others = x.size(1) - attention.joint_observation_size;
  return others == 0 ? mean : torch::cat({mean, x.narrow(1, attention.joint_observation_size, others)}, 1);
}

int64_t FloatsOfAttention(const policy::AttentionSpec& attention) {
  const auto agents = static_cast<int64_t>(attention.agents.size());
  return 8 * agents * attention.size + 3 * attention.heads * agents * agents;
}

}  // namespace troupe::training
