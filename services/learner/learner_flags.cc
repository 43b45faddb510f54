#include "services/learner/learner_flags.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "lib/cli/usage_error.h"
#include "services/common/build_facts.h"
#include "services/torch_launcher/find_libtorch.h"
#include <CLI/CLI.hpp>

namespace troupe::services {

absl::StatusOr<LearnerFlags> ParseLearnerFlags(int argc, const char* const* argv) {
  LearnerFlags flags;
  CLI::App app{
      "Trains the policies of a run: takes samples from workers, updates, pushes weights back.\n"
      "Example: troupe learner examples/simple_spread_mappo.yaml --listen unix:/tmp/learner.sock",
      "troupe learner"};
  const LibTorch libtorch = LoadedLibTorch();
  const std::string version =
      absl::StrCat(OwnBuildFacts().ToString(), "\nLibTorch ", libtorch.version, " (", libtorch.folder, ")");
  app.set_version_flag("--version", version, "Print version, commit and build, and the version and folder of LibTorch");
  app.add_option("config", flags.run.config_path, "configuration (YAML); with --resume it may be left out");
  app.add_option("--set", flags.run.overrides, "override a key: a.b=value (repeat)")->allow_extra_args(false);
  app.add_option("--workers", flags.run.num_workers, "number of workers (num_workers); 0: sample in this process")
      ->check(CLI::Range(0, 4096));
  app.add_option("--name", flags.run.name, "name of the run (experiment.experiment_name)");
  app.add_option("--directory", flags.run.directory,
                 "where runs lie, and are looked for by name (experiment.directory)");
  app.add_option("--python", flags.run.python,
                 "the Python of environments, policies and mappings: a program, or a virtual environment's folder "
                 "(env.python.interpreter)");
  auto* resume = app.add_option("--resume", flags.run.resume, "go on with this run: its folder, or its name");
  auto* resume_or_start = app.add_flag("--resume-or-start", flags.run.resume_or_start,
                                       "go on with the run of that name if there is one, else start it")
                              ->excludes(resume);
  app.add_option("--start-over", flags.run.start_over,
                 "move the run of --name or --resume, which is repeated here, to RUN.before-N and begin it anew; works "
                 "once")
      ->excludes(resume_or_start);
  app.add_option("--warm-start", flags.run.warm_start, "start from the weights of this checkpoint (or run: its latest)")
      ->excludes(resume);
  app.add_option("--listen", flags.listen, "serve on unix:PATH or HOST:PORT (repeat)")->allow_extra_args(false);
  app.add_flag("--insecure-plaintext-network", flags.insecure_plaintext_network,
               "serve without encryption and authentication beyond this machine");
  app.add_option("--linger", flags.linger_s,
                 "seconds to stay when the run has ended, for workers that were just starting: they then leave, too")
      ->check(CLI::Range(0.0, 3600.0));
  // For `troupe train`, which starts learners: not shown.
  app.add_option("--line-fd", flags.line_fd, "a pipe with lines to print above the progress block")
      ->group("")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--log-level", flags.log_level, "trace, debug, info, warn, error or off")
      ->check(CLI::IsMember({"trace", "debug", "info", "warn", "error", "off"}));
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    return absl::OutOfRangeError(app.help());
  } catch (const CLI::CallForVersion&) {
    return absl::OutOfRangeError(version + "\n");
  } catch (const CLI::ParseError& error) {
    return absl::InvalidArgumentError(cli::UsageError(app, error));
  }
  if (flags.run.config_path.empty() && flags.run.resume.empty()) {
    return absl::InvalidArgumentError("needs a configuration file, or --resume RUN");
  }
  if (flags.run.resume_or_start && flags.run.name.empty()) {
    return absl::InvalidArgumentError("--resume-or-start needs --name: an automatic name is never there yet");
  }
  return flags;
}

}  // namespace troupe::services
