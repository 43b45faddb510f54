#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "lib/learner/train_batch.h"
#include "lib/sample/batch_fwd.h"

namespace troupe::learner {

/// A memory of a fragment, by the row of the train batch before whose decision it was remembered.
struct MemoryRef {
  int64_t row = 0;
  int32_t decision = 0;          ///< of the row's agent in its episode
  const float* state = nullptr;  ///< [actor_state_size]; nullptr where the actor remembers nothing
};

/// Which decision of its agent in the episode each segment of a fragment begins with; -1 where the policy remembers
/// nothing. `first_rows`: by segment.
void FindFirstDecisions(const sample::PolicyRows& rows, absl::Span<const int32_t> first_rows,
                        std::vector<int32_t>* decisions);

/// Cuts `segments`, which ascend and cover all rows, into sequences: one begins at each segment's first row and at each
/// row whose decision is a multiple of `sequence_length`. `memories`, in any order, has one for each of these rows; it
/// is left with those alone, one for each sequence in their order. The others are first rows of segments that were
/// joined to what came before.
std::vector<TrainSequence> CutSequences(absl::Span<const TrainSegment> segments, int64_t sequence_length,
                                        std::vector<MemoryRef>* memories);

}  // namespace troupe::learner
