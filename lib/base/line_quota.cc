#include "lib/base/line_quota.h"

#include <utility>

#include "lib/base/log.h"

namespace troupe::base {
namespace {

// Two lines for each of the workers that a learner takes.
constexpr Rate kPeerLines = {.burst = 2048, .per_second = 1};

}  // namespace

LineQuota::LineQuota(const Rate& rate, const Clock* clock) : clock_(clock), lines_(rate, clock->SteadyNow()) {}

std::optional<int64_t> LineQuota::Take() {
  const absl::Duration now = clock_->SteadyNow();
  MutexLock lock(&mutex_);
  if (lines_.Take(now)) return std::exchange(left_out_, 0);
  ++left_out_;
  return std::nullopt;
}

bool MayTellOfPeer() {
  static LineQuota quota(kPeerLines, &Clock::Real());
  const std::optional<int64_t> left_out = quota.Take();
  if (left_out.value_or(0) > 0) TROUPE_WARN("lines about peers were left out lines={}", *left_out);
  return left_out.has_value();
}

}  // namespace troupe::base
