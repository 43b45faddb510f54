// troupe export RUN: finds the checkpoint, then becomes Python, which has PyTorch (python/troupe/export_command.py).

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "lib/base/status_macros.h"
#include "lib/envhost/python_program.h"
#include "lib/storage/file_system.h"
#include "lib/storage/run_folder.h"
#include "services/cli/cli_command.h"
#include "services/cli/programs.h"
#include "services/cli/run_path.h"
#include <CLI/CLI.hpp>

namespace troupe::services {
namespace {

// A module that lies where the command was given, which may be anybody's folder, is not imported.
constexpr char kProgram[] = R"(import sys
sys.path = [folder for folder in sys.path if folder]
try:
    from troupe.export_command import main
except ImportError as error:
    sys.exit(f"troupe: error: {sys.executable} cannot export policies ({error}), expected numpy and this troupe's package")
sys.exit(main())
)";
constexpr char kLibraryVariable[] = "TROUPE_ACTING_LIBRARY";

struct ExportFlags {
  std::string run;
  std::string checkpoint = "latest";
  std::string directory = "runs";
  std::string policy, format = "safetensors", output, module, python;
  bool overwrite = false, json = false;
};

/// Where Python finds the package, and the library of the build that this program is of.
absl::Status SetEnvironment() {
  TROUPE_ASSIGN_OR_RETURN(std::string path, envhost::FindPackage());
  // Where an item is empty or relative Python looks in the working directory, before any of its own code runs.
  const char* const theirs = std::getenv("PYTHONPATH");
  for (const absl::string_view item : absl::StrSplit(theirs == nullptr ? "" : theirs, ':')) {
    if (absl::StartsWith(item, "/")) absl::StrAppend(&path, path.empty() ? "" : ":", item);
  }
  setenv("PYTHONPATH", path.c_str(), /*overwrite=*/1);
  const std::filesystem::path build = std::filesystem::path(OwnPath()).parent_path().parent_path().parent_path();
  const std::filesystem::path library = build / "lib/acting/libtroupe_acting.so";
  std::error_code error;
  if (std::filesystem::is_regular_file(library, error)) setenv(kLibraryVariable, library.c_str(), /*overwrite=*/0);
  return absl::OkStatus();
}

absl::StatusOr<int> Export(const ExportFlags& flags) {
  TROUPE_ASSIGN_OR_RETURN(const std::string folder, FindRunFolder(flags.run, flags.directory));
  TROUPE_ASSIGN_OR_RETURN(const std::string checkpoint,
                          storage::FindCheckpoint(storage::FileSystem::Posix(), folder, flags.checkpoint));
  TROUPE_ASSIGN_OR_RETURN(const std::string interpreter, envhost::FindInterpreter(flags.python));
  TROUPE_RETURN_IF_ERROR(SetEnvironment());
  std::vector<std::string> words = {interpreter, "-c", kProgram};
  const auto add = [&words](const char* name, const std::string& value) {
    if (!value.empty()) words.push_back(absl::StrCat(name, "=", value));
  };
  add("--policy", flags.policy);
  add("--format", flags.format);
  add("--output", flags.output);
  add("--allow-torchscript", flags.module);
  if (flags.overwrite) words.push_back("--overwrite");
  if (flags.json) words.push_back("--json");
  words.push_back("--");
  words.push_back(checkpoint);
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  execv(interpreter.c_str(), argv.data());
  return absl::InternalError(absl::StrCat("cannot start ", interpreter, ": ", std::strerror(errno)));
}

}  // namespace

void AddExportCommand(CLI::App& app, Action* action) {
  const auto flags = std::make_shared<ExportFlags>();
  CLI::App* command = app.add_subcommand(
      "export",
      "Write a policy of a checkpoint to a file for other programs, by Python with numpy and the library that acts.");
  command->add_option("run", flags->run, "run folder, or a run's name inside --directory")->required();
  command->add_option("--policy", flags->policy, "the policy's id; may be left out where there is but one");
  command
      ->add_option("--format", flags->format,
                   "safetensors; torchscript, which needs PyTorch; onnx, also the package onnx")
      ->capture_default_str()
      ->check(CLI::IsMember({"safetensors", "torchscript", "onnx"}));
  command
      ->add_option("--output", flags->output,
                   "the file; beside it OUTPUT.golden.npz: inputs, and what a worker's actor says of them")
      ->required();
  command->add_option("--checkpoint,--at", flags->checkpoint, "latest, best, or its env steps")->capture_default_str();
  command->add_option("--allow-torchscript", flags->module,
                      "of a policy that is a TorchScript module: its file, which may be run, as the run keeps it in "
                      "RUN/torchscript");
  command->add_flag("--overwrite", flags->overwrite, "replace files that are there");
  command->add_option("--python", flags->python,
                      "the Python that writes it: a program, or a virtual environment's folder (default: as `train` "
                      "chooses that of environments)");
  command->add_option("--directory", flags->directory, "where runs are looked for by name")->capture_default_str();
  command->add_flag("--json", flags->json,
                    "one line: {\"path\", \"golden\", \"policy_id\", \"version\", \"difference\", \"checked_with\"}");
  command->footer("Example: troupe export runs/my_run --policy main --format onnx --output main.onnx");
  command->callback([=] { *action = [=] { return Export(*flags); }; });
}

}  // namespace troupe::services
