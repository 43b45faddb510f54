#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "lib/base/mutex.h"
#include "lib/rpc/door/peer.h"

namespace troupe::rpc {

/// Who is behind the connections of a server. gRPC sees a relayed connection under a name that the relay gave it
/// (ServerContext::peer()); here that name leads to the peer. Shared by a server's services and its connections.
/// Thread-safe; nothing blocks. Of hosts that workers came from the last 1024 are known.
class PeerBook {
 public:
  void Add(const std::string& name, const Peer& peer);
  void Remove(const std::string& name);

  /// nullopt: no TCP connection of this server, or it is gone.
  std::optional<Peer> Find(const std::string& name) const;
  /// A worker has registered over connection `name`: workers that come from its host again find a place.
  void NoteWorker(const std::string& name);
  /// Somebody has subscribed to weights over connection `name`, as a worker does beside its registration. It counts as
  /// a worker's where one has registered from its host: a subscription alone costs nothing and proves nothing.
  void NoteSubscriber(const std::string& name);
  bool IsWorker(const std::string& name) const;
  bool IsHostOfWorker(const std::string& host) const;

  /// The process is about to dial itself from this port of its own, until the next call; 0: it is not.
  void ExpectOwnDial(int port);
  /// Whether `peer` is that dial; `local_host` is the address that it has reached.
  bool IsOwnDial(const Peer& peer, const std::string& local_host) const;

 private:
  struct Known {
    Peer peer;
    bool worker = false;
  };
  static constexpr size_t kMaxHosts = 1024;

  mutable base::Mutex mutex_;
  std::map<std::string, Known> connections_ ABSL_GUARDED_BY(mutex_);
  std::deque<std::string> worker_hosts_ ABSL_GUARDED_BY(mutex_);  ///< the newest last
  int own_port_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace troupe::rpc
