#pragma once

#include <memory>

// For headers that only refer to fragments: whoever includes multi_agent_batch.h is compiled again with each change of
// it.

namespace troupe::sample {

struct FinishedEpisode;
struct MultiAgentBatch;
struct PolicyRows;
using MultiAgentBatchPtr = std::shared_ptr<const MultiAgentBatch>;

}  // namespace troupe::sample
