#include "lib/learner/cut_out.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "lib/base/check.h"
#include "lib/sample/columns.h"
#include "lib/sample/multi_agent_batch.h"

namespace troupe::learner {
namespace {

using sample::ColumnView;
using sample::Extent;
using sample::MultiAgentBatch;
using sample::PolicyRows;

/// The memory of the columns that were copied, and of those that were not.
struct CutStorage {
  sample::MultiAgentBatchPtr whole;
  std::vector<std::unique_ptr<std::byte[]>> columns;
};

/// Rows of a policy's columns, by extent, that stay.
struct Kept {
  std::vector<int32_t> rows;
  std::vector<int32_t> segments;
  std::vector<int32_t> final_rows;
  std::vector<int32_t> memories;

  const std::vector<int32_t>& Of(Extent extent) const {
    TROUPE_CHECK(extent != Extent::kEnvStep);
    switch (extent) {
      case Extent::kRow:
        return rows;
      case Extent::kSegment:
        return segments;
      case Extent::kFinalRow:
        return final_rows;
      case Extent::kMemory:
      case Extent::kEnvStep:
        break;
    }
    return memories;
  }
};

/// The column's rows of these places, in memory that is added to `storage`.
std::byte* CopyPlaces(const std::vector<int32_t>& places, ColumnView* column, CutStorage* storage) {
  const size_t row_bytes = static_cast<size_t>(column->row_elements) * tensor::ElementBytes(column->dtype);
  auto copy = std::make_unique<std::byte[]>(places.size() * row_bytes);
  for (size_t i = 0; i < places.size(); ++i) {
    std::memcpy(copy.get() + i * row_bytes, column->data + static_cast<size_t>(places[i]) * row_bytes, row_bytes);
  }
  std::byte* const data = copy.get();
  column->data = data;
  column->rows = static_cast<int64_t>(places.size());
  storage->columns.push_back(std::move(copy));
  return data;
}

PolicyRows CutRows(const PolicyRows& whole, const std::vector<bool>& chosen, CutStorage* storage) {
  Kept kept;
  std::vector<sample::Index> new_segment(chosen.size());
  const int32_t* const words = whole.segments.As<int32_t>().data();
  for (size_t s = 0; s < chosen.size(); ++s) {
    if (!chosen[s]) continue;
    new_segment[s] = static_cast<sample::Index>(kept.segments.size());
    kept.segments.push_back(static_cast<int32_t>(s));
    const int32_t final_row = words[s * sample::kSegmentFields + sample::kSegmentFinalRow];
    if (final_row >= 0) kept.final_rows.push_back(final_row);
  }
  const absl::Span<const sample::Index> segment_of = whole.segment.As<sample::Index>();
  for (size_t r = 0; r < segment_of.size(); ++r) {
    if (chosen[segment_of[r]]) kept.rows.push_back(static_cast<int32_t>(r));
  }
  const absl::Span<const int32_t> memory_at = whole.memory_at.As<int32_t>();
  for (int64_t m = 0; m < whole.num_memories; ++m) {
    const int32_t row = memory_at[static_cast<size_t>(m * sample::kMemoryFields + sample::kMemoryRow)];
    if (chosen[segment_of[static_cast<size_t>(row)]]) kept.memories.push_back(static_cast<int32_t>(m));
  }

  PolicyRows cut = whole;
  cut.rows = static_cast<int64_t>(kept.rows.size());
  cut.num_segments = static_cast<int64_t>(kept.segments.size());
  cut.final_rows = static_cast<int64_t>(kept.final_rows.size());
  cut.num_memories = static_cast<int64_t>(kept.memories.size());
  for (const auto& column : sample::PolicyColumns()) {
    ColumnView& view = cut.*column.member;
    if (!view.present()) continue;
    std::byte* const data = CopyPlaces(kept.Of(column.extent), &view, storage);
    // Segments and rows are told by their places, which have changed.
    if (column.member == &PolicyRows::segment) {
      auto* const segments = reinterpret_cast<sample::Index*>(data);
      for (int64_t r = 0; r < cut.rows; ++r) segments[r] = new_segment[segments[r]];
    } else if (column.member == &PolicyRows::segments) {
      auto* const fields = reinterpret_cast<int32_t*>(data);
      int32_t next_final_row = 0;
      for (int64_t s = 0; s < cut.num_segments; ++s) {
        int32_t& final_row = fields[s * sample::kSegmentFields + sample::kSegmentFinalRow];
        if (final_row >= 0) final_row = next_final_row++;
      }
    } else if (column.member == &PolicyRows::memory_at) {
      auto* const fields = reinterpret_cast<int32_t*>(data);
      for (int64_t m = 0; m < cut.num_memories; ++m) {
        int32_t& row = fields[m * sample::kMemoryFields + sample::kMemoryRow];
        row = static_cast<int32_t>(std::lower_bound(kept.rows.begin(), kept.rows.end(), row) - kept.rows.begin());
      }
    }
  }
  return cut;
}

}  // namespace

sample::MultiAgentBatchPtr CutOut(const sample::MultiAgentBatchPtr& batch, absl::Span<const SegmentRange> ranges) {
  std::vector<std::vector<bool>> chosen(batch->policies.size());
  for (const SegmentRange& range : ranges) {
    const PolicyRows& rows = batch->policies.at(range.place);
    TROUPE_CHECK(range.first >= 0 && range.segments >= 0 && range.first + range.segments <= rows.num_segments);
    chosen[range.place].resize(static_cast<size_t>(rows.num_segments));
    for (int64_t s = range.first; s < range.first + range.segments; ++s) {
      chosen[range.place][static_cast<size_t>(s)] = true;
    }
  }
  auto storage = std::make_shared<CutStorage>();
  storage->whole = batch;
  auto cut = std::make_shared<MultiAgentBatch>(*batch);
  cut->policies.clear();
  cut->num_agent_steps = 0;
  for (size_t place = 0; place < chosen.size(); ++place) {
    if (chosen[place].empty()) continue;
    PolicyRows rows = CutRows(batch->policies[place], chosen[place], storage.get());
    if (rows.rows == 0) continue;
    if (rows.agent_mask.present()) {
      for (const uint8_t active : rows.agent_mask.As<uint8_t>()) cut->num_agent_steps += active;
    } else {
      cut->num_agent_steps += rows.rows;
    }
    cut->policies.push_back(std::move(rows));
  }
  cut->storage = std::move(storage);
  return cut;
}

sample::MultiAgentBatchPtr CountedBefore(const MultiAgentBatch& batch) {
  // Columns are views, and the storage is shared: what is copied is small.
  auto counted = std::make_shared<MultiAgentBatch>(batch);
  counted->num_env_steps = 0;
  counted->num_agent_steps = 0;
  counted->finished.clear();
  return counted;
}

}  // namespace troupe::learner
