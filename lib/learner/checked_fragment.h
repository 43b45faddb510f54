#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "lib/base/ids.h"
#include "lib/learner/accounting.h"
#include "lib/sample/batch_fwd.h"
#include "lib/sample/batch_schema.h"
#include "lib/sample/ids.h"

namespace troupe::learner {

/// What a fragment holds of one environment.
struct LaneCoverage {
  base::EnvId env_id;
  int32_t env_steps = 0;       ///< at which agents acted
  uint32_t first_episode = 0;  ///< lowest and highest ordinal in the fragment
  uint32_t last_episode = 0;
};

/// A fragment and everything about it that can be found out without a lock.
struct CheckedFragment {
  sample::MultiAgentBatchPtr batch;
  absl::Status status;               ///< of ValidateBatch
  std::vector<PolicyRowCount> rows;  ///< also of an invalid one, clamped to the limits
  /// Rows that were left out of `batch`: they are STALE whatever becomes of the others.
  std::vector<PolicyRowCount> stale_rows;
  std::string stale_reason;         ///< of the first of them
  std::vector<LaneCoverage> lanes;  ///< ascending env id; empty for an invalid one
  int64_t bytes = 0;                ///< that it holds in memory
  int64_t agent_steps = 0;          ///< rows with agent_mask 1
  /// Those that clients decided by themselves with older weights than the fragment's, by the version of these.
  std::map<int64_t, int64_t> of_clients;
  sample::WorkerId worker;  ///< that handed it in
  bool own = true;          ///< its returns are this user's own word (WorkerHello::own)
};

/// Validates and measures. Pure; the costly part of ingest.
CheckedFragment CheckFragment(sample::MultiAgentBatchPtr batch, const sample::BatchSchema& schema,
                              const sample::BatchLimits& limits);

/// At most this many bytes of fragments an env step can take, whatever the agents do; 0 when the schema is empty.
int64_t MaxBytesPerEnvStep(const sample::BatchSchema& schema);
/// At most this many for an agent step, when agents act in every env step.
int64_t MaxBytesPerAgentStep(const sample::BatchSchema& schema);

}  // namespace troupe::learner
