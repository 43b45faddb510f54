// troupe worker

#include <memory>

#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/envs/register_all.h"
#include "lib/run/memory_limit.h"
#include "services/cli/cli_command.h"
#include "services/cli/run_command_line.h"
#include "services/cli/transport_flags.h"
#include "services/common/signals.h"
#include "services/worker/worker_process.h"
#include <CLI/CLI.hpp>

namespace troupe::services {
namespace {

// For gRPC's threads and a small run.
constexpr int64_t kWorkerBytes = int64_t{128} << 20;

struct Flags {
  WorkerFlags worker;
  double connect_timeout_s = 30;
  double reconnect_timeout_s = 300;
  std::string log_level = "info";
};

absl::StatusOr<int> Work(const Flags& flags) {
  const WorkerFlags& own = flags.worker;
  TROUPE_RETURN_IF_ERROR(ActWhereLibTorchIs([&] {
    return !own.allow_torchscript.empty() || (!own.config.empty() && NamesModules(own.config, own.overrides));
  }));
  base::InitLogging("worker", flags.log_level);
  DrainSignals::Install();
  TROUPE_RETURN_IF_ERROR(run::FitIntoMemoryLimit(kWorkerBytes));
  WorkerFlags worker = flags.worker;
  worker.connect_timeout = absl::Seconds(flags.connect_timeout_s);
  worker.reconnect_timeout = absl::Seconds(flags.reconnect_timeout_s);
  env::EnvRegistry registry;
  envs::RegisterAllEnvs(registry);
  TROUPE_RETURN_IF_ERROR(RunWorker(worker, registry));
  return static_cast<int>(DrainSignals::CodeInOrder());
}

}  // namespace

void AddWorkerCommand(CLI::App& app, Action* action) {
  const auto flags = std::make_shared<Flags>();
  CLI::App* worker = app.add_subcommand("worker", "Sample for a learner, which says what to sample.");
  worker->add_option("--learner", flags->worker.learner, "the learner's address: unix:PATH or HOST:PORT")->required();
  auto* config = worker->add_option(
      "--config", flags->worker.config,
      "permit the environment in Python or in a plug-in, mapping functions, policies and TorchScript files that this "
      "configuration names; interpreter, module path and plug-in are those that it says");
  worker->add_option("--set", flags->worker.overrides, "override a key of it: a.b=value (repeat)")
      ->allow_extra_args(false)
      ->needs(config);
  worker
      ->add_option("--allow-python", flags->worker.allow_python,
                   "permit this name besides, exactly: python:MODULE or python:MODULE:NAME (repeat)")
      ->allow_extra_args(false);
  worker
      ->add_option("--allow-torchscript", flags->worker.allow_torchscript,
                   "permit, and run, this TorchScript file as a network: what a learner names by its SHA-256 (repeat)")
      ->allow_extra_args(false);
  AddTransportFlags(worker, "connect", &flags->worker.security);
  worker->add_option("--connect-timeout", flags->connect_timeout_s, "seconds to try for the first time")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1e6));
  worker
      ->add_option("--reconnect-timeout", flags->reconnect_timeout_s,
                   "seconds after which a lost learner is gone for good")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1e6));
  // For `troupe train`, which starts workers: not shown.
  worker->add_option("--report-fd", flags->worker.report_fd, "a pipe that hears of the first accepted fragment")
      ->group("")
      ->check(CLI::NonNegativeNumber);
  worker->add_option("--log-level", flags->log_level, "trace, debug, info, warn, error or off")
      ->capture_default_str()
      ->check(CLI::IsMember({"trace", "debug", "info", "warn", "error", "off"}));
  worker->footer("Example: troupe worker --learner 10.0.0.1:7777 --insecure-plaintext-network --config run.yaml");
  worker->callback([=] { *action = [=] { return Work(*flags); }; });
}

}  // namespace troupe::services
