#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "lib/tensor/buffer.h"
#include "lib/training/core/fused_kernels.h"
#include "lib/training/fused/fused_network.h"

namespace troupe::training::fused {

/// A sequence of rows.
struct Piece {
  int64_t first = 0;  ///< row
  int32_t length = 0;
  const float* state = nullptr;  ///< before it, [state size]
  int32_t number = 0;            ///< among the sequences that were given
};
/// Equal ones stay in their order.
void LongestFirst(std::vector<Piece>* pieces);

/// Networks with a core on panels of sequences: each lane is a sequence, and a panel of rows a step of all of them. The
/// longest come first, so that the steps behind a sequence's end cost as little as they may; what is computed there has
/// no gradient.
///
/// What one thread works with, for one network; activations of all steps of a panel are kept from forward to backward.
/// Not thread-safe.
class SequencePanel {
 public:
  /// Sequences are at most `max_length` rows long.
  SequencePanel(const Network& network, const Kernels& kernels, int max_length);

  /// The most sequences at a time.
  int lanes() const { return panel_rows_; }

  /// Begins a panel of up to lanes() sequences, the longest first.
  void Begin(absl::Span<const Piece> pieces);
  int steps() const { return steps_; }
  /// Sequences that have a step `step`.
  int Alive(int step) const { return alive_[static_cast<size_t>(step)]; }
  int Vectors(int step) const { return (Alive(step) + kernels_.lanes - 1) / kernels_.lanes; }

  /// Computes step `step` (ascending). `rows`: pointers to the input rows of the lanes alive; room for lanes().
  void Forward(const float* values, int step, std::vector<const float*>* rows);
  /// The step's outputs, a panel; the caller replaces them by the loss's derivatives before Backward.
  float* output(int step) { return At(levels_.back(), step); }
  /// After the last step: what lane `lane` remembers, [state size].
  void StateAfter(int lane, float* state) const;

  /// From the outputs' derivatives of all steps to the parameters', which are added to `gradient`.
  void Backward(const float* values, float* gradient);

 private:
  /// A panel a step, of `width` features.
  struct Level {
    int width = 0;
    int64_t offset = 0;
    int64_t stride = 0;  ///< elements from step to step
  };
  /// What a layer of the core keeps of each step: its products, which become gates, and then derivatives; its output
  /// and cell, with what was before the first step at 0; and the loss's derivatives by its output, but for what comes
  /// from later steps.
  struct CoreLevels {
    Level gates, hidden, after, cell, from_above;
  };

  Level AddLevel(int width, int steps);
  float* At(const Level& level, int step) {
    return reinterpret_cast<float*>(buffer_.data()) + level.offset + step * level.stride;
  }
  const float* At(const Level& level, int step) const {
    return reinterpret_cast<const float*>(buffer_.data()) + level.offset + step * level.stride;
  }
  bool is_gru() const { return network_.core_kind == policy::CoreKind::kGru; }
  /// The input of the core's layer `layer`: what stands before it.
  const Level& InputOf(size_t layer) const { return layer == 0 ? levels_[network_.encoder] : core_[layer - 1].after; }
  /// Where it stands of `step`.
  int InputStep(size_t layer, int step) const { return layer == 0 ? step : step + 1; }

  void LoadStates(absl::Span<const Piece> pieces);
  /// Zeros at `step` behind the first `vectors`, which are all that have sequences there.
  void ClearDead(const Level& level, int step, int vectors);
  void ForwardCore(const float* values, int step, int vectors);
  void BackwardHead(const float* values, float* gradient);
  void BackwardCore(const float* values, size_t layer, float* gradient);
  void BackwardEncoder(const float* values, float* gradient);
  /// Kernels::backward of `step` through weights [rows, in] at `weight` into what layer `layer` gave.
  void BackwardInto(size_t layer, const float* values, int64_t weight, int rows, int in, const Level& dy, int step,
                    float* gradient);
  /// The weights' gradients of all steps at once.
  void AddGradient(const Level& dy, const Level& x, int x_step, int out, int in, float* dw, float* db);

  const Network& network_;
  const Kernels& kernels_;
  const int panel_rows_;
  int64_t elements_ = 0;
  std::vector<Level> levels_;  // inputs, the encoder's outputs, then the head's
  std::vector<Level> kept_;    // by layer, what FinishBackward needs
  std::vector<CoreLevels> core_;
  tensor::Buffer buffer_;
  std::vector<float> direct_, product_;  // of a core's layer, while it is differentiated: see Kernels::gru_backward
  std::vector<float> zero_row_;

  // Of the panel.
  int steps_ = 0;
  int vectors_ = 0;           ///< of its first step
  std::vector<int> alive_;    // by step
  std::vector<int> lengths_;  // by lane
};

}  // namespace troupe::training::fused
