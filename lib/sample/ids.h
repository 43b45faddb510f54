#pragma once

#include <cstdint>

#include "lib/base/strong_id.h"

namespace troupe::sample {

/// A worker process, as the learner numbers them; kept across its reconnects.
using WorkerId = base::StrongId<struct WorkerIdTag, uint64_t>;
/// Counts the registrations of one worker: the higher fences off the lower.
using WorkerEpoch = base::StrongId<struct WorkerEpochTag, uint64_t>;
using GrantId = base::StrongId<struct GrantIdTag, uint64_t>;

}  // namespace troupe::sample
