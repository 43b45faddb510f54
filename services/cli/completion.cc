#include "services/cli/completion.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "lib/base/log.h"
#include <CLI/CLI.hpp>

namespace troupe::services {
namespace {

void Collect(const CLI::App& app, const std::string& path, CompletionWords& words) {
  std::vector<std::string>& own = words[path];
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    own.push_back(command->get_name());
    Collect(*command, path.empty() ? command->get_name() : absl::StrCat(path, " ", command->get_name()), words);
  }
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) words[path].push_back("--" + name);
  }
}

/// Options are offered where a '-' was typed; else commands and files. No variable is called as one of zsh's own (path,
/// words).
constexpr char kBash[] = R"(_PROGRAM() {
  local word=${COMP_WORDS[COMP_CWORD]} command="" known i
  for ((i = 1; i < COMP_CWORD; ++i)); do
    known=$(_PROGRAM_words "$command")
    case " $known " in *" ${COMP_WORDS[i]} "*) [[ ${COMP_WORDS[i]} == -* ]] || command="${command:+$command }${COMP_WORDS[i]}" ;; esac
  done
  known=$(_PROGRAM_words "$command")
  COMPREPLY=($(compgen -W "$known" -- "$word"))
  [[ $word == -* ]] || { local IFS=$'\n'; COMPREPLY+=($(compgen -f -- "$word")); }
}
_PROGRAM_words() {
  case $1 in
CASES  esac
}
complete -o filenames -F _PROGRAM PROGRAM
)";

std::string Bash(const std::string& program, const CompletionWords& words) {
  std::string cases;
  for (const auto& [path, own] : words) {
    absl::StrAppend(&cases, "    '", path, "') echo '", absl::StrJoin(own, " "), "' ;;\n");
  }
  return absl::StrReplaceAll(kBash, {{"PROGRAM", program}, {"CASES", cases}});
}

std::string Fish(const std::string& program, const CompletionWords& words) {
  std::string text;
  for (const auto& [path, own] : words) {
    std::string condition = "__fish_use_subcommand";
    if (!path.empty()) {
      const std::vector<std::string> parts = absl::StrSplit(path, ' ');
      condition =
          absl::StrCat("__fish_seen_subcommand_from ", absl::StrJoin(parts, "; and __fish_seen_subcommand_from "));
      // Behind one of its own commands that one's words come.
      std::vector<std::string> commands;
      std::copy_if(own.begin(), own.end(), std::back_inserter(commands),
                   [](const std::string& word) { return word.front() != '-'; });
      if (!commands.empty()) {
        absl::StrAppend(&condition, "; and not __fish_seen_subcommand_from ", absl::StrJoin(commands, " "));
      }
    }
    for (const std::string& word : own) {
      const bool option = word.front() == '-';
      absl::StrAppend(&text, "complete -c ", program, " -n '", condition, "' ",
                      option ? absl::StrCat("-l ", word.substr(2)) : absl::StrCat("-f -a ", word), "\n");
    }
  }
  return text;
}

}  // namespace

CompletionWords CompletionWordsOf(const CLI::App& app) {
  CompletionWords words;
  Collect(app, "", words);
  return words;
}

absl::StatusOr<std::string> CompletionScript(const std::string& shell, const std::string& program,
                                             const CompletionWords& words) {
  if (shell == "bash") return Bash(program, words);
  if (shell == "zsh")
    return "autoload -U +X compinit bashcompinit && compinit && bashcompinit\n" + Bash(program, words);
  if (shell == "fish") return Fish(program, words);
  return absl::InvalidArgumentError(
      absl::StrCat("got the shell ", base::LogSafe(shell), ", expected bash, zsh or fish"));
}

}  // namespace troupe::services
