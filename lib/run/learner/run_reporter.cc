#include "lib/run/learner/run_reporter.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/base/process_memory.h"
#include "lib/base/status_macros.h"
#include "lib/base/terminal_abilities.h"
#include "lib/base/terminal_block.h"
#include "lib/learner/stop_conditions.h"
#include "lib/run/evaluation.h"
#include "lib/run/learner/run_summary.h"

namespace troupe::run {
namespace {

struct TerminalSize {
  int columns = 80;
  int rows = 0;
};

/// nullopt where stdout is no terminal, or one that does not say.
std::optional<TerminalSize> SizeOfTerminal() {
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return std::nullopt;
  return TerminalSize{size.ws_col, size.ws_row};
}

telemetry::ProgressDisplay::Options DisplayOptions() {
  telemetry::ProgressDisplay::Options options;
  options.is_terminal = ::isatty(STDOUT_FILENO) == 1;
  options.has_unicode = base::TerminalAbilities::OfProcess().unicode;
  return options;
}

double OrNaN(const std::optional<double>& value) { return value.value_or(std::numeric_limits<double>::quiet_NaN()); }

/// Policies, and agents, that the display has by name.
constexpr size_t kMostShown = ToldReturns::kFew;

/// Empty when each policy that was to be trained learned something.
std::string LearnsNothing(const learner::ProgressRecord& record) {
  if (record.policies == nullptr) return "";
  int skipped = 0;
  for (const learner::PolicyUpdateReport& report : *record.policies) {
    skipped += report.skipped_steps > 0 && report.minibatch_steps == 0 ? 1 : 0;
  }
  if (skipped == 0) return "";
  return absl::StrCat("the last update changed nothing in ", skipped, " of ", record.policies->size(),
                      " policies: losses or gradients are not finite");
}

/// CallbackHost::TakeValues always has it.
constexpr std::string_view kCallbackErrors = "callback_errors";

using Fields = std::vector<std::pair<std::string, double>>;

/// `key`_min and `key`_max; nothing of no values.
void AppendSpread(const std::string& key, const learner::Spread& spread, Fields* fields) {
  if (spread.empty()) return;
  fields->emplace_back(absl::StrCat(key, "_min"), spread.min);
  fields->emplace_back(absl::StrCat(key, "_max"), spread.max);
}

/// Losses of an update, as people call them.
telemetry::ProgressView::Losses ShownLosses(absl::Span<const std::pair<std::string, double>> metrics) {
  constexpr std::pair<std::string_view, const char*> kShown[] = {
      {"Loss/Policy loss", "policy"}, {"Loss/Value loss", "value"}, {"Policy/Entropy", "entropy"}, {"Policy/KL", "kl"}};
  telemetry::ProgressView::Losses losses;
  for (const auto& [tag, value] : metrics) {
    for (const auto& [known, name] : kShown) {
      if (tag == known) losses.emplace_back(name, value);
    }
  }
  return losses;
}

telemetry::ProgressView::Returns ShownReturns(std::string name, const learner::Spread& returns) {
  return {std::move(name), returns.mean(), returns.min, returns.max};
}

/// Those with a name, and the others as one.
std::vector<telemetry::ProgressView::Returns> ShownReturns(const learner::ReturnsByName& returns) {
  std::vector<telemetry::ProgressView::Returns> shown;
  for (const learner::NamedReturns& named : returns.named) shown.push_back(ShownReturns(named.name, named.returns));
  if (!returns.others.empty()) {
    shown.push_back(ShownReturns(absl::StrCat(returns.others.size(), " others"), returns.rest));
  }
  return shown;
}

}  // namespace

RunReporter::RunReporter(const config::ResolvedRun& run, std::string run_name, Deps deps)
    : run_name_(std::move(run_name)),
      interval_env_steps_(run.experiment.write_interval_env_steps),
      longest_pause_(run.experiment.longest_write_pause),
      stop_(run.stop),
      deps_(std::move(deps)),
      display_(DisplayOptions()),
      names_(run.agent_ids()),
      written_at_(deps_.clock->SteadyNow()) {}

absl::StatusOr<std::unique_ptr<RunReporter>> RunReporter::Open(const config::ResolvedRun& run,
                                                               const std::string& run_name,
                                                               const std::string& directory, int64_t resumed_env_steps,
                                                               Deps deps) {
  auto reporter = std::unique_ptr<RunReporter>(new RunReporter(run, run_name, std::move(deps)));
  reporter->written_env_steps_ = resumed_env_steps;
  if (reporter->interval_env_steps_ > 0) {
    TROUPE_ASSIGN_OR_RETURN(reporter->tensorboard_, telemetry::TensorBoardWriter::Open(directory));
    TROUPE_ASSIGN_OR_RETURN(reporter->lines_,
                            telemetry::JsonLinesWriter::Open(directory + "/progress.jsonl", resumed_env_steps));
  }
  return reporter;
}

bool RunReporter::IsDue(int64_t env_steps) {
  // One answer for all that an update tells.
  if (env_steps == std::exchange(decided_env_steps_, env_steps)) return due_;
  due_ = interval_env_steps_ > 0 && (env_steps / interval_env_steps_ > written_env_steps_ / interval_env_steps_ ||
                                     deps_.clock->SteadyNow() - written_at_ >= longest_pause_);
  return due_;
}

void RunReporter::Scalar(std::string_view tag, double value, int64_t env_steps) {
  if (IsDue(env_steps)) tensorboard_->Scalar(tag, value, env_steps);
}

void RunReporter::Flush() { FlushAll(); }

void RunReporter::TellFilms() {
  if (!deps_.films) return;
  for (const Film& film : deps_.films()) {
    if (tensorboard_ != nullptr) {
      tensorboard_->Image("Videos_Test", film.width, film.height, film.gif, film.env_steps);
    }
  }
}

void RunReporter::FlushAll() {
  if (lines_ == nullptr) return;
  tensorboard_->Flush();
  lines_->Flush();
  deps_.degradations->Set("progress.jsonl", lines_->Degraded());
  deps_.degradations->Set("TensorBoard", tensorboard_->Degraded());
}

void RunReporter::OnProgress(const learner::ProgressRecord& record) {
  Settle();
  last_ = record;
  last_written_ = false;
  names_.Add(record);
  deps_.degradations->Set("updates", LearnsNothing(record));
  deps_.degradations->Set("rows", absl::StrJoin(record.losing_rows, ". "));
  if (IsDue(record.env_steps)) {
    held_ = true;
    written_env_steps_ = record.env_steps;
    written_at_ = deps_.clock->SteadyNow();
  }
  TellFilms();
  FlushAll();
  Display(record, false);
}

void RunReporter::OnEvaluation(const rollout::EvaluationResult& evaluation, const policy::PolicyTable& table,
                               int64_t env_steps, const std::vector<std::pair<std::string, double>>& tracked) {
  const learner::EpisodeStats stats = StatsOf(evaluation, table.num_slots());
  std::vector<learner::NamedValue> named = names_.OfEvaluation(stats, table);
  for (const auto& [name, mean] : tracked) named.push_back({absl::StrCat("evaluation/Custom/", name), "", mean});
  evaluation_.values.clear();
  for (const learner::NamedValue& value : named) evaluation_.values.emplace_back(value.key, value.value);
  evaluation_.is_new = true;
  held_ = true;
  evaluation_.env_steps = env_steps;
  evaluation_.shown.clear();
  if (last_ && last_->rewards_differ) {
    for (const telemetry::ProgressView::Returns& policy : ShownReturns(names_.Policies(stats, table, kMostShown))) {
      if (policy.mean) evaluation_.shown.emplace_back(policy.name, *policy.mean);
    }
  } else {
    evaluation_.shown.emplace_back("return", evaluation.return_sum.mean);
  }
  if (tensorboard_ == nullptr) return;
  tensorboard_->Scalar("Test-Results/Episode-Rewards/Mean-Score", evaluation.return_sum.mean, env_steps);
  tensorboard_->Scalar("Test-Results/Episode-Rewards/Std-Score", evaluation.return_sum.std, env_steps);
  for (const learner::NamedValue& value : named) {
    tensorboard_->Scalar(value.key, value.value, env_steps);
    if (!value.tag.empty()) tensorboard_->Scalar(value.tag, value.value, env_steps);
  }
  FlushAll();
}

void RunReporter::Settle() {
  if (!std::exchange(held_, false) || !last_ || lines_ == nullptr) return;
  TakeTracked();
  WriteLine(*last_);
  FlushAll();
}

bool RunReporter::TakeTracked() {
  if (!deps_.tracked) return false;
  for (learner::NamedValue& value : deps_.tracked()) tracked_.push_back(std::move(value));
  return std::any_of(tracked_.begin(), tracked_.end(), [this](const learner::NamedValue& value) {
    return value.key != kCallbackErrors || value.value != callback_errors_;
  });
}

void RunReporter::OnSettings(const policy::SetPolicy& set) {
  for (const std::string& setting : set.settings) settings_.push_back(absl::StrCat(set.id.value(), " ", setting));
  held_ = true;
}

void RunReporter::OnEvaluating(const EvaluationProgress& progress) {
  if (last_) Display(*last_, false, &progress);
}

void RunReporter::Finish() {
  if (!last_) return;
  TellFilms();
  if (lines_ != nullptr && (TakeTracked() || held_ || !last_written_)) WriteLine(*last_);
  held_ = false;
  FlushAll();
  Display(*last_, true);
}

const base::ProcessMemory& RunReporter::Memory() {
  const absl::Duration now = deps_.clock->SteadyNow();
  if (now - memory_at_ >= kMemoryInterval) {
    memory_ = base::ProcessMemory::Now();
    memory_at_ = now;
  }
  return memory_;
}

void RunReporter::WriteLine(const learner::ProgressRecord& record) {
  const base::ProcessMemory memory = Memory();
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
      {"rewards_differ", record.rewards_differ},
      {"best_return", OrNaN(record.best)},
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
      {"rows_aged", record.rows.aged},
      {"rows_waited", record.rows.waited},
      {"rows_rolled_back", record.rows.rolled_back},
      {"expired_grants", record.expired_grants},
      {"connections_closed", deps_.door == nullptr ? 0 : deps_.door->num_closed()},
      {"calls_refused", deps_.door == nullptr ? 0 : deps_.door->num_refused()},
      {"rss_bytes", memory.rss_bytes},
      {"heap_bytes", memory.heap_bytes},
  };
  for (const sample::EnvCounterField& field : sample::kEnvCounterFields) {
    fields.push_back({field.key, record.env_counters.*field.value});
  }
  for (const auto& [age, rows] : record.waited_ages.Filled()) {
    fields.push_back({absl::StrCat("rows_waited_age_", age), rows});
  }
  if (!settings_.empty()) fields.emplace_back("settings", absl::StrJoin(std::exchange(settings_, {}), "; "));
  for (const auto& [tag, value] : record.losses) fields.emplace_back(tag, value);
  Fields more;
  AppendSpread("return_sum", record.window.return_sum, &more);
  AppendSpread("episode_length", record.window.length, &more);
  std::vector<learner::NamedValue> named = names_.TakeLine(record);
  for (learner::NamedValue& value : std::exchange(tracked_, {})) {
    if (value.key == kCallbackErrors) callback_errors_ = value.value;
    named.push_back(std::move(value));
  }
  more.reserve(more.size() + named.size());
  for (learner::NamedValue& value : named) {
    if (!value.tag.empty()) tensorboard_->Scalar(value.tag, value.value, record.env_steps);
    if (!value.key.empty()) more.emplace_back(std::move(value.key), value.value);
  }
  fields.reserve(fields.size() + more.size() + evaluation_.values.size());
  for (auto& [key, value] : more) fields.emplace_back(std::move(key), value);
  if (std::exchange(evaluation_.is_new, false)) {
    if (evaluation_.env_steps != record.env_steps) fields.emplace_back("evaluation_env_steps", evaluation_.env_steps);
    for (const auto& [key, value] : evaluation_.values) fields.emplace_back(key, value);
  }
  lines_->Write(fields);
  last_written_ = true;
}

telemetry::ProgressView RunReporter::View(const learner::ProgressRecord& record) const {
  telemetry::ProgressView view;
  view.run_name = run_name_;
  view.env_steps = record.env_steps;
  view.target_env_steps = stop_.env_steps;
  const absl::Duration wall_clock = absl::Seconds(record.wall_clock_s);
  const learner::RunEnd end = learner::NearestEnd(stop_, {record.env_steps, record.agent_steps, record.updates},
                                                  wall_clock, record.env_steps_per_s);
  view.has_end =
      stop_.env_steps > 0 || stop_.agent_steps > 0 || stop_.updates > 0 || stop_.wall_clock > absl::ZeroDuration();
  view.fraction = end.fraction;
  view.left = end.left;
  view.updates = record.updates;
  view.env_steps_per_s = record.env_steps_per_s;
  view.elapsed = wall_clock;
  view.return_sum = record.return_sum;
  view.return_mean = record.return_mean;
  view.best_by = record.best_by;
  view.best = record.best;
  view.by_policy = record.rewards_differ;
  if (record.table != nullptr && (record.rewards_differ || record.table->num_slots() > 1)) {
    const learner::ReturnsByName policies = names_.Policies(record.window, *record.table, kMostShown);
    view.policies = ShownReturns(policies);
    for (size_t i = 0; i < policies.named.size() && record.table->num_slots() > 1; ++i) {
      const policy::PolicySlot slot(policies.named[i].slot);
      if (const learner::PolicyUpdateReport* const update = names_.LastUpdateOf(slot)) {
        view.policies[i].losses = ShownLosses(update->metrics);
      }
    }
  }
  if (record.rewards_differ) view.agents = ShownReturns(names_.Agents(record.window, kMostShown));
  view.evaluation = evaluation_.shown;
  view.evaluation_env_steps = evaluation_.env_steps;
  view.losses = ShownLosses(record.losses);
  for (const auto& [tag, value] : record.losses) {
    if (tag == "Policy/Learning rate") view.learning_rate = value;
  }
  view.policy_lag = record.policy_lag;
  view.workers = record.workers;
  view.failed_episodes = record.env_counters.errors;
  view.rows_aged = record.rows.aged;
  view.rows_let_go = record.rows.dropped - record.rows.aged;
  view.degraded = deps_.degradations->List();
  view.interrupted = deps_.interrupted && deps_.interrupted();
  return view;
}

void RunReporter::Display(const learner::ProgressRecord& record, bool last, const EvaluationProgress* evaluating) {
  const bool no_best = record.rewards_differ && record.best_by.empty() && !told_no_best_;
  told_no_best_ = told_no_best_ || no_best;
  // What is not shown is not put into words either.
  const absl::Duration evaluated = evaluating == nullptr ? absl::ZeroDuration() : evaluating->since;
  if (!no_best && !display_.IsDue(absl::Seconds(record.wall_clock_s) + evaluated, last)) return;
  telemetry::ProgressView view = View(record);
  view.elapsed += evaluated;
  if (evaluating != nullptr) view.evaluating = evaluating->Text();
  if (no_best) view.notes.push_back(std::string(kNoBest));
  if (const std::optional<TerminalSize> size = SizeOfTerminal()) display_.Resize(size->columns, size->rows);
  const std::string text = display_.Render(view, last);
  if (text.empty()) return;
  base::TerminalBlock::OfProcess().Draw(text, display_.standing(), deps_.interrupted);
}

}  // namespace troupe::run
