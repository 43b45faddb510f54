#include "services/cli/run_command_line.h"

#include <cstdio>
#include <utility>

#include "lib/base/exit_code.h"
#include "lib/base/log.h"
#include "lib/cli/programs.h"
#include "lib/cli/usage_error.h"
#include "lib/config/run_config.h"
#include "lib/config/torch_modules.h"
#include "lib/policy/module_reader.h"
#include "services/common/build_facts.h"
#include <CLI/CLI.hpp>

namespace troupe::services {
namespace {

using base::ExitCode;

int Fail(const std::string& program, const std::string& message, ExitCode code) {
  std::fflush(stdout);
  // It may quote what a peer said.
  std::fprintf(stderr, "%s: error: %s\n", program.c_str(),
               base::TerminalSafe(message, base::kMaxLogLineBytes, /*keep_lines=*/true).c_str());
  return static_cast<int>(code);
}

/// What this process was started with, behind its name.
std::vector<std::string>& OwnArguments() {
  static auto* const kArguments = new std::vector<std::string>;
  return *kArguments;
}

std::string& Spelling() {
  static auto* const kSpelling = new std::string("troupe");
  return *kSpelling;
}

}  // namespace

std::string OwnSpelling() { return Spelling(); }

int FailedWith(const std::string& program, const absl::Status& status) {
  return Fail(program, std::string(status.message()), base::ExitCodeOf(status));
}

int RunCommandLine(int argc, char** argv, const std::string& program,
                   const std::function<void(CLI::App&, Action*)>& add) {
  OwnArguments().assign(argv + 1, argv + argc);
  if (argc > 0 && *argv[0] != '\0') Spelling() = argv[0];
  CLI::App app{
      "Troupe trains many agents with many policies: rollout workers stream samples to a learner, which pushes weights "
      "back.",
      program};
  app.set_version_flag("--version", OwnBuildFacts().ToString(), "Print version, commit and build");
  app.footer(
      "Example: troupe train examples/simple_spread_mappo.yaml\n`troupe COMMAND --help` tells more about a command.");
  app.require_subcommand(1);
  Action action;
  add(app, &action);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    return Fail(program, cli::UsageError(app, error), ExitCode::kUsage);
  }
  const absl::StatusOr<int> code = action();
  return code.ok() ? *code : FailedWith(program, code.status());
}

absl::Status ActWhereLibTorchIs(absl::FunctionRef<bool()> modules) {
  if (policy::FindModuleReader() != nullptr || !modules()) return absl::OkStatus();
  return cli::ExecLearner(OwnArguments());
}

bool NamesModules(const std::string& path, const std::vector<std::string>& overrides) {
  const absl::StatusOr<config::RunConfig> config = config::RunConfig::FromFile(path, overrides);
  return config.ok() && !config::ModulesOf(*config, config::ModuleUse::kActing).empty();
}

}  // namespace troupe::services
