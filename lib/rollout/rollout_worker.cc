#include "lib/rollout/rollout_worker.h"

#include <optional>
#include <utility>

#include "lib/base/log.h"
#include "lib/base/status_macros.h"

namespace troupe::rollout {
namespace {

constexpr absl::Duration kWait = absl::Milliseconds(500);
// Of grants that are given up: a learner decides how many those are.
constexpr base::Rate kGivenUpLines = {.burst = 64, .per_second = 1};

}  // namespace

RolloutWorker::RolloutWorker(std::unique_ptr<Collector> collector, GrantSource& grants, WeightSource& weights,
                             SampleSink& sink)
    : collector_(std::move(collector)),
      grants_(grants),
      weights_(weights),
      sink_(sink),
      lines_(kGivenUpLines, &base::Clock::Real()) {}

absl::StatusOr<bool> RolloutWorker::Step(absl::Duration timeout) {
  if (!grant_.has_value()) {
    TROUPE_ASSIGN_OR_RETURN(grant_, grants_.AwaitGrant(timeout));
    if (!grant_.has_value()) return false;
  }
  const absl::Status prepared = collector_->PrepareGrant(*grant_, weights_, timeout);
  if (absl::IsDeadlineExceeded(prepared)) return false;
  const sample::Grant grant = *std::exchange(grant_, std::nullopt);
  const absl::Status status = prepared.ok() ? collector_->RunGrant(grant, weights_, sink_) : prepared;
  sink_.ReportEnvs(collector_->TakeReport());  // also of environments that brought no fragment
  if (absl::IsAborted(status)) {
    // The learner has granted its environments again. Of environments that fail it tells people itself.
    const std::optional<int64_t> left_out = lines_.Take();
    if (left_out.has_value()) {
      base::Log(collector_->gives_up() ? base::LogLevel::kInfo : base::LogLevel::kWarn,
                "grant given up grant={} reason=\"{}\" left_out={}", grant.id.value(),
                base::LogSafe(std::string(status.message())), *left_out);
    }
    return true;
  }
  TROUPE_RETURN_IF_ERROR(status);
  return true;
}

absl::Status RolloutWorker::Run() {
  while (true) {
    const absl::StatusOr<bool> worked = Step(kWait);
    if (absl::IsCancelled(worked.status())) return absl::OkStatus();
    TROUPE_RETURN_IF_ERROR(worked.status());
  }
}

}  // namespace troupe::rollout
