#include "lib/rpc/door/peer_book.h"

#include <algorithm>

namespace troupe::rpc {

void PeerBook::Add(const std::string& name, const Peer& peer) {
  base::MutexLock lock(&mutex_);
  connections_[name] = {.peer = peer};
}

void PeerBook::Remove(const std::string& name) {
  base::MutexLock lock(&mutex_);
  connections_.erase(name);
}

std::optional<Peer> PeerBook::Find(const std::string& name) const {
  base::MutexLock lock(&mutex_);
  const auto found = connections_.find(name);
  if (found == connections_.end()) return std::nullopt;
  return found->second.peer;
}

void PeerBook::NoteWorker(const std::string& name) {
  base::MutexLock lock(&mutex_);
  const auto found = connections_.find(name);
  if (found == connections_.end()) return;
  found->second.worker = true;
  const std::string& host = found->second.peer.host;
  worker_hosts_.erase(std::remove(worker_hosts_.begin(), worker_hosts_.end(), host), worker_hosts_.end());
  worker_hosts_.push_back(host);
  if (worker_hosts_.size() > kMaxHosts) worker_hosts_.pop_front();
}

void PeerBook::NoteSubscriber(const std::string& name) {
  base::MutexLock lock(&mutex_);
  const auto found = connections_.find(name);
  if (found == connections_.end()) return;
  found->second.worker =
      std::find(worker_hosts_.begin(), worker_hosts_.end(), found->second.peer.host) != worker_hosts_.end();
}

bool PeerBook::IsWorker(const std::string& name) const {
  base::MutexLock lock(&mutex_);
  const auto found = connections_.find(name);
  return found != connections_.end() && found->second.worker;
}

bool PeerBook::IsHostOfWorker(const std::string& host) const {
  base::MutexLock lock(&mutex_);
  return std::find(worker_hosts_.begin(), worker_hosts_.end(), host) != worker_hosts_.end();
}

void PeerBook::ExpectOwnDial(int port) {
  base::MutexLock lock(&mutex_);
  own_port_ = port;
}

bool PeerBook::IsOwnDial(const Peer& peer, const std::string& local_host) const {
  base::MutexLock lock(&mutex_);
  return own_port_ != 0 && peer.port == own_port_ && peer.host == local_host;
}

}  // namespace troupe::rpc
