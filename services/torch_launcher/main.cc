// troupe-torch: starts a program of the bundle or the wheel that needs LibTorch. It is called by the program's name. In
// the bundle that is a link (bin/troupe-learner -> ../libexec/troupe/troupe-torch), and the program itself lies beside
// this one; wheels hold no links, so it is a copy there (troupe/bin/troupe-learner), and the program lies in
// troupe/libexec.

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "services/torch_launcher/find_libtorch.h"
#include "services/torch_launcher/library_path.h"

namespace troupe::services {
namespace {

namespace fs = std::filesystem;

std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

/// Returns only when it fails.
absl::Status Launch(const std::string& name, char** argv) {
  std::error_code error;
  const fs::path own = fs::read_symlink("/proc/self/exe", error);
  LibTorchPlaces places;
  places.site = SitePackagesOf(own.string());
  const fs::path folder = places.site.empty() ? own.parent_path() : own.parent_path().parent_path() / "libexec";
  const fs::path program = folder / name;
  if (program == own || !fs::is_regular_file(program, error)) {
    return absl::InvalidArgumentError(absl::StrCat("got the name ", base::LogSafe(name),
                                                   ", expected to be called by the name of a program in ",
                                                   folder.string(), ", as the links in bin/, tests/ and bench/ do"));
  }
  places.variable = Variable("TROUPE_LIBTORCH");
  places.path = Variable("PATH");
  TROUPE_ASSIGN_OR_RETURN(const LibTorch libtorch, FindLibTorch(places, TROUPE_LIBTORCH_VERSION));
  const std::vector<std::string> folders = LibraryFolders(libtorch);
  TROUPE_RETURN_IF_ERROR(SetLibraryPath(folders, NeededStubs((folder / "stubs").string(), folders)));
  execv(program.c_str(), argv);
  return absl::InternalError(absl::StrCat("cannot start ", program.string(), ": ", std::strerror(errno)));
}

}  // namespace
}  // namespace troupe::services

int main(int argc, char** argv) {
  const std::string name = argc > 0 ? std::filesystem::path(argv[0]).filename().string() : "troupe-torch";
  const absl::Status status = troupe::services::Launch(name, argv);
  std::fprintf(stderr, "%s: error: %s\n", name.c_str(), std::string(status.message()).c_str());
  return 1;
}
