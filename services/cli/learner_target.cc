#include "services/cli/learner_target.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "lib/base/status_macros.h"
#include "lib/storage/run_folder.h"
#include "services/cli/run_path.h"

namespace troupe::services {
namespace {

/// An address that a learner of this machine listens on, as one to connect to.
std::string LocalForm(const std::string& address) {
  for (const auto& [any, loopback] : {std::pair("0.0.0.0:", "127.0.0.1:"), std::pair("[::]:", "[::1]:")}) {
    if (absl::StartsWith(address, any)) return absl::StrCat(loopback, absl::StripPrefix(address, any));
  }
  return address;
}

}  // namespace

absl::StatusOr<LearnerTarget> FindLearner(const std::string& target, const std::string& directory) {
  absl::StatusOr<std::string> folder = FindRunFolder(target, directory);
  if (!folder.ok()) {
    if (target.find(':') == std::string::npos) return folder.status();
    return LearnerTarget{target, ""};
  }
  const absl::StatusOr<std::string> text = ReadTextFile(absl::StrCat(*folder, "/", storage::kAddressFile));
  return LearnerTarget{text.ok() ? LocalForm(text->substr(0, text->find('\n'))) : "", *std::move(folder)};
}

absl::StatusOr<std::string> FindLearnerAddress(const std::string& target, const std::string& directory) {
  TROUPE_ASSIGN_OR_RETURN(LearnerTarget found, FindLearner(target, directory));
  if (found.address.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("nobody trains the run in \"", found.folder, "\" now; start it again with troupe train --resume"));
  }
  return std::move(found.address);
}

}  // namespace troupe::services
