#include "lib/training/torch/torch_networks.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/policy/leaf_encoders.h"
#include <c10/util/Exception.h>

namespace troupe::training {

using torch::Tensor;

bool Convolves(const policy::NetworkSpec& network) {
  const auto convolves = [](const policy::LeafEncoder& encoder) { return !encoder.conv_layers.empty(); };
  return !network.conv_layers.empty() ||
         std::any_of(network.leaf_encoders.begin(), network.leaf_encoders.end(), convolves);
}

Tensor Activate(policy::Activation activation, const Tensor& x) {
  switch (activation) {
    case policy::Activation::kTanh:
      return torch::tanh(x);
    case policy::Activation::kRelu:
      return torch::relu(x);
    case policy::Activation::kElu:
      return torch::elu(x);
    case policy::Activation::kGelu:
      return torch::gelu(x);
    case policy::Activation::kSigmoid:
      return torch::sigmoid(x);
    case policy::Activation::kSilu:
      return torch::silu(x);
    case policy::Activation::kIdentity:
      return x;
  }
  return x;
}

namespace {

/// torch.nn.LayerNorm by the layer's scale and shift, where layers are normalized.
Tensor LayerNorm(const Layers& norms, size_t layer, const Tensor& x) {
  if (norms.empty()) return x;
  const auto& [scale, shift] = norms[layer];
  return torch::layer_norm(x, {x.size(-1)}, scale, shift, /*eps=*/1e-5);
}

/// What the convolutions make of images [rows, pixels], as [rows][row][column][channel]. Images lie in memory with
/// channels innermost all the way.
Tensor Convolve(policy::Activation activation, const Convolutions& convolutions, const Tensor& x) {
  const policy::ImageShape& image = convolutions.image;
  const int64_t rows = x.size(0);
  Tensor y = x.view({rows, image.height, image.width, image.channels}).permute({0, 3, 1, 2});
  for (size_t i = 0; i < convolutions.layers.size(); ++i) {
    const auto& [weight, bias] = convolutions.layers[i];
    y = Activate(activation, torch::conv2d(y, weight, bias, convolutions.strides[i]));
  }
  return y.permute({0, 2, 3, 1}).reshape({rows, -1});
}

/// The same of the images of all agents, one after another in a row; zeros of those whose presence bit is 0.
Tensor ConvolveAgents(policy::Activation activation, const Convolutions& convolutions, const Tensor& x) {
  const int64_t rows = x.size(0);
  const int64_t agents = convolutions.agents;
  const int64_t pixels = convolutions.image.size();
  const Tensor images = x.narrow(1, 0, agents * pixels).reshape({rows * agents, pixels});
  const Tensor is_there = x.narrow(1, agents * pixels, agents).unsqueeze(2);
  return (Convolve(activation, convolutions, images).view({rows, agents, -1}) * is_there).view({rows, -1});
}

Tensor RunLayers(policy::Activation activation, const Layers& layers, const Layers& norms, Tensor x) {
  for (size_t i = 0; i < layers.size(); ++i) {
    x = torch::linear(x, layers[i].first, layers[i].second);
    x = Activate(activation, LayerNorm(norms, i, x));
  }
  return x;
}

/// `encoded`, which stands for the first `read` columns of x, and the other ones behind it.
Tensor WithOthers(std::vector<Tensor> encoded, const Tensor& x, int64_t read) {
  if (x.size(1) > read) encoded.push_back(x.narrow(1, read, x.size(1) - read));
  return encoded.size() == 1 ? encoded[0] : torch::cat(encoded, 1);
}

Tensor EncodeLeaves(policy::Activation activation, const std::vector<LeafModule>& leaves, const Tensor& x) {
  std::vector<Tensor> encoded;
  for (const LeafModule& leaf : leaves) {
    Tensor y = x.narrow(1, leaf.first, leaf.columns);
    if (leaf.divided) y = y * (1.0f / 255.0f);
    if (!leaf.convolutions.layers.empty()) y = Convolve(activation, leaf.convolutions, y);
    encoded.push_back(RunLayers(activation, leaf.layers, leaf.norms, y));
  }
  return WithOthers(std::move(encoded), x, leaves.back().first + leaves.back().columns);
}

using FindParameter = std::function<Tensor(const std::string&)>;

std::pair<Tensor, Tensor> FindLayer(const FindParameter& find, const std::string& stem) {
  return {find(stem + ".weight"), find(stem + ".bias")};
}

/// The convolutions "<stem>conv.<i>".
Convolutions MakeConvolutions(const std::vector<policy::ConvLayer>& layers, const policy::ImageShape& image,
                              const std::string& stem, const FindParameter& find) {
  Convolutions convolutions{.image = image};
  for (size_t i = 0; i < layers.size(); ++i) {
    convolutions.layers.push_back(FindLayer(find, absl::StrCat(stem, "conv.", i)));
    convolutions.strides.push_back(layers[i].stride);
  }
  return convolutions;
}

std::vector<LeafModule> MakeLeaves(const policy::PolicySpec& spec, const policy::NetworkSpec& network,
                                   const FindParameter& find) {
  std::vector<LeafModule> leaves;
  for (const policy::ObservationPart& part : policy::ObservationParts(spec, network)) {
    LeafModule& leaf =
        leaves.emplace_back(LeafModule{.first = part.first, .columns = part.size, .divided = part.divided});
    if (part.encoder == nullptr) continue;
    const std::string stem = absl::StrCat(network.role, ".", part.stem);
    leaf.convolutions = MakeConvolutions(part.encoder->conv_layers, part.image, stem, find);
    for (size_t i = 0; i < part.encoder->hidden_sizes.size(); ++i) {
      leaf.layers.push_back(FindLayer(find, absl::StrCat(stem, i)));
      if (network.layer_norm) leaf.norms.push_back(FindLayer(find, absl::StrCat(stem, "norm.", i)));
    }
  }
  return leaves;
}

/// [layers, sequences, size] of `states` [sequences, state size]: outputs (part 0), or of an LSTM cells (part 1).
Tensor StatePart(const policy::CoreSpec& core, const Tensor& states, int64_t part) {
  return states.view({states.size(0), core.layers, -1, core.size}).select(2, part).transpose(0, 1).contiguous();
}

/// cuDNN orders a core's weights otherwise than a PolicySpec does, and says at each call that it copies them.
class SilentCopies final : public c10::WarningHandler {
 public:
  void process(const c10::Warning& warning) override {
    if (warning.msg().find("RNN module weights") == std::string::npos) usual_->process(warning);
  }

 private:
  c10::WarningHandler* const usual_ = c10::WarningUtils::get_warning_handler();
};

/// The output of each packed row, and the states after each sequence.
std::pair<Tensor, Tensor> RunCore(const policy::CoreSpec& core, const std::vector<Tensor>& parameters, const Tensor& x,
                                  const Tensor& batch_sizes, const Tensor& states) {
  SilentCopies silent;
  const c10::WarningUtils::WarningHandlerGuard guard(&silent);
  const bool train = torch::GradMode::is_enabled();  // without it cuDNN keeps nothing to differentiate
  const Tensor before = StatePart(core, states, 0);
  if (core.kind == policy::CoreKind::kGru) {
    const auto [output, after] = torch::gru(x, batch_sizes, before, parameters, /*has_biases=*/true, core.layers,
                                            /*dropout=*/0.0, train, /*bidirectional=*/false);
    return {output, after.transpose(0, 1).reshape(states.sizes())};
  }
  const auto [output, after, cells] =
      torch::lstm(x, batch_sizes, {before, StatePart(core, states, 1)}, parameters, /*has_biases=*/true, core.layers,
                  /*dropout=*/0.0, train, /*bidirectional=*/false);
  return {output, torch::stack({after.transpose(0, 1), cells.transpose(0, 1)}, 2).reshape(states.sizes())};
}

/// The same of a user's module.
std::pair<Tensor, Tensor> RunScript(const ScriptNetwork& script, const Tensor& x, const Tensor& batch_sizes,
                                    const Tensor& states) {
  const int64_t steps = batch_sizes.size(0);
  const int64_t* const sizes = batch_sizes.data_ptr<int64_t>();
  std::vector<Tensor> outputs, ended;  // of the sequences that end with a step; the longest end last
  Tensor state = states;
  int64_t row = 0;
  for (int64_t step = 0; step < steps; ++step) {
    const ScriptOutputs made = script.Run(x.narrow(0, row, sizes[step]), state);
    row += sizes[step];
    outputs.push_back(made.outputs);
    const int64_t going_on = step + 1 < steps ? sizes[step + 1] : 0;
    if (going_on < sizes[step]) ended.push_back(made.state.narrow(0, going_on, sizes[step] - going_on));
    state = made.state.narrow(0, 0, going_on);
  }
  std::reverse(ended.begin(), ended.end());
  return {torch::cat(outputs), torch::cat(ended)};
}

}  // namespace

Module MakeModule(const policy::PolicySpec& spec, const policy::NetworkSpec& network, const FindParameter& find,
                  std::shared_ptr<ScriptNetwork> script) {
  Module module;
  const std::string stem = absl::StrCat(network.role, ".");
  module.script = std::move(script);
  if (module.script != nullptr) {
    module.script->Bind([&](const std::string& name) { return find(stem + name); });
    return module;
  }
  module.convolutions = MakeConvolutions(network.conv_layers, spec.image(), stem, find);
  if (network.Reads(policy::NetworkInput::kJointObservation)) module.convolutions.agents = spec.ImagesOf(network);
  if (network.encoder == policy::EncoderKind::kLeaves) module.leaves = MakeLeaves(spec, network, find);
  module.attention = MakeAttention(network, find);
  for (size_t i = 0; i < network.num_layers(); ++i) {
    Layers& layers = i < network.hidden_sizes.size() ? module.encoder : module.head;
    layers.push_back(FindLayer(find, absl::StrCat(stem, i)));
    if (!network.layer_norm || i + 1 == network.num_layers()) continue;
    Layers& norms = i < network.hidden_sizes.size() ? module.encoder_norms : module.head_norms;
    norms.push_back(FindLayer(find, absl::StrCat(stem, "norm.", i)));
  }
  for (int64_t layer = 0; layer < network.core.layers; ++layer) {
    for (const char* const name : {"weight_ih_l", "weight_hh_l", "bias_ih_l", "bias_hh_l"}) {
      module.core.push_back(find(absl::StrCat(network.role, ".core.", name, layer)));
    }
  }
  return module;
}

Tensor Encode(policy::Activation activation, const Module& module, Tensor x) {
  if (!module.leaves.empty()) x = EncodeLeaves(activation, module.leaves, x);
  if (!module.convolutions.layers.empty()) {
    const Convolutions& convolutions = module.convolutions;
    const int64_t read = std::max<int64_t>(convolutions.agents, 1) * convolutions.image.size();
    x = WithOthers({convolutions.agents > 0 ? ConvolveAgents(activation, convolutions, x)
                                            : Convolve(activation, convolutions, x.narrow(1, 0, read))},
                   x, read);
  }
  if (!module.attention.embeddings.empty()) x = Attend(activation, module.attention, x);
  return RunLayers(activation, module.encoder, module.encoder_norms, x);
}

Tensor Decode(policy::Activation activation, const Module& module, Tensor x) {
  for (size_t i = 0; i < module.head.size(); ++i) {
    x = torch::linear(x, module.head[i].first, module.head[i].second);
    if (i + 1 < module.head.size()) x = Activate(activation, LayerNorm(module.head_norms, i, x));
  }
  return x;
}

Tensor RunNetwork(policy::Activation activation, const Module& module, const Tensor& x) {
  if (module.script != nullptr) return module.script->Run(x, module.script->FirstState(x.size(0))).outputs;
  return Decode(activation, module, Encode(activation, module, x));
}

Packed Pack(const std::vector<std::pair<int64_t, int64_t>>& pieces) {
  Packed packed;
  packed.sequences.resize(pieces.size());
  std::iota(packed.sequences.begin(), packed.sequences.end(), int64_t{0});
  const auto length = [&](int64_t sequence) { return pieces[static_cast<size_t>(sequence)].second; };
  std::stable_sort(packed.sequences.begin(), packed.sequences.end(),
                   [&](int64_t a, int64_t b) { return length(a) > length(b); });
  std::vector<int64_t> sizes;
  for (size_t alive = pieces.size(); alive > 0;) {
    const auto at = static_cast<int64_t>(sizes.size());
    while (alive > 0 && length(packed.sequences[alive - 1]) <= at) --alive;
    if (alive == 0) break;
    for (size_t i = 0; i < alive; ++i) {
      packed.rows.push_back(pieces[static_cast<size_t>(packed.sequences[i])].first + at);
    }
    sizes.push_back(static_cast<int64_t>(alive));
  }
  packed.batch_sizes = torch::tensor(sizes, torch::kInt64);
  return packed;
}

std::pair<Tensor, Tensor> EncodeSequences(const policy::NetworkSpec& network, const Module& module, const Tensor& x,
                                          const Tensor& batch_sizes, const Tensor& states) {
  return RunCore(network.core, module.core, Encode(network.activation, module, x), batch_sizes, states);
}

std::pair<Tensor, Tensor> RunSequences(const policy::NetworkSpec& network, const Module& module, const Tensor& x,
                                       const Tensor& batch_sizes, const Tensor& states, const Tensor& kept) {
  const auto take = [&kept](const Tensor& rows) { return kept.defined() ? rows.index_select(0, kept) : rows; };
  if (module.script != nullptr) {
    const auto [output, after] = RunScript(*module.script, x, batch_sizes, states);
    return {take(output), after};
  }
  const auto [output, after] = EncodeSequences(network, module, x, batch_sizes, states);
  return {Decode(network.activation, module, take(output)), after};
}

}  // namespace troupe::training
