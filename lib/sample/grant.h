#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lib/base/ids.h"
#include "lib/policy/ids.h"
#include "lib/policy/policy_table.h"
#include "lib/sample/ids.h"

namespace troupe::sample {

/// One environment in a grant.
struct GrantLane {
  base::EnvId env_id;         ///< global environment id
  uint32_t next_episode = 0;  ///< ordinal for the next episode the worker begins in it
  bool fresh = false;  ///< true: drop an episode in progress (the lane comes from another worker, or the run restarts)
  int32_t env_steps = 0;  ///< steps to take; with complete_episodes: at least so many, to an episode's end
};

/// The learner's order to one worker: sample these environments so far, with weights at least that new. The grants of
/// one iteration add up to the train batch.
struct Grant {
  GrantId id;
  int64_t iteration = 0;              ///< the update this is for
  policy::WeightVersion min_version;  ///< wait for it before sampling
  bool complete_episodes = false;
  std::vector<GrantLane> lanes;  ///< ascending env_id
  /// The policies as of this grant: episodes that begin in it are mapped by them. nullptr: as of the run's start.
  policy::PolicyTablePtr policies;
};

/// What became of one (fragment, policy), or of a whole fragment that could not be read. Values are on the wire.
enum class Disposition : uint8_t {
  kAccepted = 1,   ///< counted once, will be trained on (or is of a policy that does not train)
  kDuplicate = 2,  ///< its sequence number was accepted before
  kStale = 3,      ///< made with weights that are too old, or for a grant that is over
  kInvalid = 4,    ///< malformed: wrong shape, dtype, length, policy, checksum, or not finite
};

struct FragmentAck {
  uint64_t sequence = 0;
  /// Every sequence number up to here has its disposition: the worker may free those fragments.
  uint64_t watermark = 0;
  Disposition disposition = Disposition::kAccepted;
  std::string reason;  ///< empty when accepted
};

}  // namespace troupe::sample
