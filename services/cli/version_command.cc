// troupe version

#include <cstdio>
#include <memory>

#include "services/cli/cli_command.h"
#include "services/cli/output.h"
#include "services/cli/programs.h"
#include "troupe_version.h"
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

namespace troupe::services {

void AddVersionCommand(CLI::App& app, Action* action) {
  const auto json = std::make_shared<bool>(false);
  CLI::App* version = app.add_subcommand("version", "The version of this build.");
  version->add_flag("--json", *json, "one line: {\"version\", \"learner\": whether troupe-learner is there}");
  version->footer("Example: troupe version --json");
  version->callback([=] {
    *action = [=]() -> absl::StatusOr<int> {
      const bool has_learner = FindLearnerProgram().ok();
      if (*json) {
        PrintJson({{"version", TROUPE_VERSION}, {"learner", has_learner}});
      } else {
        std::printf("troupe %s%s\n", TROUPE_VERSION, has_learner ? "" : " (without troupe-learner)");
      }
      return 0;
    };
  });
}

}  // namespace troupe::services
