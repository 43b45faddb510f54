#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace troupe::rpc {

/// Where a service listens or is found. Plain value.
struct Address {
  enum class Kind {
    kUnix,      ///< unix:PATH, a socket in the file system
    kAbstract,  ///< unix-abstract:NAME, a socket without a file
    kTcp,       ///< HOST:PORT or [IPV6]:PORT
  };
  Kind kind = Kind::kTcp;
  std::string text;  ///< as given; also gRPC's name for it
  std::string host;  ///< of kTcp, without brackets
  int port = 0;      ///< of kTcp; 0: any free port (listening only)
  std::string path;  ///< of kUnix and kAbstract

  /// Its bytes never leave this machine: a Unix socket, or base::IsLoopback.
  bool local() const;
};

/// INVALID_ARGUMENT with the three forms when `text` is none of them, a port is out of range or a socket's path is too
/// long.
absl::StatusOr<Address> ParseAddress(std::string_view text);

}  // namespace troupe::rpc
