#include "lib/base/nearest_name.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/base/log.h"

namespace troupe::base {
namespace {

constexpr size_t kMaxLength = 128;  // what is longer is no typing error, and the work is quadratic

char Lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

size_t Distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<size_t>> rows(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) rows[i][0] = i;
  for (size_t j = 0; j <= b.size(); ++j) rows[0][j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replace = rows[i - 1][j - 1] + (Lower(a[i - 1]) == Lower(b[j - 1]) ? 0 : 1);
      rows[i][j] = std::min({rows[i - 1][j] + 1, rows[i][j - 1] + 1, replace});
      const bool swapped = i > 1 && j > 1 && Lower(a[i - 1]) == Lower(b[j - 2]) && Lower(a[i - 2]) == Lower(b[j - 1]);
      if (swapped) rows[i][j] = std::min(rows[i][j], rows[i - 2][j - 2] + 1);
    }
  }
  return rows[a.size()][b.size()];
}

}  // namespace

std::string NearestName(std::string_view name, const std::vector<std::string>& candidates) {
  if (name.size() > kMaxLength) return "";
  std::string nearest;
  size_t least = 0;
  for (const std::string& candidate : candidates) {
    if (candidate.size() > kMaxLength) continue;
    const size_t distance = Distance(name, candidate);
    const size_t allowed = std::max<size_t>(2, std::max(name.size(), candidate.size()) / 3);
    // Nothing of a short name would be left.
    if (distance > allowed || distance >= std::max(name.size(), candidate.size())) continue;
    if (nearest.empty() || distance < least) {
      nearest = candidate;
      least = distance;
    }
  }
  return nearest;
}

absl::Status NoSuchName(std::string_view what, std::string_view name, const std::vector<std::string>& known) {
  const std::string nearest = NearestName(name, known);
  return absl::NotFoundError(absl::StrCat("there is no ", absl::string_view(what.data(), what.size()), " \"",
                                          LogSafe(name, 64), "\"; ",
                                          nearest.empty() ? absl::StrCat("expected one of ", absl::StrJoin(known, ", "))
                                                          : absl::StrCat("the nearest is \"", nearest, "\"")));
}

std::string FewOf(const std::vector<std::string>& names, size_t most) {
  const size_t shown = std::min(most, names.size());
  std::string text = absl::StrJoin(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(shown), ", ");
  if (shown < names.size()) absl::StrAppend(&text, " and ", names.size() - shown, " more");
  return text;
}

}  // namespace troupe::base
