#pragma once

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/policy/blob_store.h"
#include "lib/policy/policy_table.h"
#include "lib/policy/weight_snapshot.h"
#include "lib/run/learner/policy_sources.h"
#include "lib/run/learner/run_setup.h"
#include "lib/storage/disk_blob_store.h"

namespace troupe::run {

/// Where a learner's policies are that fit neither into its policy map nor into the host budget:
/// `multi_agent.policy_map_cache`, or `policy_map` in the run folder. In a folder that runs may share, each has one of
/// its own. Nothing in it outlives the process: checkpoints hold everything.
///
/// Made by the learner process, which holds the run folder's lock; `setup` outlives it. Used from the update thread.
class PolicyMapCache {
 public:
  PolicyMapCache(const RunSetup* setup, DrawState draw);
  ~PolicyMapCache() { Remove(); }
  PolicyMapCache(const PolicyMapCache&) = delete;
  PolicyMapCache& operator=(const PolicyMapCache&) = delete;

  /// Clears what a learner of this run left that was killed, and tries to write, if the run will need the folder.
  /// Errors name the key.
  absl::Status Open();
  /// Removes all that was written; a failure is logged.
  void Remove();

  /// The policies by slot, before the trainer has them: a checkpoint's state is taken only for the one that it is of.
  void SetPolicies(policy::PolicyTablePtr policies) { policies_ = std::move(policies); }
  /// For the trainer, which must be gone or idle before Remove.
  policy::BlobStore* blobs() { return &blobs_; }
  /// Of a policy whose state there is lost: the policy in the run's newest checkpoint; before there is one, as the run
  /// began.
  absl::StatusOr<policy::PolicyState> Fallback(policy::PolicySlot slot) const;
  const std::string& folder() const { return blobs_.folder(); }

 private:
  const RunSetup& setup_;
  const DrawState draw_;
  policy::PolicyTablePtr policies_;
  storage::DiskBlobStore blobs_;
  bool opened_ = false;
};

}  // namespace troupe::run
