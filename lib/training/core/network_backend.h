#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "lib/training/core/net.h"
#include "lib/training/core/optimizer_options.h"
#include "lib/training/core/parameters.h"
#include "lib/training/core/prepared_batch.h"
#include "lib/training/core/row_loss.h"

namespace troupe::training {

/// What one minibatch step needs beside its rows: an algorithm's options with the schedules evaluated.
struct StepSettings : OptimizerOptions {
  double learning_rate = 0;
  double critic_learning_rate = 0;
  double value_loss_coeff = 1;
  double huber_delta = 0;
  double entropy_coeff = 0;
  absl::Span<const ParameterRange> frozen;  ///< ascending: no gradient, and no step changes them
  RowLossCall loss;

  bool operator==(const StepSettings& other) const = default;
};

/// Sums over the minibatch steps taken since the last TakeTotals. Steps that were skipped count in `skipped_steps`
/// only.
struct StepTotals {
  int64_t steps = 0;
  int64_t skipped_steps = 0;
  int64_t rows = 0;        ///< of the policy's loss; the entropy, the loss's own statistics
  int64_t value_rows = 0;  ///< of the critic's
  // Sums over rows.
  double policy_loss = 0;  ///< without the entropy bonus
  double value_loss = 0;   ///< without its coefficient
  double entropy = 0;
  std::array<double, kLossStatistics> statistics = {};              ///< the loss's own
  std::vector<std::pair<std::string, double>> module_metrics = {};  ///< of a user's module, sums over steps, by name
  // Sums over steps; norms before clipping.
  double actor_grad_norm = 0;
  double critic_grad_norm = 0;

  StepTotals& operator+=(const StepTotals& other);
};

/// What a back end can be asked for (ADR 28).
enum class BackendLevel : uint8_t {
  kRowLoss = 1,          ///< Begin to End: losses of rows, clipping and the optimizer's step in one pass
  kForwardBackward = 2,  ///< Forward and Backward on any network and any block of parameters
};

/// Rows that the critic, which remembers or stands behind the actor's core, is run through: sequences side by side,
/// each in its order.
struct SequenceCall {
  absl::Span<const int32_t> rows;     ///< of PreparedBatch::critic_input(), sequence after sequence
  absl::Span<const int32_t> lengths;  ///< of each; at least 1
  absl::Span<const float> states;     ///< [sequences, state size], what was remembered before each
};
struct SequenceOutputs {
  std::vector<float> values;  ///< of each row, in the critic's own units
  std::vector<float> states;  ///< [sequences, state size], what is remembered after each
};

/// A network of a policy at work.
struct NetworkCall {
  /// Its section of the ParameterLayout: "actor", "critic"; one that shares the actor's encoder with that.
  std::string_view network;
  absl::Span<const float> parameters;  ///< in the policy's layout: its own, or a target's
  MatrixView inputs;                   ///< rows as PreparedBatch lays them
  absl::Span<const int32_t> rows;      ///< of `inputs`: row i of outputs and gradients is of inputs[rows[i]]
  int thread = -1;                     ///< as NetworkBackend::Begin has it
};

/// The arithmetic of one policy's networks. A back end is made for one PolicySpec; calls come from one thread and each
/// may block as long as it computes. Errors: UNIMPLEMENTED for a level, or a loss, that it does not serve; INTERNAL
/// when the library underneath fails (RESOURCE_EXHAUSTED: out of device memory).
///
/// Losses of rows: between Begin and End it is the only writer of the FlatParameters, but for what ParametersChanged
/// says. Where the critic shares the actor's encoder (policy::EncoderKind::kShared) both losses are differentiated
/// through it, and their derivatives there add up. Calls come in the order
///   Begin, Values or SequenceValues or LogProbabilities..., (BeginEpoch, Step..., TakeTotals)..., End
/// Networks that remember are differentiated through PreparedBatch::sequences(): minibatches are of whole sequences,
/// whose rows are all run. Where a batch has PreparedBatch::units(), minibatches are of these, and the critic is run
/// once for each of their inputs: its derivative there is the sum of those of the rows that read it. After an error the
/// parameters are undefined until the owner restores them. The losses of a minibatch are means over those of its rows
/// that count in them (RowLoss, RowUses; of none: 0); then the gradient is clipped to max_grad_norm and the optimizer
/// steps (OptimizerOptions). When a loss or a gradient norm is not finite, neither parameters nor optimizer change and
/// the step counts as skipped.
///
/// Forward and Backward know no loss and keep nothing from call to call; clipping and the optimizer's step are the
/// caller's (StepBlock, optimizer.h).
class NetworkBackend {
 public:
  /// Instead of a thread of the team: all of them share each minibatch.
  static constexpr int kWholeTeam = -1;

  virtual ~NetworkBackend() = default;

  /// Whether one thread can do all of an update while others do those of other policies.
  virtual bool can_run_alone() const { return false; }
  /// `thread`: kWholeTeam, called from the update thread; or, where it can run alone, the team's thread that makes this
  /// call and all others until End.
  virtual absl::Status Begin(const PreparedBatch& batch, FlatParameters* parameters, int thread) = 0;
  /// The critic's value for every row of critic_input(), in its own units. Not for a critic that remembers, or behind
  /// the actor's core.
  virtual absl::StatusOr<std::vector<float>> Values() = 0;
  /// For a critic that remembers, or behind the actor's core, alone.
  virtual absl::StatusOr<SequenceOutputs> SequenceValues(const SequenceCall& /*call*/) {
    return absl::UnimplementedError(absl::StrCat(std::string(name()), " computes no networks that remember"));
  }
  /// The log-probability of each row's action by the actor, [rows of the batch], nats; of an actor that remembers as it
  /// reads the sequences. Between Begin and the first BeginEpoch.
  virtual absl::StatusOr<std::vector<float>> LogProbabilities(Net /*net*/) {
    return absl::UnimplementedError(absl::StrCat(std::string(name()), " computes no log-probabilities"));
  }
  /// Before the first BeginEpoch: the owner of the FlatParameters wrote to their values after Begin (PopArt). As it
  /// stands: they are read where they are.
  virtual absl::Status ParametersChanged() { return absl::OkStatus(); }
  /// `order`: the rows of the batch that minibatches are cut from, the numbers of its units where it has some, or of a
  /// policy that remembers those of its sequences; kept by the caller until the next BeginEpoch.
  virtual absl::Status BeginEpoch(absl::Span<const int32_t> order) = 0;
  /// One minibatch of order[first, first + count).
  virtual absl::Status Step(int64_t first, int64_t count, const StepSettings& settings) = 0;
  virtual absl::StatusOr<StepTotals> TakeTotals() = 0;
  /// After it the host's parameters, optimizer and gradients are current.
  virtual absl::Status End() = 0;

  /// OK, or UNIMPLEMENTED with the reason.
  virtual absl::Status Serves(BackendLevel level) const = 0;
  /// The network's outputs, [rows, outputs]. INVALID_ARGUMENT for a network that the policy does not have and for sizes
  /// that do not fit it.
  virtual absl::StatusOr<std::vector<float>> Forward(const NetworkCall& /*call*/) {
    return Serves(BackendLevel::kForwardBackward);
  }
  /// From the loss's derivatives by the outputs, [rows, outputs], those by the parameters, which are added to
  /// `gradients` (the layout of `parameters`), and, where `input_gradients` is not empty, those by the inputs, [rows,
  /// columns], which are written there. The outputs are computed again. INVALID_ARGUMENT as above.
  virtual absl::Status Backward(const NetworkCall& /*call*/, absl::Span<const float> /*output_gradients*/,
                                absl::Span<float> /*gradients*/, absl::Span<float> /*input_gradients*/ = {}) {
    return Serves(BackendLevel::kForwardBackward);
  }

  /// "fused", "libtorch" and the device, for the log.
  virtual std::string_view name() const = 0;
};

}  // namespace troupe::training
