#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace troupe::services {

/// A learner that a person names on a command line.
struct LearnerTarget {
  std::string address;  ///< to connect to; empty: nobody trains the run in `folder` now
  std::string folder;   ///< the run's; empty where an address was given
};

/// An address (unix:PATH or HOST:PORT) as it is; a run folder, or a run's name inside `directory`: the address that its
/// learner wrote down. NOT_FOUND when it is neither.
absl::StatusOr<LearnerTarget> FindLearner(const std::string& target, const std::string& directory);

/// The same of a learner that runs. FAILED_PRECONDITION when nobody trains the run.
absl::StatusOr<std::string> FindLearnerAddress(const std::string& target, const std::string& directory);

}  // namespace troupe::services
