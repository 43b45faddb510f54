#include "services/torch_launcher/find_libtorch.h"

#include <link.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "services/torch_launcher/ask_python.h"

namespace troupe::services {
namespace {

namespace fs = std::filesystem;

constexpr char kLibrary[] = "lib/libtorch_cpu.so";

bool HoldsLibTorch(const fs::path& folder) {
  std::error_code error;
  return fs::is_regular_file(folder / kLibrary, error);
}

/// "2.11.0" of "2.11.0+cu130".
std::string Release(const std::string& version) { return version.substr(0, version.find('+')); }

/// The text between quotes in `__version__ = '2.11.0+cu130'`.
std::optional<std::string> VersionOfModule(const fs::path& path) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!absl::StartsWith(line, "__version__")) continue;
    const size_t begin = line.find_first_of("'\"");
    const size_t end = line.find_last_of("'\"");
    if (begin != std::string::npos && begin + 1 < end) return line.substr(begin + 1, end - begin - 1);
  }
  return std::nullopt;
}

/// 2.11.0 of torch-2.11.0.dist-info in `folder`.
std::optional<std::string> VersionOfDistInfo(const fs::path& folder) {
  std::error_code error;
  std::vector<std::string> versions;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    absl::string_view version = name;
    if (absl::ConsumePrefix(&version, "torch-") && absl::ConsumeSuffix(&version, ".dist-info")) {
      versions.emplace_back(version);
    }
  }
  // Two of them are what a failed upgrade leaves; neither is to be believed.
  if (versions.size() != 1) return std::nullopt;
  return versions.front();
}

std::optional<std::string> VersionOfZip(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  return std::string(absl::StripAsciiWhitespace(line));
}

absl::StatusOr<std::string> FolderOfVariable(const std::string& variable, const std::string& expected) {
  std::error_code error;
  const fs::path given = fs::absolute(variable, error);
  for (const fs::path& folder : {given / "torch", given}) {
    if (HoldsLibTorch(folder)) return folder.lexically_normal().string();
  }
  return absl::NotFoundError(absl::StrCat(
      "TROUPE_LIBTORCH is ", base::LogSafe(variable), ", which holds no LibTorch; expected LibTorch ", expected,
      ", as torch/", kLibrary, " (a site-packages) or ", kLibrary, " (LibTorch's zip) in that folder"));
}

std::string Remedy(const LibTorchPlaces& places, const std::string& expected) {
  return "; " + LibTorchRemedy(places.site, expected);
}

/// The first package beside the program that has the version, else the first that there is; nullopt where there is
/// none.
std::optional<std::string> FolderBeside(const std::string& site, const std::string& expected) {
  std::optional<std::string> found;
  for (const char* package : {"torch", "troupe_libtorch"}) {
    const std::string folder = (fs::path(site) / package).string();
    if (!HoldsLibTorch(folder)) continue;
    if (Release(LibTorchVersion(folder)) == expected) return folder;
    if (!found.has_value()) found = folder;
  }
  return found;
}

absl::StatusOr<std::string> FolderOfPython(const LibTorchPlaces& places, const std::string& expected) {
  const absl::StatusOr<std::string> folder = AskPythonForTorch(places.path, places.python_timeout);
  if (!folder.ok()) {
    return absl::NotFoundError(absl::StrCat("this build needs LibTorch ", expected,
                                            ", but there is none: TROUPE_LIBTORCH is not set and ",
                                            folder.status().message(), Remedy(places, expected)));
  }
  if (HoldsLibTorch(*folder)) return fs::path(*folder).lexically_normal().string();
  return absl::NotFoundError(absl::StrCat("this build needs LibTorch ", expected, ", but python3's package torch in ",
                                          base::LogSafe(*folder), " holds no ", kLibrary, Remedy(places, expected)));
}

absl::StatusOr<std::string> FindFolder(const LibTorchPlaces& places, const std::string& expected) {
  if (!places.variable.empty()) return FolderOfVariable(places.variable, expected);
  if (!places.site.empty()) {
    const std::optional<std::string> folder = FolderBeside(places.site, expected);
    if (folder.has_value()) return *folder;
  }
  return FolderOfPython(places, expected);
}

}  // namespace

std::string SitePackagesOf(const std::string& program) {
  const fs::path package = fs::path(program).parent_path().parent_path();
  std::error_code error;
  const bool wheel = package.filename() == "troupe" && fs::is_regular_file(package / "__init__.py", error);
  return wheel ? package.parent_path().string() : "";
}

std::string LibTorchRemedy(const std::string& site, const std::string& expected) {
  const std::string package = site.empty() ? absl::StrCat("pip install torch==", expected)
                                           : "pip install '" TROUPE_DISTRIBUTION
                                             "[cpu]' (for an NVIDIA GPU '" TROUPE_DISTRIBUTION "[cuda]')";
  return absl::StrCat("install it with ", package, ", or set TROUPE_LIBTORCH to the folder that holds torch/");
}

std::string LibTorchVersion(const std::string& folder) {
  std::optional<std::string> version = VersionOfModule(fs::path(folder) / "version.py");
  if (!version.has_value()) version = VersionOfDistInfo(fs::path(folder).parent_path());
  if (!version.has_value()) version = VersionOfZip(fs::path(folder) / "build-version");
  return version.value_or("");
}

absl::StatusOr<LibTorch> FindLibTorch(const LibTorchPlaces& places, const std::string& expected) {
  LibTorch found;
  TROUPE_ASSIGN_OR_RETURN(found.folder, FindFolder(places, expected));
  const std::string version = LibTorchVersion(found.folder);
  found.version = Release(version);
  if (found.version == expected) return found;
  return absl::FailedPreconditionError(absl::StrCat(
      "this build needs LibTorch ", expected, ", got ",
      version.empty() ? "one that does not say its version (in version.py, torch-*.dist-info or build-version)"
                      : base::LogSafe(version),
      " in ", base::LogSafe(found.folder), Remedy(places, expected)));
}

LibTorch LoadedLibTorch() {
  std::string library;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t /*size*/, void* found) {
        if (!absl::EndsWith(info->dlpi_name, "/libtorch_cpu.so")) return 0;
        *static_cast<std::string*>(found) = info->dlpi_name;
        return 1;
      },
      &library);
  LibTorch loaded;
  if (library.empty()) return loaded;
  loaded.folder = fs::path(library).parent_path().parent_path().lexically_normal().string();
  loaded.version = Release(LibTorchVersion(loaded.folder));
  return loaded;
}

std::vector<std::string> LibraryFolders(const LibTorch& libtorch) {
  const fs::path folder = libtorch.folder;
  std::vector<std::string> nvidia;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder.parent_path() / "nvidia", error)) {
    if (fs::is_directory(entry.path() / "lib", error)) nvidia.push_back((entry.path() / "lib").string());
  }
  std::sort(nvidia.begin(), nvidia.end());
  nvidia.insert(nvidia.begin(), (folder / "lib").string());
  return nvidia;
}

}  // namespace troupe::services
