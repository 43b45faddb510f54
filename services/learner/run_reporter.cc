#include "services/learner/run_reporter.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdio>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/process_memory.h"
#include "lib/base/status_macros.h"

namespace troupe::services {
namespace {

telemetry::ProgressDisplay::Options DisplayOptions() {
  telemetry::ProgressDisplay::Options options;
  options.is_terminal = ::isatty(STDOUT_FILENO) == 1;
  winsize size{};
  if (options.is_terminal && ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
    options.columns = size.ws_col;
  }
  return options;
}

double OrNaN(const std::optional<double>& value) { return value.value_or(std::numeric_limits<double>::quiet_NaN()); }

/// Empty when each policy that was to be trained learned something.
std::string LearnsNothing(const learner::ProgressRecord& record) {
  int skipped = 0;
  for (const learner::PolicyUpdateReport& report : record.policies) {
    skipped += report.skipped_steps > 0 && report.minibatch_steps == 0 ? 1 : 0;
  }
  if (skipped == 0) return "";
  return absl::StrCat("the last update changed nothing in ", skipped, " of ", record.policies.size(),
                      " policies: losses or gradients are not finite");
}

}  // namespace

RunReporter::RunReporter(const config::ResolvedRun& run, std::string run_name, Degradations* degradations)
    : run_name_(std::move(run_name)),
      interval_env_steps_(run.experiment.write_interval_env_steps),
      target_env_steps_(run.stop.env_steps),
      degradations_(degradations),
      display_(DisplayOptions()) {}

absl::StatusOr<std::unique_ptr<RunReporter>> RunReporter::Open(const config::ResolvedRun& run,
                                                               const std::string& run_name,
                                                               const std::string& directory, int64_t resumed_env_steps,
                                                               Degradations* degradations) {
  auto reporter = std::unique_ptr<RunReporter>(new RunReporter(run, run_name, degradations));
  reporter->written_env_steps_ = resumed_env_steps;
  if (reporter->interval_env_steps_ > 0) {
    TROUPE_ASSIGN_OR_RETURN(reporter->tensorboard_, telemetry::TensorBoardWriter::Open(directory));
    TROUPE_ASSIGN_OR_RETURN(reporter->lines_,
                            telemetry::JsonLinesWriter::Open(directory + "/progress.jsonl", resumed_env_steps));
  }
  return reporter;
}

bool RunReporter::IsDue(int64_t env_steps) const {
  return interval_env_steps_ > 0 && env_steps / interval_env_steps_ > written_env_steps_ / interval_env_steps_;
}

void RunReporter::Scalar(std::string_view tag, double value, int64_t env_steps) {
  if (IsDue(env_steps)) tensorboard_->Scalar(tag, value, env_steps);
}

void RunReporter::Flush() { FlushAll(); }

void RunReporter::FlushAll() {
  if (lines_ == nullptr) return;
  tensorboard_->Flush();
  lines_->Flush();
  degradations_->Set("progress.jsonl", lines_->Degraded());
  degradations_->Set("TensorBoard", tensorboard_->Degraded());
}

void RunReporter::OnProgress(const learner::ProgressRecord& record) {
  last_ = record;
  last_written_ = false;
  degradations_->Set("updates", LearnsNothing(record));
  if (IsDue(record.env_steps)) WriteLine(record);
  FlushAll();
  Display(record, false);
}

void RunReporter::OnEvaluation(const rollout::EvaluationResult& evaluation, int64_t env_steps) {
  evaluation_ = evaluation;
  if (tensorboard_ == nullptr) return;
  tensorboard_->Scalar("Test-Results/Episode-Rewards/Mean-Score", evaluation.return_sum.mean, env_steps);
  tensorboard_->Scalar("Test-Results/Episode-Rewards/Std-Score", evaluation.return_sum.std, env_steps);
  FlushAll();
}

void RunReporter::Finish() {
  if (!last_) return;
  if (lines_ != nullptr && !last_written_) WriteLine(*last_);
  FlushAll();
  Display(*last_, true);
}

void RunReporter::WriteLine(const learner::ProgressRecord& record) {
  const base::ProcessMemory memory = base::ProcessMemory::Now();
  std::vector<telemetry::JsonField> fields = {
      {"env_steps", record.env_steps},
      {"agent_steps", record.agent_steps},
      {"updates", record.updates},
      {"episodes", record.episodes},
      {"wall_clock_s", record.wall_clock_s},
      {"env_steps_per_s", record.env_steps_per_s},
      {"return_sum", OrNaN(record.return_sum)},
      {"return_mean", OrNaN(record.return_mean)},
      {"episode_length", OrNaN(record.episode_length)},
      {"policy_lag", record.policy_lag},
      {"workers", static_cast<int64_t>(record.workers)},
      {"minibatch_steps", record.minibatch_steps},
      {"skipped_steps", record.skipped_steps},
      {"update_s", record.update_s},
      {"train_s", OrNaN(record.train_s)},
      {"assemble_s", record.assemble_s},
      {"wait_s", record.wait_s},
      {"rows_received", record.rows.received},
      {"rows_accepted", record.rows.accepted},
      {"rows_duplicate", record.rows.duplicate},
      {"rows_stale", record.rows.stale},
      {"rows_invalid", record.rows.invalid},
      {"rows_trained", record.rows.trained},
      {"rows_queued", record.rows.queued},
      {"rows_dropped", record.rows.dropped},
      {"rows_rolled_back", record.rows.rolled_back},
      {"expired_grants", record.expired_grants},
      {"rss_bytes", memory.rss_bytes},
      {"heap_bytes", memory.heap_bytes},
  };
  for (const sample::EnvCounterField& field : sample::kEnvCounterFields) {
    fields.push_back({field.key, record.env_counters.*field.value});
  }
  for (const auto& [tag, value] : record.losses) fields.emplace_back(tag, value);
  if (evaluation_) {
    fields.emplace_back("evaluation_return_sum", evaluation_->return_sum.mean);
    fields.emplace_back("evaluation_return_mean", evaluation_->return_mean.mean);
    evaluation_.reset();
  }
  lines_->Write(fields);
  written_env_steps_ = record.env_steps;
  last_written_ = true;
}

void RunReporter::Display(const learner::ProgressRecord& record, bool last) {
  telemetry::ProgressView view;
  view.run_name = run_name_;
  view.env_steps = record.env_steps;
  view.target_env_steps = target_env_steps_;
  view.updates = record.updates;
  view.env_steps_per_s = record.env_steps_per_s;
  view.elapsed = absl::Seconds(record.wall_clock_s);
  view.return_sum = record.return_sum;
  view.return_mean = record.return_mean;
  view.policy_lag = record.policy_lag;
  view.workers = record.workers;
  view.failed_episodes = record.env_counters.errors;
  view.degraded = degradations_->List();
  constexpr std::pair<std::string_view, const char*> kShown[] = {
      {"Loss/Policy loss", "policy"}, {"Loss/Value loss", "value"}, {"Policy/Entropy", "entropy"}, {"Policy/KL", "kl"}};
  for (const auto& [tag, value] : record.losses) {
    for (const auto& [known, name] : kShown) {
      if (tag == known) view.losses.emplace_back(name, value);
    }
  }
  const std::string text = display_.Render(view, last);
  if (text.empty()) return;
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

}  // namespace troupe::services
