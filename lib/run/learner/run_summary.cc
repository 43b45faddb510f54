#include "lib/run/learner/run_summary.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lib/policy/policy_entry.h"
#include "lib/run/evaluation.h"
#include "lib/run/policy_lines.h"
#include <nlohmann/json.hpp>

namespace troupe::run {
namespace {

using Json = nlohmann::ordered_json;

Json Optional(const std::optional<double>& value) { return value ? Json(*value) : Json(nullptr); }

Json SpreadJson(const std::string& prefix, const learner::Spread& spread) {
  return {{prefix + "mean", Optional(spread.mean())}, {prefix + "min", spread.min}, {prefix + "max", spread.max}};
}

/// `key` by name, and `key`_rest where there are others.
void AddByName(const std::string& key, const std::string& prefix, const learner::ReturnsByName& returns, Json* json) {
  Json by_name = Json::object();
  for (const learner::NamedReturns& named : returns.named) by_name[named.name] = SpreadJson(prefix, named.returns);
  (*json)[key] = std::move(by_name);
  if (returns.others.empty()) return;
  Json rest = {{"count", returns.others.size()}};
  rest.update(SpreadJson(prefix, returns.rest));
  (*json)[key + "_rest"] = std::move(rest);
}

Json EvaluationOf(const RunSummary& summary) {
  if (!summary.evaluation) return nullptr;
  Json json = Json::parse(EvaluationJson(*summary.evaluation));
  AddByName("policies", "", summary.evaluation_returns.policies, &json);
  if (!summary.evaluation_returns.agents.others.empty()) {
    Json agents = Json::object();
    for (const learner::NamedReturns& named : summary.evaluation_returns.agents.named) {
      agents[named.name] = json["agents"][named.name];
    }
    json["agents"] = std::move(agents);
  }
  return json;
}

Json OtherActionsOf(const RunSummary& summary) {
  if (!summary.other_actions) return nullptr;
  const Json json = Json::parse(EvaluationJson(*summary.other_actions));
  return {{"return_sum", json["return_sum"]}, {"return_mean", json["return_mean"]}};
}

/// Of all that is told beside it, whichever life of the learner it is of: steps and seconds are of the whole run.
double EnvStepsPerS(const learner::ProgressRecord& progress) {
  return progress.wall_clock_s > 0 ? static_cast<double>(progress.env_steps) / progress.wall_clock_s : 0;
}

std::string TrainingText(const RunSummary& summary) {
  const learner::ProgressRecord& progress = summary.progress;
  if (!progress.return_sum) return "";
  const std::string by_policy = PolicyLines(summary.returns.few_policies);
  std::string text;
  if (progress.rewards_differ) {
    absl::StrAppend(&text, "training, last 100 episodes: return of an agent, by policy (least to largest)\n",
                    by_policy);
  } else {
    absl::StrAppendFormat(&text, "training return, last 100 episodes: %.2f (sum over agents)\n", *progress.return_sum);
    if (summary.returns.few_policies.named.size() > 1) absl::StrAppend(&text, by_policy);
  }
  if (!progress.best_by.empty() && progress.best) {
    absl::StrAppendFormat(&text, "best of it%s: %.2f\n",
                          progress.best_by == "sum" ? "" : absl::StrCat(", ", progress.best_by), *progress.best);
  }
  return text;
}

/// Rows that no update had, by cause, and the policies that lost most as too old. Empty where there are none.
std::string DroppedText(const learner::ProgressRecord& progress) {
  const learner::RowCounters& rows = progress.rows;
  if (rows.dropped == 0) return "";
  std::string text = absl::StrFormat(
      "%d rows dropped: %d too old (clients decided by older weights than algorithm.max_policy_lag allows)",
      rows.dropped, rows.aged);
  std::vector<std::pair<int64_t, policy::PolicySlot>> losers;
  for (const policy::PolicySlot slot : progress.policy_rows.ids()) {
    const bool named = progress.table != nullptr && progress.table->Find(slot) != nullptr;
    if (named && progress.policy_rows[slot].aged > 0) losers.emplace_back(-progress.policy_rows[slot].aged, slot);
  }
  std::sort(losers.begin(), losers.end());
  const size_t shown = std::min(losers.size(), ToldReturns::kFew);
  for (size_t i = 0; i < shown; ++i) {
    const policy::PolicySlot slot = losers[i].second;
    absl::StrAppendFormat(&text, "%s %s %d of %d", i == 0 ? ";" : ",", progress.table->Find(slot)->spec.id.value(),
                          progress.policy_rows[slot].aged, progress.policy_rows[slot].accepted);
  }
  return absl::StrCat(text, absl::StrFormat("; %d let go\n", rows.dropped - rows.aged));
}

/// Where the other kind of actions gives another return: more than the standard error of the difference away.
std::string OtherActionsText(const RunSummary& summary) {
  if (!summary.other_actions) return "";
  const rollout::MeanStd& one = summary.evaluation->return_sum;
  const rollout::MeanStd& other = summary.other_actions->return_sum;
  const double error = std::sqrt(one.std * one.std / static_cast<double>(summary.evaluation->episodes) +
                                 other.std * other.std / static_cast<double>(summary.other_actions->episodes));
  if (!(std::abs(one.mean - other.mean) > error)) return "";
  return absl::StrFormat("  with %s actions: return %.2f (std %.2f)\n",
                         summary.deterministic ? "sampled" : "each policy's likeliest", other.mean, other.std);
}

std::string EvaluationText(const RunSummary& summary) {
  const rollout::EvaluationResult& result = *summary.evaluation;
  const std::string by_policy = PolicyLines(summary.evaluation_returns.few_policies);
  if (summary.progress.rewards_differ) {
    return absl::StrCat("evaluation, ", result.episodes,
                        " episodes: return of an agent, by policy (least to largest)\n", by_policy);
  }
  return absl::StrFormat("evaluation, %d episodes: return %.2f (std %.2f, sum over agents), %.2f an agent\n",
                         result.episodes, result.return_sum.mean, result.return_sum.std, result.return_mean.mean) +
         (summary.evaluation_returns.few_policies.named.size() > 1 ? by_policy : "") + OtherActionsText(summary);
}

}  // namespace

ToldReturns Told(const learner::NamedValues& names, learner::EpisodeStats stats, const policy::PolicyTable& table) {
  ToldReturns told;
  told.policies = names.Policies(stats, table, learner::NamedValues::kMost);
  told.agents = names.Agents(stats, learner::NamedValues::kMost);
  told.few_policies = names.Policies(stats, table, ToldReturns::kFew);
  told.stats = std::move(stats);
  return told;
}

std::string SummaryJson(const RunSummary& summary) {
  const learner::ProgressRecord& progress = summary.progress;
  const learner::RowCounters& rows = progress.rows;
  Json json = {{"run", summary.run_name},
               {"directory", summary.directory},
               {"reason", summary.reason},
               {"env_steps", progress.env_steps},
               {"agent_steps", progress.agent_steps},
               {"updates", progress.updates},
               {"episodes", progress.episodes},
               {"wall_clock_s", progress.wall_clock_s},
               {"env_steps_per_s", EnvStepsPerS(progress)},
               {"return_sum", Optional(progress.return_sum)},
               {"return_mean", Optional(progress.return_mean)},
               {"rewards_differ", progress.rewards_differ},
               {"best_by", progress.best_by.empty() ? Json(nullptr) : Json(progress.best_by)},
               {"best_return", Optional(progress.best)}};
  Json losses = Json::object();
  for (const auto& [tag, value] : progress.losses) {
    if (absl::StartsWith(tag, "Loss/") || absl::StartsWith(tag, "Policy/")) losses[tag] = Optional(value);
  }
  json["losses"] = std::move(losses);
  AddByName("policies", "return_", summary.returns.policies, &json);
  AddByName("agents", "return_", summary.returns.agents, &json);
  for (const sample::EnvCounterField& field : sample::kEnvCounterFields) {
    json[field.key] = progress.env_counters.*field.value;
  }
  json.update(
      Json{{"rows", Json{{"received", rows.received},
                         {"accepted", rows.accepted},
                         {"duplicate", rows.duplicate},
                         {"stale", rows.stale},
                         {"invalid", rows.invalid},
                         {"trained", rows.trained},
                         {"queued", rows.queued},
                         {"dropped", rows.dropped},
                         {"aged", rows.aged},
                         {"waited", rows.waited},
                         {"rolled_back", rows.rolled_back}}},
           {"evaluation", EvaluationOf(summary)},
           {summary.deterministic ? "evaluation_sampled" : "evaluation_deterministic", OtherActionsOf(summary)},
           {"evaluation_error", summary.evaluation_error.empty() ? Json(nullptr) : Json(summary.evaluation_error)},
           {"degraded", summary.degraded}});
  for (const auto& [key, value] : summary.evaluation_values) json[key] = Optional(value);
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string SummaryText(const RunSummary& summary) {
  const learner::ProgressRecord& progress = summary.progress;
  std::string text = absl::StrFormat("%s after %d env steps, %d updates, %.1f s (%.0f env steps/s): %s\n",
                                     summary.run_name, progress.env_steps, progress.updates, progress.wall_clock_s,
                                     EnvStepsPerS(progress), summary.reason);
  absl::StrAppend(&text, TrainingText(summary));
  if (progress.env_counters.errors > 0) {
    absl::StrAppendFormat(&text, "%d episodes failed: their environments' calls did, statistics are of the others\n",
                          progress.env_counters.errors);
  }
  if (!summary.evaluation_error.empty()) {
    absl::StrAppend(&text, "evaluation FAILED: ", summary.evaluation_error, "\n");
  }
  if (summary.evaluation) absl::StrAppend(&text, EvaluationText(summary));
  if (!summary.evaluation_cut.empty()) absl::StrAppend(&text, summary.evaluation_cut, "\n");
  absl::StrAppend(&text, DroppedText(progress));
  for (const std::string& words : summary.degraded) absl::StrAppend(&text, "DEGRADED: ", words, "\n");
  absl::StrAppend(&text, "results in ", summary.directory, "\n");
  return text;
}

}  // namespace troupe::run
