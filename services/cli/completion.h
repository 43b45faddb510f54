#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "services/cli/cli_command.h"

namespace troupe::services {

/// What may follow a command: names of its subcommands, then its long options, in their order. By the command's words
/// behind the program's name: "" for the program, "policy add".
using CompletionWords = std::map<std::string, std::vector<std::string>>;

CompletionWords CompletionWordsOf(const CLI::App& app);

/// A script for `shell` ("bash", "zsh" or "fish") that completes `program`: these words, and files elsewhere.
/// INVALID_ARGUMENT for another shell.
absl::StatusOr<std::string> CompletionScript(const std::string& shell, const std::string& program,
                                             const CompletionWords& words);

void AddCompletionCommand(CLI::App& app, Action* action);

}  // namespace troupe::services
