#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lib/env/multi_agent_env.h"
#include "lib/rollout/collector.h"
#include "lib/rollout/ports.h"
#include "lib/rollout/testing/fixed_weights.h"
#include "lib/sample/batch_schema.h"
#include "lib/sample/multi_agent_batch.h"

namespace troupe::rollout {

/// What one call of a ScriptedEnv brings; the first one of a script is the Reset.
struct ScriptedCall {
  std::vector<int> observe;
  std::map<int, float> rewards;
  std::vector<int> terminate, truncate;  ///< agents
  bool terminate_all = false;
  bool truncate_all = false;
  bool fail = false;                 ///< after everything else was written
  std::vector<int> inactive = {};    ///< agents observed with agent mask 0
  std::map<int, double> infos = {};  ///< column 0, by agent
};
/// An episode; every episode of an environment follows it.
using Script = std::vector<ScriptedCall>;

/// Which optional parts a test environment has.
struct ScriptedOptions {
  int agents = 2;
  env::StateKind state_kind = env::StateKind::kNone;
  bool action_mask = false;
  bool agent_mask = false;
  bool uint8_obs = false;
  bool continuous = false;
  int info_columns = 0;
  absl::StatusCode failure = absl::StatusCode::kInternal;  ///< of calls that fail
  bool by_callback = false;                                ///< they fail by a callback beside the environment
};

/// Everything that environments of a test brought, in order: the truth that fragments are compared with.
struct ScriptedLog {
  struct Event {
    enum class Kind { kObserve, kReward, kTerminate, kTruncate, kTerminateAll, kTruncateAll, kFail, kAction };
    Kind kind;
    uint32_t env_id, episode;
    int step;
    int slot;
    float value;
  };
  std::vector<Event> events;
};

/// Observations say whose they are: (env id, episode, step, slot). Actions: Discrete(3) or Box(2); a mask forbids
/// action (step + slot) % 3. The state is (step, slot of the observer or -1).
env::EnvSpec ScriptedSpec(const ScriptedOptions& options);
std::unique_ptr<env::MultiAgentEnv> MakeScriptedEnv(const ScriptedOptions& options, Script script,
                                                    ScriptedLog* log = nullptr);
/// Random episodes of up to 12 steps: agents appear, wait, leave and are rewarded at any time; all from the
/// EpisodeSeed.
std::unique_ptr<env::MultiAgentEnv> MakeRandomEnv(const ScriptedOptions& options, ScriptedLog* log,
                                                  double fail_probability = 0);

/// One policy for all agents, or one for each.
RolloutConfig ScriptedConfig(const ScriptedOptions& options, EnvFactory factory, int policies = 1);
sample::BatchSchema ScriptedSchema(const RolloutConfig& config);
/// Weights of every policy, the same for the same `n` and `salt`.
std::vector<policy::WeightSnapshotPtr> ScriptedWeights(const RolloutConfig& config, int64_t n,
                                                       uint64_t learner_epoch = 1, uint32_t salt = 0);
/// A grant for env ids [first, first + envs).
sample::Grant ScriptedGrant(uint32_t envs, int32_t env_steps, uint32_t first = 0);

/// Keeps what it is given, after ValidateBatch.
class CollectingSink final : public SampleSink {
 public:
  explicit CollectingSink(sample::BatchSchema schema) : schema_(std::move(schema)) {}
  absl::Status Submit(sample::MultiAgentBatchPtr fragment) override;
  std::vector<sample::MultiAgentBatchPtr> fragments;
  absl::Status next_status;  ///< returned once instead of keeping the fragment

 private:
  sample::BatchSchema schema_;
};

/// RunGrant with weights that are at hand.
inline absl::Status RunGrant(Collector& collector, const sample::Grant& grant,
                             std::vector<policy::WeightSnapshotPtr> weights, SampleSink& sink) {
  FixedWeights fixed(std::move(weights));
  return collector.RunGrant(grant, fixed, sink);
}

/// A collector, its sink and weights: what most tests need.
struct Rig {
  explicit Rig(RolloutConfig c) : config(c), sink(ScriptedSchema(c)), collector(*Collector::Create(std::move(c))) {}
  absl::Status Run(const sample::Grant& grant, int64_t version = 5, uint64_t epoch = 1) {
    return RunGrant(*collector, grant, ScriptedWeights(config, version, epoch), sink);
  }
  RolloutConfig config;
  CollectingSink sink;
  std::unique_ptr<Collector> collector;
};

/// One row with everything that belongs to it, by value.
struct SeenRow {
  uint32_t env_id = 0, episode = 0;
  int32_t slot = 0, step = 0;
  std::vector<float> obs, state;
  std::vector<uint8_t> mask;
  std::vector<int32_t> action;
  float logp = 0, reward = 0;
  bool terminated = false, truncated = false, active = true;
  int64_t version = 0;
  int32_t policy = 0;
  bool operator<(const SeenRow& other) const;
  bool operator==(const SeenRow& other) const;
};
/// All rows of `fragments`, ascending by (env, episode, slot, step). Also checks that observations, states and tables
/// of rows and final rows speak of the same agent and step.
std::vector<SeenRow> RowsOf(const std::vector<sample::MultiAgentBatchPtr>& fragments);

/// Segments as text, sorted: "env 0 ep 0 agent 1: 0(+1.5) 2(+0) cut@4 lag 0"; the number behind @ is the step of the
/// final row, "at row" when its env row is one at which agents acted.
std::vector<std::string> SegmentsOf(const sample::MultiAgentBatch& batch);

}  // namespace troupe::rollout
