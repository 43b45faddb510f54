#include "lib/learner/grant_limit.h"

#include <algorithm>

namespace troupe::learner {

void GrantLimit::Delivered(absl::Duration took) {
  took_.push_back(took);
  if (took_.size() > kRemembered) took_.pop_front();
}

absl::Duration GrantLimit::Of(int64_t env_steps) const {
  if (timeout_.fixed > absl::ZeroDuration()) return timeout_.fixed;
  if (took_.empty()) return std::min(kLongest, timeout_.first + env_steps * timeout_.first_per_env_step);
  return std::clamp(kFactor * *std::max_element(took_.begin(), took_.end()), kShortest, kLongest);
}

}  // namespace troupe::learner
