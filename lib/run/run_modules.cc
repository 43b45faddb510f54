#include "lib/run/run_modules.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/policy/module_files.h"
#include "lib/storage/file_system.h"

namespace troupe::run {
namespace {

std::string FolderOf(const std::string& folder) { return folder + "/torchscript"; }

}  // namespace

std::string ModulePath(const std::string& folder, const std::string& sha256) {
  return absl::StrCat(FolderOf(folder), "/", sha256, ".pt");
}

absl::Status ReadRunModules(const std::string& folder, const config::RunConfig& config, config::ModuleUse use) {
  policy::ModuleFiles& files = policy::ModuleFiles::OfProcess();
  for (const config::NamedModule& module : config::ModulesOf(config, use)) {
    if (config::IsModulePath(module.text)) continue;
    const std::string sha256(absl::StripPrefix(module.text, std::string(policy::kModuleHashPrefix)));
    if (!policy::IsSha256(sha256)) continue;  // as PinModules says in words
    const std::string path = ModulePath(folder, sha256);
    if (files.Find(sha256).ok() || !storage::FileSystem::Posix().Exists(path)) continue;
    TROUPE_ASSIGN_OR_RETURN(const std::string got, files.Add(path));
    if (got != sha256) {
      return absl::DataLossError(absl::StrCat(base::LogSafe(path), " has the SHA-256 ", got,
                                              ", expected that of its name; put the original there"));
    }
  }
  return absl::OkStatus();
}

absl::Status KeepRunModules(const std::string& folder, const config::RunConfig& config) {
  storage::FileSystem& fs = storage::FileSystem::Posix();
  for (const config::NamedModule& module : config::ModulesOf(config, config::ModuleUse::kTraining)) {
    const std::string sha256(absl::StripPrefix(module.text, std::string(policy::kModuleHashPrefix)));
    const std::string path = ModulePath(folder, sha256);
    if (fs.Exists(path)) continue;
    const absl::StatusOr<policy::ModuleFilePtr> file = policy::ModuleFiles::OfProcess().Find(sha256);
    if (!file.ok()) return config.KeyError(module.key, std::string(file.status().message()));
    TROUPE_RETURN_IF_ERROR(storage::MakeDurableDirectories(fs, FolderOf(folder)));
    TROUPE_RETURN_IF_ERROR(storage::ReplaceFile(fs, path, (*file)->bytes));
  }
  return absl::OkStatus();
}

}  // namespace troupe::run
