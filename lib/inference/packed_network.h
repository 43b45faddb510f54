#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "lib/inference/kernels.h"
#include "lib/policy/parameter_layout.h"
#include "lib/policy/policy_fwd.h"
#include "lib/tensor/buffer.h"

namespace troupe::inference {

/// The fully connected layers and the core of a policy's actor as kernels read them: encoders of leaves, encoder, core
/// and head. Made and owned by an Actor; not thread-safe, never blocks.
///
/// Invariants: 1. without a core all layers are the head's; 2. the layer that reads the inputs has a bias row for each
/// agent where the policy has an agent id, and reads no columns of its one-hot then; 3. no heap allocation after the
/// constructor.
class PackedNetwork {
 public:
  /// `spec` is valid and has weights. `kernels` lives for ever.
  PackedNetwork(const policy::PolicySpec& spec, const KernelTable* kernels);

  /// Packs the flat parameters of the acting section. They must stay: portable kernels read them where they are.
  void Pack(absl::Span<const float> parameters);

  /// Layers before the core: none where the core reads the inputs, and none without a core.
  absl::Span<const DenseLayer> encoder() const { return absl::MakeConstSpan(layers_).first(num_encoder_layers_); }
  /// The layers of the encoder with that number among NetworkSpec::leaf_encoders; perhaps none.
  absl::Span<const DenseLayer> leaf(size_t number) const {
    const size_t first = number == 0 ? 0 : leaf_ends_[number - 1];
    return absl::MakeConstSpan(leaf_layers_).subspan(first, leaf_ends_[number] - first);
  }
  /// Each reads the one before it. Empty without a core.
  absl::Span<const CoreLayer> core() const { return core_; }
  /// The layers behind the core, or all; never empty.
  absl::Span<const DenseLayer> head() const { return absl::MakeConstSpan(layers_).subspan(num_encoder_layers_); }
  /// Floats of a row of the widest output that a layer hands to the next one.
  int64_t widest_between() const;

 private:
  /// Where a layer's parameters are, in floats: in the flat ones, and in packed_. `_hh` is of cores alone.
  struct Places {
    int64_t weight = 0, bias = 0, weight_hh = 0, bias_hh = 0;
    int64_t bias_rows = 1;
    int64_t packed_weight = 0, packed_bias = 0;
    bool normed = false;  // of a layer that is: where scale and shift are
    int64_t scale = 0, shift = 0, packed_scale = 0, packed_shift = 0;
  };

  void AddLeaves(const policy::PolicySpec& spec, const policy::ParameterLayout& layout);
  /// A layer of encoder or head.
  void AddDense(const policy::PolicySpec& spec, const policy::ParameterLayout& layout, size_t index);
  /// The layer that is called "<stem><index>", with `in` columns, and where it is.
  std::pair<DenseLayer, Places> MakeDense(const policy::ParameterLayout& layout, const std::string& stem, size_t index,
                                          int64_t in, int64_t bias_rows);
  void SetPointers(const Places& places, DenseLayer* layer);
  void AddCore(const policy::PolicySpec& spec, const policy::ParameterLayout& layout, int64_t index);
  /// The first layer that is added reads the inputs.
  bool ReadsInputs() const { return layers_.empty() && core_.empty(); }
  int64_t Reserve(int64_t floats);
  void PackDense(const float* parameters, const Places& places, DenseLayer* layer);
  void PackCore(const float* parameters, const Places& places, CoreLayer* layer);
  float* packed() { return reinterpret_cast<float*>(packed_.data()); }

  const KernelTable* const kernels_;
  size_t num_encoder_layers_ = 0;
  std::vector<DenseLayer> layers_;       // the encoder's, then the head's
  std::vector<DenseLayer> leaf_layers_;  // of all leaves' encoders
  std::vector<size_t> leaf_ends_;        // by encoder, into leaf_layers_
  std::vector<CoreLayer> core_;
  std::vector<Places> layer_places_, leaf_places_, core_places_;
  int64_t packed_floats_ = 0;
  tensor::Buffer packed_;  // weights and biases of all layers: with many policies, one stream from far memory each
};

}  // namespace troupe::inference
