// A configuration in YAML, as a person, a run folder or a learner's Welcome gives it. One that is accepted is written
// in canonical form and read again as the same. Nothing of it is made: no environment, no process.

#include <string>

#include "lib/base/check.h"
#include "lib/config/run_config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace troupe;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const absl::StatusOr<config::RunConfig> config = config::RunConfig::FromYaml(text, "fuzz");
  if (!config.ok()) return 0;
  const std::string written = config->ToYaml();
  const absl::StatusOr<config::RunConfig> again = config::RunConfig::FromYaml(written, "written");
  TROUPE_CHECK(again.ok());
  TROUPE_CHECK(again->ToYaml() == written);
  return 0;
}
