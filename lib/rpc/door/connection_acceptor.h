#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "lib/rpc/door/descriptor.h"
#include "lib/rpc/door/listening_socket.h"
#include "lib/rpc/door/peer.h"

namespace troupe::rpc {

/// What an acceptor does with who comes. Called by its thread alone; must not block.
struct AcceptorHooks {
  /// Whether newcomers of this listener are to be taken now; empty: always. The others wait in the kernel's queue,
  /// until that is half full.
  std::function<bool(const Address& listener)> wants;
  /// Whether a newcomer gets in; who does not is closed without a byte.
  std::function<bool(const Address& listener, const Peer&)> admit;
  /// Takes the connected, non-blocking socket.
  std::function<void(Descriptor, const Peer&)> hand_over;
  /// Something else that the thread does when this descriptor is readable or the time is over; -1: nothing.
  int also_fd = -1;
  std::function<void()> also_step;
  std::function<absl::Duration()> until_also_step;
};

/// Accepts connections in place of gRPC 1.51, whose listener stays deaf for good once the process has run out of
/// descriptors (CVE-2023-4785). This one holds one descriptor back: it gives that up for the moment that it takes to
/// accept and close a newcomer, so that nobody waits in the kernel's queue for a place that never comes.
///
/// Made and owned by a server (lib/rpc/transport/listen.h). Start and Stop by one thread. It has a thread of its own
/// from Start to Stop. States: made -> accepting -> (StopAccepting) no longer accepting -> stopped.
class ConnectionAcceptor {
 public:
  /// RESOURCE_EXHAUSTED when the process has no descriptor left already.
  static absl::StatusOr<std::unique_ptr<ConnectionAcceptor>> Create(std::vector<ListeningSockets> listening,
                                                                    AcceptorHooks hooks);
  ~ConnectionAcceptor() { Stop(); }

  void Start();
  /// Closes the listening sockets: who comes now is refused by the kernel. Does not block; idempotent.
  void StopAccepting();
  /// The same, and the end of the thread, for which it blocks. Idempotent.
  void Stop();

  /// One turn of the loop: waits at most `timeout` for newcomers and takes what is there. Public for tests without a
  /// thread.
  void Step(absl::Duration timeout);

  /// Newcomers that were closed because there was no descriptor for them.
  int64_t num_shed() const { return num_shed_.load(std::memory_order_relaxed); }

 private:
  ConnectionAcceptor(std::vector<ListeningSockets> listening, AcceptorHooks hooks, Descriptor wake, Descriptor reserve);
  void Wake();
  /// Whether somebody who waits at a listener is to be taken now.
  bool Wants(const Address& address, int listener) const;
  void AcceptFrom(const Address& address, int listener);
  void Take(const Address& address, Descriptor socket);
  /// Accepts one newcomer at the cost of the reserve and closes it; false when nobody was there.
  bool Shed(int listener);
  void WarnOfShedding();

  std::vector<ListeningSockets> listening_;
  const AcceptorHooks hooks_;
  Descriptor wake_;  ///< an eventfd: readable when the loop is to look at what follows
  std::atomic<bool> accepting_{true};
  Descriptor reserve_;  ///< invalid: none was to be had when it was last needed
  std::atomic<bool> stopping_{false};
  std::atomic<int64_t> num_shed_{0};
  absl::Duration last_warning_ = -absl::InfiniteDuration();
  std::thread thread_;
};

}  // namespace troupe::rpc
