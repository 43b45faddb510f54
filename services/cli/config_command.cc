// troupe config show|defaults

#include <cstdio>
#include <filesystem>
#include <memory>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"
#include "lib/cli/output.h"
#include "lib/cli/run_path.h"
#include "lib/config/foreign_code.h"
#include "lib/config/key_effects.h"
#include "lib/config/resolved_run.h"
#include "lib/envs/register_all.h"
#include "lib/run/run_checkpoint.h"
#include "services/cli/cli_command.h"
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <yaml-cpp/yaml.h>

namespace troupe::services {
namespace {

struct ShowFlags {
  std::string config;
  std::vector<std::string> overrides;
  bool json = false;
};

/// Our canonical YAML as JSON: what is quoted is a string, everything else is what it looks like.
nlohmann::ordered_json ToJson(const YAML::Node& node) {
  if (node.IsMap()) {
    nlohmann::ordered_json object = nlohmann::ordered_json::object();
    for (const auto& entry : node) object[entry.first.Scalar()] = ToJson(entry.second);
    return object;
  }
  if (node.IsSequence()) {
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    for (const YAML::Node& item : node) list.push_back(ToJson(item));
    return list;
  }
  if (!node.IsScalar()) return nullptr;
  const std::string& text = node.Scalar();
  int64_t integer = 0;
  double real = 0;
  if (node.Tag() == "!") return text;
  if (text == "true" || text == "false") return text == "true";
  if (absl::SimpleAtoi(text, &integer)) return integer;
  if (absl::SimpleAtod(text, &real)) return real;
  return text;
}

constexpr char kRunsFile[] = "config.yaml";

absl::StatusOr<int> Show(const ShowFlags& flags) {
  const std::string path = cli::IsRunFolder(flags.config) ? absl::StrCat(flags.config, "/", kRunsFile) : flags.config;
  TROUPE_ASSIGN_OR_RETURN(const config::RunConfig config, config::RunConfig::FromFile(path, flags.overrides));
  // A run's environment is made for this, too; the run may be a stranger's.
  const bool of_run = std::filesystem::path(path).filename() == kRunsFile;
  if (of_run) run::SayForeignCode(config::ForeignCodeOf(config));
  env::EnvRegistry registry;
  envs::RegisterAllEnvs(registry);
  // Shown only when it could be run.
  TROUPE_ASSIGN_OR_RETURN(const config::ResolvedRun run, config::ResolveRun(config, registry));
  TROUPE_RETURN_IF_ERROR(
      config::CheckEffects(run, registry, of_run ? config::FileOf::kRun : config::FileOf::kUser).status());
  if (flags.json) {
    cli::PrintJson(ToJson(YAML::Load(config.ToYaml())));
  } else {
    std::fputs(config.ToYaml().c_str(), stdout);
  }
  return 0;
}

}  // namespace

void AddConfigCommand(CLI::App& app, Action* action) {
  CLI::App* config = app.add_subcommand("config", "Show configurations.");
  config->require_subcommand(1);
  config->footer("Example: troupe config show examples/simple_spread_mappo.yaml --set algorithm.lr=1e-3");

  const auto show_flags = std::make_shared<ShowFlags>();
  CLI::App* show =
      config->add_subcommand("show", "A configuration with every default filled in, checked against its environment.");
  show->add_option("config", show_flags->config, "configuration (YAML), or a run folder")->required();
  show->add_option("--set", show_flags->overrides, "override a key: a.b=value (repeat)")->allow_extra_args(false);
  show->add_flag("--json", show_flags->json, "one line of JSON instead of YAML, with the same keys");
  show->footer("Example: troupe config show examples/simple_spread_mappo.yaml --set algorithm.lr=1e-3");
  show->callback([=] { *action = [=] { return Show(*show_flags); }; });

  const auto markdown = std::make_shared<bool>(false);
  CLI::App* defaults = config->add_subcommand("defaults", "Every key with its default, range and meaning.");
  defaults->add_flag("--markdown", *markdown, "as tables, the way docs/configuration.md has them");
  defaults->footer("Example: troupe config defaults > run.yaml");
  defaults->callback([=] {
    *action = [=]() -> absl::StatusOr<int> {
      std::fputs((*markdown ? config::DefaultsMarkdown() : config::DefaultsYaml()).c_str(), stdout);
      return 0;
    };
  });
}

}  // namespace troupe::services
