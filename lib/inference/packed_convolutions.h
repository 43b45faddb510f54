#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "lib/inference/kernels.h"
#include "lib/policy/network_spec.h"
#include "lib/policy/parameter_layout.h"
#include "lib/policy/policy_fwd.h"
#include "lib/space/row_scaling.h"
#include "lib/tensor/buffer.h"

namespace troupe::inference {

/// The convolutions of a policy's actor as kernels read them, and what they write between: none where its encoder is
/// no CNN. Made and owned by an Actor; not thread-safe, never blocks.
///
/// Memory: the weights once more, images between layers of kConvChunkImages rows, and the last layer's images of
/// kMlpChunkRows.
class PackedConvolutions {
 public:
  /// Those of the actor's own encoder. `spec` is valid and has weights. `kernels` lives for ever.
  PackedConvolutions(const policy::PolicySpec& spec, const KernelTable* kernels);
  /// Others over `image`, whose parameters are called "<stem>conv.<i>.weight" and so on.
  PackedConvolutions(const policy::ParameterLayout& layout, const std::string& stem,
                     const std::vector<policy::ConvLayer>& layers, policy::ImageShape image,
                     policy::Activation activation, const KernelTable* kernels);

  bool empty() const { return layers_.empty(); }
  /// Packs the flat parameters of the acting section.
  void Pack(absl::Span<const float> parameters);
  /// The last convolution's images [first + rows], output_stride() apart; valid until the next call that has not more
  /// before it. `images` are floats, or with `bytes` uint8_t, [rows] images each; `first`: images of calls just before
  /// that stay, in all at most kMlpChunkRows.
  const float* Run(const void* images, bool bytes, int64_t rows, int64_t first = 0);
  int64_t output_stride() const { return output_stride_; }

 private:
  /// Where a layer's parameters are, in floats: in the flat ones, and in packed_.
  struct Places {
    int64_t weight = 0, bias = 0, packed_weight = 0, packed_bias = 0;
  };

  void PackLayer(const float* parameters, const Places& places, const ConvLayer& layer);

  const KernelTable* const kernels_;
  const int activation_;
  space::RowScaling byte_scaling_ = {{0.0f}, {1.0f}};  ///< of images of bytes
  std::vector<ConvLayer> layers_;
  std::vector<Places> places_;
  int64_t output_stride_ = 0;
  tensor::Buffer packed_, image_, scratch_[2], patches_, output_;
};

}  // namespace troupe::inference
