#pragma once

#include <stdint.h>

// Included by files compiled for other processors than the rest (troupe_kernel_sources): plain structs only, nothing
// inline, or the linker might keep the copy of a function that an older processor cannot run.

namespace troupe::training::fused {

/// Rows are worked on in panels of kPanelVectors vectors: element (feature f, row r) of a panel is at f * panel_rows +
/// r, with panel_rows = kPanelVectors * lanes. So the rows are the vector's lanes whatever a layer's width is.
enum : int { kPanelVectors = 3 };

/// Of the last two the derivative does not follow from the activation's value: see Finish.
enum class Activation : int { kIdentity = 0, kTanh = 1, kRelu = 2, kElu = 3, kSigmoid = 4, kGelu = 5, kSilu = 6 };

/// What stands between a hidden layer's products and what the next layer reads, where that is more than one of the
/// first five activations: layer normalization (torch.nn.LayerNorm, epsilon 1e-5), then the activation.
struct Finish {
  const float* scale;  ///< [features]; nullptr: no normalization, and the activation is kGelu or kSilu
  const float* shift;
  Activation activation;
};

/// What a continuous part is drawn from; policy::ContinuousDistribution.
enum class Density : int { kGaussian = 1, kSquashedGaussian = 2, kBeta = 3 };

/// A part of the action (action_head.h), continuous when categories is 0.
struct HeadPart {
  int output;
  int categories;
  int words;
  int word;
  int start;
  int mask_offset;
  int log_std;  ///< -1: the second half of the part's outputs says it, or the part is of kBeta
  Density density;
};
/// policy::kMaxBetaOutput.
constexpr float kMaxBetaOutput = 1e6f;

/// What a loss of rows may have (RowLoss): columns that it reads, coefficients of its own, sums that it reports.
enum : int { kMaxLossColumns = 4, kLossNumbers = 8, kLossStatistics = 4 };

/// For which processor a file is compiled.
enum class Unit : int { kAvx2 = 1, kAvx512 = 2 };

/// The rows of one panel beside the networks' inputs; element (column c, row r) at c * panel_rows + r.
struct ActorPanel {
  const int32_t* actions;                 ///< words as they are, float bits where continuous
  const float* allowed;                   ///< 1 or 0 by mask column, or nullptr
  const float* columns[kMaxLossColumns];  ///< RowLoss::actor_columns
  const float* weight;                    ///< 1 for a row, 0 for padding
};
struct CriticPanel {
  const float* columns[kMaxLossColumns];  ///< RowLoss::critic_columns
  const float* weight;
};

struct ActorLoss {
  const HeadPart* parts;
  int num_parts;
  int outputs;  ///< of the actor
  const float* log_std;
  float numbers[kLossNumbers];     ///< RowLossCall::numbers
  float row_scale;                 ///< 1 / rows of the minibatch
  float entropy_scale;             ///< entropy_coeff / rows of the minibatch
  float min_log_std, max_log_std;  ///< of predicted ones; those in log_std are within
};
struct CriticLoss {
  float numbers[kLossNumbers];
  float huber_delta;  ///< 0: half the square
  float row_scale;    ///< value_loss_coeff / rows of the minibatch
};

/// Sums over rows.
struct LossSums {
  double policy_loss, entropy, value_loss;
  double statistics[kLossStatistics];
};

struct AdamNumbers {
  float beta1, beta2, one_minus_beta1, one_minus_beta2, epsilon, step_size, inverse_sqrt_correction, gradient_scale;
};

/// The vector code for one kind of processor. `vectors` is how many of a panel's vectors hold rows.
struct Kernels {
  const char* name;
  Unit unit;
  int lanes;
  /// rows[r] points at row r's elements (readable up to a multiple of 8) -> panel; one pointer per lane of `vectors`.
  void (*gather)(const float* const* rows, int columns, int vectors, float* panel);
  /// y = activation(w x + b); w [out, in] row-major. Of kGelu and kSilu w x + b, which `finish` goes on with.
  void (*forward)(const float* w, const float* b, int out, int in, const float* x, int vectors, Activation activation,
                  float* y);
  /// a = (w^T dy) * activation'(a), from the activation's value alone. Of kGelu and kSilu w^T dy, which
  /// `finish_backward` goes on with.
  void (*backward)(const float* w, int out, int in, const float* dy, int vectors, Activation activation, float* a);
  /// y [features]: a layer's products before, what the next layer reads after. `kept` [features + 1], without
  /// normalization [features], is for finish_backward.
  void (*finish)(const Finish& finish, int features, int vectors, float* y, float* kept);
  /// dy: from the derivatives that `backward` gives to those by the products. Adds to d_scale and d_shift [features]
  /// where there is normalization.
  void (*finish_backward)(const Finish& finish, int features, int vectors, const float* kept, float* dy, float* d_scale,
                          float* d_shift);
  /// dw += dy x^T, db += sum of dy, over panels that start panel strides apart, of which each but the last has
  /// `panel_vectors` vectors; `vectors` counts through all panels.
  void (*weight_gradient)(const float* dy, int64_t dy_panel_stride, int out, const float* x, int64_t x_panel_stride,
                          int in, int vectors, int panel_vectors, float* dw, float* db);
  /// `count` is a multiple of 16, the pointers 64-byte aligned, here and below.
  void (*adam)(const AdamNumbers& numbers, const float* gradient, float* value, float* exp_avg, float* exp_avg_sq,
               int64_t count);
  /// into = the sum of `num` buffers from[i]; returns the sum of its squares.
  double (*reduce)(const float* const* from, int num, int64_t count, float* into);

  // Cells: what a layer of a core does with its products, element by element (torch.nn.GRU and LSTM).
  /// gates [3 size]: W_ih x + b_ih before, reset, update and new gate after. hidden [3 size]: W_hh h + b_hh.
  void (*gru)(int size, int vectors, float* gates, const float* hidden, const float* before, float* after);
  /// From the loss's derivatives by `after` (the sum of `above`, `product` if not nullptr, and `direct`) to those by
  /// the two products, which replace them in gates and hidden, and by `before`, but for what comes through W_hh, which
  /// replaces `direct`.
  void (*gru_backward)(int size, int vectors, float* gates, float* hidden, const float* before, const float* above,
                       const float* product, float* direct);
  /// gates [4 size]: W_ih x + b_ih before, input, forget, cell and output gate after. hidden [4 size]: W_hh h + b_hh.
  void (*lstm)(int size, int vectors, float* gates, const float* hidden, const float* cell_before, float* cell_after,
               float* after);
  /// The same; `cell` are derivatives by the cell, after -> before. Both products have those in gates.
  void (*lstm_backward)(int size, int vectors, float* gates, const float* cell_before, const float* cell_after,
                        const float* above, const float* product, float* cell);

  /// The log-probability of each row's action, [rows of the panel], from the actor's outputs. `is_plain`: continuous
  /// parts are Gaussians with a log_std of their own. `scratch` as LossKernels::actor has it.
  void (*log_probabilities)(const ActorLoss& loss, const ActorPanel& rows, bool is_plain, int vectors,
                            const float* output, float* scratch, float* logp);
};

/// A loss of rows (RowLoss) for one kind of processor: fused_losses.inc over what an algorithm's folder says of a row.
struct LossKernels {
  /// Turns the outputs of a panel into the gradient of the loss with respect to them. `scratch`: 2 * panel_rows floats
  /// per output.
  void (*actor)(const ActorLoss& loss, const ActorPanel& rows, int vectors, float* output, float* log_std_gradient,
                float* scratch, LossSums* sums);
  void (*critic)(const CriticLoss& loss, const CriticPanel& rows, int vectors, float* value, LossSums* sums);
  /// As `actor`, which knows of continuous parts only Gaussians with a log_std of their own.
  void (*actor_of_any_part)(const ActorLoss& loss, const ActorPanel& rows, int vectors, float* output,
                            float* log_std_gradient, float* scratch, LossSums* sums);
};

/// nullptr where the build has none for this architecture. The caller asks the processor before it calls them.
const Kernels* Avx2Kernels();
const Kernels* Avx512Kernels();

}  // namespace troupe::training::fused
