#include "lib/base/local_path.h"

#include <algorithm>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "lib/base/log.h"

namespace troupe::base {

bool IsUrl(std::string_view text) {
  const size_t end = text.find("://");
  if (end == std::string_view::npos || end == 0 || !absl::ascii_isalpha(static_cast<unsigned char>(text[0]))) {
    return false;
  }
  return std::all_of(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(end), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '+' || c == '-' || c == '.';
  });
}

absl::Status CheckIsPath(std::string_view text) {
  if (!IsUrl(text)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("got the URL \"", LogSafe(std::string(text), 128),
                                                 "\", expected a folder of this machine; mount the storage, or copy "
                                                 "what is there"));
}

}  // namespace troupe::base
