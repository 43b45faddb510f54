// troupe status

#include <cstdio>
#include <memory>

#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"
#include "lib/cli/learner_target.h"
#include "lib/cli/output.h"
#include "lib/cli/run_path.h"
#include "lib/cli/status_text.h"
#include "lib/rpc/control/monitor_client.h"
#include "services/cli/cli_command.h"
#include "services/cli/transport_flags.h"
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

namespace troupe::services {
namespace {

using Json = nlohmann::ordered_json;

struct StatusFlags {
  std::string target;
  std::string learner;
  std::string directory = "runs";
  double timeout_s = 5;
  rpc::TransportSecurity security;
  bool json = false;
};

absl::StatusOr<rpc::RunStatus> Ask(const StatusFlags& flags, const cli::LearnerTarget& target) {
  TROUPE_ASSIGN_OR_RETURN(const std::unique_ptr<rpc::MonitorClient> client, cli::OpenMonitor(target, flags.security));
  return client->Status(absl::Seconds(flags.timeout_s));
}

/// What the folder says of a run whose learner does not answer: its last line of progress.
absl::StatusOr<int> ShowFolder(const StatusFlags& flags, const cli::LearnerTarget& learner) {
  TROUPE_ASSIGN_OR_RETURN(const std::string line, cli::LastProgressLine(learner.folder));
  const Json last = Json::parse(line, nullptr, false);
  if (!last.is_object()) {
    return absl::DataLossError(
        absl::StrCat("the last line of progress.jsonl in \"", learner.folder, "\" is no JSON object"));
  }
  if (flags.json) {
    Json reply = {{"running", learner.elsewhere() ? Json() : Json(false)}};
    reply.update(last);
    cli::PrintJson(reply);
    return 0;
  }
  const std::string state = learner.elsewhere()
                                ? absl::StrCat("its learner was started on ", learner.host, ", no answer from here")
                                : "not running";
  std::printf("run %s: %s\n", learner.folder.c_str(), state.c_str());
  std::printf("%s", cli::LineText(last).c_str());
  return 0;
}

absl::StatusOr<int> Status(const StatusFlags& flags) {
  cli::LearnerTarget learner{.address = flags.learner};
  if (learner.address.empty()) {
    if (flags.target.empty()) return absl::InvalidArgumentError("needs an address (unix:PATH or HOST:PORT) or a run");
    TROUPE_ASSIGN_OR_RETURN(learner, cli::FindLearner(flags.target, flags.directory));
    if (learner.address.empty() && learner.control.empty()) return ShowFolder(flags, learner);
  }
  const absl::StatusOr<rpc::RunStatus> status = Ask(flags, learner);
  if (!status.ok()) {
    // A learner that was killed leaves its address behind.
    const bool nobody = absl::IsUnavailable(status.status()) && !learner.folder.empty();
    return nobody ? ShowFolder(flags, learner) : status.status();
  }
  if (flags.json) {
    cli::PrintJson(cli::StatusJson(*status));
  } else {
    std::printf("%s", cli::StatusText(*status).c_str());
  }
  return 0;
}

}  // namespace

void AddStatusCommand(CLI::App& app, Action* action) {
  const auto flags = std::make_shared<StatusFlags>();
  CLI::App* status = app.add_subcommand("status", "Ask a running learner how it goes, or see where a run stopped.");
  auto* target = status->add_option("target", flags->target,
                                    "the learner's address (unix:PATH or HOST:PORT), a run folder, or a run's name");
  status->add_option("--learner", flags->learner, "the learner's address")->excludes(target);
  status->add_option("--directory", flags->directory, "where runs are looked for by name")->capture_default_str();
  status->add_option("--timeout", flags->timeout_s, "seconds to wait for an answer")
      ->capture_default_str()
      ->check(CLI::Range(0.001, 3600.0));
  AddTransportFlags(status, "ask", &flags->security);
  status->add_flag(
      "--json", flags->json,
      "one line: {\"running\", \"env_steps\", \"agent_steps\", \"updates\", \"wall_clock_s\", \"env_steps_per_s\", "
      "\"return_sum\", "
      "\"return_mean\", \"env_errors\", ...}; of a running learner also \"rows\", \"workers\", \"policies\" "
      "(docs/cli.md)");
  status->footer("Example: troupe status runs/my_run --json");
  status->callback([=] { *action = [=] { return Status(*flags); }; });
}

}  // namespace troupe::services
