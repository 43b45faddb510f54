#include "lib/learner/row_scatter.h"

#include <algorithm>

#include "lib/learner/train_batch.h"

namespace troupe::learner {
namespace {

/// Rows ahead of the one that is written: the places lie apart, and a line has to be there before it is written.
constexpr size_t kAhead = 16;

/// Calls `copy(r, to)` for each row that has a place, to which the columns from `width` on are zeros or the one-hot.
template <typename Copy>
void ForRows(absl::Span<const int32_t> place, int64_t width, const PaddedRows& to, Copy&& copy) {
  constexpr int64_t kLine = RowMatrix::kLineElements;
  const int64_t last_line = width / kLine * kLine;  // the first line with columns that are not copied
  for (size_t r = 0; r < place.size(); ++r) {
    if (r + kAhead < place.size() && place[r + kAhead] >= 0) {
      const float* const next = to.data + int64_t{place[r + kAhead]} * to.stride;
      // Wide rows are written in long runs, which the processor sees by itself.
      for (int64_t c = 0; c < std::min<int64_t>(to.stride, 4 * kLine); c += kLine) __builtin_prefetch(next + c, 1);
    }
    if (place[r] < 0) continue;
    float* const out = to.data + int64_t{place[r]} * to.stride;
    for (int64_t c = last_line; c < to.stride; c += kLine) __builtin_memset(out + c, 0, kLine * sizeof(float));
    copy(r, out);
    if (to.one_hot == 0) continue;
    // A slot beyond it is the trainer's to refuse.
    const int32_t slot = to.slot[place[r]];
    if (slot >= 0 && slot < to.one_hot) out[width + slot] = 1.0f;
  }
}

}  // namespace

void ScatterPadded(const sample::ColumnView& from, absl::Span<const int32_t> place, const PaddedRows& to,
                   const space::RowScaling& scaling) {
  const int64_t width = from.row_elements;
  const auto* const bytes = reinterpret_cast<const uint8_t*>(from.data);
  const auto* const floats = reinterpret_cast<const float*>(from.data);
  if (from.dtype == tensor::DType::kUint8) {
    ForRows(place, width, to,
            [&](size_t r, float* out) { scaling.Apply(bytes + static_cast<int64_t>(r) * width, width, out); });
  } else if (scaling.identity()) {
    ForRows(place, width, to,
            [&](size_t r, float* out) { CopyRow(floats + static_cast<int64_t>(r) * width, width, out); });
  } else {
    ForRows(place, width, to,
            [&](size_t r, float* out) { scaling.Apply(floats + static_cast<int64_t>(r) * width, width, out); });
  }
}

void ScatterOneHots(absl::Span<const int32_t> place, const PaddedRows& to) {
  if (to.stride > 0) ForRows(place, 0, to, [](size_t, float*) {});
}

void CopyPadded(const float* from, int64_t size, int64_t stride, float* to) {
  constexpr int64_t kLine = RowMatrix::kLineElements;
  for (int64_t c = size / kLine * kLine; c < stride; c += kLine) __builtin_memset(to + c, 0, kLine * sizeof(float));
  CopyRow(from, size, to);
}

}  // namespace troupe::learner
