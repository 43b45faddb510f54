#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lib/policy/policy_spec.h"
#include "lib/training/script/script_network.h"
#include "lib/training/torch/torch_attention.h"
#include <torch/torch.h>

namespace troupe::training {

using Layers = std::vector<std::pair<torch::Tensor, torch::Tensor>>;  // weight and bias

/// The convolutions of a CNN.
struct Convolutions {
  policy::ImageShape image;      ///< what the first one reads
  int64_t agents = 0;            ///< > 0: images of so many, and a presence bit of each behind them; else one image
  Layers layers;                 ///< each with an activation behind it; or empty
  std::vector<int64_t> strides;  ///< of each
};
/// A run of the observation's columns, and the encoder that reads it, if one does.
struct LeafModule {
  int64_t first = 0;
  int64_t columns = 0;
  bool divided = false;       ///< by 255, before the encoder
  Convolutions convolutions;  ///< or none
  Layers layers;              ///< each with an activation behind it; or empty
  Layers norms;               ///< scale and shift of each layer's normalization; or empty
};
/// The parameters of a network.
struct Module {
  Convolutions convolutions;        ///< before the encoder's layers; they read the first columns of the inputs
  std::vector<LeafModule> leaves;   ///< all of the observation, the first columns; or empty without leaves' encoders
  Attention attention;              ///< likewise, in a critic of the joint observation
  Layers encoder;                   ///< each with an activation behind it
  Layers encoder_norms;             ///< scale and shift of each layer's normalization; or empty
  std::vector<torch::Tensor> core;  ///< by layer, in the order of policy::ParameterLayout::Builder::Core; or empty
  Layers head;                      ///< the last one without an activation
  Layers head_norms;                ///< of all but the last one; or empty
  /// A user's module, which is all of the network; or nullptr. Its inputs have the action mask of an actor behind them.
  std::shared_ptr<ScriptNetwork> script;
};
/// `find` makes a tensor of a parameter's name; `network` is one of the policy's. `script`, of a network that is a
/// user's module, gets its tensors so, too.
Module MakeModule(const policy::PolicySpec& spec, const policy::NetworkSpec& network,
                  const std::function<torch::Tensor(const std::string&)>& find,
                  std::shared_ptr<ScriptNetwork> script = nullptr);

/// True if the network has convolutions. Other layers cost mostly LibTorch's calls, which halves of a minibatch make as
/// often as a whole one.
bool Convolves(const policy::NetworkSpec& network);

torch::Tensor Activate(policy::Activation activation, const torch::Tensor& x);

/// What stands before the core, and behind it; a network without a core is both. Not of users' modules.
torch::Tensor Encode(policy::Activation activation, const Module& module, torch::Tensor x);
torch::Tensor Decode(policy::Activation activation, const Module& module, torch::Tensor x);
/// Of a network that remembers nothing.
torch::Tensor RunNetwork(policy::Activation activation, const Module& module, const torch::Tensor& x);

/// Sequences side by side as torch's packed ones: the first rows of all, the second rows of those that have one, and so
/// on, the longest sequence first.
struct Packed {
  std::vector<int64_t> rows;       ///< where each row stands among the given ones
  std::vector<int64_t> sequences;  ///< number of each sequence among the given ones
  torch::Tensor batch_sizes;       ///< [longest], int64 on the host: sequences that have such a row
};
/// `pieces`: first row and number of rows of each sequence; there is one.
Packed Pack(const std::vector<std::pair<int64_t, int64_t>>& pieces);

/// Sequences through encoder and core of a network that has one: the core's outputs of the packed rows `x`, and what is
/// remembered after each sequence, [sequences, state size]; `states` before it.
std::pair<torch::Tensor, torch::Tensor> EncodeSequences(const policy::NetworkSpec& network, const Module& module,
                                                        const torch::Tensor& x, const torch::Tensor& batch_sizes,
                                                        const torch::Tensor& states);
/// Sequences through a network that remembers: what its last layer gives for the rows of `kept`, undefined: of all, and
/// what is remembered after each sequence, [sequences, state size]. `x` has the packed rows, `states` what is
/// remembered before each sequence. A user's module is called once a time step, with all sequences that have one.
std::pair<torch::Tensor, torch::Tensor> RunSequences(const policy::NetworkSpec& network, const Module& module,
                                                     const torch::Tensor& x, const torch::Tensor& batch_sizes,
                                                     const torch::Tensor& states, const torch::Tensor& kept);

}  // namespace troupe::training
