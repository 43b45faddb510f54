#include "lib/run/learner/update_loop.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/run/learner/callback_facts.h"

namespace troupe::run {
namespace {

/// How long callbacks are waited for before the control handler is looked at again.
constexpr absl::Duration kLook = absl::Milliseconds(5);

/// Whether a multiple of `interval` lies in (before, now].
bool Crossed(int64_t interval, int64_t before, int64_t now) {
  return interval > 0 && now / interval > before / interval;
}

}  // namespace

int64_t UpdateLoop::env_steps() const {
  return deps_.reporter->last() ? deps_.reporter->last()->env_steps : resumed_env_steps_;
}

absl::StatusOr<learner::StepOutcome> UpdateLoop::Step(absl::Duration timeout) {
  learner::StepOutcome outcome = deps_.learner->Step(timeout);
  if (outcome.kind == learner::StepOutcome::Kind::kFailed) {
    deps_.reporter->Settle();
    return outcome;
  }
  if (outcome.kind == learner::StepOutcome::Kind::kUpdated) TROUPE_RETURN_IF_ERROR(AfterUpdate());
  TROUPE_RETURN_IF_ERROR(ServeControl());
  // Numbers that callbacks track in an update belong to its line.
  if (deps_.callbacks == nullptr || deps_.callbacks->AwaitIdle(absl::ZeroDuration())) SettleUnlessLast();
  return outcome;
}

void UpdateLoop::SettleUnlessLast() {
  if (!deps_.learner->ends()) deps_.reporter->Settle();
}

absl::Status UpdateLoop::ServeControl() {
  deps_.policies->Step();
  for (ControlHandler::CheckpointRequest& request : deps_.control->TakeCheckpointRequests()) {
    SettleUnlessLast();
    TROUPE_RETURN_IF_ERROR(Serve(std::move(request)));
  }
  return absl::OkStatus();
}

absl::Status UpdateLoop::Serve(ControlHandler::CheckpointRequest request) {
  if (request.keep > 0) {
    deps_.checkpoints->Prune(request.keep, std::move(request.done));
    return absl::OkStatus();
  }
  if (request.to.empty()) return SaveState(true, std::move(request.done));
  TROUPE_RETURN_IF_ERROR(SaveState(false, nullptr));  // or the best, which is asked for once, would be there alone
  TROUPE_ASSIGN_OR_RETURN(learner::LearnerSnapshot snapshot, deps_.learner->SnapshotState());
  deps_.checkpoints->SaveTo(std::move(snapshot.state), request.to, std::move(request.done));
  return absl::OkStatus();
}

absl::Status UpdateLoop::Tell(Hook hook, absl::FunctionRef<nlohmann::json()> facts) {
  if (deps_.callbacks == nullptr || !deps_.callbacks->Wants(hook)) return absl::OkStatus();
  const nlohmann::json told = facts();
  while (!deps_.callbacks->TryTell(hook, told)) {
    TROUPE_RETURN_IF_ERROR(ServeControl());
    deps_.callbacks->AwaitRoom(kLook);
  }
  return absl::OkStatus();
}

absl::Status UpdateLoop::EndUpdates() {
  TakeEvaluation(/*wait=*/true);
  if (deps_.callbacks != nullptr && !deps_.callbacks->AwaitIdle(absl::ZeroDuration())) {
    TROUPE_RETURN_IF_ERROR(SaveFinal(true));
  }
  return AwaitCallbacks();
}

absl::Status UpdateLoop::AwaitCallbacks() {
  while (deps_.callbacks != nullptr && !deps_.callbacks->AwaitIdle(kLook)) TROUPE_RETURN_IF_ERROR(ServeControl());
  return absl::OkStatus();
}

absl::Status UpdateLoop::SaveFinal(bool always) {
  return deps_.run->experiment.final_checkpoint ? SaveState(always, nullptr) : absl::OkStatus();
}

absl::Status UpdateLoop::SaveState(bool always, CheckpointLoop::Done done) {
  TROUPE_ASSIGN_OR_RETURN(learner::LearnerSnapshot snapshot, deps_.learner->SnapshotState());
  if (always || snapshot.is_best) {
    schedule_.NoteSaved();
    deps_.checkpoints->Save(std::move(snapshot.state), snapshot.is_best, std::move(done));
  }
  return absl::OkStatus();
}

absl::Status UpdateLoop::AfterUpdate() {
  const int64_t before = std::exchange(seen_env_steps_, env_steps());
  TROUPE_RETURN_IF_ERROR(
      Tell(Hook::kUpdateEnd, [this] { return UpdateFacts(*deps_.reporter->last(), deps_.reporter->names()); }));
  // Where training waits meanwhile, `best` is decided on the state that played the episodes.
  const bool evaluation_due = Crossed(deps_.run->evaluation.interval_env_steps, before, seen_env_steps_);
  if (deps_.run->evaluation.parallel) TROUPE_RETURN_IF_ERROR(EvaluateBeside(evaluation_due));
  const bool evaluated = evaluation_due && !deps_.run->evaluation.parallel && EvaluateInTraining();
  const bool due = schedule_.IsDue(before, seen_env_steps_);
  if (!due && !evaluated) return absl::OkStatus();
  SettleUnlessLast();
  return SaveState(due, nullptr);
}

absl::StatusOr<rollout::EvaluationResult> UpdateLoop::Evaluate() {
  TROUPE_RETURN_IF_ERROR(Tell(Hook::kEvaluationStart, [this] { return nlohmann::json{{"env_steps", env_steps()}}; }));
  absl::StatusOr<rollout::EvaluationResult> result = deps_.evaluator->Evaluate(env_steps());
  TellEvaluation(result, env_steps());
  return result;
}

void UpdateLoop::TellEvaluation(const absl::StatusOr<rollout::EvaluationResult>& result, int64_t env_steps) {
  if (deps_.callbacks == nullptr || !deps_.callbacks->Wants(Hook::kEvaluationEnd)) return;
  // Without a wait, in which a change could be made: what was played is what is saved as the best.
  deps_.callbacks->Tell(Hook::kEvaluationEnd, EvaluationFacts(result, deps_.evaluator->evaluated().get(),
                                                              deps_.reporter->names(), env_steps));
}

bool UpdateLoop::EvaluateInTraining() { return NoteEvaluation(Evaluate().status(), env_steps()); }

bool UpdateLoop::NoteEvaluation(const absl::Status& status, int64_t env_steps) {
  // One that fails costs no training. Everybody may see what is degraded, so the words of the error stay here.
  if (absl::IsCancelled(status)) {
    TROUPE_INFO("evaluation {} env_steps={}", std::string(status.message()), env_steps);
    return false;
  }
  deps_.degradations->Set("evaluation",
                          status.ok() ? "" : absl::StrCat("the evaluation at ", env_steps, " env steps failed"));
  if (!status.ok()) {
    TROUPE_WARN("evaluation failed env_steps={} error=\"{}\"", env_steps,
                base::LogSafe(std::string(status.message()), RunEvaluator::kMaxErrorChars));
  }
  return status.ok();
}

absl::Status UpdateLoop::EvaluateBeside(bool due) {
  TakeEvaluation(/*wait=*/false);
  evaluation_due_ = evaluation_due_ || due;
  if (!evaluation_due_ || deps_.evaluator->is_playing() || deps_.learner->ends()) return absl::OkStatus();
  evaluation_due_ = false;
  TROUPE_RETURN_IF_ERROR(Tell(Hook::kEvaluationStart, [this] { return nlohmann::json{{"env_steps", env_steps()}}; }));
  TROUPE_ASSIGN_OR_RETURN(learner::LearnerSnapshot snapshot, deps_.learner->SnapshotState());
  playing_ = std::move(snapshot.state);
  return deps_.evaluator->Begin(env_steps());
}

void UpdateLoop::TakeEvaluation(bool wait) {
  const std::optional<absl::StatusOr<rollout::EvaluationResult>> result = deps_.evaluator->TakeEnded(wait);
  if (!result.has_value()) return;
  learner::LearnerState state = *std::exchange(playing_, std::nullopt);
  TellEvaluation(*result, state.env_steps);
  if (!NoteEvaluation(result->status(), state.env_steps)) return;
  if (deps_.learner->Judge(&state)) deps_.checkpoints->Save(std::move(state), /*is_best=*/true);
}

}  // namespace troupe::run
