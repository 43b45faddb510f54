#pragma once

#include <cstddef>
#include <cstdint>

// What the dispatcher and the kernels (compiled once for each instruction set) say to each other. Plain structs only: a
// file compiled with -march may share no inline function with the rest of the program (see troupe_kernel_sources).

namespace troupe::inference {

/// One dense layer as kernels use it. All memory belongs to the Actor.
struct DenseLayer {
  int64_t in = 0;
  int64_t out = 0;
  int64_t out_padded = 0;  ///< `out` rounded up to the kernel's lanes; the padding has zero weights and bias
  /// Panels of up to KernelTable::panel_vectors * lanes outputs, the last one as narrow as it may be; each panel is
  /// [in][panel outputs].
  const float* packed = nullptr;
  const float* raw = nullptr;  ///< [out, raw_stride] row-major, the first `in` columns count
  int64_t raw_stride = 0;
  const float* bias = nullptr;  ///< [1 or bias rows, out_padded]
  /// Of a layer that is normalized: [out_padded] each, zero in the padding.
  const float* scale = nullptr;
  const float* shift = nullptr;
};

/// Forward of a multi-layer perceptron: output = W_n act(... act(W_0 input + b_0) ...) + b_n.
struct MlpCall {
  const DenseLayer* layers = nullptr;
  int64_t num_layers = 0;
  int activation = 0;            ///< policy::Activation
  bool activate_last = false;    ///< act after the last layer, too: an encoder before a core
  const float* input = nullptr;  ///< [rows, layers[0].in], rows input_stride apart
  int64_t input_stride = 0;
  int64_t rows = 0;
  /// Row r starts its first layer from bias row bias_row[r * bias_row_stride]; nullptr: from row 0.
  const int32_t* bias_row = nullptr;
  int64_t bias_row_stride = 0;
  float* scratch[2] = {nullptr, nullptr};  ///< kMlpChunkRows x the widest out_padded of all layers but the last, each
  float* output = nullptr;                 ///< [rows, out_padded of the last layer]
};
/// Added to the variance that a layer is normalized by, as torch.nn.LayerNorm does.
constexpr float kLayerNormEpsilon = 1e-5f;
/// Rows that go through all layers together, so that activations stay in the first-level cache.
constexpr int64_t kMlpChunkRows = 48;

/// Gates of a core's layer, as its sums are kept: of a GRU reset, update, the inputs' part of new and the state's part
/// of new; of an LSTM input, forget, cell, output.
constexpr int64_t kCoreSums = 4;

/// One layer of a core as kernels use it. All memory belongs to the Actor.
struct CoreLayer {
  int64_t in = 0;
  int64_t size = 0;         ///< units
  int64_t size_padded = 0;  ///< `size` rounded up to the kernel's lanes; the padding has zero weights and bias
  int64_t gates = 0;        ///< 3: a GRU; 4: an LSTM
  /// Blocks of KernelTable::lanes units; each is [in + size][gates][lanes]: the inputs' weights, then the state's.
  const float* packed = nullptr;
  const float* raw_ih = nullptr;  ///< [gates * size, raw_stride] row-major, the first `in` columns count
  int64_t raw_stride = 0;
  const float* raw_hh = nullptr;  ///< [gates * size, size] row-major
  /// [1 or bias rows, kCoreSums, size_padded]: what the sums begin with. Biases of inputs and state are added up but
  /// those of a GRU's new.
  const float* bias = nullptr;
};

/// One decision of a core's layer: torch.nn.GRU or torch.nn.LSTM. A state row is h [size], of an LSTM followed by the
/// cell [size].
struct CoreCall {
  const CoreLayer* layer = nullptr;
  const float* input = nullptr;  ///< [rows, layer->in], rows input_stride apart
  int64_t input_stride = 0;
  int64_t rows = 0;  ///< at most kMlpChunkRows
  /// As in MlpCall.
  const int32_t* bias_row = nullptr;
  int64_t bias_row_stride = 0;
  const float* state_in = nullptr;  ///< [rows], state_stride apart
  float* state_out = nullptr;       ///< likewise; may be state_in
  int64_t state_stride = 0;
  float* output = nullptr;   ///< [rows, size_padded]: h
  float* scratch = nullptr;  ///< where KernelTable::core_scratch: 2 x kMlpChunkRows x gates x size
};

/// Images whose convolutions are computed layer by layer together.
constexpr int64_t kConvChunkImages = 8;

/// One convolution as kernels use it: square kernels, no padding; images are [height][width][channels]. All memory
/// belongs to the Actor.
struct ConvLayer {
  int64_t in_height = 0;
  int64_t in_width = 0;
  int64_t in_channels = 0;
  int64_t kernel = 0;
  int64_t stride = 0;
  int64_t out_height = 0;
  int64_t out_width = 0;
  int64_t out = 0;         ///< channels that it makes
  int64_t out_padded = 0;  ///< `out` rounded up to the kernel's lanes; the padding has zero weights and bias
  /// As DenseLayer::packed, of kernel * kernel * in_channels inputs in the order of a patch: [row][column][channel].
  const float* packed = nullptr;
  const float* bias = nullptr;  ///< [out_padded]
};

/// Convolutions one after another over images, with an activation after each.
struct ConvCall {
  const ConvLayer* layers = nullptr;
  int64_t num_layers = 0;
  int activation = 0;           ///< policy::Activation
  const void* input = nullptr;  ///< [rows], an image each: floats, or bytes, which are scaled (space::RowScaling)
  bool bytes = false;
  const float* byte_offset = nullptr;  ///< with `bytes`: [pixels]; one where uniform_bytes
  const float* byte_scale = nullptr;
  bool uniform_bytes = false;
  int64_t rows = 0;
  float* image = nullptr;                  ///< with `bytes`: one image
  float* scratch[2] = {nullptr, nullptr};  ///< kConvChunkImages x the widest image between layers, each
  float* patches = nullptr;                ///< where KernelTable::conv_patches: the widest patches of an image
  /// [rows], the last layer's image each, output_stride apart. All images that layers make, these too, begin at
  /// multiples of the kernel's lanes; what is between them is undefined.
  float* output = nullptr;
  int64_t output_stride = 0;
};

/// Draws one category a row (or takes the mode) and adds its log-probability.
struct CategoricalCall {
  const float* logits = nullptr;  ///< [rows, categories], rows logits_stride apart
  int64_t logits_stride = 0;
  int64_t rows = 0;
  int64_t categories = 0;
  const uint8_t* mask = nullptr;  ///< [rows, categories], 0 forbids; nullptr: all are allowed
  int64_t mask_stride = 0;
  const uint32_t* random = nullptr;  ///< one word a row, random_stride apart; nullptr: take the mode
  int64_t random_stride = 0;
  int32_t start = 0;          ///< value of category 0
  int32_t* action = nullptr;  ///< action_stride apart
  int64_t action_stride = 0;
  float* logp = nullptr;     ///< [rows], added to
  float* scratch = nullptr;  ///< `categories` rounded up to the lanes
};

/// Random words: blocks of Philox4x32-10 for rows whose counter is (key[0], key[1], key[2], key[3] * blocks + i).
struct PhiloxCall {
  uint32_t k0 = 0, k1 = 0;
  const uint32_t* keys = nullptr;  ///< [rows, 4]
  int64_t rows = 0;
  int64_t blocks = 0;         ///< a row
  uint32_t* words = nullptr;  ///< [rows, blocks * 4]
};

struct KernelTable {
  const char* name;
  int64_t lanes;          ///< floats in a vector
  int64_t panel_vectors;  ///< vectors in a full panel
  void (*mlp)(const MlpCall& call);
  /// The same with layer normalization (torch.nn.LayerNorm) before each activation: all layers that are activated have
  /// a scale and a shift.
  void (*normed_mlp)(const MlpCall& call);
  /// Returns -1, or the first row whose mask forbids everything. Logits must be finite.
  int64_t (*categorical)(const CategoricalCall& call);
  void (*philox)(const PhiloxCall& call);
  void (*core)(const CoreCall& call);
  bool core_scratch;  ///< whether `core` needs CoreCall::scratch
  void (*conv)(const ConvCall& call);
  bool conv_patches;  ///< whether `conv` needs ConvCall::patches, [out_height * out_width][kernel * kernel *
                      ///< in_channels]
};

/// Eigen and plain C++; runs everywhere.
const KernelTable& PortableKernels();
#ifdef TROUPE_KERNEL_X86_64_V3
extern const KernelTable kAvx2Kernels;
#endif
#ifdef TROUPE_KERNEL_X86_64_V4
extern const KernelTable kAvx512Kernels;
#endif

}  // namespace troupe::inference
