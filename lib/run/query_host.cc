#include "lib/run/query_host.h"

#include <optional>
#include <random>
#include <set>

#include "absl/strings/str_cat.h"
#include "lib/base/exit_code.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/config/make_env.h"
#include "lib/config/permits.h"
#include "lib/config/resolved_run.h"
#include "lib/config/run_config.h"
#include "lib/config/torch_modules.h"
#include "lib/policy/module_files.h"
#include "lib/policy/policy_entry.h"
#include "lib/policy/policy_spec.h"

namespace troupe::run {

uint64_t DrawSeed() {
  // Two servers of one run must not sample the same actions, nor one after a restart.
  std::random_device device;
  return (static_cast<uint64_t>(device()) << 32) | device();
}

std::vector<policy::PolicySpec> ActiveSpecs(const policy::PolicyTable& table) {
  std::vector<policy::PolicySpec> specs;
  for (const std::optional<policy::PolicyEntry>& entry : table.entries()) {
    if (entry.has_value() && entry->active()) specs.push_back(entry->spec);
  }
  return specs;
}

absl::StatusOr<std::shared_ptr<inference::ActorHost>> MakeActorHost(const policy::PolicyTable& table,
                                                                    const QueryPermits& asked) {
  std::set<config::Statement> named = config::StatementsOf(table);
  // Critics are not asked here, so nobody runs theirs.
  std::set<std::string> acting;
  for (const policy::PolicySpec& spec : ActiveSpecs(table)) {
    acting.insert(absl::StrCat(std::string(policy::kModuleHashPrefix), spec.actor.module.sha256));
  }
  std::erase_if(named, [&acting](const config::Statement& each) {
    return each.kind == config::Statement::Kind::kModule && acting.count(each.name) == 0;
  });
  if (named.empty()) return nullptr;
  config::RunConfig own;
  if (!asked.config_path.empty()) {
    TROUPE_ASSIGN_OR_RETURN(own, config::RunConfig::FromFile(asked.config_path));
    TROUPE_ASSIGN_OR_RETURN(own, config::PinModules(own, config::ModuleUse::kActing));
  }
  TROUPE_ASSIGN_OR_RETURN(const std::vector<std::string> modules, config::AddModuleFiles(asked.modules));
  TROUPE_ASSIGN_OR_RETURN(const config::Permits permits, config::Permits::Make(own, {}, modules));
  for (const config::Statement& each : named) {
    if (permits.Permit(each)) continue;
    const bool is_module = each.kind == config::Statement::Kind::kModule;
    return base::WithExitCode(
        absl::PermissionDeniedError(absl::StrCat(
            "the run names ", base::LogSafe(each.name), ", which nothing of yours permits, expected ",
            is_module ? "--allow-torchscript FILE with that SHA-256 (the run keeps it in torchscript/), or " : "",
            "--config FILE with a configuration that names it, too")),
        base::ExitCode::kRefused);
  }
  TROUPE_ASSIGN_OR_RETURN(const config::EnvSettings settings, config::EnvSettingsOf(own));
  return config::MakeQueriedPolicyHost(settings);
}

}  // namespace troupe::run
