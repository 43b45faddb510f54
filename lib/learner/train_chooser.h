#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "lib/policy/ids.h"

namespace troupe::learner {

/// What is in a train batch, without its arrays. Plain value.
struct BatchFacts {
  /// A policy that an update would change.
  struct Policy {
    policy::PolicyId id;
    int64_t rows = 0;                                          ///< agent steps
    std::vector<std::pair<std::string, int64_t>> agents = {};  ///< that it played, in slots' order, with their rows
  };
  int64_t updates = 0;    ///< before this one
  int64_t env_steps = 0;  ///< of the batch
  std::vector<Policy> policies = {};
  std::set<policy::PolicyId> active = {};  ///< policies of the run, also those that are not in the batch
  std::vector<std::pair<std::string, double>> infos = {};  ///< by info column, means of the episodes that ended in it
};

/// Says who trains on a batch: a `policies_to_train` that is asked for each. Called on the update thread between a
/// batch and its update, and answers within a moment but for policies that it has never been asked for.
class TrainChooser {
 public:
  virtual ~TrainChooser() = default;
  /// One entry for each of batch.policies: whether the update changes it.
  virtual std::vector<bool> Choose(const BatchFacts& batch) = 0;
};

}  // namespace troupe::learner
