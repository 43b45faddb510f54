#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lib/space/space.h"

namespace troupe::outside {

/// How a trajectory ends, or an episode.
enum class End : uint8_t {
  kNone = 0,        ///< it goes on
  kTerminated = 1,  ///< by the task
  kTruncated = 2,   ///< by a limit
};

/// What an agent does, as clients say and hear it: words in the order of the action space.
struct ClientAction {
  std::vector<int32_t> discrete;
  std::vector<float> continuous;
  std::optional<float> logp;  ///< nats
};

/// What a client reports of one agent in one step. Unchecked.
struct AgentReport {
  std::string agent;
  std::vector<float> observation;  ///< flattened; empty: none
  std::string image;               ///< in its place, of a uint8 Box
  std::string action_mask;         ///< a byte for each category
  double reward = 0;
  End end = End::kNone;
  std::optional<ClientAction> action;  ///< that it decided by itself

  bool observed() const { return !observation.empty() || !image.empty(); }
};

/// One step of an episode, as its client reports it. Unchecked.
struct StepReport {
  std::vector<AgentReport> agents;
  std::vector<float> state;
  uint64_t weights = 0;  ///< that decided its actions, as ActingPolicies numbers them; 0: not said
};

/// Of one agent, in answer to a step.
struct AgentAction {
  std::string agent;
  ClientAction action;
};

}  // namespace troupe::outside
