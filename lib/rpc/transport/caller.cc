#include "lib/rpc/transport/caller.h"

#include <optional>

#include "absl/strings/match.h"
#include "lib/base/log.h"

namespace troupe::rpc {

Caller MakeCaller(Door door, const std::string& connection, const PeerBook* peers) {
  if (door == Door::kControl) return {Caller::Kind::kControlSocket, ""};
  // Not "unix-abstract:": the relay's connections are named so.
  if (absl::StartsWith(connection, "unix:")) return {Caller::Kind::kUnixSocket, ""};
  const std::optional<Peer> peer = peers == nullptr ? std::nullopt : peers->Find(connection);
  return {Caller::Kind::kNetwork, peer.has_value() ? peer->ToString() : base::LogSafe(connection)};
}

}  // namespace troupe::rpc
