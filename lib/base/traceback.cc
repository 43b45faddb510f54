#include "lib/base/traceback.h"

#include "absl/strings/cord.h"

namespace troupe::base {
namespace {

constexpr char kPayload[] = "troupe.traceback";
constexpr char kCallbackPayload[] = "troupe.callback";

}  // namespace

absl::Status WithTraceback(absl::Status status, const std::string& traceback) {
  if (!status.ok() && !traceback.empty()) status.SetPayload(kPayload, absl::Cord(traceback));
  return status;
}

std::string TracebackOf(const absl::Status& status) {
  const auto payload = status.GetPayload(kPayload);
  return payload.has_value() ? std::string(*payload) : std::string();
}

absl::Status WithCallbackBlamed(absl::Status status, bool blamed) {
  if (!status.ok() && blamed) status.SetPayload(kCallbackPayload, absl::Cord());
  return status;
}

bool IsCallbackBlamed(const absl::Status& status) { return status.GetPayload(kCallbackPayload).has_value(); }

}  // namespace troupe::base
