#include "lib/env/registry.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/base/check.h"
#include "lib/base/log.h"
#include "lib/base/nearest_name.h"
#include "lib/base/status_macros.h"

namespace troupe::env {

void EnvRegistry::Register(Entry entry) {
  const auto place = std::lower_bound(entries_.begin(), entries_.end(), entry.name,
                                      [](const Entry& e, const std::string& name) { return e.name < name; });
  TROUPE_CHECK(place == entries_.end() || place->name != entry.name);
  entries_.insert(place, std::move(entry));
}

absl::StatusOr<std::unique_ptr<MultiAgentEnv>> EnvRegistry::Make(std::string_view name, const EnvArgs& args) const {
  const auto found =
      std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) { return entry.name == name; });
  if (found == entries_.end()) {
    std::vector<std::string> names;
    for (const Entry& entry : entries_) names.push_back(entry.name);
    const std::string nearest = base::NearestName(name, names);
    return absl::NotFoundError(absl::StrCat("there is no environment '", base::LogSafe(name), "', ",
                                            nearest.empty()
                                                ? absl::StrCat("expected one of ", absl::StrJoin(names, ", "))
                                                : absl::StrCat("did you mean '", nearest, "'?")));
  }
  absl::StatusOr<std::unique_ptr<MultiAgentEnv>> env = found->factory(args);
  if (!env.ok()) {
    return absl::Status(env.status().code(), absl::StrCat("environment ", found->name, ": ", env.status().message()));
  }
  TROUPE_RETURN_IF_ERROR((*env)->spec().Validate());
  return env;
}

}  // namespace troupe::env
