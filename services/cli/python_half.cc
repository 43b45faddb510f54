#include "services/cli/python_half.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "lib/base/exit_code.h"
#include "lib/base/status_macros.h"
#include "lib/cli/programs.h"
#include "lib/envhost/python_program.h"

namespace troupe::services {
namespace {

// `-c` puts "", the working directory, in front of what is imported from: that may be anybody's folder. 78 is kRefused.
constexpr char kProgram[] = R"(import sys
sys.path[:] = filter(None, sys.path)
import importlib
module, does, needs = sys.argv[1:4]
del sys.argv[1:4]
try:
    main = importlib.import_module(module).main
except ImportError as error:
    print(f"troupe: error: {sys.executable} cannot {does} ({error}), expected {needs}this troupe's package", file=sys.stderr)
    sys.exit(78)
sys.exit(main())
)";
constexpr char kLibraryVariable[] = "TROUPE_ACTING_LIBRARY";

/// libtroupe_acting.so of the build tree that this program lies in. Empty: it is installed, or in a bundle, whose
/// Python package has one of its own.
std::string BuiltLibrary() {
  const std::filesystem::path folder = std::filesystem::path(cli::OwnPath()).parent_path();
  if (folder.filename() != "cli" || folder.parent_path().filename() != "services") return "";
  const std::filesystem::path library = folder.parent_path().parent_path() / "lib/acting/libtroupe_acting.so";
  std::error_code error;
  return std::filesystem::is_regular_file(library, error) ? library.string() : "";
}

/// Where Python finds the package and the library.
absl::Status SetEnvironment() {
  TROUPE_ASSIGN_OR_RETURN(std::string path, envhost::FindPackage());
  // Where an item is empty or relative Python looks in the working directory, before any of its own code runs.
  const char* const inherited = std::getenv("PYTHONPATH");
  for (const absl::string_view item : absl::StrSplit(inherited == nullptr ? "" : inherited, ':')) {
    if (absl::StartsWith(item, "/")) absl::StrAppend(&path, path.empty() ? "" : ":", item);
  }
  setenv("PYTHONPATH", path.c_str(), /*overwrite=*/1);
  const std::string library = BuiltLibrary();
  if (!library.empty()) setenv(kLibraryVariable, library.c_str(), /*overwrite=*/0);
  return absl::OkStatus();
}

}  // namespace

absl::Status PutOnStdin(const std::string& text) {
  const int fd = memfd_create("troupe-stdin", MFD_CLOEXEC);
  size_t written = 0;
  while (fd >= 0 && written < text.size()) {
    const ssize_t part = write(fd, text.data() + written, text.size() - written);
    if (part < 0 && errno != EINTR) break;
    if (part > 0) written += static_cast<size_t>(part);
  }
  if (fd >= 0 && written == text.size() && lseek(fd, 0, SEEK_SET) == 0) {
    // Where stdin was closed it is stdin by itself.
    if (fd == STDIN_FILENO && fcntl(fd, F_SETFD, 0) == 0) return absl::OkStatus();
    if (fd != STDIN_FILENO && dup2(fd, STDIN_FILENO) == STDIN_FILENO) {
      close(fd);
      return absl::OkStatus();
    }
  }
  return absl::InternalError(absl::StrCat("cannot hand ", text.size(), " bytes to Python: ", std::strerror(errno)));
}

absl::Status BecomePython(const PythonHalf& half) {
  const absl::StatusOr<std::string> interpreter = envhost::FindInterpreter(half.python);
  if (!interpreter.ok()) return base::RefusedIfFinal(interpreter.status());
  TROUPE_RETURN_IF_ERROR(base::RefusedIfFinal(SetEnvironment()));
  if (half.in != nullptr) TROUPE_RETURN_IF_ERROR(PutOnStdin(*half.in));
  std::vector<std::string> words = {*interpreter, "-c",
                                    kProgram,     half.module,
                                    half.does,    half.needs.empty() ? "" : absl::StrCat(half.needs, " and ")};
  words.insert(words.end(), half.words.begin(), half.words.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  execv(interpreter->c_str(), argv.data());
  return absl::InternalError(absl::StrCat("cannot start ", *interpreter, ": ", std::strerror(errno)));
}

}  // namespace troupe::services
