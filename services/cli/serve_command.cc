// troupe serve

#include <map>
#include <memory>

#include "absl/strings/str_cat.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/cli/learner_target.h"
#include "lib/cli/run_path.h"
#include "lib/run/memory_limit.h"
#include "lib/serving/query_engine.h"
#include "services/cli/cli_command.h"
#include "services/cli/run_command_line.h"
#include "services/cli/transport_flags.h"
#include "services/common/signals.h"
#include "services/policy_server/policy_server_process.h"
#include <CLI/CLI.hpp>

namespace troupe::services {
namespace {

// For gRPC's threads and a small run.
constexpr int64_t kServerBytes = int64_t{128} << 20;

struct ServeFlags {
  std::string run;
  std::string directory = "runs";
  PolicyServerFlags server;
  std::string from;
  std::vector<std::string> labels;  // NAME=CHECKPOINT
  double reload_interval_s = 1;
  int64_t seed = -1;        // -1: drawn
  int64_t max_streams = 0;  // 0: the default
  std::string log_level = "info";
};

/// "NAME=CHECKPOINT" each; "best" is there in any case.
absl::StatusOr<std::map<std::string, std::string>> ParseLabels(const std::vector<std::string>& labels) {
  std::map<std::string, std::string> parsed = {{"best", "best"}};
  for (const std::string& each : labels) {
    const size_t sign = each.find('=');
    if (sign == std::string::npos || sign + 1 == each.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--label ", each, ": expected NAME=CHECKPOINT, as in stable=120000"));
    }
    const std::string name = each.substr(0, sign);
    if (const absl::Status status = serving::QueryEngine::CheckLabel(name); !status.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("--label ", each, ": ", std::string(status.message())));
    }
    parsed[name] = each.substr(sign + 1);
  }
  if (parsed.size() > static_cast<size_t>(serving::QueryEngine::kMaxLabels)) {
    return absl::InvalidArgumentError(absl::StrCat("--label: got ", parsed.size() - 1,
                                                   " labels beside best, expected at most ",
                                                   serving::QueryEngine::kMaxLabels - 1));
  }
  return parsed;
}

absl::StatusOr<int> Serve(const ServeFlags& flags) {
  if (flags.run.empty() == flags.from.empty()) {
    return absl::InvalidArgumentError(flags.run.empty() ? "expected a run, or --from with a learner to follow"
                                                        : "got a run and --from, expected one of them");
  }
  const run::QueryPermits& permits = flags.server.asked.permits;
  TROUPE_RETURN_IF_ERROR(ActWhereLibTorchIs(
      [&] { return !permits.modules.empty() || (!permits.config_path.empty() && NamesModules(permits.config_path)); }));
  base::InitLogging("serve", flags.log_level);
  DrainSignals::Install(kMostSecondsToEnd);
  TROUPE_RETURN_IF_ERROR(run::FitIntoMemoryLimit(kServerBytes));
  PolicyServerFlags server = flags.server;
  server.reload_interval = absl::Seconds(flags.reload_interval_s);
  if (flags.from.empty()) {
    TROUPE_ASSIGN_OR_RETURN(server.asked.labels, ParseLabels(flags.labels));
    TROUPE_ASSIGN_OR_RETURN(server.asked.run_folder, cli::FindRunFolder(flags.run, flags.directory));
  } else {
    server.from = flags.from;
    server.find_learner = [from = flags.from, directory = flags.directory]() -> absl::StatusOr<std::string> {
      TROUPE_ASSIGN_OR_RETURN(const cli::LearnerTarget target, cli::FindLearner(from, directory));
      return cli::ReachableAddress(target);
    };
    TROUPE_RETURN_IF_ERROR(server.find_learner().status());
  }
  if (flags.max_streams > 0) server.streams.open = server.streams.open_of_address = flags.max_streams;
  if (flags.seed >= 0) server.asked.seed = static_cast<uint64_t>(flags.seed);
  TROUPE_RETURN_IF_ERROR(RunPolicyServer(server));
  return static_cast<int>(DrainSignals::CodeInOrder());
}

}  // namespace

void AddServeCommand(CLI::App& app, Action* action) {
  const auto flags = std::make_shared<ServeFlags>();
  CLI::App* serve =
      app.add_subcommand("serve", "Answer policy queries with the weights of a run's checkpoints, or of its learner.");
  CLI::Option* const run = serve->add_option(
      "run", flags->run, "run folder, or a run's name inside --directory: its checkpoints are served");
  CLI::Option* const from =
      serve
          ->add_option("--from", flags->from,
                       "follow a learner while it trains in the place of checkpoints: its address, or its run's folder "
                       "or name")
          ->excludes(run);
  serve
      ->add_option("--checkpoint", flags->server.asked.checkpoint,
                   "latest, best, or its env steps; newer ones of that name are served as they come")
      ->capture_default_str()
      ->excludes(from);
  serve
      ->add_option(
          "--label", flags->labels,
          "NAME=CHECKPOINT: another checkpoint, which queries ask by this name (repeat, up to 7); best=best is "
          "there in any case")
      ->allow_extra_args(false)
      ->excludes(from);
  serve
      ->add_option("--reload-interval", flags->reload_interval_s,
                   "seconds between looks for newer checkpoints; 0: the checkpoint of the start stays")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 86400.0))
      ->excludes(from);
  serve->add_option("--listen", flags->server.listen, "serve on unix:PATH or HOST:PORT (repeat)")
      ->required()
      ->allow_extra_args(false);
  serve->add_option("--config", flags->server.asked.permits.config_path,
                    "a configuration of yours: what it names in Python may be imported, with its env.python; its "
                    "TorchScript files may be run");
  serve
      ->add_option("--allow-torchscript", flags->server.asked.permits.modules,
                   "a TorchScript file that may be run, as the run keeps in RUN/torchscript (repeat)")
      ->allow_extra_args(false);
  serve
      ->add_option("--policy-map-capacity", flags->server.asked.policy_map_capacity,
                   "policies in memory at most (default: as many as the run's learner held)")
      ->check(CLI::Range(1, 1000000));
  serve
      ->add_option(
          "--max-streams", flags->max_streams,
          "streams of queries at once, of one address among them (default: 4096, and 2560 of one address); each "
          "takes up to 24 KiB of memory")
      ->check(CLI::Range(1, 1000000));
  AddTransportFlags(serve, "serve", &flags->server.security);
  serve->add_option("--seed", flags->seed, "seed of sampled actions (default: another one at every start)")
      ->check(CLI::NonNegativeNumber);
  serve->add_option("--directory", flags->directory, "where runs are looked for by name")->capture_default_str();
  serve->add_option("--log-level", flags->log_level, "trace, debug, info, warn, error or off")
      ->capture_default_str()
      ->check(CLI::IsMember({"trace", "debug", "info", "warn", "error", "off"}));
  serve->footer(
      "Example: troupe serve runs/my_run --checkpoint best --listen 127.0.0.1:50061\n"
      "         troupe serve --from runs/my_run --listen 127.0.0.1:50061");
  serve->callback([=] { *action = [=] { return Serve(*flags); }; });
}

}  // namespace troupe::services
