#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "lib/learner/progress.h"
#include "lib/policy/ids.h"
#include "lib/rpc/door/door_counts.h"

namespace troupe::rpc {

/// A worker that is connected. Plain value.
struct ConnectedWorker {
  learner::WorkerStatus worker;  ///< `gets_no_work` is empty, too, where its words are not told
  std::string name;              ///< empty where it is not told
  bool gets_no_work = false;
};

/// How a policy of the run does. Plain value.
struct PolicyStatus {
  policy::PolicyId id;
  policy::WeightVersion version;  ///< published
  bool trains = false;
  /// Of the last 100 episodes, the returns of the agents that it played: how many, and what they came to where there
  /// are any.
  int64_t return_count = 0;
  double return_mean = 0;
  double return_min = 0;
  double return_max = 0;
  learner::RowCounters rows;  ///< in this learner epoch
  /// The numbers that it explores with, as of its last update (policy::WeightSnapshot::exploration).
  std::map<std::string, double, std::less<>> exploration = {};
};

/// Everything that Monitor.Status tells. Made by LearnerBinding, which fills in what the learner knows, and completed
/// by who runs the learner; or read from the wire, where nothing is sure to make sense. Plain value.
struct RunStatus {
  std::string build_version;
  std::string run_name;
  learner::LearnerStatus learner;  ///< without its workers
  std::vector<ConnectedWorker> workers;
  std::vector<std::string> degraded;   ///< what does not work at the moment, in words without paths
  std::vector<PolicyStatus> policies;  ///< by policy slot; those that are there
  std::vector<DoorCount> door;         ///< connections over TCP that were closed, and calls that were refused
};

}  // namespace troupe::rpc
