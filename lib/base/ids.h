#pragma once

#include <cstdint>
#include <string>

#include "lib/base/strong_id.h"

// Ids that every folder speaks of, from environments to the learner. Those of policies stand in lib/policy/ids.h, those
// of grants and workers in lib/sample/ids.h.

namespace troupe::base {

/// Name of an agent, as the environment gives it ("agent_0").
using AgentId = StrongId<struct AgentIdTag, std::string>;
/// Dense index of an agent: its place in EnvSpec::possible_agents.
using AgentSlot = StrongId<struct AgentSlotTag, int32_t>;
/// Global environment id, of the run.
using EnvId = StrongId<struct EnvIdTag, uint32_t>;

}  // namespace troupe::base
