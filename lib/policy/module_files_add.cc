// ModuleFiles::Add, apart from what needs no hash.

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "lib/base/log.h"
#include "lib/base/sha256.h"
#include "lib/policy/module_files.h"

namespace troupe::policy {

absl::StatusOr<std::string> ModuleFiles::Add(const std::string& path) {
  namespace fs = std::filesystem;
  const std::string name = base::LogSafe(path);
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (!fs::exists(status)) {
    return absl::NotFoundError(absl::StrCat("got ", name, ", which cannot be read: ", std::strerror(ENOENT),
                                            ", expected a TorchScript file (torch.jit.save)"));
  }
  if (!fs::is_regular_file(status)) {
    return absl::InvalidArgumentError(
        absl::StrCat("got ", name, ", which is no file, expected a TorchScript file (torch.jit.save)"));
  }
  const auto size = static_cast<int64_t>(fs::file_size(path, error));
  if (error || size < 1 || size > kMaxModuleBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("got ", name, " of ", size, " bytes, expected a TorchScript file of 1 to ", kMaxModuleBytes));
  }
  ModuleFile file = {path, std::string(static_cast<size_t>(size), '\0')};
  std::ifstream stream(path, std::ios::binary);
  stream.read(file.bytes.data(), static_cast<std::streamsize>(size));
  if (!stream || stream.gcount() != size) {
    return absl::NotFoundError(absl::StrCat("got ", name, ", which cannot be read: ", std::strerror(errno)));
  }
  const std::string sha256 = base::Sha256(file.bytes);
  Put(sha256, std::move(file));
  return sha256;
}

}  // namespace troupe::policy
