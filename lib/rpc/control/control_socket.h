#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "lib/rpc/door/descriptor.h"
#include "lib/rpc/door/listening_socket.h"
#include <grpcpp/channel.h>

namespace troupe::rpc {

/// Name of every control socket, in a folder of its own.
inline constexpr char kControlSocketName[] = "control.sock";

/// The control socket of a run, listening: a socket of mode 0600 in a folder of mode 0700, reached by the folder's
/// descriptor, so that the length of its path does not matter. Made by ControlServer. One thread at a time.
class ControlSocket {
 public:
  /// Listens in `run_folder`/control; where that cannot hold a private socket (a file system without sockets or
  /// modes), in a new folder inside `elsewhere`. Takes the place of a socket that a killed learner left: only who holds
  /// the run folder's lock may call this. Errors: the last one of the two places.
  static absl::StatusOr<std::unique_ptr<ControlSocket>> Listen(const std::string& run_folder,
                                                               const std::string& elsewhere);
  /// Removes the folder, too. Whoever took the sockets has closed them.
  ~ControlSocket();
  ControlSocket(const ControlSocket&) = delete;
  ControlSocket& operator=(const ControlSocket&) = delete;

  /// To be accepted from, once; they remove the socket's file and do so before this object goes.
  ListeningSockets TakeSockets() { return std::move(sockets_); }
  /// For RUN/address: "control/control.sock" of the run folder, or an absolute path.
  const std::string& place() const { return place_; }

 private:
  /// Makes the socket in `folder`, which is there.
  static absl::StatusOr<std::unique_ptr<ControlSocket>> ListenIn(const std::string& folder, std::string place);
  ControlSocket(std::string folder, std::string place, Descriptor folder_fd, ListeningSockets sockets)
      : folder_(std::move(folder)),
        place_(std::move(place)),
        folder_fd_(std::move(folder_fd)),
        sockets_(std::move(sockets)) {}

  const std::string folder_;
  const std::string place_;
  const Descriptor folder_fd_;  ///< before the sockets, whose file's name is by it
  ListeningSockets sockets_;
};

/// Where private sockets of this user belong: $XDG_RUNTIME_DIR where that is a private folder of the user's, else
/// $TMPDIR, else /tmp.
std::string RuntimeDirectory();

/// Whether a process of user `peer` may open the control socket of a learner of user `learner`: the same user, or root.
/// A `peer` of -1, whom the kernel does not tell, may not.
constexpr bool MayControl(int64_t peer, uid_t learner) { return peer == 0 || peer == static_cast<int64_t>(learner); }

/// A channel over one connection to the control socket at `path`, of any length. Never waits: NOT_FOUND there is no
/// such socket, UNAVAILABLE nobody listens at it (any more), PERMISSION_DENIED it is another user's.
absl::StatusOr<std::shared_ptr<grpc::Channel>> DialControl(const std::string& path);

}  // namespace troupe::rpc
