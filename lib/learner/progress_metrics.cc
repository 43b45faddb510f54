#include "lib/learner/progress_metrics.h"

#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace troupe::learner {

void ReportProgress(const ProgressRecord& record, base::MetricSink* sink) {
  const auto scalar = [&](const std::string& tag, std::optional<double> value) {
    if (value.has_value()) sink->Scalar(tag, *value, record.env_steps);
  };
  scalar("Train-Results/Episode-Rewards", record.return_sum);
  scalar("Train-Results/Episode-Rewards/Mean-Agent", record.return_mean);
  scalar("Train-Results/Episode-Steps", record.episode_length);
  if (!record.window.return_sum.empty()) {
    scalar("Train-Results/Episode-Rewards/Min", record.window.return_sum.min);
    scalar("Train-Results/Episode-Rewards/Max", record.window.return_sum.max);
    scalar("Train-Results/Episode-Steps/Min", record.window.length.min);
    scalar("Train-Results/Episode-Steps/Max", record.window.length.max);
  }
  scalar("Reward / Total reward (mean)", record.return_sum);
  for (const auto& [column, mean] : record.window.infos) scalar(absl::StrCat("env/", column), mean);
  for (const auto& [tag, value] : record.losses) scalar(tag, value);
  for (const auto& [tag, value] : record.agent_losses) scalar(tag, value);
  scalar("Time/env_steps_per_s", record.env_steps_per_s);
  scalar("Time/update_s", record.update_s);
  scalar("Time/train_s", record.train_s);
  scalar("Time/wait_s", record.wait_s);
  const std::pair<const char*, int64_t> counters[] = {
      {"received", record.rows.received}, {"accepted", record.rows.accepted}, {"duplicate", record.rows.duplicate},
      {"stale", record.rows.stale},       {"invalid", record.rows.invalid},   {"trained", record.rows.trained},
      {"dropped", record.rows.dropped},   {"aged", record.rows.aged},         {"waited", record.rows.waited}};
  for (const auto& [name, value] : counters) scalar(absl::StrCat("Rows/", name), static_cast<double>(value));
  for (const auto& [age, rows] : record.waited_ages.Filled()) {
    scalar(absl::StrCat("Rows/waited age ", age), static_cast<double>(rows));
  }
  scalar("Lag/mean", record.policy_lag);
  scalar("Workers/connected", static_cast<double>(record.workers));
  scalar("Grants/expired", static_cast<double>(record.expired_grants));
  for (const sample::EnvCounterField& field : sample::kEnvCounterFields) {
    scalar(field.tag, static_cast<double>(record.env_counters.*field.value));
  }
}

}  // namespace troupe::learner
