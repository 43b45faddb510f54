#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "lib/training/core/prepared_batch.h"

namespace troupe::training {

/// An epoch's order of PreparedBatch::units() as what a network is run on: rows that count in its loss, and the inputs
/// of the critic that they read, each once for a run of rows of a unit that read it. Minibatches are pieces of all
/// columns.
///
/// Row i reads input places[i] / width, and is the places[i] % width-th that reads it: `width` numbers for each input
/// have room for one of each row, no two rows share one. Plain value.
struct EpochRows {
  /// By place in the order, and the end: where a unit's rows and inputs begin.
  std::vector<int32_t> first_row, first_input;
  std::vector<int32_t> rows;    ///< of the batch
  std::vector<int32_t> inputs;  ///< rows of PreparedBatch::critic_input()
  std::vector<int32_t> places;  ///< [rows]
  int64_t width = 1;            ///< the most rows of an input
};

/// Of the units `order`; a row `counts` or not in the network's loss.
EpochRows RowsOfEpoch(const PreparedBatch& batch, absl::Span<const int32_t> order,
                      bool (RowUses::*counts)(int64_t row) const);

}  // namespace troupe::training
