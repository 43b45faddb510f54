#include "lib/rollout/incident_log.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "lib/base/log.h"
#include "lib/base/traceback.h"

namespace troupe::rollout {

using sample::EnvIncident;

std::string KindOf(std::string_view message) {
  std::string kind;
  for (size_t i = 0; i < message.size() && kind.size() < EnvIncident::kMaxKindBytes; ++i) {
    const auto is_digit = [&message](size_t at) {
      return at < message.size() && absl::ascii_isdigit(static_cast<unsigned char>(message[at]));
    };
    if (!is_digit(i) && !(message[i] == '-' && is_digit(i + 1))) {
      kind.push_back(message[i]);
      continue;
    }
    // To the end of what looks like a number of any base.
    while (i + 1 < message.size() && (absl::ascii_isalnum(static_cast<unsigned char>(message[i + 1])) ||
                                      (message[i + 1] == '.' && is_digit(i + 2)))) {
      ++i;
    }
    kind.push_back('#');
  }
  return kind;
}

bool IncidentLog::AddFailure(const absl::Status& status) {
  const std::string message(status.message());
  return Add(EnvIncident::What::kFailure, KindOf(message), message, base::TracebackOf(status));
}

bool IncidentLog::AddOutsideSpace(std::string_view agent, std::string_view message) {
  return Add(EnvIncident::What::kOutsideSpace, std::string(agent.substr(0, EnvIncident::kMaxKindBytes)), message, "");
}

bool IncidentLog::Add(EnvIncident::What what, std::string kind, std::string_view message, std::string_view traceback) {
  if (kinds_.size() >= EnvIncident::kMostKinds || !kinds_.emplace(what, kind).second) return false;
  const std::string text = absl::StrCat(std::string(message), traceback.empty() ? "" : "\n", std::string(traceback));
  // Also for the wire, whose texts are UTF-8.
  std::string safe =
      base::LogSafeLines(text, EnvIncident::kMaxTextBytes, /*indent=*/"").substr(0, EnvIncident::kMaxTextBytes);
  news_.push_back(
      {what, base::LogSafe(kind, EnvIncident::kMaxKindBytes).substr(0, EnvIncident::kMaxKindBytes), std::move(safe)});
  return true;
}

}  // namespace troupe::rollout
