#include "lib/learner/sequences.h"

#include <algorithm>
#include <cstddef>

#include "lib/base/check.h"
#include "lib/sample/multi_agent_batch.h"

namespace troupe::learner {

void FindFirstDecisions(const sample::PolicyRows& rows, absl::Span<const int32_t> first_rows,
                        std::vector<int32_t>* decisions) {
  decisions->assign(first_rows.size(), -1);
  const absl::Span<const int32_t> at = rows.memory_at.As<int32_t>();
  const absl::Span<const sample::Index> segment = rows.segment.As<sample::Index>();
  for (size_t m = 0; m < at.size(); m += sample::kMemoryFields) {
    const int32_t row = at[m + sample::kMemoryRow];
    if (first_rows[segment[row]] == row) (*decisions)[segment[row]] = at[m + sample::kMemoryDecision];
  }
}

std::vector<TrainSequence> CutSequences(absl::Span<const TrainSegment> segments, int64_t sequence_length,
                                        std::vector<MemoryRef>* memories) {
  std::sort(memories->begin(), memories->end(), [](const MemoryRef& a, const MemoryRef& b) { return a.row < b.row; });
  std::vector<TrainSequence> sequences;
  size_t next = 0;
  for (const TrainSegment& segment : segments) {
    const int64_t end = segment.first_row + segment.rows;
    // Who validated the fragments has seen that they have it.
    TROUPE_CHECK(next < memories->size() && (*memories)[next].row == segment.first_row);
    for (; next < memories->size() && (*memories)[next].row < end; ++next) {
      const MemoryRef memory = (*memories)[next];
      if (memory.row != segment.first_row) {
        if (memory.decision % sequence_length != 0) continue;
        sequences.back().rows = memory.row - sequences.back().first_row;
      }
      (*memories)[sequences.size()] = memory;
      sequences.push_back({memory.row, end - memory.row, memory.decision});
    }
  }
  TROUPE_CHECK(next == memories->size());
  memories->resize(sequences.size());
  return sequences;
}

}  // namespace troupe::learner
