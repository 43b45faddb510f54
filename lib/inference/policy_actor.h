#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "lib/base/ids.h"
#include "lib/policy/policy_fwd.h"
#include "lib/policy/weight_snapshot.h"
#include "lib/space/space.h"

namespace troupe::inference {

/// Whose decision a row is: the counter of its random numbers, and the slot of its agent-id one-hot.
struct RowKey {
  base::EnvId env_id;
  uint32_t episode = 0;
  base::AgentSlot slot;
  uint32_t env_step = 0;  ///< steps of the episode before this decision
};
static_assert(sizeof(RowKey) == 16);

/// Rows to act for; memory belongs to the caller.
struct ActInput {
  int64_t rows = 0;
  const void* obs = nullptr;             ///< [rows, observation_size] of the observation space's flat_dtype
  const uint8_t* action_mask = nullptr;  ///< [rows, mask_size]; needed exactly when the policy has a mask
  const RowKey* keys = nullptr;          ///< [rows]
  bool deterministic = false;            ///< the distribution's mode instead of a sample
  /// [rows, actor_state_size]: what the policy remembers of each row's agent, zeros at the first decision of its
  /// episode. Ignored where that is none. An actor itself remembers nothing.
  const float* state_in = nullptr;
  /// The same after this decision; may be state_in, and is else not read. After an error it holds anything.
  float* state_out = nullptr;
  /// Of these samples, in the place of the actor's own. An actor that runs elsewhere draws by its own.
  const uint64_t* seed = nullptr;
  /// Where not nullptr: gets the last layer's outputs, [rows, actor_output_size], the logits of discrete leaves first.
  /// Written by actors with networks alone.
  float* outputs = nullptr;
  bool explores = false;  ///< as the weights say, where they say how; else such weights act greedily
};

/// Acts for one policy, whatever its class: Actor with networks, ScriptedActor without, or what an ActorHost made. Made
/// and used by one thread (the stepping thread); never blocks unless it runs elsewhere.
class PolicyActor {
 public:
  virtual ~PolicyActor() = default;

  /// Its code lives in another process: Act blocks and may fail, which costs the episodes of its rows and no more.
  virtual bool runs_elsewhere() const { return false; }
  /// Does what the first Act would do besides: of one that runs elsewhere it makes the policy there. For callers that
  /// want the errors of that before anybody plays.
  virtual absl::Status Prepare() { return absl::OkStatus(); }

  /// Takes new weights. INVALID_ARGUMENT when they do not fit; the old ones stay then. FAILED_PRECONDITION for a class
  /// without weights.
  virtual absl::Status SetWeights(policy::WeightSnapshotPtr weights) = 0;
  /// Becomes the actor of another policy, which has the same class and policy::ShapeOf, and has no weights then. False,
  /// and nothing has changed, where the class cannot; what was allocated for batches stays.
  virtual bool TakeOver(const policy::PolicySpec& /*spec*/) { return false; }
  /// Writes actions [rows, action_words] as sampled (before bounding; discrete words include `start`) and their
  /// log-probabilities [rows] (0 for a class without weights). FAILED_PRECONDITION without weights where they are
  /// needed; INVALID_ARGUMENT names the first row whose mask forbids every category of a leaf; INTERNAL for an action
  /// that makes no sense. No heap allocation once it has seen a batch as large.
  virtual absl::Status Act(const ActInput& input, space::ActionWord* actions, float* logp) = 0;
};

/// The mask of `key`'s decision allows nothing: INVALID_ARGUMENT.
absl::Status EverythingForbidden(const policy::PolicySpec& spec, const RowKey& key);
/// A row's slot has no place in the policy's one-hot: INVALID_ARGUMENT; else OK.
absl::Status CheckSlots(const policy::PolicySpec& spec, const ActInput& input);
/// A mask was given to a policy without one, or the other way round: INVALID_ARGUMENT; else OK.
absl::Status CheckHasMask(const policy::PolicySpec& spec, const ActInput& input);
/// A policy that remembers lacks state_in or state_out: INVALID_ARGUMENT; else OK.
absl::Status CheckHasState(const policy::PolicySpec& spec, const ActInput& input);

}  // namespace troupe::inference
