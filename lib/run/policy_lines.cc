#include "lib/run/policy_lines.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace troupe::run {

std::string PolicyLines(const learner::ReturnsByName& returns) {
  std::string lines;
  const auto add = [&lines](const std::string& name, const learner::Spread& spread) {
    if (spread.empty()) return;
    absl::StrAppendFormat(&lines, "  %s  %.2f (%.2f to %.2f)\n", name, *spread.mean(), spread.min, spread.max);
  };
  for (const learner::NamedReturns& named : returns.named) add(named.name, named.returns);
  if (!returns.others.empty()) add(absl::StrCat(returns.others.size(), " others"), returns.rest);
  return lines;
}

}  // namespace troupe::run
