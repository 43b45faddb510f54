#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "lib/learner/accounting.h"
#include "lib/policy/policy_table.h"
#include "lib/sample/batch_fwd.h"
#include "lib/sample/batch_schema.h"

namespace troupe::learner {

/// A fragment without the rows that nobody will train on.
struct FreshPart {
  sample::MultiAgentBatchPtr batch;        ///< the given one when nothing was left out
  std::vector<PolicyRowCount> stale_rows;  ///< that were left out; kNoPolicy where the slot is another's by now
  std::string reason;                      ///< of the first of them
};

/// Leaves out rows of policies that are gone: whose slot is free, or belongs to a policy that the worker did not know
/// when it made the fragment, or that were replaced; and rows of another learner epoch, whose slots mean nothing any
/// more. Agents that such a policy played are no longer in the table of their episode: a central critic sees them as
/// absent. Slots that no policy can have stay, for ValidateBatch to refuse. Pure; looks at columns only where their
/// form is right.
FreshPart LeaveOutStale(sample::MultiAgentBatchPtr batch, const policy::PolicyTable& table, uint64_t learner_epoch,
                        const sample::BatchLimits& limits);

/// INVALID_ARGUMENT unless the fragment's revisions are some that a worker of this learner may have: 0 <=
/// oldest_revision <= policies_revision <= `newest`.
absl::Status CheckRevisions(const sample::MultiAgentBatch& batch, int64_t newest);

}  // namespace troupe::learner
