#include "lib/learner/learner.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/check.h"
#include "lib/base/status_macros.h"
#include "lib/learner/assembler.h"
#include "lib/learner/ingest.h"
#include "lib/policy/policy_spec.h"
#include "lib/sample/train_rules.h"

namespace troupe::learner {
namespace {

absl::Status CheckOptions(const LearnerConfig& config) {
  const auto at_least = [](const char* name, int64_t value, int64_t low) {
    if (value >= low) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(name, " is ", value, ", expected at least ", low));
  };
  const LearnerOptions& options = config.options;
  TROUPE_RETURN_IF_ERROR(at_least("learner_epoch", static_cast<int64_t>(config.learner_epoch), 1));
  TROUPE_RETURN_IF_ERROR(at_least("train_batch_size", options.train_batch_size, 1));
  TROUPE_RETURN_IF_ERROR(at_least("max_policy_lag", options.max_policy_lag, 0));
  TROUPE_RETURN_IF_ERROR(at_least("num_workers", options.num_workers, 0));
  TROUPE_RETURN_IF_ERROR(at_least("num_envs", options.num_envs, 1));
  TROUPE_RETURN_IF_ERROR(at_least("policies", static_cast<int64_t>(config.schema.policies.size()), 1));
  TROUPE_RETURN_IF_ERROR(at_least("agents", static_cast<int64_t>(config.schema.agent_ids.size()), 1));
  TROUPE_RETURN_IF_ERROR(at_least("schema.num_envs", config.schema.num_envs, options.num_envs));
  TROUPE_RETURN_IF_ERROR(sample::TrainRules::Make(options.train_rules).status());
  if (static_cast<int64_t>(config.info_columns.size()) != config.schema.num_info_columns) {
    return absl::InvalidArgumentError(absl::StrCat("info_columns has ", config.info_columns.size(), " names, expected ",
                                                   config.schema.num_info_columns));
  }
  return absl::OkStatus();
}

/// The policies that a learner begins with. One that follows another gives no table a revision that may have been given
/// before, by a learner whose last changes no checkpoint has.
absl::StatusOr<PolicyViewPtr> FirstView(const LearnerConfig& config) {
  if (config.policies != nullptr) {
    const auto first_revision = static_cast<int64_t>((config.learner_epoch - 1) << 32);
    return MakePolicyView(config.policies->AtLeast(first_revision), config.schema);
  }
  std::vector<bool> trains;
  const std::vector<policy::PolicySpec>& specs = config.schema.policies.values();
  for (size_t p = 0; p < specs.size(); ++p) {
    const bool wanted = config.options.trains.empty() || config.options.trains[p];
    trains.push_back(wanted && specs[p].policy_class.trainable());
  }
  // Nobody asks this one who plays.
  TROUPE_ASSIGN_OR_RETURN(policy::PolicyTablePtr table,
                          policy::PolicyTable::Make(specs, trains, {{"*", {{specs[0].id}}}}, config.schema.agent_ids));
  return MakePolicyView(std::move(table), config.schema);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Learner>> Learner::Create(LearnerConfig config, const LearnerDeps& deps) {
  TROUPE_CHECK(deps.trainer != nullptr && deps.publisher != nullptr && deps.clock != nullptr &&
               deps.allocator != nullptr);
  TROUPE_RETURN_IF_ERROR(CheckOptions(config));
  TROUPE_ASSIGN_OR_RETURN(const PolicyViewPtr view, FirstView(config));
  config.schema.policies = view->schema.policies;
  TROUPE_RETURN_IF_ERROR(Assembler::CheckSchema(config.schema));
  const int64_t max_ahead = MaxAhead(AllFeeds(config, *deps.trainer, *view->table));
  TROUPE_RETURN_IF_ERROR(Ingest::CheckBudget(config.options, config.schema, config.limits, max_ahead));
  return std::unique_ptr<Learner>(new Learner(std::move(config), deps, view));
}

Learner::Learner(LearnerConfig config, const LearnerDeps& deps, PolicyViewPtr view)
    : config_(std::move(config)),
      deps_(deps),
      run_(&config_, &deps_, std::move(view)),
      desk_(&run_),
      cycle_(&deps_, &run_) {}

Learner::~Learner() = default;

bool Learner::ends() const {
  base::MutexLock lock(&run_.mutex);
  return !run_.GoesOnLocked();
}

TrackedBook::News Learner::TakeTracked() {
  base::MutexLock lock(&run_.mutex);
  return run_.tracked.Take();
}

}  // namespace troupe::learner
