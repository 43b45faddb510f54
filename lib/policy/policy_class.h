#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "lib/policy/ids.h"

namespace troupe::policy {

/// How a policy comes to its actions: `class` of its configuration. Plain value.
struct PolicyClass {
  enum class Kind : uint8_t {
    kTrained = 1,   ///< "trained": networks that updates may change; "ppo" is read as the same
    kRandom = 2,    ///< "random": uniform over the action space, within masks
    kScripted = 3,  ///< "scripted:NAME": a registered C++ function
    kCheckpoint =
        4,        ///< "checkpoint:PATH" or "checkpoint:PATH#ID": networks with the weights of a checkpoint, for ever
    kPython = 5,  ///< "python:MODULE:NAME": a function or class in Python, in a process of its own
  };
  Kind kind = Kind::kTrained;
  std::string name;      ///< of kScripted: the function; of kPython: all of it, "python:MODULE:NAME"
  std::string path;      ///< of kCheckpoint: a checkpoint directory, or a run folder, whose latest is meant
  PolicyId source = {};  ///< of kCheckpoint: the policy there; empty: the one of the same id

  /// Whether it acts with networks, so that there are weights to publish and to keep.
  bool has_weights() const { return kind == Kind::kTrained || kind == Kind::kCheckpoint; }
  /// Whether updates may change it.
  bool trainable() const { return kind == Kind::kTrained; }
  /// The text that ParsePolicyClass reads.
  std::string ToString() const;
  /// The same class without what is no worker's business: the place of a checkpoint on the learner's machine.
  PolicyClass ForWorkers() const;
};

/// "ppo" is "trained", by the name it had when there was one algorithm. INVALID_ARGUMENT for another word (names the
/// nearest), a scripted or checkpoint class without name or path, a path of more than 4096 characters, and what
/// ValidatePolicyId says of a source. Whether the function or the checkpoint exists is not looked at.
absl::StatusOr<PolicyClass> ParsePolicyClass(std::string_view text);

}  // namespace troupe::policy
