#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "lib/base/strong_id.h"

namespace troupe::sample {

/// A worker process, as the learner numbers them; kept across its reconnects.
using WorkerId = base::StrongId<struct WorkerIdTag, uint64_t>;
/// Counts the registrations of one worker: the higher fences off the lower.
using WorkerEpoch = base::StrongId<struct WorkerEpochTag, uint64_t>;
/// A worker for a person: "2.3" is the third that joined in the learner's second life.
inline std::string WorkerText(WorkerId id) { return absl::StrCat(id.value() >> 32, ".", id.value() & 0xffffffffu); }
using GrantId = base::StrongId<struct GrantIdTag, uint64_t>;

/// A pointer from one column of a fragment into its tables: episodes, env steps (acting and final together), segments
/// of a policy. None of these has more than kMaxIndexed entries; who makes a fragment ends it before.
using Index = uint16_t;
inline constexpr int64_t kMaxIndexed = int64_t{1} << 16;

}  // namespace troupe::sample
