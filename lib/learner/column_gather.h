#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "lib/sample/batch_fwd.h"
#include "lib/sample/column_sets.h"
#include "lib/sample/columns.h"
#include "lib/tensor/buffer.h"

namespace troupe::learner {

/// The columns of one policy that a train batch has as they are (sample::Gathering::kAsItIs), with the memory that they
/// lie in: rows of fragments, each at its place in the batch. Its memory is kept for the next batch, with room for a
/// quarter more than was needed when it grew. Made and owned by the assembler; not thread-safe.
class ColumnGather {
 public:
  explicit ColumnGather(tensor::TensorAllocator& allocator = tensor::TensorAllocator::Pageable());

  /// Begins a batch with so many rows and final rows, in the forms of the run's columns. What is in them is undefined.
  void Begin(const sample::PolicyForms& forms, int64_t rows, int64_t final_rows);
  /// Row r of the fragment goes to place[r]; -1: left out.
  void CopyRows(const sample::PolicyRows& from, absl::Span<const int32_t> place);
  void CopyFinalRow(const sample::PolicyRows& from, int64_t row, int64_t to);

  /// Valid until the next Begin. A column that the run does not have, or that is not gathered so, is empty.
  const sample::PolicyColumnSet<sample::ColumnView>& views() const { return views_; }

 private:
  sample::PolicyColumnSet<tensor::Buffer> buffers_;
  sample::PolicyColumnSet<sample::ColumnView> views_;
  std::vector<size_t> row_columns_, final_row_columns_;  ///< places in the table of what this run has
};

/// The elements of a gathered column, for who made it.
template <typename T>
absl::Span<T> Writable(const sample::ColumnView& column) {
  const absl::Span<const T> elements = column.As<T>();
  return {const_cast<T*>(elements.data()), elements.size()};
}

}  // namespace troupe::learner
