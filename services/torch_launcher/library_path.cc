#include "services/torch_launcher/library_path.h"

#include <dlfcn.h>
#include <stdlib.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/base/log.h"

namespace troupe::services {
namespace {

namespace fs = std::filesystem;

constexpr char kVariable[] = "LD_LIBRARY_PATH";
constexpr char kFormer[] = "TROUPE_FORMER_LD_LIBRARY_PATH";

bool LoaderFinds(const std::string& library) {
  void* handle = dlopen(library.c_str(), RTLD_LAZY | RTLD_LOCAL);
  if (handle == nullptr) return false;
  dlclose(handle);
  return true;
}

}  // namespace

absl::Status SetLibraryPath(const std::vector<std::string>& folders, const std::vector<std::string>& last) {
  std::vector<std::string> all = folders;
  const char* present = std::getenv(kVariable);
  const std::string former = present == nullptr ? "" : present;
  if (!former.empty()) all.push_back(former);
  all.insert(all.end(), last.begin(), last.end());
  for (const std::vector<std::string>* ours : {&folders, &last}) {
    for (const std::string& folder : *ours) {
      if (folder.find_first_of(":;") == std::string::npos) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("got the folder ", base::LogSafe(folder),
                       ", expected one without ':' and ';', which the loader takes for the end of a name"));
    }
  }
  setenv(kFormer, former.c_str(), 1);
  setenv(kVariable, absl::StrJoin(all, ":").c_str(), 1);
  return absl::OkStatus();
}

void RestoreLibraryPath() {
  const char* former = std::getenv(kFormer);
  if (former == nullptr) return;
  if (*former == '\0') {
    unsetenv(kVariable);
  } else {
    setenv(kVariable, former, 1);
  }
  unsetenv(kFormer);
}

std::vector<std::string> NeededStubs(const std::string& stubs, const std::vector<std::string>& folders) {
  std::vector<std::string> needed;
  std::error_code error;
  for (const auto& stub : fs::directory_iterator(stubs, error)) {
    for (const auto& file : fs::directory_iterator(stub.path(), error)) {
      const std::string library = file.path().filename().string();
      const bool beside = std::any_of(folders.begin(), folders.end(), [&](const std::string& folder) {
        return fs::exists(fs::path(folder) / library, error);
      });
      if (!beside && !LoaderFinds(library)) needed.push_back(stub.path().string());
    }
  }
  std::sort(needed.begin(), needed.end());
  return needed;
}

}  // namespace troupe::services
