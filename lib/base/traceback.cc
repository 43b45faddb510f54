#include "lib/base/traceback.h"

#include "absl/strings/cord.h"

namespace troupe::base {
namespace {

constexpr char kPayload[] = "troupe.traceback";

}  // namespace

absl::Status WithTraceback(absl::Status status, const std::string& traceback) {
  if (!status.ok() && !traceback.empty()) status.SetPayload(kPayload, absl::Cord(traceback));
  return status;
}

std::string TracebackOf(const absl::Status& status) {
  const auto payload = status.GetPayload(kPayload);
  return payload.has_value() ? std::string(*payload) : std::string();
}

}  // namespace troupe::base
