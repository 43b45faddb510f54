#include "lib/rpc/monitor_view.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/match.h"
#include <google/protobuf/message.h>

namespace troupe::rpc {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

/// Texts that a stranger may read: names that the user gave to the run and its policies, and words of our own.
constexpr std::string_view kOpenTexts[] = {
    "troupe.v1.StatusReply.build_version", "troupe.v1.StatusReply.run_name",   "troupe.v1.StatusReply.state",
    "troupe.v1.StatusReply.degraded",      "troupe.v1.PolicyStatus.policy_id",
};

void DropTexts(Message* message) {
  const Reflection& reflection = *message->GetReflection();
  std::vector<const FieldDescriptor*> fields;
  reflection.ListFields(*message, &fields);
  for (const FieldDescriptor* field : fields) {
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
      const bool open =
          std::find(std::begin(kOpenTexts), std::end(kOpenTexts), field->full_name()) != std::end(kOpenTexts);
      if (!open) reflection.ClearField(message, field);
    } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE && field->is_repeated()) {
      for (int i = 0; i < reflection.FieldSize(*message, field); ++i) {
        DropTexts(reflection.MutableRepeatedMessage(message, field, i));
      }
    } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      DropTexts(reflection.MutableMessage(message, field));
    }
  }
}

std::string KindOf(const policy::PolicyClass& policy_class) {
  switch (policy_class.kind) {
    case policy::PolicyClass::Kind::kPpo:
      return "ppo";
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

void WithholdFromAnybody(v1::StatusReply* status) {
  DropTexts(status);
  status->clear_queue_budget_bytes();
}

v1::PoliciesReply ListPolicies(const policy::PolicyTable& table, bool whole) {
  v1::PoliciesReply reply;
  reply.set_revision(table.revision());
  reply.mutable_agent_ids()->Add(table.agent_ids().begin(), table.agent_ids().end());
  for (size_t i = 0; i < table.num_slots(); ++i) {
    const policy::PolicySlot slot(static_cast<int32_t>(i));
    const policy::PolicyEntry* entry = table.Find(slot);
    if (entry == nullptr) continue;
    v1::PolicyListing* listing = reply.add_policies();
    listing->set_slot(slot.value());
    listing->set_policy_id(entry->spec.id.value());
    listing->set_since(entry->since);
    listing->set_removed(entry->removed);
    listing->set_replaced(entry->replaced);
    listing->set_trains(entry->trains);
    listing->set_plays(entry->active() && table.IsMapped(slot));
    const policy::PolicyClass& policy_class = entry->spec.policy_class;
    listing->set_policy_class(whole ? policy_class.ToString() : KindOf(policy_class));
  }
  for (const policy::MappingRule& rule : table.rules()) {
    v1::MappingListing* listing = reply.add_mapping();
    listing->set_agent_glob(rule.agent_glob);
    listing->set_function(whole ? rule.function : KindOfFunction(rule.function));
    for (const policy::WeightedPolicy& weighted : rule.policies) {
      v1::PolicyWeight* policy = listing->add_policies();
      policy->set_policy_id(weighted.policy.value());
      policy->set_weight(weighted.weight);
    }
  }
  return reply;
}

}  // namespace troupe::rpc
