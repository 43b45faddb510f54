#include "lib/run/learner/run_start.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"
#include "lib/config/external.h"
#include "lib/config/resolve_algorithms.h"
#include "lib/policy/policy_entry.h"
#include "lib/rpc/door/address.h"

namespace troupe::run {

absl::StatusOr<policy::PolicyTablePtr> FirstPolicies(const RunSetup& setup) {
  policy::PolicyTablePtr policies = setup.resumed ? setup.resumed->table : nullptr;
  if (policies == nullptr) {
    const config::ResolvedRun& run = setup.run;
    TROUPE_ASSIGN_OR_RETURN(policies, run.FirstTable(run.learner.trains));
  }
  TROUPE_RETURN_IF_ERROR(policy::CheckSize(*policies));
  return policies;
}

size_t ConfiguredPlace(const config::ResolvedRun& run, const policy::PolicyId& id) {
  const policy::BySlot<policy::PolicyId> configured = run.policy_ids();
  const auto found = std::find(configured.begin(), configured.end(), id);
  return found == configured.end() ? 0 : static_cast<size_t>(found - configured.begin());
}

std::vector<size_t> TrainedAs(const RunSetup& setup, const policy::PolicyTable& policies) {
  std::vector<size_t> trained_as(policies.num_slots(), 0);
  for (size_t slot = 0; slot < trained_as.size(); ++slot) {
    const policy::PolicyEntry* const entry = policies.Find(policy::PolicySlot(static_cast<int32_t>(slot)));
    if (entry == nullptr) continue;
    const bool noted = setup.resumed && slot < setup.resumed->trained_as.size();
    trained_as[slot] = ConfiguredPlace(setup.run, noted ? setup.resumed->trained_as[slot] : entry->spec.id);
  }
  return trained_as;
}

absl::StatusOr<std::vector<policy::AlgorithmSpec>> FirstAlgorithms(const RunSetup& setup,
                                                                   const policy::PolicyTable& policies) {
  std::vector<policy::AlgorithmSpec> algorithms;
  for (const size_t configured : TrainedAs(setup, policies)) {
    const policy::PolicySlot slot(static_cast<int32_t>(algorithms.size()));
    algorithms.push_back(setup.run.algorithms[configured]);
    const policy::PolicyEntry* const entry = policies.Find(slot);
    if (entry == nullptr || entry->settings.empty()) continue;
    absl::StatusOr<policy::AlgorithmSpec> set = config::AlgorithmWith(setup.run, configured, entry->settings);
    if (!set.ok()) {
      return absl::Status(set.status().code(), absl::StrCat("policy \"", entry->spec.id.value(), "\" was set to ",
                                                            std::string(set.status().message())));
    }
    algorithms.back() = *std::move(set);
  }
  return algorithms;
}

learner::LearnerConfig LearnerConfigOf(const RunSetup& setup, const policy::PolicyTablePtr& policies) {
  const config::ResolvedRun& run = setup.run;
  learner::LearnerConfig config;
  config.options = run.learner;
  config.stop = run.stop;
  config.schema = run.schema;
  config.limits = run.limits;
  config.policies = policies;
  config.learner_epoch = setup.folder->learner_epoch();
  config.info_columns = run.env_spec.info_columns;
  // A Unix socket is this user's alone; loopback TCP is anybody's on this machine.
  const absl::StatusOr<rpc::Address> door = rpc::ParseAddress(config::ExternalOptionsOf(run.config).address);
  config.strangers_play = run.env.external != nullptr && door.ok() && door->kind == rpc::Address::Kind::kTcp;
  config.best_by_evaluation = run.evaluation.interval_env_steps > 0;
  config.best_by = run.experiment.best_by;
  return config;
}

}  // namespace troupe::run
