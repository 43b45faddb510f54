#include "lib/policy/parameter_globs.h"

#include <algorithm>
#include <cstddef>
#include <set>

#include "absl/strings/str_cat.h"
#include "lib/base/log.h"
#include "lib/base/nearest_name.h"
#include "lib/policy/policy_mapping.h"

namespace troupe::policy {
namespace {

constexpr size_t kShownNames = 40;

absl::Status NoSuchParameter(const ParameterLayout& layout, const std::string& glob, std::string_view owner,
                             const std::vector<std::string>& more) {
  std::vector<std::string> known;
  std::set<std::string> stems;
  for (const ParameterEntry& entry : layout.entries()) {
    known.push_back(entry.name);
    for (size_t dot = entry.name.find('.'); dot != std::string::npos; dot = entry.name.find('.', dot + 1)) {
      if (stems.insert(entry.name.substr(0, dot)).second) known.push_back(entry.name.substr(0, dot) + ".*");
    }
  }
  known.insert(known.end(), more.begin(), more.end());
  const std::string nearest = base::NearestName(glob, known);
  return absl::InvalidArgumentError(
      absl::StrCat("\"", base::LogSafe(glob, 128), "\" matches no parameter of ", std::string(owner), "; ",
                   nearest.empty() ? absl::StrCat("they are ", base::FewOf(known, kShownNames))
                                   : absl::StrCat("the nearest is \"", nearest, "\"")));
}

}  // namespace

absl::StatusOr<std::vector<bool>> MatchEntries(const ParameterLayout& layout, const std::vector<std::string>& globs,
                                               std::string_view owner, const std::vector<std::string>& more) {
  const std::vector<ParameterEntry>& entries = layout.entries();
  std::vector<bool> matched(entries.size(), false);
  for (const std::string& glob : globs) {
    bool any = std::any_of(more.begin(), more.end(), [&glob](const std::string& n) { return GlobMatches(glob, n); });
    for (size_t i = 0; i < entries.size(); ++i) {
      if (!GlobMatches(glob, entries[i].name)) continue;
      any = true;
      matched[i] = true;
    }
    if (!any) return NoSuchParameter(layout, glob, owner, more);
  }
  return matched;
}

}  // namespace troupe::policy
