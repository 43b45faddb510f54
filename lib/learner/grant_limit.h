#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>

#include "absl/time/time.h"
#include "lib/learner/learner_options.h"

namespace troupe::learner {

/// How long a grant may be out, before anything is known of its worker. Automatic: ten times the slowest of the grants
/// that were delivered last, within a minute and ten; before the first one, what GrantTimeout says. Not thread-safe;
/// has no clock.
class GrantLimit {
 public:
  static constexpr absl::Duration kShortest = absl::Seconds(60);
  static constexpr absl::Duration kLongest = absl::Seconds(600);
  static constexpr int64_t kFactor = 10;
  static constexpr size_t kRemembered = 100;

  explicit GrantLimit(const GrantTimeout& timeout) : timeout_(timeout) {}

  /// A grant was delivered whole, so long after it was sent.
  void Delivered(absl::Duration took);
  /// Of a grant of so many env steps.
  absl::Duration Of(int64_t env_steps) const;

 private:
  const GrantTimeout timeout_;
  std::deque<absl::Duration> took_;  ///< of the last kRemembered
};

}  // namespace troupe::learner
