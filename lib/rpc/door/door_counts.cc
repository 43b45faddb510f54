#include "lib/rpc/door/door_counts.h"

#include "absl/strings/str_cat.h"

namespace troupe::rpc {

std::string_view Words(DoorReason reason) {
  switch (reason) {
    case DoorReason::kForm:
      return "not HTTP/2 as gRPC speaks it";
    case DoorReason::kMessages:
      return "messages that took the longest when memory was short";
    case DoorReason::kTooSlow:
      return "a message that came in too slowly";
    case DoorReason::kUnread:
      return "answers that were not read";
    case DoorReason::kIdle:
      return "idle, among many";
    case DoorReason::kNoPlace:
      return "no place";
    case DoorReason::kNoCall:
      return "no valid call in time";
    case DoorReason::kOpenCalls:
      return "too many on one connection";
    case DoorReason::kSilentCalls:
      return "too many without a request";
    case DoorReason::kNewCalls:
      return "too many on new connections";
  }
  return "";
}

int64_t DoorCounts::Sum(bool of_calls) const {
  int64_t sum = 0;
  for (size_t i = 0; i < kNumDoorReasons; ++i) {
    const auto reason = static_cast<DoorReason>(i);
    if (IsOfCall(reason) == of_calls) sum += Get(reason);
  }
  return sum;
}

std::vector<DoorCount> ToValues(const DoorCounts& counts) {
  std::vector<DoorCount> values;
  for (size_t i = 0; i < kNumDoorReasons; ++i) {
    const auto reason = static_cast<DoorReason>(i);
    if (counts.Get(reason) == 0) continue;
    values.push_back(
        {absl::StrCat(IsOfCall(reason) ? "calls refused: " : "connections closed: ", std::string(Words(reason))),
         counts.Get(reason)});
  }
  return values;
}

}  // namespace troupe::rpc
