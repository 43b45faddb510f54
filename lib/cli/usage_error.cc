#include "lib/cli/usage_error.h"

#include <algorithm>
#include <map>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "lib/base/log.h"
#include "lib/base/nearest_name.h"
#include <CLI/CLI.hpp>

namespace troupe::cli {
namespace {

constexpr size_t kMaxShown = 64;

/// What other programs call these commands.
std::string CommandElsewhere(const std::string& word) {
  static const auto* const kNames = new std::map<std::string, std::string>{
      {"enjoy", "evaluate"}, {"fit", "train"},     {"list", "status"}, {"ls", "status"},
      {"play", "evaluate"},  {"resume", "train"},  {"run", "train"},   {"runs", "status"},
      {"start", "train"},    {"test", "evaluate"}, {"tune", "train"},  {"view", "evaluate"}};
  const auto found = kNames->find(word);
  return found == kNames->end() ? "" : found->second;
}

/// The name that was probably meant: the nearest, else one that `word` holds or that holds it ("num-workers", "eval").
std::string Meant(const std::string& word, const std::vector<std::string>& names) {
  std::string nearest = base::NearestName(word, names);
  constexpr size_t kFewest = 4;  // letters that say something
  for (size_t i = 0; nearest.empty() && i < names.size(); ++i) {
    const bool within = names[i].size() >= kFewest && absl::StrContains(word, names[i]);
    if (within || (word.size() >= kFewest && absl::StrContains(names[i], word))) nearest = names[i];
  }
  return nearest;
}

/// The command that was typed last.
const CLI::App& Innermost(const CLI::App& app) {
  const std::vector<CLI::App*> typed = app.get_subcommands();
  return typed.empty() ? app : Innermost(*typed.back());
}

/// "policy ls"; "troupe" of the program itself.
std::string Typed(const CLI::App& command) {
  std::string words = command.get_name();
  for (const CLI::App* outer = command.get_parent(); outer != nullptr; outer = outer->get_parent()) {
    words = absl::StrCat(outer->get_name(), " ", words);
  }
  return std::string(absl::StripPrefix(words, "troupe "));
}

std::vector<std::string> Subcommands(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::App* sub : command.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(sub->get_name());
  }
  return names;
}

std::string NoSuchCommand(const CLI::App& command, const std::string& word) {
  const std::vector<std::string> names = Subcommands(command);
  const std::string outer = command.get_parent() == nullptr ? "" : Typed(command) + " ";
  std::string meant = outer.empty() ? CommandElsewhere(word) : "";
  if (meant.empty()) meant = Meant(word, names);
  return absl::StrCat("there is no command \"", outer, base::LogSafe(word, kMaxShown), "\"; ",
                      meant.empty() ? absl::StrCat("expected one of ", absl::StrJoin(names, ", "))
                                    : absl::StrCat("the nearest is \"", outer, meant, "\""));
}

std::string NoSuchOption(const CLI::App& command, const std::string& word) {
  const std::string option = word.substr(0, word.find('='));
  std::vector<std::string> names;
  for (const CLI::Option* known : command.get_options()) {
    if (known->get_group().empty()) continue;  // not shown
    for (const std::string& name : known->get_lnames()) names.push_back(name);
  }
  const bool takes_keys = std::find(names.begin(), names.end(), "set") != names.end();
  const std::string meant = Meant(
      absl::StrReplaceAll(std::string(absl::StripPrefix(absl::StripPrefix(option, "-"), "-")), {{"_", "-"}}), names);
  std::string hint = absl::StrCat("expected one of --", absl::StrJoin(names, ", --"));
  if (takes_keys) hint = "keys of the configuration are set with --set KEY=VALUE";
  if (!meant.empty()) hint = absl::StrCat("the nearest is \"--", meant, "\"");
  return absl::StrCat(Typed(command), " has no option \"", base::LogSafe(option, kMaxShown), "\"; ", hint);
}

}  // namespace

std::string UsageError(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App& command = Innermost(app);
  const std::vector<std::string> unknown = command.remaining();
  const auto option = std::find_if(unknown.begin(), unknown.end(),
                                   [](const std::string& word) { return word.size() > 1 && word[0] == '-'; });
  std::string text = error.what();
  if (option != unknown.end()) {
    text = NoSuchOption(command, *option);
  } else if (command.get_require_subcommand_min() > 0 && !unknown.empty()) {
    text = NoSuchCommand(command, unknown.front());
  } else if (command.get_require_subcommand_min() > 0) {
    text = absl::StrCat(Typed(command), " needs a command: one of ", absl::StrJoin(Subcommands(command), ", "));
  } else if (!unknown.empty()) {
    text = absl::StrCat(Typed(command), " takes no argument \"", base::LogSafe(unknown.front(), kMaxShown), "\"",
                        unknown.size() == 1 ? "" : " and what follows it");
    if (std::find(unknown.begin(), unknown.end(), "=") != unknown.end()) {
      absl::StrAppend(&text, ", expected KEY=VALUE in one word; write --set algorithm.lr=1e-3");
    }
  }
  const std::string typed = Typed(command);
  return absl::StrCat(text, "\n`", typed == "troupe" ? "" : "troupe ", typed, " --help` tells more.");
}

}  // namespace troupe::cli
