#pragma once

#include <cstdint>
#include <memory>

#include "lib/sample/batch_schema.h"
#include "lib/sample/grant.h"
#include "lib/sample/testing/batch_builder.h"
#include "lib/sample/testing/fake_rollout.h"

namespace troupe::sample {

/// A schema for tests: `num_agents` agents "agent_<i>" that all play policy "shared" (observation Box(-1, 1, [18]),
/// Discrete(5)), without masks or states, 1000 environments.
BatchSchema SimpleSchema(int32_t num_agents = 3, int64_t observation_size = 18);

/// A schema with everything: three policies (float observations with joint critic; uint8 observations with an action
/// mask; a continuous action with the global or agent state), an agent mask, infos; which states it has follows from
/// the seed.
BatchSchema RandomSchema(uint64_t seed);
/// Options of a FakeRollout that reach every kind of segment in batches of RandomSchema(seed).
FakeRolloutOptions RandomRolloutOptions(const BatchSchema& schema, uint64_t seed);

/// The schema with cores in its policies' networks: the first policy has a GRU in its actor and sequences of 1 to 6
/// decisions; actors and critics of the others a GRU, an LSTM or none, as follows from the seed.
BatchSchema WithCores(BatchSchema schema, uint64_t seed);

/// A schema whose runs have every column of the table: an action mask, an agent mask, a core, and states per
/// environment and per agent, of which an environment has one. Policy "full": Box(-1, 1, [3]), Discrete(4), an actor
/// with a GRU of 3 units and sequences of 2 decisions.
BatchSchema FullSchema();
/// A fragment with every column that runs of `schema` have, of random bytes: shapes are right, contents mean nothing.
std::shared_ptr<MultiAgentBatch> RandomColumns(const BatchSchema& schema, uint64_t seed);

/// A grant of `env_steps` steps for each of the environments 0..num_lanes-1, fresh, from version (epoch, n) and for
/// iteration n.
Grant MakeGrant(int32_t num_lanes, int32_t env_steps, policy::WeightVersion version);

/// A valid fragment of `schema`: `num_lanes` environments of `env_steps` steps each. The same arguments give the same
/// batch.
std::shared_ptr<MultiAgentBatch> MakeBatch(const BatchSchema& schema, const FakeRolloutOptions& options,
                                           int32_t num_lanes, int32_t env_steps, policy::WeightVersion version = {});
/// The same with RandomRolloutOptions(schema, seed) and a size that follows from the seed.
std::shared_ptr<MultiAgentBatch> RandomBatch(const BatchSchema& schema, uint64_t seed,
                                             policy::WeightVersion version = {});

}  // namespace troupe::sample
