#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "lib/config/make_env.h"
#include "lib/config/resolved_run.h"
#include "lib/env/registry.h"
#include "lib/envhost/python_functions.h"
#include "lib/policy/policy_table.h"

namespace troupe::run {

/// Tries what policies have in Python before anybody plays by them, in a process of its own beside the learner: makes
/// each policy and calls it with one observation, the first that an environment of the run gives (a drawn one where
/// the learner can make none), and calls mapping functions for all agents of one episode. So what is broken is said to
/// the person who asks for it, and costs no worker. The learner's machine needs the modules for that.
///
/// Made for one trial. Run blocks as long as env.python.start_timeout_s and step_timeout_s allow; Stop is thread-safe
/// and ends it. The process ends with the object.
class PolicyTrial {
 public:
  /// Of a change from `now` to `next`: the policies that it brings, and the mapping functions, which choose from other
  /// policies then. nullptr: nothing of it is in Python. `registry` outlives the trial.
  static std::shared_ptr<PolicyTrial> OfChange(const config::ResolvedRun& run, const env::EnvRegistry& registry,
                                               policy::PolicyTablePtr next, const policy::PolicyTable& now);
  /// Of a run that goes on with `policies`: those that agents play, and the mapping functions. nullptr: as above.
  static std::shared_ptr<PolicyTrial> OfResume(const config::ResolvedRun& run, const env::EnvRegistry& registry,
                                               policy::PolicyTablePtr policies);

  /// INVALID_ARGUMENT with Python's words, and whose they are; CANCELLED: stopped.
  absl::Status Run();
  void Stop() { functions_->Stop(); }

 private:
  /// An observation and its action mask, as bytes.
  struct Sight {
    base::AgentSlot agent;
    std::vector<std::byte> observation;
    std::vector<uint8_t> action_mask;
  };

  PolicyTrial(const config::ResolvedRun& run, const env::EnvRegistry& registry, policy::PolicyTablePtr table,
              std::vector<policy::PolicySpec> policies);
  static std::shared_ptr<PolicyTrial> MakeIfAny(std::shared_ptr<PolicyTrial> trial);

  absl::Status TryMapping();
  absl::Status TryPolicy(const policy::PolicySpec& spec, const std::vector<Sight>& sights);
  /// What agents observe first; empty where no environment can be made here.
  std::vector<Sight> Look() const;
  Sight Draw(const policy::PolicySpec& spec) const;

  const config::EnvSettings env_;
  const env::EnvSpec env_spec_;
  const uint64_t seed_;
  const env::EnvRegistry& registry_;
  const policy::PolicyTablePtr table_;
  const std::vector<policy::PolicySpec> policies_;
  const std::shared_ptr<envhost::PythonFunctions> functions_;
};

}  // namespace troupe::run
