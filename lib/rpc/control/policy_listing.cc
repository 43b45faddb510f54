#include "lib/rpc/control/policy_listing.h"

#include "absl/strings/match.h"
#include "lib/policy/policy_class.h"
#include "lib/policy/policy_entry.h"

namespace troupe::rpc {
namespace {

std::string KindOf(const policy::PolicyClass& policy_class) {
  switch (policy_class.kind) {
    case policy::PolicyClass::Kind::kTrained:
      return "trained";
    case policy::PolicyClass::Kind::kRandom:
      return "random";
    case policy::PolicyClass::Kind::kScripted:
      return "scripted";
    case policy::PolicyClass::Kind::kCheckpoint:
      return "checkpoint";
    case policy::PolicyClass::Kind::kPython:
      return "python";
  }
  return "";
}

std::string KindOfFunction(const std::string& function) {
  if (function.empty()) return "";
  return absl::StartsWith(function, "python:") ? "python" : "native";
}

}  // namespace

PolicyListing ListPolicies(const policy::PolicyTable& table, bool whole) {
  PolicyListing listing;
  listing.revision = table.revision();
  listing.agent_ids = table.agent_ids();
  for (const policy::PolicySlot slot : table.entries().ids()) {
    const policy::PolicyEntry* entry = table.Find(slot);
    if (entry == nullptr) continue;
    ListedPolicy& listed = listing.policies.emplace_back();
    listed.slot = slot;
    listed.id = entry->spec.id;
    listed.since = entry->since;
    listed.removed = entry->removed;
    listed.replaced = entry->replaced;
    listed.trains = entry->trains;
    listed.plays = entry->active() && table.IsMapped(slot);
    const policy::PolicyClass& policy_class = entry->spec.policy_class;
    listed.policy_class = whole ? policy_class.ToString() : KindOf(policy_class);
  }
  listing.mapping = table.rules();
  for (policy::MappingRule& rule : listing.mapping) {
    if (!whole) rule.function = KindOfFunction(rule.function);
  }
  return listing;
}

}  // namespace troupe::rpc
