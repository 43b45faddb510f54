#include "lib/env/foreign_env_names.h"

#include <algorithm>
#include <cctype>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "lib/base/log.h"

namespace troupe::env {
namespace {

constexpr size_t kMaxName = 200;  // what is longer is nobody's

/// A family of environments that PettingZoo, or who took it over, has in a module of its own.
struct Family {
  std::string_view module;
  std::string_view owner;
  std::vector<std::string_view> names;  // without version
};

const std::vector<Family>& Families() {
  static const auto* const kFamilies = new std::vector<Family>{
      {"pettingzoo.classic",
       "PettingZoo's",
       {"chess", "connect_four", "gin_rummy", "go", "hanabi", "leduc_holdem", "rps", "texas_holdem",
        "texas_holdem_no_limit", "tictactoe"}},
      {"pettingzoo.butterfly", "PettingZoo's", {"cooperative_pong", "knights_archers_zombies", "pistonball"}},
      {"pettingzoo.sisl", "PettingZoo's", {"multiwalker", "pursuit", "waterworld"}},
  };
  return *kFamilies;
}

/// The native environment that is what they call `base`; empty: none.
std::string Native(std::string_view base, const std::vector<std::string>& known) {
  for (const std::string& name : {absl::StrCat("mpe/", std::string(base)), std::string(base)}) {
    if (std::find(known.begin(), known.end(), name) != known.end()) return name;
  }
  if (base == "tictactoe") return Native("tic_tac_toe", known);
  return base == "rps" ? Native("rock_paper_scissors", known) : "";
}

/// What is left of "simple_spread_v3" without `mark` and version; empty: it ends otherwise.
std::string_view WithoutVersion(std::string_view name, std::string_view mark) {
  size_t end = name.size();
  while (end > 0 && std::isdigit(static_cast<unsigned char>(name[end - 1])) != 0) --end;
  if (end == name.size() || end <= mark.size() || name.substr(end - mark.size(), mark.size()) != mark) return "";
  return name.substr(0, end - mark.size());
}

std::string Python(std::string_view module, std::string_view name, std::string_view owner) {
  return absl::StrCat("python:", std::string(module), std::string(name), " (", std::string(owner), ")");
}

/// "simple_spread_v3", with or without the module before it.
std::string OfPettingZoo(std::string_view name, std::string_view base, const std::vector<std::string>& known) {
  if (name.find('.') != std::string_view::npos) return Python("", name, "PettingZoo's");
  const std::string native = Native(base, known);
  const std::string ours = native.empty() ? "" : absl::StrCat(native, " (native) or ");
  if (native.starts_with("mpe/")) return ours + Python("mpe2.", name, "mpe2's");
  for (const Family& family : Families()) {
    if (std::find(family.names.begin(), family.names.end(), base) == family.names.end()) continue;
    return ours + Python(absl::StrCat(std::string(family.module), "."), name, family.owner);
  }
  return ours + Python("pettingzoo.FAMILY.", name, "PettingZoo's");
}

/// "CartPole-v1", "ALE/Pong-v5", "rware:rware-tiny-2ag-v2".
std::string OfGymnasium(std::string_view name, std::string_view base, const std::vector<std::string>& known) {
  if (name.find(':') != std::string_view::npos) return Python("", name, "registered by that module");
  for (const auto& [prefix, module] : {std::pair("ALE/", "ale_py:"), std::pair("Foraging-", "lbforaging:"),
                                       std::pair("rware-", "rware:"), std::pair("MiniGrid-", "minigrid:")}) {
    if (base.starts_with(prefix)) return Python(module, name, "registered by that module");
  }
  const std::string native = Native(absl::AsciiStrToLower(std::string(base)), known);
  return absl::StrCat(Python("gymnasium:", name, "Gymnasium's"),
                      native.empty() ? "" : absl::StrCat(" or ", native, " (native, with several agents)"));
}

}  // namespace

std::string ForeignEnvName(std::string_view name, const std::vector<std::string>& known) {
  if (name.empty() || name.size() > kMaxName || name.starts_with("python:")) return "";
  const std::string safe = base::LogSafe(std::string(name));
  if (safe != name) return "";
  std::string ours;
  if (const std::string_view base = WithoutVersion(name, "_v"); !base.empty()) {
    ours = OfPettingZoo(name, base, known);
  } else if (const std::string_view id = WithoutVersion(name, "-v"); !id.empty()) {
    ours = OfGymnasium(name, id, known);
  } else if (name.ends_with(".py") || name.find(".py:") != std::string_view::npos) {
    ours = Python("", name, "a file");
  } else if (name.find_first_of(".:") != std::string_view::npos && name.find('/') == std::string_view::npos) {
    ours = Python("", name, "a module");
  }
  return ours.empty() ? "" : absl::StrCat("write ", ours);
}

}  // namespace troupe::env
