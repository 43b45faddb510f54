#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "lib/base/mutex.h"

namespace troupe::policy {

/// Before a hash, in configurations: "sha256:HEX".
inline constexpr std::string_view kModuleHashPrefix = "sha256:";
inline constexpr int64_t kMaxModuleBytes = int64_t{256} << 20;

/// A TorchScript file as it was when it was read.
struct ModuleFile {
  std::string path;  ///< for messages
  std::string bytes;
};
using ModuleFilePtr = std::shared_ptr<const ModuleFile>;

/// The TorchScript files that this process may run, by the SHA-256 of their bytes: what a person has named on its
/// command line, in its configuration or by its run folder. A file is code: who is told a hash by somebody else finds
/// what is in here and nothing more. One a process; thread-safe; read files stay as they were read.
class ModuleFiles {
 public:
  static ModuleFiles& OfProcess();

  /// NOT_FOUND: cannot be read; INVALID_ARGUMENT: no file, empty, or larger than kMaxModuleBytes. Else what Find takes:
  /// the hash.
  absl::StatusOr<std::string> Add(const std::string& path);
  /// Bytes of which `sha256` is said to be the hash.
  void Put(const std::string& sha256, ModuleFile file);
  /// NOT_FOUND says how a file is permitted.
  absl::StatusOr<ModuleFilePtr> Find(const std::string& sha256) const;

 private:
  mutable base::Mutex mutex_;
  std::map<std::string, ModuleFilePtr> files_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace troupe::policy
