#include "lib/learner/batch_source.h"

#include <cstddef>
#include <cstdint>
#include <utility>

#include "lib/sample/ids.h"
#include "lib/sample/multi_agent_batch.h"

namespace troupe::learner {

KeptFragment::KeptFragment(CheckedFragment checked, int64_t iteration)
    : checked_(std::move(checked)), iteration_(iteration), of_policies_(checked_.batch->policies.size()) {}

int64_t KeptFragment::UnusedRows(size_t place) const {
  return batch().policies[place].rows - of_policies_[place].used_rows;
}

KeptFragment::Marked KeptFragment::Mark(const SegmentRange& range) {
  const sample::PolicyRows& rows = batch().policies[range.place];
  Uses& uses = of_policies_[range.place];
  if (range.segments == rows.num_segments && uses.segment_used.empty()) {
    // Of all or of none: nothing needs to be counted.
    const Marked marked{rows.rows, rows.rows - uses.used_rows};
    uses.used_rows = rows.rows;
    return marked;
  }
  if (uses.segment_used.empty()) {
    uses.segment_used.assign(static_cast<size_t>(rows.num_segments), uses.used_rows > 0);
  }
  Marked marked;
  for (const sample::Index segment : rows.segment.As<sample::Index>()) {
    if (segment < range.first || segment >= range.first + range.segments) continue;
    ++marked.rows;
    if (!uses.segment_used[segment]) ++marked.first_time;
  }
  for (int64_t s = range.first; s < range.first + range.segments; ++s) {
    uses.segment_used[static_cast<size_t>(s)] = true;
  }
  uses.used_rows += marked.first_time;
  return marked;
}

}  // namespace troupe::learner
