#include "lib/training/fused/fused_sequences.h"

#include <algorithm>
#include <cstring>

#include "lib/training/fused/fused_layers.h"

namespace troupe::training::fused {

void LongestFirst(std::vector<Piece>* pieces) {
  std::stable_sort(pieces->begin(), pieces->end(), [](const Piece& a, const Piece& b) { return a.length > b.length; });
}

SequencePanel::SequencePanel(const Network& network, const Kernels& kernels, int max_length)
    : network_(network),
      kernels_(kernels),
      panel_rows_(kPanelVectors * kernels.lanes),
      zero_row_(static_cast<size_t>(network.inputs()) + kGrain, 0.0f) {
  levels_.push_back(AddLevel(network.inputs(), max_length));
  for (size_t i = 0; i < network.encoder; ++i) levels_.push_back(AddLevel(network.layers[i].out, max_length));
  int widest = 0;
  for (const Network::CoreLayer& layer : network.core) {
    CoreLevels levels;
    levels.gates = AddLevel(layer.gates * layer.size, max_length);
    levels.hidden = AddLevel(layer.gates * layer.size, max_length);
    levels.after = AddLevel(layer.size, max_length + 1);
    levels.cell = AddLevel(is_gru() ? 0 : layer.size, max_length + 1);
    levels.from_above = AddLevel(layer.size, max_length);
    core_.push_back(levels);
    widest = std::max(widest, layer.size);
  }
  for (size_t i = network.encoder; i < network.layers.size(); ++i) {
    levels_.push_back(AddLevel(network.layers[i].out, max_length));
  }
  for (const Network::Layer& layer : network.layers) kept_.push_back(AddLevel(layer.kept, max_length));
  buffer_ = tensor::Buffer(static_cast<size_t>(elements_) * sizeof(float));
  std::memset(buffer_.data(), 0, buffer_.size());
  direct_.resize(static_cast<size_t>(widest * panel_rows_) + kGrain);
  product_.resize(direct_.size());
}

SequencePanel::Level SequencePanel::AddLevel(int width, int steps) {
  // A cache line more than needed: panels at multiples of 4 KiB would all fall into the same cache sets.
  const Level level = {width, elements_, width == 0 ? 0 : int64_t{width} * panel_rows_ + kGrain};
  elements_ += level.stride * steps;
  return level;
}

void SequencePanel::Begin(absl::Span<const Piece> pieces) {
  steps_ = pieces.empty() ? 0 : pieces.front().length;
  vectors_ = (static_cast<int>(pieces.size()) + kernels_.lanes - 1) / kernels_.lanes;
  alive_.assign(static_cast<size_t>(steps_), 0);
  lengths_.clear();
  for (const Piece& piece : pieces) {
    lengths_.push_back(piece.length);
    for (int step = 0; step < piece.length; ++step) ++alive_[static_cast<size_t>(step)];
  }
  LoadStates(pieces);
}

void SequencePanel::LoadStates(absl::Span<const Piece> pieces) {
  const int rows = vectors_ * kernels_.lanes;
  int64_t from = 0;
  for (size_t layer = 0; layer < core_.size(); ++layer) {
    for (const Level& level : {core_[layer].after, core_[layer].cell}) {
      float* const to = At(level, 0);
      for (int unit = 0; unit < level.width; ++unit) {
        for (int r = 0; r < rows; ++r) {
          const bool there = r < static_cast<int>(pieces.size());
          to[unit * panel_rows_ + r] = there ? pieces[static_cast<size_t>(r)].state[from + unit] : 0.0f;
        }
      }
      from += level.width;
    }
  }
}

void SequencePanel::StateAfter(int lane, float* state) const {
  const int step = lengths_[static_cast<size_t>(lane)];
  for (const CoreLevels& levels : core_) {
    for (const Level& level : {levels.after, levels.cell}) {
      const float* const from = At(level, step);
      for (int unit = 0; unit < level.width; ++unit) *state++ = from[unit * panel_rows_ + lane];
    }
  }
}

void SequencePanel::ClearDead(const Level& level, int step, int vectors) {
  const auto bytes = static_cast<size_t>((vectors_ - vectors) * kernels_.lanes) * sizeof(float);
  float* const at = At(level, step) + vectors * kernels_.lanes;
  for (int unit = 0; unit < level.width; ++unit) std::memset(at + unit * panel_rows_, 0, bytes);
}

void SequencePanel::Forward(const float* values, int step, std::vector<const float*>* rows) {
  const int vectors = Vectors(step);
  for (int r = Alive(step); r < vectors * kernels_.lanes; ++r) (*rows)[static_cast<size_t>(r)] = zero_row_.data();
  kernels_.gather(rows->data(), network_.inputs(), vectors, At(levels_[0], step));
  const auto run = [&](size_t i, const float* from) {
    ForwardLayer(kernels_, network_.layers[i], values, from, vectors, At(levels_[i + 1], step), At(kept_[i], step));
  };
  for (size_t i = 0; i < network_.encoder; ++i) run(i, At(levels_[i], step));
  ForwardCore(values, step, vectors);
  const float* from = At(core_.back().after, step + 1);
  for (size_t i = network_.encoder; i < network_.layers.size(); ++i) {
    run(i, from);
    from = At(levels_[i + 1], step);
  }
  if (vectors == vectors_) return;
  for (const Level& level : levels_) ClearDead(level, step, vectors);
  for (const CoreLevels& levels : core_) {
    for (const Level* const level : {&levels.gates, &levels.hidden, &levels.from_above}) {
      ClearDead(*level, step, vectors);
    }
    ClearDead(levels.after, step + 1, vectors);
    ClearDead(levels.cell, step + 1, vectors);
  }
}

void SequencePanel::ForwardCore(const float* values, int step, int vectors) {
  for (size_t l = 0; l < core_.size(); ++l) {
    const Network::CoreLayer& layer = network_.core[l];
    const CoreLevels& levels = core_[l];
    const int rows = layer.gates * layer.size;
    float* const gates = At(levels.gates, step);
    float* const hidden = At(levels.hidden, step);
    const float* const before = At(levels.after, step);
    kernels_.forward(values + layer.weight_ih, values + layer.bias_ih, rows, layer.in,
                     At(InputOf(l), InputStep(l, step)), vectors, Activation::kIdentity, gates);
    kernels_.forward(values + layer.weight_hh, values + layer.bias_hh, rows, layer.size, before, vectors,
                     Activation::kIdentity, hidden);
    float* const after = At(levels.after, step + 1);
    if (is_gru()) {
      kernels_.gru(layer.size, vectors, gates, hidden, before, after);
    } else {
      kernels_.lstm(layer.size, vectors, gates, hidden, At(levels.cell, step), At(levels.cell, step + 1), after);
    }
  }
}

void SequencePanel::AddGradient(const Level& dy, const Level& x, int x_step, int out, int in, float* dw, float* db) {
  kernels_.weight_gradient(At(dy, 0), dy.stride, out, At(x, x_step), x.stride, in, steps_ * vectors_, vectors_, dw, db);
}

void SequencePanel::BackwardInto(size_t layer, const float* values, int64_t weight, int rows, int in, const Level& dy,
                                 int step, float* gradient) {
  const Network::Layer& to = network_.layers[layer];
  const int vectors = Vectors(step);
  float* const at = At(levels_[layer + 1], step);
  kernels_.backward(values + weight, rows, in, At(dy, step), vectors, to.activation, at);
  FinishBackward(kernels_, to, values, vectors, At(kept_[layer], step), at, gradient);
}

void SequencePanel::Backward(const float* values, float* gradient) {
  BackwardHead(values, gradient);
  for (size_t layer = core_.size(); layer-- > 0;) BackwardCore(values, layer, gradient);
  BackwardEncoder(values, gradient);
}

void SequencePanel::BackwardHead(const float* values, float* gradient) {
  for (size_t i = network_.layers.size(); i-- > network_.encoder;) {
    const Network::Layer& layer = network_.layers[i];
    const bool first = i == network_.encoder;
    const Level& dy = levels_[i + 1];
    AddGradient(dy, first ? core_.back().after : levels_[i], first ? 1 : 0, layer.out, layer.in,
                gradient + layer.weight, gradient + layer.bias);
    for (int step = 0; step < steps_; ++step) {
      if (!first) {
        BackwardInto(i - 1, values, layer.weight, layer.out, layer.in, dy, step, gradient);
        continue;
      }
      kernels_.backward(values + layer.weight, layer.out, layer.in, At(dy, step), Vectors(step), Activation::kIdentity,
                        At(core_.back().from_above, step));
    }
  }
}

void SequencePanel::BackwardCore(const float* values, size_t l, float* gradient) {
  const Network::CoreLayer& layer = network_.core[l];
  const CoreLevels& levels = core_[l];
  const int rows = layer.gates * layer.size;
  const Level& d_hidden = is_gru() ? levels.hidden : levels.gates;
  std::fill(direct_.begin(), direct_.end(), 0.0f);
  // Zeros for the vectors whose last step is still to come.
  std::fill(product_.begin(), product_.end(), 0.0f);
  for (int step = steps_ - 1; step >= 0; --step) {
    const int vectors = Vectors(step);
    float* const gates = At(levels.gates, step);
    const float* const above = At(levels.from_above, step);
    if (is_gru()) {
      kernels_.gru_backward(layer.size, vectors, gates, At(levels.hidden, step), At(levels.after, step), above,
                            product_.data(), direct_.data());
    } else {
      kernels_.lstm_backward(layer.size, vectors, gates, At(levels.cell, step), At(levels.cell, step + 1), above,
                             product_.data(), direct_.data());
    }
    if (step == 0) break;
    kernels_.backward(values + layer.weight_hh, rows, layer.size, At(d_hidden, step), vectors, Activation::kIdentity,
                      product_.data());
  }
  AddGradient(d_hidden, levels.after, 0, rows, layer.size, gradient + layer.weight_hh, gradient + layer.bias_hh);
  AddGradient(levels.gates, InputOf(l), InputStep(l, 0), rows, layer.in, gradient + layer.weight_ih,
              gradient + layer.bias_ih);
  if (l == 0 && network_.encoder == 0) return;
  for (int step = 0; step < steps_; ++step) {
    if (l == 0) {
      BackwardInto(network_.encoder - 1, values, layer.weight_ih, rows, layer.in, levels.gates, step, gradient);
      continue;
    }
    kernels_.backward(values + layer.weight_ih, rows, layer.in, At(levels.gates, step), Vectors(step),
                      Activation::kIdentity, At(core_[l - 1].from_above, step));
  }
}

void SequencePanel::BackwardEncoder(const float* values, float* gradient) {
  for (size_t i = network_.encoder; i-- > 0;) {
    const Network::Layer& layer = network_.layers[i];
    AddGradient(levels_[i + 1], levels_[i], 0, layer.out, layer.in, gradient + layer.weight, gradient + layer.bias);
    if (i == 0) return;
    for (int step = 0; step < steps_; ++step) {
      BackwardInto(i - 1, values, layer.weight, layer.out, layer.in, levels_[i + 1], step, gradient);
    }
  }
}

}  // namespace troupe::training::fused
