#pragma once

#include "absl/types/span.h"
#include "lib/learner/batch_source.h"
#include "lib/sample/batch_fwd.h"

namespace troupe::learner {

/// A fragment that has these segments of `batch` and no other rows, as the assembler takes it. Rows, final rows and
/// what was remembered before rows are copied; env steps, episodes and counts of env steps stay those of the whole.
/// Ranges are within the fragment, no segment is in two. Segments stay whole, so that sequences begin where memories
/// are.
sample::MultiAgentBatchPtr CutOut(const sample::MultiAgentBatchPtr& batch, absl::Span<const SegmentRange> ranges);

/// The same fragment without what is counted once: its env steps and the episodes that ended in it.
sample::MultiAgentBatchPtr CountedBefore(const sample::MultiAgentBatch& batch);

}  // namespace troupe::learner
