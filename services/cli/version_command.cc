// troupe version

#include <cstdio>
#include <memory>

#include "lib/cli/output.h"
#include "lib/cli/programs.h"
#include "services/cli/cli_command.h"
#include "services/common/build_facts.h"
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

namespace troupe::services {

void AddVersionCommand(CLI::App& app, Action* action) {
  const auto json = std::make_shared<bool>(false);
  CLI::App* version = app.add_subcommand("version", "The version of this build: its commit, and how it was built.");
  version->add_flag("--json", *json,
                    "one line: {\"version\", \"commit\", \"build_type\", \"compiler\", \"learner\": whether "
                    "troupe-learner is there}");
  version->footer("Example: troupe version --json");
  version->callback([=] {
    *action = [=]() -> absl::StatusOr<int> {
      const BuildFacts facts = OwnBuildFacts();
      const bool has_learner = cli::FindLearnerProgram().ok();
      if (*json) {
        cli::PrintJson({{"version", facts.version},
                        {"commit", facts.commit},
                        {"build_type", facts.build_type},
                        {"compiler", facts.compiler},
                        {"learner", has_learner}});
      } else {
        std::printf("%s%s\n", facts.ToString().c_str(), has_learner ? "" : " (without troupe-learner)");
      }
      return 0;
    };
  });
}

}  // namespace troupe::services
