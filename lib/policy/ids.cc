#include "lib/policy/ids.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace troupe::policy {
namespace {

constexpr size_t kMaxIdLength = 64;

bool IsIdChar(char c) { return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.' || c == '-'; }

}  // namespace

absl::Status ValidatePolicyId(std::string_view id) {
  const auto error = [&id](const char* what) {
    return absl::InvalidArgumentError(
        absl::StrCat("policy id ", what, ": got ", id.size(), " characters starting with \"",
                     absl::CHexEscape(absl::string_view(id.data(), std::min<size_t>(id.size(), 32))),
                     "\"; expected 1 to 64 of [A-Za-z0-9_.-], the first a letter or digit, without \"..\""));
  };
  if (id.empty()) return error("is empty");
  if (id.size() > kMaxIdLength) return error("is too long");
  if (!absl::ascii_isalnum(static_cast<unsigned char>(id.front()))) return error("starts with a forbidden character");
  for (const char c : id) {
    if (!IsIdChar(c)) return error("holds a forbidden character");
  }
  if (id.find("..") != std::string_view::npos) return error("holds \"..\"");
  return absl::OkStatus();
}

}  // namespace troupe::policy
