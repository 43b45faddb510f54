#pragma once

#include <cstdint>
#include <string>

namespace troupe::rpc {

/// Who is at the other end of an accepted connection, as the kernel knows it. Plain value.
struct Peer {
  bool unix_socket = false;
  std::string host;  ///< of TCP: "10.0.0.7", "::1"; an IPv4 address mapped into IPv6 is given as IPv4
  int port = 0;      ///< of TCP
  int64_t uid = -1;  ///< of a Unix socket: the user who connected

  /// For words: "10.0.0.7:51234", "[::1]:51234", "uid 1000".
  std::string ToString() const;
};

/// The peer of a connected socket; an empty host or uid -1 where the kernel does not say.
Peer PeerOfSocket(int fd);
/// The address of this side of a connected TCP socket; empty for others.
std::string LocalHostOf(int fd);

}  // namespace troupe::rpc
