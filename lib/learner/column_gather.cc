#include "lib/learner/column_gather.h"

#include "lib/learner/row_scatter.h"
#include "lib/sample/multi_agent_batch.h"

namespace troupe::learner {
namespace {

using sample::ColumnView;
using sample::Extent;
using tensor::Buffer;

const auto& kColumns = sample::kPolicyColumns<ColumnView>;
const auto& kBuffers = sample::kPolicyColumns<Buffer>;

/// Scatter, whatever the dtype: floats and bytes, which most columns are, by the element.
void ScatterColumn(const ColumnView& from, absl::Span<const int32_t> place, const ColumnView& to) {
  if (tensor::ElementBytes(from.dtype) == sizeof(uint32_t)) {
    Scatter(from.As<uint32_t>().data(), from.row_elements, place, Writable<uint32_t>(to).data());
  } else {
    const auto row_bytes = from.row_elements * static_cast<int64_t>(tensor::ElementBytes(from.dtype));
    Scatter(from.data, row_bytes, place, const_cast<std::byte*>(to.data));
  }
}

}  // namespace

ColumnGather::ColumnGather(tensor::TensorAllocator& allocator) {
  for (const auto& column : kBuffers) buffers_.*column.member = Buffer(0, allocator);
}

void ColumnGather::Begin(const sample::PolicyForms& forms, int64_t rows, int64_t final_rows) {
  row_columns_.clear();
  final_row_columns_.clear();
  for (size_t c = 0; c < kColumns.size(); ++c) {
    views_.*kColumns[c].member = {};
    if (kColumns[c].gathering != sample::Gathering::kAsItIs || !forms[c].present()) continue;
    const bool is_final = kColumns[c].extent == Extent::kFinalRow;
    const int64_t count = is_final ? final_rows : rows;
    const auto bytes = static_cast<size_t>(count * forms[c].row_bytes());
    Buffer& buffer = buffers_.*kBuffers[c].member;
    // Batches of complete episodes differ in size: a quarter more than needed saves the next growth.
    if (buffer.size() < bytes) buffer.EnsureCapacity(bytes + bytes / 4);
    views_.*kColumns[c].member = {buffer.data(), forms[c].dtype, count, forms[c].row_elements};
    (is_final ? final_row_columns_ : row_columns_).push_back(c);
  }
}

void ColumnGather::CopyRows(const sample::PolicyRows& from, absl::Span<const int32_t> place) {
  for (const size_t c : row_columns_) {
    ScatterColumn(from.*kColumns[c].member, place, views_.*kColumns[c].member);
  }
}

void ColumnGather::CopyFinalRow(const sample::PolicyRows& from, int64_t row, int64_t to) {
  const auto place = static_cast<int32_t>(to);
  for (const size_t c : final_row_columns_) {
    ScatterColumn(RowOf(from.*kColumns[c].member, row), {&place, 1}, views_.*kColumns[c].member);
  }
}

}  // namespace troupe::learner
