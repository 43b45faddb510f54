#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lib/policy/ids.h"
#include "lib/policy/policy_mapping.h"
#include "lib/policy/policy_table.h"

namespace troupe::rpc {

/// A policy and its part in the run. Plain value.
struct ListedPolicy {
  policy::PolicySlot slot;
  policy::PolicyId id;
  int64_t since = 0;      ///< revision that brought it
  int64_t removed = 0;    ///< revision that removed it; 0: it stays
  bool replaced = false;  ///< removed for another of its id
  bool trains = false;
  bool plays = false;        ///< some rule may give it to an agent
  std::string policy_class;  ///< its kind, or the whole text
};

/// The policies of a run as people are told of them, and who plays them. Plain value.
struct PolicyListing {
  int64_t revision = 0;  ///< grows by one with every change
  std::vector<std::string> agent_ids;
  std::vector<ListedPolicy> policies;        ///< ascending slots
  std::vector<policy::MappingRule> mapping;  ///< in order; a function is its kind, or its name
};

/// The table as a list. `whole`: with the texts of classes and functions; else with their kinds alone.
PolicyListing ListPolicies(const policy::PolicyTable& table, bool whole);

/// What Monitor.Policies answers: the whole table as checkpoints hold it, at the control socket, else the listing.
struct PoliciesAnswer {
  std::string table_json;
  PolicyListing listing;
};

}  // namespace troupe::rpc
