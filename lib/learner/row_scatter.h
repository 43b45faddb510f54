#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "lib/learner/train_batch.h"
#include "lib/sample/column_sets.h"
#include "lib/space/row_scaling.h"

namespace troupe::learner {

/// How the assembler's loops move the rows of a fragment's columns to their places in the train batch.

/// The column that is one row of another.
inline sample::ColumnView RowOf(sample::ColumnView column, int64_t row) {
  column.data += static_cast<size_t>(row * column.row_elements) * tensor::ElementBytes(column.dtype);
  column.rows = 1;
  return column;
}

/// Where a writer may write in a matrix of the assembler's own.
inline float* Writable(const RowMatrix& matrix) { return const_cast<float*>(matrix.data); }
inline uint8_t* Writable(const ByteMatrix& matrix) { return const_cast<uint8_t*>(matrix.data); }

/// A row of a few words, without a call: most rows are shorter than what memcpy needs to find its way.
template <typename T>
void CopyRow(const T* from, int64_t width, T* to) {
  constexpr int64_t kBlock = 32 / sizeof(T);
  if (width < kBlock) {
    for (int64_t i = 0; i < width; ++i) to[i] = from[i];
    return;
  }
  for (int64_t i = 0; i + kBlock <= width; i += kBlock) __builtin_memcpy(to + i, from + i, kBlock * sizeof(T));
  // What is left, together with some that are there already.
  __builtin_memcpy(to + width - kBlock, from + width - kBlock, kBlock * sizeof(T));
}

/// Row r of `from` becomes row place[r] of `to`; -1: left out. One column after another keeps the lines that the
/// segments grow at in the cache.
template <typename T>
void Scatter(const T* from, int64_t width, absl::Span<const int32_t> place, T* to) {
  if (width == 1) {
    for (size_t r = 0; r < place.size(); ++r) {
      if (place[r] >= 0) to[place[r]] = from[r];
    }
    return;
  }
  for (size_t r = 0; r < place.size(); ++r) {
    if (place[r] >= 0) CopyRow(from + static_cast<int64_t>(r) * width, width, to + int64_t{place[r]} * width);
  }
}

/// Rows of a padded matrix: [what was copied, one-hot, zeros].
struct PaddedRows {
  float* data = nullptr;
  int64_t stride = 0;
  int64_t one_hot = 0;            ///< columns of the one-hot behind those copied; 0: none
  const int32_t* slot = nullptr;  ///< by row of the matrix, agent slot; with one_hot
};

/// Scatter into padded rows, scaled as networks read them.
void ScatterPadded(const sample::ColumnView& from, absl::Span<const int32_t> place, const PaddedRows& to,
                   const space::RowScaling& scaling);

/// Scatter of one-hots alone, into rows of nothing else.
void ScatterOneHots(absl::Span<const int32_t> place, const PaddedRows& to);

/// `size` floats and zeros up to the stride.
void CopyPadded(const float* from, int64_t size, int64_t stride, float* to);

}  // namespace troupe::learner
