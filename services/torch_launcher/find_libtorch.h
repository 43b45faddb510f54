#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace troupe::services {

/// Where LibTorch is looked for: in the variable's folder where that is set; else in the packages torch and
/// troupe_libtorch beside a wheel's program, the first that has the version; else in the package torch of python3.
struct LibTorchPlaces {
  std::string
      variable;      ///< TROUPE_LIBTORCH: a folder with torch/ (a site-packages) or lib/ (LibTorch's zip); "": not set
  std::string path;  ///< PATH, where python3 is
  std::string site;  ///< SitePackagesOf the program; "": it is not of a wheel
  absl::Duration python_timeout = absl::Seconds(10);
};

/// A LibTorch that is there, of the right version.
struct LibTorch {
  std::string folder;   ///< absolute; lib/libtorch_cpu.so is in it
  std::string version;  ///< "2.11.0", without what may follow (+cpu, +cu130)
};

/// The LibTorch that a program made for version `expected` ("2.11.0") can be started with. Runs python3 where the
/// variable is not set, and waits for it up to the timeout. NOT_FOUND: there is none; FAILED_PRECONDITION: another
/// version, or it does not say which. The message is one sentence for a person.
absl::StatusOr<LibTorch> FindLibTorch(const LibTorchPlaces& places, const std::string& expected);

/// The folder with the packages among which `program` is installed, SITE/troupe/bin/NAME; "" where it is not of a
/// wheel.
std::string SitePackagesOf(const std::string& program);

/// What a person does for a LibTorch of version `expected`; `site` as in LibTorchPlaces. Begins with "install".
std::string LibTorchRemedy(const std::string& site, const std::string& expected);

/// What a LibTorch's folder says its version is, in version.py, in the dist-info beside the folder, or in
/// build-version;
/// "" where nothing does.
std::string LibTorchVersion(const std::string& folder);

/// The LibTorch that this process has loaded; an empty folder where it has none.
LibTorch LoadedLibTorch();

/// The folders with LibTorch's own libraries and those of CUDA that pip puts beside it, in the order of search.
std::vector<std::string> LibraryFolders(const LibTorch& libtorch);

}  // namespace troupe::services
