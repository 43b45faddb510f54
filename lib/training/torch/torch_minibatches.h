#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "lib/training/core/epoch_rows.h"
#include "lib/training/core/network_backend.h"
#include "lib/training/core/prepared_batch.h"
#include "lib/training/core/row_uses.h"
#include "lib/training/torch/captured_steps.h"
#include <torch/torch.h>

namespace troupe::training {

/// What a step of one network reads of the batch. Indices are int64 tensors where the networks are.
struct Minibatch {
  torch::Tensor rows;  ///< [rows that count in its loss], of the batch
  torch::Tensor run;   ///< [rows that are run], those of sequences packed; undefined where a batch has units
  torch::Tensor kept;  ///< places in `run` of `rows`; undefined: all count
  // Of a policy that remembers:
  torch::Tensor sequences;  ///< [sequences], of the batch
  torch::Tensor batch_sizes;
  // Of a batch with units:
  torch::Tensor inputs;  ///< [inputs], of the critic's table
  torch::Tensor places;  ///< [rows], among `width` numbers for each of the inputs
  int64_t width = 0;
};

/// What both networks' losses read of the same units.
struct Minibatches {
  Minibatch actor, critic;
};
/// The share of the first one's rows in those of both; 0 where it has none.
double ShareOf(const Minibatch& one, const Minibatch& other);

/// Minibatches with equal keys are the same work on other rows (CapturedSteps).
struct MinibatchKey {
  std::vector<int64_t> places;         ///< which tensors there are, and which are one; lengths of sequences
  StepSettings settings;               ///< without `frozen`
  std::vector<ParameterRange> frozen;  ///< settings.frozen's

  bool operator==(const MinibatchKey& other) const = default;
};

/// Does `work` of a minibatch as one of `steps`: what it is given stands for the same rows.
void RunCaptured(const Minibatches& minibatches, const StepSettings& settings, CapturedSteps<MinibatchKey>* steps,
                 const std::function<void(const Minibatches&)>& work);

/// The minibatches of a batch's epochs (NetworkBackend). Made by a back end; used by one thread at a time.
class EpochMinibatches {
 public:
  /// Puts a host's numbers, which stay until the next epoch, where the networks are: int64.
  using LoadIndices = std::function<torch::Tensor(absl::Span<const int32_t>)>;

  explicit EpochMinibatches(LoadIndices load) : load_(std::move(load)) {}

  /// `order`: NetworkBackend::BeginEpoch's.
  void Begin(const PreparedBatch& batch, absl::Span<const int32_t> order);
  /// Of order[first, first + count).
  Minibatches Take(int64_t first, int64_t count) const;
  void Release();

 private:
  using Counts = bool (RowUses::*)(int64_t) const;
  /// EpochRows, and where the networks are.
  struct LoadedRows {
    EpochRows host;
    torch::Tensor rows, inputs, places;
  };

  LoadedRows LoadUnits(Counts counts) const;
  static Minibatch TakeUnits(int64_t first, int64_t count, const LoadedRows& epoch);
  /// Rows `counts` or not in the network's loss.
  Minibatch TakeRows(int64_t first, int64_t count, Counts counts) const;

  const LoadIndices load_;
  const PreparedBatch* batch_ = nullptr;
  absl::Span<const int32_t> units_;  // the order
  torch::Tensor order_;              // the same, int64; undefined where a batch has units
  LoadedRows actor_, critic_;        // of a batch with units; the critic's where it has other rows than the actor
};

}  // namespace troupe::training
