// troupe bench

#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/base/nearest_name.h"
#include "lib/base/status_macros.h"
#include "lib/cli/programs.h"
#include "services/cli/cli_command.h"
#include <CLI/CLI.hpp>

namespace troupe::services {
namespace {

struct BenchFlags {
  std::string name;
  std::vector<std::string> arguments;
  bool list = false;
};

/// Runs `command` to its end; its exit code (128 + signal when killed).
absl::StatusOr<int> Run(const std::vector<std::string>& command) {
  std::vector<std::string> words = command;
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  std::fflush(stdout);
  const pid_t child = fork();
  if (child < 0) return absl::InternalError(absl::StrCat("cannot start ", command[0], ": ", std::strerror(errno)));
  if (child == 0) {
    execv(argv[0], argv.data());
    _exit(127);
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

absl::StatusOr<int> RunBenchmarks(const BenchFlags& flags) {
  TROUPE_ASSIGN_OR_RETURN(const std::vector<std::string> paths, cli::FindBenchmarks());
  std::vector<std::string> names;
  for (const std::string& path : paths) names.push_back(std::filesystem::path(path).filename().string());
  if (flags.list) {
    for (const std::string& name : names) std::printf("%s\n", name.c_str());
    return 0;
  }
  int failed = 0;
  bool found = false;
  for (size_t i = 0; i < paths.size(); ++i) {
    if (!flags.name.empty() && names[i] != flags.name && names[i] != flags.name + "_bench") continue;
    found = true;
    std::vector<std::string> command = {paths[i]};
    command.insert(command.end(), flags.arguments.begin(), flags.arguments.end());
    std::printf("$ %s\n", absl::StrJoin(command, " ", [](std::string* out, const std::string& word) {
                            absl::StrAppend(out, cli::ShellQuoted(word));
                          }).c_str());
    TROUPE_ASSIGN_OR_RETURN(const int code, Run(command));
    if (code != 0) {
      std::fprintf(stderr, "%s ended with %d\n", names[i].c_str(), code);
      failed = 1;
    }
  }
  if (found) return failed;
  const std::string nearest = base::NearestName(flags.name, names);
  return absl::NotFoundError(absl::StrCat("there is no benchmark \"", flags.name, "\"; ",
                                          nearest.empty() ? absl::StrCat("expected one of ", absl::StrJoin(names, ", "))
                                                          : absl::StrCat("the nearest is \"", nearest, "\"")));
}

}  // namespace

void AddBenchCommand(CLI::App& app, Action* action) {
  const auto flags = std::make_shared<BenchFlags>();
  CLI::App* bench =
      app.add_subcommand("bench", "Run the benchmarks of this build, each with its floor in the same run.");
  bench->add_option("name", flags->name, "only this one (env, or env_bench)");
  bench->add_flag("--list", flags->list, "only say which there are");
  bench->add_option("--arg", flags->arguments, "pass an argument on to the benchmark (repeat)")
      ->allow_extra_args(false);
  bench->footer("Example: troupe bench env --arg=--benchmark_min_time=2");
  bench->callback([=] { *action = [=] { return RunBenchmarks(*flags); }; });
}

}  // namespace troupe::services
