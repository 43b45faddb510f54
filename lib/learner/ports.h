#pragma once

#include <cstdint>
#include <string>

#include "lib/policy/policy_table.h"
#include "lib/policy/weight_snapshot.h"
#include "lib/sample/grant.h"

namespace troupe::learner {

/// What the learner tells one worker: a gRPC stream, or the sampler in the learner's own process. Thread-safe; never
/// blocks.
class WorkerPort {
 public:
  virtual ~WorkerPort() = default;
  virtual void SendGrant(const sample::Grant& grant) = 0;
  /// The grant was out for too long, others have its work: what is still handed in for it is STALE.
  virtual void SendGrantOver(sample::GrantId /*grant*/) {}
  virtual void SendAck(const sample::FragmentAck& ack) = 0;
  /// Hand in what you hold, then leave. `reason` is for the log.
  virtual void SendDrain(const std::string& reason) = 0;
};

/// Where new weights go. Thread-safe; never blocks; latest wins.
class WeightPublisher {
 public:
  virtual ~WeightPublisher() = default;
  /// The policies changed: told before anything of a new one is published. `policies` holds every slot that is
  /// published from now on.
  virtual void SetPolicies(policy::PolicyTablePtr /*policies*/) {}
  virtual void Publish(policy::PolicySlot slot, policy::WeightSnapshotPtr snapshot) = 0;
  /// What has been published so far is the newest as of `version`: weights that were not published again have not
  /// changed.
  virtual void AnnounceVersion(policy::WeightVersion version) = 0;
};

}  // namespace troupe::learner
