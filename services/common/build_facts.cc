#include "services/common/build_facts.h"

#include "absl/strings/str_cat.h"
#include "troupe_commit.h"
#include "troupe_version.h"

namespace troupe::services {

std::string BuildFacts::ToString() const {
  return absl::StrCat("troupe ", version, " (", commit.empty() ? "no commit known" : absl::StrCat("commit ", commit),
                      ", ", build_type, " build, ", compiler, ")");
}

BuildFacts OwnBuildFacts() { return {TROUPE_VERSION, TROUPE_COMMIT, TROUPE_BUILD_TYPE, TROUPE_COMPILER}; }

}  // namespace troupe::services
