#include "lib/config/ingest_budget.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "lib/learner/checked_fragment.h"
#include "lib/training/algorithm_options.h"
#include "proto/troupe/v1/config.pb.h"

namespace troupe::config {
namespace {

constexpr char kKey[] = "learner.ingest_budget_bytes";

/// Batches that the run may have sampled and not trained on.
int64_t NumBatches(const ResolvedRun& run) {
  return 1 + training::AheadOf(run.algorithms, run.learner.max_policy_lag).iterations;
}

/// Bytes that a budget must hold: `fixed + per_step * train_batch_size`.
struct Needed {
  double fixed = 0;
  double per_step = 0;
};
Needed NeededBytes(const ResolvedRun& run) {
  const auto batches = static_cast<double>(NumBatches(run));
  // The learner's own bounds (learner::Ingest::CheckBudget).
  const auto env_step = static_cast<double>(learner::MaxBytesPerEnvStep(run.schema));
  const auto envs = static_cast<double>(run.learner.num_envs);
  Needed needed;
  needed.per_step =
      batches * (CountsAgentSteps(run) ? static_cast<double>(learner::MaxBytesPerAgentStep(run.schema)) : env_step);
  // A batch of agent steps may be larger by almost an env step of every environment.
  if (CountsAgentSteps(run)) needed.fixed += needed.per_step * envs * static_cast<double>(run.env_spec.num_agents());
  if (run.learner.complete_episodes) {
    needed.fixed += batches * envs * static_cast<double>(run.env_spec.max_episode_steps) * env_step;
  }
  // A worker of another make may send what a message holds.
  needed.fixed += std::max(1, run.num_workers) * static_cast<double>(sample::BatchLimits().max_message_bytes);
  return needed;
}

/// The largest batch that `budget` bytes hold, for the hint.
std::string SmallerBatch(const ResolvedRun& run, const Needed& needed, double budget) {
  const double steps = std::floor((budget - needed.fixed) / needed.per_step);
  const double least = static_cast<double>(run.learner.num_envs) *
                       (CountsAgentSteps(run) ? static_cast<double>(run.env_spec.num_agents()) : 1);
  if (steps < least) return "no batch would fit";
  return absl::StrCat("a batch (algorithm.train_batch_size) of at most ", static_cast<int64_t>(steps), " would fit");
}

}  // namespace

bool CountsAgentSteps(const ResolvedRun& run) {
  return run.learner.count_steps_by == learner::CountStepsBy::kAgentSteps;
}

int64_t EnvStepsOfBatch(const ResolvedRun& run) {
  if (!CountsAgentSteps(run)) return run.learner.train_batch_size;
  return std::max<int64_t>(1, run.learner.train_batch_size / run.env_spec.num_agents());
}

std::string BatchText(const ResolvedRun& run) {
  return absl::StrCat(run.learner.train_batch_size, CountsAgentSteps(run) ? " agent steps" : " env steps");
}

absl::StatusOr<int64_t> IngestBudget(const ResolvedRun& run) {
  const v1::LearnerConfig& config = run.config.proto().learner();
  const bool is_auto = !config.has_ingest_budget_bytes();
  const Needed needed = NeededBytes(run);
  const double bytes = std::ceil(needed.fixed + needed.per_step * static_cast<double>(run.learner.train_batch_size));
  const double most =
      is_auto ? static_cast<double>(kMostAutoIngestBudgetBytes) : static_cast<double>(config.ingest_budget_bytes());
  if (bytes <= most) {
    return is_auto ? std::max(kLeastAutoIngestBudgetBytes, static_cast<int64_t>(bytes)) : config.ingest_budget_bytes();
  }
  const std::string got = is_auto ? absl::StrCat("got auto, which is at most ", kMostAutoIngestBudgetBytes)
                                  : absl::StrCat("got ", config.ingest_budget_bytes());
  return run.config.KeyError(
      kKey, absl::StrCat(got, ", expected at least ", static_cast<int64_t>(std::min(bytes, 9e18)), " for ",
                         NumBatches(run), NumBatches(run) == 1 ? " batch of " : " batches of ", BatchText(run),
                         " and a fragment of every worker; ", SmallerBatch(run, needed, most),
                         is_auto ? "" : ", and auto is as much as it takes"));
}

}  // namespace troupe::config
