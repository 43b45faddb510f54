#include "lib/run/learner/callback_facts.h"

#include <cmath>
#include <optional>
#include <string>
#include <utility>

#include "lib/base/log.h"
#include "lib/policy/policy_entry.h"
#include "lib/run/evaluation.h"
#include "lib/run/learner/run_evaluator.h"

namespace troupe::run {
namespace {

using nlohmann::json;

json Number(const std::optional<double>& value) { return value && std::isfinite(*value) ? json(*value) : json(); }

json ByPolicy(const learner::EpisodeStats& stats, const policy::PolicyTable& table, const learner::NamedValues& names) {
  json policies = json::object();
  for (const learner::NamedReturns& named : names.Policies(stats, table, learner::NamedValues::kMost).named) {
    policies[named.name] = {{"episodes", named.returns.count},
                            {"mean", Number(named.returns.mean())},
                            {"min", named.returns.min},
                            {"max", named.returns.max}};
  }
  return policies;
}

/// Adds the losses of the policies that trained in the update, at most NamedValues::kMost.
void AddLosses(const learner::ProgressRecord& record, json* metrics) {
  size_t named = 0;
  for (const learner::PolicyUpdateReport& report : *record.policies) {
    const policy::PolicyEntry* const entry = record.table->Find(report.policy);
    if (report.trained_rows == 0 || entry == nullptr) continue;
    if (++named > learner::NamedValues::kMost) return;
    for (const auto& [tag, value] : report.metrics) {
      (*metrics)["policy/" + entry->spec.id.value() + "/" + tag] = Number(value);
    }
  }
}

}  // namespace

json UpdateFacts(const learner::ProgressRecord& record, const learner::NamedValues& names) {
  json metrics = json::object();
  for (const auto& [tag, value] : record.losses) metrics[tag] = Number(value);
  for (const auto& [column, mean] : record.window.infos) metrics["env/" + column] = Number(mean);
  if (record.policies != nullptr && record.table != nullptr && record.table->num_slots() > 1)
    AddLosses(record, &metrics);
  return {{"env_steps", record.env_steps},
          {"agent_steps", record.agent_steps},
          {"updates", record.updates},
          {"episodes", record.episodes},
          {"wall_clock_s", record.wall_clock_s},
          {"env_steps_per_s", record.env_steps_per_s},
          {"return_sum", Number(record.return_sum)},
          {"return_mean", Number(record.return_mean)},
          {"episode_length", Number(record.episode_length)},
          {"metrics", std::move(metrics)},
          {"policies", record.table == nullptr ? json::object() : ByPolicy(record.window, *record.table, names)}};
}

json EvaluationFacts(const absl::StatusOr<rollout::EvaluationResult>& result, const policy::PolicyTable* table,
                     const learner::NamedValues& names, int64_t env_steps) {
  json facts = {{"env_steps", env_steps}, {"error", nullptr}, {"result", nullptr}, {"metrics", json::object()}};
  if (!result.ok()) {
    facts["error"] = base::LogSafe(std::string(result.status().message()), RunEvaluator::kMaxErrorChars);
    return facts;
  }
  facts["result"] = json::parse(EvaluationJson(*result));
  if (table != nullptr) {
    const learner::EpisodeStats stats = StatsOf(*result, table->num_slots());
    facts["result"]["policies"] = ByPolicy(stats, *table, names);
    for (const learner::NamedValue& value : names.OfEvaluation(stats, *table)) {
      facts["metrics"][value.key] = Number(value.value);
    }
  }
  return facts;
}

json CheckpointFacts(const absl::Status& saved, int64_t env_steps, bool is_best) {
  const std::string error = base::LogSafe(std::string(saved.message()), RunEvaluator::kMaxErrorChars);
  return {{"env_steps", env_steps}, {"is_best", is_best}, {"error", saved.ok() ? json() : json(error)}};
}

json RunStartFacts(int64_t env_steps, bool resumed) { return {{"env_steps", env_steps}, {"resumed", resumed}}; }

json RunEndFacts(int64_t env_steps, const std::string& reason) {
  return {{"env_steps", env_steps}, {"reason", base::LogSafe(reason, RunEvaluator::kMaxErrorChars)}};
}

}  // namespace troupe::run
