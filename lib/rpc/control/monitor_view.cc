#include "lib/rpc/control/monitor_view.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include <google/protobuf/message.h>

namespace troupe::rpc {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

/// Texts that a stranger may read: names that the user gave to the run and its policies, and words of our own.
constexpr std::string_view kOpenTexts[] = {
    "troupe.v1.StatusReply.build_version", "troupe.v1.StatusReply.run_name",   "troupe.v1.StatusReply.state",
    "troupe.v1.StatusReply.degraded",      "troupe.v1.PolicyStatus.policy_id", "troupe.v1.GroupRows.group_id",
    "troupe.v1.ExplorationScalar.name",
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

}  // namespace

void WithholdFromAnybody(v1::StatusReply* status) {
  DropTexts(status);
  status->clear_queue_budget_bytes();
  // Whoever attacks need not know what has held.
  status->clear_door();
}

}  // namespace troupe::rpc
