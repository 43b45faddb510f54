#pragma once

#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "lib/sample/env_report.h"

namespace troupe::rollout {

/// What makes two errors one kind: their words without numbers, which are those of episodes, steps, values and places
/// in memory. At most EnvIncident::kMaxKindBytes.
std::string KindOf(std::string_view message);

/// What went wrong in the environments of a worker, the first of each kind, of at most EnvIncident::kMostKinds kinds;
/// others are only counted, elsewhere. Not thread-safe.
class IncidentLog {
 public:
  /// A call failed. Whether it is told of.
  bool AddFailure(const absl::Status& status);
  /// An agent observed something outside its space. Whether it is told of.
  bool AddOutsideSpace(std::string_view agent, std::string_view message);

  /// What was added and not taken yet.
  std::vector<sample::EnvIncident> Take() { return std::exchange(news_, {}); }

 private:
  bool Add(sample::EnvIncident::What what, std::string kind, std::string_view message, std::string_view traceback);

  std::set<std::pair<sample::EnvIncident::What, std::string>> kinds_;
  std::vector<sample::EnvIncident> news_;
};

}  // namespace troupe::rollout
