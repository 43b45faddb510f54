// troupe completion

#include <cstdio>
#include <memory>

#include "lib/base/status_macros.h"
#include "services/cli/completion.h"
#include <CLI/CLI.hpp>

namespace troupe::services {

void AddCompletionCommand(CLI::App& app, Action* action) {
  const auto shell = std::make_shared<std::string>();
  CLI::App* completion = app.add_subcommand(
      "completion", "Print a script with which a shell completes this program's commands and options.");
  completion->add_option("shell", *shell, "bash, zsh or fish")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  completion->footer(
      "Example: troupe completion fish > ~/.config/fish/completions/troupe.fish\n"
      "         eval \"$(troupe completion bash)\"          in ~/.bashrc; zsh likewise");
  // Asked when all commands are there.
  completion->callback([=, &app] {
    *action = [=, &app]() -> absl::StatusOr<int> {
      TROUPE_ASSIGN_OR_RETURN(const std::string script, CompletionScript(*shell, "troupe", CompletionWordsOf(app)));
      std::fputs(script.c_str(), stdout);
      return 0;
    };
  });
}

}  // namespace troupe::services
