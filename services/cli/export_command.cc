// troupe export RUN: finds the checkpoint, then becomes Python, which has PyTorch (python/troupe/export_command.py).

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"
#include "lib/cli/run_path.h"
#include "lib/storage/file_system.h"
#include "lib/storage/run_folder.h"
#include "services/cli/cli_command.h"
#include "services/cli/python_half.h"
#include <CLI/CLI.hpp>

namespace troupe::services {
namespace {

struct ExportFlags {
  std::string run;
  std::string checkpoint = "latest";
  std::string directory = "runs";
  std::string policy, format, output, module, python;
  bool overwrite = false, json = false;
};

absl::StatusOr<int> Export(const ExportFlags& flags) {
  TROUPE_ASSIGN_OR_RETURN(const std::string folder, cli::FindRunFolder(flags.run, flags.directory));
  storage::FileSystem& fs = storage::FileSystem::Posix();
  TROUPE_ASSIGN_OR_RETURN(std::string checkpoint, storage::FindCheckpoint(fs, folder, flags.checkpoint));
  // Python takes a while to start: by then a learner may have removed what the link stands for now.
  const std::string link = absl::StrCat(folder, "/checkpoints/", flags.checkpoint);
  if (fs.ReadLink(link).ok()) checkpoint = link;
  PythonHalf half = {
      .module = "troupe.export_command", .does = "export policies", .needs = "numpy", .python = flags.python};
  std::vector<std::string>& words = half.words;
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
  return BecomePython(half);
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
                   "safetensors; torchscript, which needs PyTorch; onnx, also the package onnx (default: by the ending "
                   "of --output: .safetensors, .pt, .onnx)")
      ->check(CLI::IsMember({"safetensors", "torchscript", "onnx"}));
  command
      ->add_option("--output", flags->output,
                   "the file; beside it OUTPUT.golden.npz: inputs, and the outputs of a worker's actor")
      ->required();
  command->add_option("--checkpoint", flags->checkpoint, "latest, best, or its env steps")->capture_default_str();
  command->add_option("--allow-torchscript", flags->module,
                      "of a policy that is a TorchScript module: its file, which may be run, as the run keeps it in "
                      "RUN/torchscript");
  command->add_flag("--overwrite", flags->overwrite, "replace files that are there");
  command->add_option("--python", flags->python,
                      "the Python that writes it: a program, or a virtual environment's folder (default: that of "
                      "$VIRTUAL_ENV, else the one beside this program, else python3)");
  command->add_option("--directory", flags->directory, "where runs are looked for by name")->capture_default_str();
  command->add_flag("--json", flags->json,
                    "one line: {\"path\", \"golden\", \"policy_id\", \"version\", \"difference\", \"checked_with\"}");
  command->footer("Example: troupe export runs/my_run --policy main --output main.onnx");
  command->callback([=] { *action = [=] { return Export(*flags); }; });
}

}  // namespace troupe::services
