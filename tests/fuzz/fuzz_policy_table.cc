// The JSON of a policy table: of a checkpoint's manifest, or as a learner sends it. One that is accepted is written and
// read again as the same.

#include <string>

#include "lib/base/check.h"
#include "lib/policy/policy_table.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace troupe;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const absl::StatusOr<policy::PolicyTablePtr> table = policy::PolicyTableFromJson(text);
  if (!table.ok()) return 0;
  const std::string written = policy::ToJson(**table);
  const absl::StatusOr<policy::PolicyTablePtr> again = policy::PolicyTableFromJson(written);
  TROUPE_CHECK(again.ok());
  TROUPE_CHECK(policy::ToJson(**again) == written);
  return 0;
}
