#include "lib/config/ingest_budget.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "lib/learner/checked_fragment.h"
#include "proto/troupe/v1/config.pb.h"

namespace troupe::config {
namespace {

constexpr char kKey[] = "learner.ingest_budget_bytes";

/// Upper bounds of what fragments take, none below the learner's own (learner::Ingest::CheckBudget).
struct FragmentBytes {
  double env_step = 0;    ///< with a row of every agent
  double agent_step = 0;  ///< in an env step of its own
};
FragmentBytes BytesOf(const ResolvedRun& run) {
  const double step = 16 + 4.0 * static_cast<double>(run.schema.env_state_size);
  FragmentBytes bytes{step, step};
  for (const env::AgentSpec& agent : run.env_spec.possible_agents) {
    const int64_t obs_element = static_cast<int64_t>(tensor::ElementBytes(agent.observation_space.flat_dtype()));
    const int64_t mask = agent.has_action_mask ? agent.action_space.mask_size() : 0;
    const auto row =
        static_cast<double>(agent.observation_space.flat_size() * obs_element + 4 * agent.action_space.action_words() +
                            mask + 4 * run.schema.agent_state_size + 24);
    bytes.env_step += row;
    bytes.agent_step = std::max(bytes.agent_step, step + row);
  }
  bytes.env_step = std::max(bytes.env_step, static_cast<double>(learner::MaxBytesPerEnvStep(run.schema)));
  bytes.agent_step = std::max(bytes.agent_step, static_cast<double>(learner::MaxBytesPerAgentStep(run.schema)));
  return bytes;
}

/// What a budget must hold: `fixed + per_step * train_batch_size` bytes.
struct Needed {
  double fixed = 0;
  double per_step = 0;
};
Needed NeededBytes(const ResolvedRun& run) {
  const double batches = static_cast<double>(1 + run.learner.max_policy_lag);
  const FragmentBytes bytes = BytesOf(run);
  const auto envs = static_cast<double>(run.learner.num_envs);
  Needed needed;
  needed.per_step = batches * (CountsAgentSteps(run) ? bytes.agent_step : bytes.env_step);
  // A batch of agent steps may be larger by almost an env step of every environment.
  if (CountsAgentSteps(run)) needed.fixed += needed.per_step * envs * static_cast<double>(run.env_spec.num_agents());
  if (run.learner.complete_episodes) {
    needed.fixed += batches * envs * static_cast<double>(run.env_spec.max_episode_steps) * bytes.env_step;
  }
  // A worker of another make may send what a message holds.
  const int64_t fragment = std::max(run.rollout.max_fragment_bytes, sample::BatchLimits().max_message_bytes);
  needed.fixed += std::max(1, run.num_workers) * static_cast<double>(fragment);
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
      kKey,
      absl::StrCat(got, ", expected at least ", static_cast<int64_t>(std::min(bytes, 9e18)), " for ",
                   1 + run.learner.max_policy_lag, run.learner.max_policy_lag == 0 ? " batch of " : " batches of ",
                   BatchText(run), " and a fragment of every worker; ", SmallerBatch(run, needed, most),
                   is_auto ? "" : ", and auto is as much as it takes"));
}

}  // namespace troupe::config
