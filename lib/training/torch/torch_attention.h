#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "lib/policy/policy_spec.h"
#include <torch/torch.h>

namespace troupe::training {

/// Attention over agents, as a critic's module has it.
struct Attention {
  /// Agents one after another in the joint observation, all of one observation space.
  struct Run {
    int64_t first_column = 0;  ///< of their observations
    int64_t first_bit = 0;     ///< column of their presence bits
    int64_t agents = 0;
  };
  /// An observation space, with its layer.
  struct Embedding {
    torch::Tensor weight, bias;
    std::vector<Run> runs;
  };
  std::vector<Embedding> embeddings;  ///< empty: the network does not attend
  int64_t joint_observation_size = 0;
  int64_t heads = 0;
  torch::Tensor in_weight, in_bias, out_weight, out_bias;  ///< torch.nn.MultiheadAttention's
};

/// `find` makes a tensor of a parameter's name. Without embeddings where the network does not attend.
Attention MakeAttention(const policy::NetworkSpec& network,
                        const std::function<torch::Tensor(const std::string&)>& find);

/// Of rows [rows, joint observation and others] what comes next: [rows, size of an embedding and others].
///
/// With o_i the observation of an agent that is there (its presence bit is not 0) and s(i) its observation space:
/// e_i = activation(W_s(i) o_i + b_s(i)), h_i = e_i + MultiheadAttention(e_i, e, e) over those that are there, and what
/// is made is the mean of their h_i; zeros where nobody is. Residual self-attention between entities and its masked
/// mean are Baker et al.'s (2019, "Emergent tool use", appendix B), the attention Vaswani et al.'s (2017). Agents of
/// one space in another order, and more agents that are not there, change nothing but the order of sums.
torch::Tensor Attend(policy::Activation activation, const Attention& attention, const torch::Tensor& x);

/// Floats that Attend makes of a row, about.
int64_t FloatsOfAttention(const policy::AttentionSpec& attention);

}  // namespace troupe::training
