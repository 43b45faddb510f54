#include "lib/policy/module_files.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/log.h"
#include "lib/policy/module_reader.h"

namespace troupe::policy {
namespace {

ModuleReader* g_reader = nullptr;

}  // namespace

ModuleReader* FindModuleReader() { return g_reader; }
void SetModuleReader(ModuleReader* reader) { g_reader = reader; }

ModuleFiles& ModuleFiles::OfProcess() {
  static auto* const kFiles = new ModuleFiles;
  return *kFiles;
}

void ModuleFiles::Put(const std::string& sha256, ModuleFile file) {
  auto kept = std::make_shared<const ModuleFile>(std::move(file));
  const base::MutexLock lock(&mutex_);
  files_.emplace(sha256, std::move(kept));
}

absl::StatusOr<ModuleFilePtr> ModuleFiles::Find(const std::string& sha256) const {
  const base::MutexLock lock(&mutex_);
  const auto found = files_.find(sha256);
  if (found != files_.end()) return found->second;
  return absl::NotFoundError(absl::StrCat("there is no TorchScript file with SHA-256 ", base::LogSafe(sha256, 80),
                                          " in this process, expected --allow-torchscript FILE, or a configuration "
                                          "whose model.torchscript is that file"));
}

}  // namespace troupe::policy
