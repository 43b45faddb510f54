// troupe serve

#include <memory>

#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/run/memory_limit.h"
#include "services/cli/cli_command.h"
#include "services/cli/run_command_line.h"
#include "services/cli/run_path.h"
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
  int64_t seed = -1;  // -1: drawn
  std::string log_level = "info";
};

absl::StatusOr<int> Serve(const ServeFlags& flags) {
  const run::AskedCheckpoint& asked = flags.server.asked;
  TROUPE_RETURN_IF_ERROR(ActWhereLibTorchIs(
      [&] { return !asked.modules.empty() || (!asked.config_path.empty() && NamesModules(asked.config_path)); }));
  base::InitLogging("serve", flags.log_level);
  DrainSignals::Install();
  TROUPE_RETURN_IF_ERROR(run::FitIntoMemoryLimit(kServerBytes));
  PolicyServerFlags server = flags.server;
  TROUPE_ASSIGN_OR_RETURN(server.asked.run_folder, FindRunFolder(flags.run, flags.directory));
  if (flags.seed >= 0) server.asked.seed = static_cast<uint64_t>(flags.seed);
  TROUPE_RETURN_IF_ERROR(RunPolicyServer(server));
  return static_cast<int>(DrainSignals::CodeInOrder());
}

}  // namespace

void AddServeCommand(CLI::App& app, Action* action) {
  const auto flags = std::make_shared<ServeFlags>();
  CLI::App* serve = app.add_subcommand("serve", "Answer policy queries with the weights of a run's checkpoint.");
  serve->add_option("run", flags->run, "run folder, or a run's name inside --directory")->required();
  serve
      ->add_option("--checkpoint", flags->server.asked.checkpoint,
                   "latest, best, or its env steps; read once, at the start")
      ->capture_default_str();
  serve->add_option("--listen", flags->server.listen, "serve on unix:PATH or HOST:PORT (repeat)")
      ->required()
      ->allow_extra_args(false);
  serve->add_option("--config", flags->server.asked.config_path,
                    "a configuration of yours: what it names in Python may be imported, with its env.python; its "
                    "TorchScript files may be run");
  serve
      ->add_option("--allow-torchscript", flags->server.asked.modules,
                   "a TorchScript file that may be run, as the run keeps in RUN/torchscript (repeat)")
      ->allow_extra_args(false);
  serve
      ->add_option("--policy-map-capacity", flags->server.asked.policy_map_capacity,
                   "policies in memory at most (default: as many as the run's learner held)")
      ->check(CLI::Range(1, 1000000));
  serve->add_flag("--insecure-plaintext-network", flags->server.insecure_plaintext_network,
                  "serve without encryption and authentication beyond this machine");
  serve->add_option("--seed", flags->seed, "seed of sampled actions (default: another one at every start)")
      ->check(CLI::NonNegativeNumber);
  serve->add_option("--directory", flags->directory, "where runs are looked for by name")->capture_default_str();
  serve->add_option("--log-level", flags->log_level, "trace, debug, info, warn, error or off")
      ->capture_default_str()
      ->check(CLI::IsMember({"trace", "debug", "info", "warn", "error", "off"}));
  serve->footer("Example: troupe serve runs/my_run --checkpoint best --listen 127.0.0.1:50061");
  serve->callback([=] { *action = [=] { return Serve(*flags); }; });
}

}  // namespace troupe::services
