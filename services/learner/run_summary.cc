#include "services/learner/run_summary.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "services/common/evaluation.h"
#include <nlohmann/json.hpp>

namespace troupe::services {
namespace {

using Json = nlohmann::ordered_json;

Json Optional(const std::optional<double>& value) { return value ? Json(*value) : Json(nullptr); }

}  // namespace

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
               {"env_steps_per_s", summary.process_env_steps_per_s},
               {"return_sum", Optional(progress.return_sum)},
               {"return_mean", Optional(progress.return_mean)}};
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
                         {"rolled_back", rows.rolled_back}}},
           {"evaluation", summary.evaluation ? Json::parse(EvaluationJson(*summary.evaluation)) : Json(nullptr)},
           {"evaluation_error", summary.evaluation_error.empty() ? Json(nullptr) : Json(summary.evaluation_error)},
           {"degraded", summary.degraded}});
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string SummaryText(const RunSummary& summary) {
  const learner::ProgressRecord& progress = summary.progress;
  std::string text = absl::StrFormat("%s after %d env steps, %d updates, %.1f s (%.0f env steps/s): %s\n",
                                     summary.run_name, progress.env_steps, progress.updates, progress.wall_clock_s,
                                     summary.process_env_steps_per_s, summary.reason);
  if (progress.return_sum) {
    absl::StrAppendFormat(&text, "training return, last 100 episodes: %.2f (sum over agents)\n", *progress.return_sum);
  }
  if (progress.env_counters.errors > 0) {
    absl::StrAppendFormat(&text, "%d episodes failed: their environments' calls did, statistics are of the others\n",
                          progress.env_counters.errors);
  }
  if (!summary.evaluation_error.empty()) {
    absl::StrAppend(&text, "evaluation FAILED: ", summary.evaluation_error, "\n");
  }
  if (summary.evaluation) {
    absl::StrAppendFormat(&text, "evaluation, %d episodes: return %.2f (std %.2f, sum over agents), %.2f an agent\n",
                          summary.evaluation->episodes, summary.evaluation->return_sum.mean,
                          summary.evaluation->return_sum.std, summary.evaluation->return_mean.mean);
  }
  for (const std::string& words : summary.degraded) absl::StrAppend(&text, "DEGRADED: ", words, "\n");
  absl::StrAppend(&text, "results in ", summary.directory, "\n");
  return text;
}

}  // namespace troupe::services
