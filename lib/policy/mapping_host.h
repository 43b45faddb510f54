#pragma once

#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "lib/base/ids.h"
#include "lib/policy/ids.h"

namespace troupe::policy {

struct EpisodeInfo;

/// What a mapping function in another process is asked: all of it by name. Borrowed for the call.
struct HostedQuestion {
  std::string_view function;  ///< "python:MODULE:NAME"
  const base::AgentId& agent_id;
  const EpisodeInfo& episode;
  absl::Span<const PolicyId> policies = {};  ///< it chooses from these
  /// The episode's agents that have their policies, in the order of their slots.
  absl::Span<const std::pair<std::string_view, std::string_view>> mapped = {};
};

/// Asks mapping functions that live in another process. Thread-safe; blocks until there is an answer.
class MappingHost {
 public:
  virtual ~MappingHost() = default;
  /// The id that it answered, which is not checked. Errors are the function's, or its process's.
  virtual absl::StatusOr<PolicyId> Ask(const HostedQuestion& question) = 0;
};

}  // namespace troupe::policy
