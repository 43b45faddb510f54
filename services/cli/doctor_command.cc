// troupe doctor

#include <sys/resource.h>

#include <cstdio>
#include <cstdlib>
#include <memory>

#include "lib/cli/output.h"
#include "lib/cli/programs.h"
#include "lib/cli/socket_folder.h"
#include "lib/envhost/python_program.h"
#include "lib/inference/backend.h"
#include "lib/run/memory_limit.h"
#include "services/cli/cli_command.h"
#include "services/cli/machine_checks.h"
#include <CLI/CLI.hpp>
#include <gnu/libc-version.h>
#include <nlohmann/json.hpp>

namespace troupe::services {
namespace {

// A cold disk has to bring 400 MB of LibTorch.
constexpr absl::Duration kAnswerTimeout = absl::Seconds(60);

/// What `program` answers where there is one.
absl::StatusOr<ProgramAnswer> Ask(const absl::StatusOr<std::string>& program, std::vector<std::string> arguments) {
  if (!program.ok()) return program.status();
  arguments.insert(arguments.begin(), *program);
  return AskProgram(std::move(arguments), kAnswerTimeout);
}

MachineCheck LookForTemporary() {
  const char* wanted = std::getenv("TMPDIR");
  const absl::StatusOr<std::unique_ptr<cli::SocketFolder>> folder = cli::SocketFolder::Make();
  return CheckTemporary(folder.ok() ? absl::StatusOr<std::string>((*folder)->path()) : folder.status(),
                        wanted == nullptr ? "" : wanted);
}

int64_t MostDescriptors() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  return limit.rlim_max == RLIM_INFINITY ? INT64_MAX : static_cast<int64_t>(limit.rlim_max);
}

std::vector<MachineCheck> LookAtMachine(const std::string& python) {
  const absl::StatusOr<std::string> learner = cli::FindLearnerProgram();
  const absl::StatusOr<std::string> interpreter = envhost::FindInterpreter(python);
  const MachineLimits limits = ReadMachineLimits("");
  return {CheckGlibc(gnu_get_libc_version()),
          CheckProcessor(inference::FindKernels(inference::Backend::kAvx512).ok(),
                         inference::FindKernels(inference::Backend::kAvx2).ok()),
          CheckProcessors(limits),
          CheckMemory(limits, run::FitIntoMemoryLimit(cli::kLearnerBytes)),
          CheckDescriptors(MostDescriptors()),
          LookForTemporary(),
          CheckLearner(learner, Ask(learner, {"--version"}), TROUPE_LIBTORCH_VERSION),
          CheckGpu(training::AskCudaDriver(0)),
          CheckPython(interpreter, Ask(interpreter, {"-c", PythonQuestion()}))};
}

}  // namespace

void AddDoctorCommand(CLI::App& app, Action* action) {
  const auto python = std::make_shared<std::string>();
  const auto json = std::make_shared<bool>(false);
  CLI::App* doctor = app.add_subcommand(
      "doctor", "Look at this machine: does a run train here, and if not, what helps. Changes nothing.");
  doctor->add_option("--python", *python,
                     "the Python of environments: a program, or a virtual environment's folder "
                     "(env.python.interpreter)");
  doctor->add_flag(
      "--json", *json,
      "one line: {\"ok\", \"checks\": [{\"what\", \"verdict\": ok, warning or failed, \"got\", \"expected\", "
      "\"remedy\" (null: none)}]}");
  doctor->footer("Example: troupe doctor\nThe exit code is 0 where a run trains, warnings or not, else 1.");
  doctor->callback([=] {
    *action = [=]() -> absl::StatusOr<int> {
      const std::vector<MachineCheck> checks = LookAtMachine(*python);
      if (*json) {
        cli::PrintJson(ChecksJson(checks));
      } else {
        std::fputs(ChecksText(checks).c_str(), stdout);
      }
      return TrainingWorks(checks) ? 0 : 1;
    };
  });
}

}  // namespace troupe::services
