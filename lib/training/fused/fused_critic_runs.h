#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "lib/training/core/fused_kernels.h"
#include "lib/training/fused/fused_workspace.h"

namespace troupe::training::fused {

/// The rows of a minibatch that count in the critic's loss, in runs of those that read one of its inputs: the network
/// is run forward and backward once a run, the loss is of rows. A run may be longer than a panel.
///
/// Made by the thread that calls for a step, then read by the crew.
class CriticRuns {
 public:
  /// The loss's code and what it reads of the batch (RowLoss::critic_columns).
  struct LossOfRows {
    const LossKernels& kernels;
    const CriticLoss& numbers;
    absl::Span<const float* const> columns;
    int lanes;
  };

  void Clear();
  /// `rows`: those that read one input stand one after another, or are of several runs; kept by the caller. Row r reads
  /// input_of[r].
  void Take(absl::Span<const int32_t> rows, absl::Span<const int32_t> input_of);

  bool empty() const { return heads_.empty(); }
  /// The first row of each run.
  absl::Span<const int32_t> heads() const { return heads_; }
  absl::Span<const int32_t> RowsOf(int64_t first_run, int64_t runs) const {
    const int32_t begin = first_[static_cast<size_t>(first_run)];
    return rows_.subspan(static_cast<size_t>(begin),
                         static_cast<size_t>(first_[static_cast<size_t>(first_run + runs)] - begin));
  }

  /// `values`: what the critic says of `runs` runs from `first_run` on, at most a panel, padded to whole vectors.
  /// Becomes the loss's derivatives by them, each the sum of those of the run's rows, with zeros in the padding. Works
  /// in the worker's columns.
  void Differentiate(const LossOfRows& loss, int64_t first_run, int runs, float* values, Worker* worker) const;

 private:
  absl::Span<const int32_t> rows_;
  std::vector<int32_t> heads_;
  std::vector<int32_t> first_;  // by run, where it begins in rows_, and the end
};

}  // namespace troupe::training::fused
