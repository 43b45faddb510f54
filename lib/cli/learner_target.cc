#include "lib/cli/learner_target.h"

#include <filesystem>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "lib/base/local_path.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/cli/run_path.h"
#include "lib/rpc/control/control_socket.h"
#include "lib/rpc/door/address.h"
#include "lib/storage/run_address.h"

namespace troupe::cli {
namespace {

/// An address that a learner of this machine listens on, as one to connect to.
std::string LocalForm(const std::string& address) {
  for (const auto& [any, loopback] : {std::pair("0.0.0.0:", "127.0.0.1:"), std::pair("[::]:", "[::1]:")}) {
    if (absl::StartsWith(address, any)) return absl::StrCat(loopback, absl::StripPrefix(address, any));
  }
  return address;
}

absl::Status NobodyTrains(const LearnerTarget& target) {
  return absl::UnavailableError(
      absl::StrCat("nobody trains the run in \"", target.folder, "\" now; start it again with troupe train --resume"));
}

std::string Name(const std::string& folder) { return std::filesystem::path(folder).filename().string(); }

bool IsLocal(const std::string& address) {
  const absl::StatusOr<rpc::Address> parsed = rpc::ParseAddress(address);
  return parsed.ok() && parsed->local();
}

/// The machine that an address names; "" for this one.
std::string HostOf(const std::string& address) {
  const absl::StatusOr<rpc::Address> parsed = rpc::ParseAddress(address);
  return parsed.ok() && !parsed->local() ? parsed->host : "";
}

}  // namespace

bool LearnerTarget::elsewhere() const { return !host.empty() && host != storage::HostName(); }

absl::StatusOr<LearnerTarget> FindLearner(const std::string& target, const std::string& directory) {
  absl::StatusOr<std::string> folder = FindRunFolder(target, directory);
  if (!folder.ok()) {
    const bool is_address =
        target.find(':') != std::string::npos && (!base::IsUrl(target) || absl::StartsWith(target, "unix:"));
    if (!is_address) return folder.status();
    return LearnerTarget{.address = target};
  }
  LearnerTarget found{.folder = *std::move(folder)};
  const absl::StatusOr<std::string> text = ReadTextFile(absl::StrCat(found.folder, "/", storage::kAddressFile));
  if (!text.ok()) return found;
  const storage::RunAddress address = storage::ParseRunAddress(*text);
  if (!address.listen.empty()) found.address = LocalForm(address.listen[0]);
  if (!address.control.empty()) {
    found.control = absl::StartsWith(address.control, "/") ? address.control : found.folder + "/" + address.control;
  }
  found.host = base::LogSafe(address.host);
  return found;
}

bool IsTrained(const LearnerTarget& target) {
  if (target.control.empty()) return false;
  const absl::Status dialed = rpc::DialControl(target.control).status();
  return dialed.ok() || absl::IsPermissionDenied(dialed);  // another user's
}

absl::StatusOr<std::string> ReachableAddress(const LearnerTarget& target) {
  // An address of this machine is another learner's, if any, when the run's is elsewhere.
  const bool reachable = !target.elsewhere() || !IsLocal(target.address);
  if (!target.address.empty() && reachable) return target.address;
  if (!target.elsewhere()) return NobodyTrains(target);
  return absl::UnavailableError(absl::StrCat("the learner of the run in \"", target.folder, "\" is on ", target.host,
                                             " and does not answer from here"));
}

absl::StatusOr<std::unique_ptr<rpc::MonitorClient>> OpenMonitor(const LearnerTarget& target,
                                                                const rpc::TransportSecurity& security) {
  if (!target.control.empty() && rpc::DialControl(target.control).ok()) {
    return rpc::MonitorClient::AtControlSocket(target.control);
  }
  TROUPE_ASSIGN_OR_RETURN(const std::string address, ReachableAddress(target));
  return rpc::MonitorClient::Create(address, security);
}

absl::StatusOr<std::unique_ptr<rpc::ControlClient>> OpenControl(const LearnerTarget& target,
                                                                const std::string& command) {
  if (target.folder.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "troupe ", command, " changes a run through the control socket in its folder, not over an address (",
        base::LogSafe(target.address), "): give the run's folder or name",
        SayItThere(HostOf(target.address), command, "RUN")));
  }
  if (target.control.empty()) return NobodyTrains(target);
  absl::StatusOr<std::unique_ptr<rpc::ControlClient>> client = rpc::ControlClient::Connect(target.control);
  if (client.ok()) return client;
  if (absl::IsPermissionDenied(client.status())) {
    return absl::PermissionDeniedError(absl::StrCat(
        std::string(client.status().message()), "; only the user who runs the learner, and root, may change the run",
        SayItThere(target.elsewhere() ? target.host : "", command, Name(target.folder))));
  }
  // What a killed learner left, or that of another machine that shares the folder.
  if (!target.elsewhere()) return NobodyTrains(target);
  return absl::FailedPreconditionError(absl::StrCat("the learner of the run in \"", target.folder, "\" is on ",
                                                    target.host, ", if it still runs: its control socket does not ",
                                                    "answer from here",
                                                    SayItThere(target.host, command, Name(target.folder))));
}

std::string SayItThere(const std::string& host, const std::string& command, const std::string& run) {
  const std::string line = absl::StrCat("troupe ", command, " ", run, " …");
  return absl::StrCat("\n  on its machine:        ", host.empty() ? "" : absl::StrCat("ssh ", host, " "), line,
                      "\n  under docker-compose:  docker-compose exec learner ", line, " --directory /runs",
                      "\n  or in a container that shares the folder of runs, as the learner's user");
}

}  // namespace troupe::cli
