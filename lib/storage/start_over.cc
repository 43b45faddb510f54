#include "lib/storage/start_over.h"

#include <memory>

#include "absl/strings/str_cat.h"
#include "lib/base/exit_code.h"
#include "lib/base/status_macros.h"
#include "lib/storage/run_folder.h"
#include "lib/storage/run_lock.h"

namespace troupe::storage {
namespace {

std::string Before(const std::string& run, int n) { return absl::StrCat(run, ".before-", n); }

absl::Status Refused(absl::StatusCode code, const std::string& message) {
  return base::WithExitCode(absl::Status(code, absl::StrCat("--start-over: ", message)), base::ExitCode::kRefused);
}

}  // namespace

absl::StatusOr<std::string> MoveRunAside(FileSystem& fs, const std::string& run) {
  int n = 1;
  while (fs.Exists(Before(run, n))) ++n;
  if (!fs.Exists(run + "/config.yaml")) {
    if (n > 1) return Before(run, n - 1);
    return Refused(absl::StatusCode::kNotFound, absl::StrCat("there is no run in \"", run, "\""));
  }
  TROUPE_ASSIGN_OR_RETURN(const std::unique_ptr<RunLock> lock, RunLock::Take(run));
  if (fs.Exists(absl::StrCat(run, "/", kStartedOverFile))) {
    return Refused(absl::StatusCode::kAlreadyExists,
                   absl::StrCat("\"", run, "\" was itself begun by it, and it works once: --resume ", run,
                                " goes on with it; to begin once more move it away by hand"));
  }
  TROUPE_RETURN_IF_ERROR(fs.Rename(run, Before(run, n)));
  TROUPE_RETURN_IF_ERROR(fs.SyncDirectory(FolderOf(run)));
  return Before(run, n);
}

}  // namespace troupe::storage
