#include "lib/run/learner/run_end.h"

#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/run/evaluation.h"
#include "lib/storage/file_system.h"

namespace troupe::run {

RunEnd::RunEnd(const Deps& deps, const std::string& name, const std::string& directory) : deps_(deps) {
  summary_.run_name = name;
  summary_.directory = directory;
}

absl::Status RunEnd::Conclude(const learner::StepOutcome& outcome, bool evaluate) {
  kind_ = outcome.kind;
  summary_.reason = outcome.reason;
  // What comes from here on, an evaluation, a checkpoint and goodbyes, is no training: no rate is to suffer from it.
  wall_clock_s_ = deps_.learner->Status().progress.wall_clock_s;
  // Before the evaluation, which may take longer than a batch system waits.
  TROUPE_RETURN_IF_ERROR(deps_.updates->SaveFinal(true));
  if (!evaluate) return absl::OkStatus();
  absl::StatusOr<rollout::EvaluationResult> evaluation = deps_.updates->Evaluate();
  if (!evaluation.ok()) {
    // What was trained is there all the same.
    summary_.evaluation_error = base::LogSafe(std::string(evaluation.status().message()), RunEvaluator::kMaxErrorChars);
    return absl::OkStatus();
  }
  summary_.evaluation = *std::move(evaluation);
  summary_.evaluation_values = deps_.reporter->evaluation_values();
  summary_.evaluation_cut = deps_.evaluator->CutTextOf(*summary_.evaluation);
  summary_.deterministic = deps_.evaluator->deterministic();
  // Where agents play against each other, both sides would change.
  if (!deps_.learner->Status().progress.rewards_differ) {
    absl::StatusOr<rollout::EvaluationResult> other = deps_.evaluator->Play(!summary_.deterministic);
    if (other.ok()) summary_.other_actions = *std::move(other);
  }
  return deps_.updates->SaveFinal(false);  // it may be the best now
}

absl::Status RunEnd::Tell() {
  deps_.reporter->Finish();
  // The last streams may still have been counted.
  const learner::LearnerStatus status = deps_.learner->Status();
  summary_.progress = status.progress;
  summary_.progress.policy_rows = status.policy_rows;
  summary_.progress.wall_clock_s = wall_clock_s_;
  if (summary_.progress.table != nullptr) {
    summary_.returns = Told(deps_.reporter->names(), summary_.progress.window, *summary_.progress.table);
  }
  if (summary_.evaluation) {
    const policy::PolicyTable& evaluated = *deps_.evaluator->evaluated();
    summary_.evaluation_returns =
        Told(deps_.reporter->names(), StatsOf(*summary_.evaluation, evaluated.num_slots()), evaluated);
  }
  summary_.degraded = deps_.degradations->List();
  const absl::Status told = storage::ReplaceFile(storage::FileSystem::Posix(), summary_.directory + "/summary.json",
                                                 SummaryJson(summary_) + "\n");
  const std::string text = SummaryText(summary_);
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
  const std::string unsaved = deps_.checkpoints->last_error();
  if (!unsaved.empty()) return absl::DataLossError(absl::StrCat("the last checkpoint was not written: ", unsaved));
  TROUPE_RETURN_IF_ERROR(told);
  if (kind_ == learner::StepOutcome::Kind::kEnvsFailed) {
    const int64_t env_steps = deps_.updates->env_steps();
    return absl::AbortedError(
        absl::StrCat(summary_.reason, "; --resume ", summary_.directory,
                     env_steps == 0 ? " begins again" : absl::StrCat(" goes on from ", env_steps, " env steps")));
  }
  if (kind_ == learner::StepOutcome::Kind::kNothingTrained) {
    return absl::AbortedError(absl::StrCat(summary_.reason, "; a resume cannot change these keys: --warm-start ",
                                           summary_.directory, " starts another run with the weights of this one"));
  }
  return absl::OkStatus();
}

absl::Status UpdateFailed(const absl::Status& why, const std::string& unsaved, int64_t env_steps,
                          const std::string& directory) {
  const std::string rest = unsaved.empty()
                               ? absl::StrCat("; the policies are as they were before this update, saved at ",
                                              env_steps, " env steps: --resume ", directory, " goes on from there")
                               : absl::StrCat("; and the last checkpoint was not written: ", unsaved);
  return absl::Status(why.code(), absl::StrCat("an update failed: ", std::string(why.message()), rest));
}

}  // namespace troupe::run
