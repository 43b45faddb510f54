#include "lib/run/watched_evaluation.h"

#include <optional>
#include <thread>

#include "absl/strings/str_cat.h"
#include "lib/base/await.h"
#include "lib/base/mutex.h"

namespace troupe::run {
namespace {

constexpr absl::Duration kLook = absl::Milliseconds(50);
/// For calls of environments in Python to return.
constexpr absl::Duration kGrace = absl::Milliseconds(500);
constexpr char kRemedy[] = "env.max_episode_steps ends the episodes of a task without an end";

std::string Count(const EvaluationProgress& progress) {
  return absl::StrCat(progress.ended, " of ", progress.episodes, " episodes");
}

/// Why the evaluation is to end now. `pause`: since an episode ended, or since it began.
absl::Status WhyEnd(const EvaluationWatch& watch, const EvaluationProgress& progress, absl::Duration pause) {
  if (watch.interrupted && watch.interrupted()) {
    return absl::CancelledError(absl::StrCat("interrupted after ", Count(progress)));
  }
  const std::string remedy = progress.ended == 0 ? absl::StrCat("; ", kRemedy) : "";
  if (progress.since >= watch.options.time_limit) {
    return absl::DeadlineExceededError(absl::StrCat("evaluation.time_limit_s (",
                                                    absl::FormatDuration(watch.options.time_limit), ") is over after ",
                                                    Count(progress), remedy));
  }
  if (pause >= watch.options.longest_pause) {
    return absl::DeadlineExceededError(absl::StrCat("given up after ", Count(progress), ": none has ended for ",
                                                    absl::FormatDuration(watch.options.longest_pause), remedy,
                                                    ", evaluation.time_limit_s bounds an evaluation, 0: not at all"));
  }
  return absl::OkStatus();
}

}  // namespace

std::string EvaluationProgress::Text() const {
  const std::string text = absl::StrCat("evaluating, ", Count(*this));
  return sees_no_end() ? absl::StrCat(text, ": none has ended yet; if none can, ", kRemedy) : text;
}

absl::StatusOr<rollout::EvaluationResult> PlayWatched(
    const EvaluationWatch& watch, rollout::EvaluationRequest request,
    absl::FunctionRef<absl::StatusOr<rollout::EvaluationResult>(const rollout::EvaluationRequest&)> play) {
  std::atomic<bool> cancelled{false};
  std::atomic<int64_t> ended{0};
  request.cancelled = &cancelled;
  request.ended = &ended;
  base::Mutex mutex;
  base::CondVar changed;
  std::optional<absl::StatusOr<rollout::EvaluationResult>> result;
  std::thread player([&] {
    absl::StatusOr<rollout::EvaluationResult> played = play(request);
    base::MutexLock lock(&mutex);
    result = std::move(played);
    changed.NotifyAll();
  });

  const absl::Duration began = watch.clock->SteadyNow();
  EvaluationProgress progress{.ended = 0, .episodes = request.episodes};
  absl::Duration last_end = absl::ZeroDuration();
  absl::Status why;
  std::optional<base::Deadline> grace;
  while (true) {
    {
      base::MutexLock lock(&mutex);
      if (base::Await(changed, &mutex, base::Deadline::After(kLook), [&] { return result.has_value(); })) break;
    }
    progress.since = watch.clock->SteadyNow() - began;
    if (const int64_t now = ended.load(std::memory_order_relaxed); now != progress.ended) {
      progress.ended = now;
      last_end = progress.since;
    }
    if (watch.tell) watch.tell(progress);
    if (!grace) {
      why = WhyEnd(watch, progress, progress.since - last_end);
      if (why.ok()) continue;
      cancelled.store(true, std::memory_order_relaxed);
      grace = base::Deadline::After(kGrace);
    } else if (grace->passed() && watch.abandoned != nullptr) {
      watch.abandoned->store(true, std::memory_order_relaxed);
    }
  }
  player.join();
  if (watch.abandoned != nullptr) watch.abandoned->store(false, std::memory_order_relaxed);
  if (!result->ok() && !why.ok()) return why;
  return *std::move(result);
}

}  // namespace troupe::run
