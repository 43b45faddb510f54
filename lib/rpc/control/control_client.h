#pragma once

#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "lib/policy/policy_change.h"
#include "proto/troupe/v1/control.grpc.pb.h"

namespace troupe::rpc {

/// Changes a running learner through its control socket, for `troupe policy`, `mapping` and scripts. Thread-safe; every
/// call blocks up to its deadline. Its connection does not come back: UNAVAILABLE when the learner has gone.
class ControlClient {
 public:
  /// Errors as DialControl.
  static absl::StatusOr<std::unique_ptr<ControlClient>> Connect(const std::string& path);

  /// The env steps of the checkpoint, once it is durable. `to`: where it goes, an absolute path where the learner runs;
  /// empty: into the run, named by the env steps.
  absl::StatusOr<int64_t> Checkpoint(const std::string& to, absl::Duration timeout);
  /// How many checkpoints of the run were removed, so that the newest `keep`, the newest and the best are left.
  absl::StatusOr<int64_t> PruneCheckpoints(int64_t keep, absl::Duration timeout);
  /// The learner ends as after SIGTERM.
  absl::Status Drain(const std::string& reason, absl::Duration timeout);
  /// The revision of the table with the change, once it is done. Errors: Control.ChangePolicies'.
  absl::StatusOr<int64_t> ChangePolicies(const policy::PolicyChange& change, absl::Duration timeout);

 private:
  ControlClient(std::string learner, std::shared_ptr<grpc::Channel> channel)
      : learner_(std::move(learner)), channel_(std::move(channel)) {}

  const std::string learner_;  ///< in errors
  const std::shared_ptr<grpc::Channel> channel_;
};

}  // namespace troupe::rpc
