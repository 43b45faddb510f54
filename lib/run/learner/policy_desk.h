#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/base/clock.h"
#include "lib/config/resolved_run.h"
#include "lib/env/registry.h"
#include "lib/learner/learner.h"
#include "lib/learner/trainer.h"
#include "lib/policy/policy_change.h"
#include "lib/policy/policy_table.h"
#include "lib/rpc/learner/learner_binding.h"
#include "lib/run/learner/control_handler.h"
#include "lib/run/learner/policy_changer.h"
#include "lib/run/learner/policy_map_cache.h"
#include "lib/run/learner/policy_sources.h"
#include "lib/run/learner/run_reporter.h"

namespace troupe::run {

/// Where the changes of a running learner's policies are made that were asked of its control handler: PolicyChanger
/// with the learner, its trainer and its workers behind it. Made by the learner's process, used on the update thread;
/// blocks as PolicyChanger does.
class PolicyDesk {
 public:
  /// All of it outlives the desk.
  struct Deps {
    const config::ResolvedRun* run = nullptr;  ///< as it began
    const env::EnvRegistry* registry = nullptr;
    learner::Learner* learner = nullptr;
    learner::Trainer* trainer = nullptr;           ///< the learner's
    const rpc::LearnerBinding* workers = nullptr;  ///< says what they permit
    ControlHandler* control = nullptr;
    PolicyMapCache* cache = nullptr;
    RunReporter* reporter = nullptr;
    DrawState draw;
    const base::Clock* clock = &base::Clock::Real();
  };

  explicit PolicyDesk(Deps deps);

  /// Makes what has been asked for and can be made now. To be called between two updates.
  void Step();
  /// Whoever still asks for a change, or for a checkpoint, or asks later, is refused.
  void RefuseAll();

 private:
  PolicyChanger::Deps ChangerDeps();
  /// Reads and tries what the change brings.
  absl::StatusOr<PolicyChanger::Preparation> Prepare(const policy::PolicyChange& change,
                                                     const PolicySources& sources) const;
  /// Whole or not at all; the new revision.
  absl::StatusOr<int64_t> Change(const policy::PolicyChange& change, const PolicySources& sources);
  /// FAILED_PRECONDITION names a connected worker that does not permit what `next` would have run, and `now` does not.
  absl::Status CheckPermitted(const policy::PolicyTable& next, const policy::PolicyTable& now) const;

  const Deps deps_;
  PolicyChanger changer_;
};

}  // namespace troupe::run
