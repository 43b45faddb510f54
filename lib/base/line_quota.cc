#include "lib/base/line_quota.h"

#include <algorithm>
#include <utility>

#include "lib/base/log.h"

namespace troupe::base {
namespace {

// Two lines for each of the workers that a learner takes.
constexpr double kPeerLines = 2048;
constexpr double kPeerLinesPerSecond = 1;

}  // namespace

LineQuota::LineQuota(double burst, double per_second, const Clock* clock)
    : burst_(burst), per_second_(per_second), clock_(clock), level_(burst), at_(clock->SteadyNow()) {}

std::optional<int64_t> LineQuota::Take() {
  const absl::Duration now = clock_->SteadyNow();
  MutexLock lock(&mutex_);
  level_ = std::min(burst_, level_ + per_second_ * absl::ToDoubleSeconds(now - at_));
  at_ = now;
  if (level_ < 1) {
    ++left_out_;
    return std::nullopt;
  }
  level_ -= 1;
  return std::exchange(left_out_, 0);
}

bool MayTellOfPeer() {
  static LineQuota quota(kPeerLines, kPeerLinesPerSecond, &Clock::Real());
  const std::optional<int64_t> left_out = quota.Take();
  if (left_out.value_or(0) > 0) TROUPE_WARN("lines about peers were left out lines={}", *left_out);
  return left_out.has_value();
}

}  // namespace troupe::base
