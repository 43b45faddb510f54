#pragma once

#include <string>
#include <variant>
#include <vector>

#include "lib/policy/ids.h"
#include "lib/policy/policy_mapping.h"

namespace troupe::policy {

/// A policy more in a running run, or another under an id that is there. Plain value.
struct AddPolicy {
  PolicyId id;
  /// Whose spaces, networks and inputs it has; empty: those of `copy_of`, else the ones all policies of the run have in
  /// common.
  PolicyId like;
  /// As ParsePolicyClass reads it; empty: ppo.
  std::string policy_class;
  /// Whose whole state it starts with (weights, optimizer, normalizers, counters); empty: fresh.
  PolicyId copy_of;
  /// "PATH" or "PATH#ID" on the learner's machine: the state of a policy in a run folder or checkpoint; empty: none.
  std::string import_from;
  bool trains = true;    ///< where its class can
  bool replace = false;  ///< true: `id` must be there, and keeps its place in the mapping; false: it must not
};

/// Takes a policy out of the run. No rule of the mapping may name it; episodes that play it end with it.
struct RemovePolicy {
  PolicyId id;
};

/// Whether updates change these policies: freeze and thaw.
struct SetPoliciesTrain {
  std::vector<PolicyId> ids;
  bool trains = false;
};

/// Exactly these policies train: policies_to_train.
struct SetTrainable {
  std::vector<PolicyId> ids;
};

/// Options that a policy trains with from the next update on.
struct SetPolicy {
  PolicyId id;
  std::vector<std::string> settings;  ///< see PolicyEntry
};

/// policy_mapping from the next episode of every environment on.
struct SetMapping {
  std::vector<MappingRule> rules;
};

/// What people and leagues ask of the policies of a running run. It is done between two updates, whole or not at all.
using PolicyChange = std::variant<AddPolicy, RemovePolicy, SetPoliciesTrain, SetTrainable, SetPolicy, SetMapping>;

}  // namespace troupe::policy
