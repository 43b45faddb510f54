#include "lib/rpc/control/control_socket.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/rpc/door/address.h"
#include "lib/rpc/transport/transport.h"

namespace troupe::rpc {
namespace {

constexpr mode_t kPrivateFolder = 0700;
constexpr mode_t kPrivateSocket = 0600;

absl::Status Failed(std::string_view what, const std::string& where) {
  return absl::FailedPreconditionError(absl::StrCat(where, ": ", std::string(what), ": ", std::strerror(errno)));
}

bool IsOursAlone(const struct stat& info) { return info.st_uid == geteuid() && (info.st_mode & 077) == 0; }

/// The socket's path by its folder's descriptor: sun_path has 108 bytes, a run folder's path may have more.
std::string PathIn(const Descriptor& folder) {
  return absl::StrCat("/proc/self/fd/", folder.fd(), "/", kControlSocketName);
}

/// Opens a folder that nobody else can enter.
absl::StatusOr<Descriptor> OpenPrivateFolder(const std::string& folder) {
  Descriptor fd(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!fd.valid()) return Failed("cannot be opened as a folder", folder);
  struct stat info;
  if (fstat(fd.fd(), &info) != 0) return Failed("fstat", folder);
  if (info.st_uid != geteuid()) {
    return absl::FailedPreconditionError(
        absl::StrCat(folder, " belongs to user ", info.st_uid, ", expected ", geteuid()));
  }
  if (fchmod(fd.fd(), kPrivateFolder) != 0) return Failed("chmod", folder);
  // Not every file system has modes.
  if (fstat(fd.fd(), &info) != 0 || !IsOursAlone(info)) {
    return absl::FailedPreconditionError(absl::StrCat(folder, " cannot be closed to other users"));
  }
  return fd;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ControlSocket>> ControlSocket::ListenIn(const std::string& folder, std::string place) {
  TROUPE_ASSIGN_OR_RETURN(Descriptor folder_fd, OpenPrivateFolder(folder));
  Address address{.kind = Address::Kind::kUnix, .text = absl::StrCat(folder, "/", kControlSocketName)};
  address.path = PathIn(folder_fd);
  TROUPE_ASSIGN_OR_RETURN(ListeningSockets sockets, ListeningSockets::Open(address));
  if (fchmodat(folder_fd.fd(), kControlSocketName, kPrivateSocket, 0) != 0)
    return Failed("chmod of the socket", folder);
  return std::unique_ptr<ControlSocket>(
      new ControlSocket(folder, std::move(place), std::move(folder_fd), std::move(sockets)));
}

absl::StatusOr<std::unique_ptr<ControlSocket>> ControlSocket::Listen(const std::string& run_folder,
                                                                     const std::string& elsewhere) {
  const std::string folder = run_folder + "/control";
  if (mkdir(folder.c_str(), kPrivateFolder) == 0 || errno == EEXIST) {
    auto beside = ListenIn(folder, absl::StrCat("control/", kControlSocketName));
    if (beside.ok()) return beside;
    TROUPE_WARN("the control socket lies outside of the run folder error=\"{}\"",
                base::LogSafe(std::string(beside.status().message())));
    rmdir(folder.c_str());
  }
  std::string made = elsewhere + "/troupe-XXXXXX";
  if (mkdtemp(made.data()) == nullptr) return Failed("no folder for the control socket can be made", elsewhere);
  auto socket = ListenIn(made, absl::StrCat(made, "/", kControlSocketName));
  if (!socket.ok()) rmdir(made.c_str());
  return socket;
}

ControlSocket::~ControlSocket() {
  sockets_.Close();
  rmdir(folder_.c_str());
}

std::string RuntimeDirectory() {
  const char* const runtime = getenv("XDG_RUNTIME_DIR");
  struct stat info;
  if (runtime != nullptr && *runtime == '/' && stat(runtime, &info) == 0 && S_ISDIR(info.st_mode) &&
      IsOursAlone(info)) {
    return runtime;
  }
  const char* const temporary = getenv("TMPDIR");
  return temporary != nullptr && *temporary == '/' ? temporary : "/tmp";
}

absl::StatusOr<std::shared_ptr<grpc::Channel>> DialControl(const std::string& path) {
  const auto failed = [&path](int error) {
    const std::string text = absl::StrCat("control socket ", path, ": ", std::strerror(error));
    if (error == ENOENT || error == ENOTDIR) return absl::NotFoundError(text);
    if (error == EACCES || error == EPERM) return absl::PermissionDeniedError(text);
    return absl::UnavailableError(text);
  };
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos || path.substr(slash + 1) != kControlSocketName) {
    return absl::InvalidArgumentError(
        absl::StrCat("control socket ", base::LogSafe(path), ": expected the path of a ", kControlSocketName));
  }
  // Never through a link: it could lead from a stranger's run folder to another run's socket.
  const std::string above = path.substr(0, std::max<size_t>(slash, 1));
  const Descriptor folder(open(above.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!folder.valid()) return failed(errno);
  Descriptor fd(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return failed(errno);
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  PathIn(folder).copy(name.sun_path, sizeof(name.sun_path) - 1);
  if (connect(fd.fd(), reinterpret_cast<const sockaddr*>(&name), sizeof(name)) != 0) return failed(errno);
  return MakeChannelOn(std::move(fd));
}

}  // namespace troupe::rpc
