#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "lib/serving/query_engine.h"
#include "services/policy_server/policy_server_process.h"

namespace troupe::services {

/// Where a policy server's policies come from, and the thread that brings newer ones until it is destroyed. Made and
/// owned by RunPolicyServer. The engine is thread-safe.
class ServedPolicies {
 public:
  virtual ~ServedPolicies() = default;
  virtual serving::QueryEngine* engine() = 0;
  /// For the log: "checkpoint=runs/a/checkpoints/400 policies=2 policy_map_capacity=100".
  virtual std::string Describe() = 0;
};

/// Of a checkpoint, or of a learner, as the flags say. Blocks until its policies may be asked. Errors as
/// RunPolicyServer.
absl::StatusOr<std::unique_ptr<ServedPolicies>> OpenServedPolicies(const PolicyServerFlags& flags);

}  // namespace troupe::services
