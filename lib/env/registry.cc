#include "lib/env/registry.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "lib/base/check.h"
#include "lib/base/log.h"
#include "lib/base/nearest_name.h"
#include "lib/base/status_macros.h"
#include "lib/env/foreign_env_names.h"

namespace troupe::env {

void EnvRegistry::Register(Entry entry) {
  const auto place = std::lower_bound(entries_.begin(), entries_.end(), entry.name,
                                      [](const Entry& e, const std::string& name) { return e.name < name; });
  TROUPE_CHECK(place == entries_.end() || place->name != entry.name);
  entries_.insert(place, std::move(entry));
}

bool EnvRegistry::Draws(std::string_view name) const {
  return std::any_of(entries_.begin(), entries_.end(),
                     [&](const Entry& entry) { return entry.name == name && entry.draws; });
}

absl::Status EnvRegistry::NoSuchEnv(std::string_view name) const {
  std::vector<std::string> names;
  for (const Entry& entry : entries_) names.push_back(entry.name);
  std::string hint = ForeignEnvName(name, names);
  if (hint.empty()) {
    const std::string nearest = base::NearestName(name, names);
    hint = nearest.empty() ? "your own is python:FILE.py:CLASS" : absl::StrCat("did you mean '", nearest, "'?");
  }
  return absl::NotFoundError(absl::StrCat("there is no environment '", base::LogSafe(name),
                                          "', expected one that `troupe envs ls` shows, or python:MODULE:NAME; ",
                                          hint));
}

absl::StatusOr<std::unique_ptr<MultiAgentEnv>> EnvRegistry::Make(std::string_view name, const EnvArgs& args) const {
  const auto found =
      std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) { return entry.name == name; });
  if (found == entries_.end()) {
    return NoSuchEnv(name);
  }
  absl::StatusOr<std::unique_ptr<MultiAgentEnv>> env = found->factory(args);
  if (!env.ok()) {
    return absl::Status(env.status().code(), absl::StrCat("environment ", found->name, ": ", env.status().message()));
  }
  TROUPE_RETURN_IF_ERROR((*env)->spec().Validate());
  return env;
}

}  // namespace troupe::env
