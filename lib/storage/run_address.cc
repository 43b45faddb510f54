#include "lib/storage/run_address.h"

#include <unistd.h>

#include <climits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace troupe::storage {
namespace {

constexpr char kControl[] = "control ";
constexpr char kHost[] = "host ";

}  // namespace

std::string ToText(const RunAddress& address) {
  std::string text;
  for (const std::string& listen : address.listen) absl::StrAppend(&text, listen, "\n");
  absl::StrAppend(&text, kControl, address.control, "\n", kHost, address.host, "\n");
  return text;
}

RunAddress ParseRunAddress(std::string_view text) {
  RunAddress address;
  for (const std::string& line : std::vector<std::string>(absl::StrSplit(std::string(text), '\n', absl::SkipEmpty()))) {
    absl::string_view rest = line;
    if (absl::ConsumePrefix(&rest, kControl)) {
      address.control = std::string(rest);
    } else if (absl::ConsumePrefix(&rest, kHost)) {
      address.host = std::string(rest);
    } else {
      address.listen.push_back(line);
    }
  }
  return address;
}

std::string HostName() {
  char name[HOST_NAME_MAX + 1] = {};
  if (gethostname(name, sizeof(name) - 1) != 0) return "";
  return name;
}

}  // namespace troupe::storage
