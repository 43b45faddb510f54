#include "lib/rpc/door/connection_acceptor.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <memory>
#include <utility>

#include "lib/base/log.h"

namespace troupe::rpc {
namespace {

// A turn takes so many newcomers of one socket before it looks at the others.
constexpr int kAcceptsPerTurn = 8;
// After an error that waiting mends (no memory, no descriptor even for the reserve), and between two lines about it.
constexpr absl::Duration kBackOff = absl::Milliseconds(10);
constexpr absl::Duration kWarningInterval = absl::Seconds(10);

Descriptor OpenReserve() { return Descriptor(open("/dev/null", O_RDONLY | O_CLOEXEC)); }

Descriptor Accept(int listener) {
  return Descriptor(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
}

/// True when the kernel's queue of a TCP listener is over seven eighths full. A client that meets a full one hears
/// nothing for a second and more.
bool QueueIsLong(int listener) {
  tcp_info info{};
  socklen_t bytes = sizeof(info);
  // Of a listener these two are the queue's length and its limit.
  return getsockopt(listener, IPPROTO_TCP, TCP_INFO, &info, &bytes) == 0 &&
         8 * info.tcpi_unacked > 7 * info.tcpi_sacked;
}

void Pause(absl::Duration duration) { poll(nullptr, 0, static_cast<int>(absl::ToInt64Milliseconds(duration))); }

}  // namespace

absl::StatusOr<std::unique_ptr<ConnectionAcceptor>> ConnectionAcceptor::Create(std::vector<ListeningSockets> listening,
                                                                               AcceptorHooks hooks) {
  Descriptor wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  Descriptor reserve = OpenReserve();
  if (!wake.valid() || !reserve.valid()) {
    return absl::ResourceExhaustedError("cannot listen: no file descriptor is left, raise the limit (ulimit -n)");
  }
  return std::unique_ptr<ConnectionAcceptor>(
      new ConnectionAcceptor(std::move(listening), std::move(hooks), std::move(wake), std::move(reserve)));
}

ConnectionAcceptor::ConnectionAcceptor(std::vector<ListeningSockets> listening, AcceptorHooks hooks, Descriptor wake,
                                       Descriptor reserve)
    : listening_(std::move(listening)),
      hooks_(std::move(hooks)),
      wake_(std::move(wake)),
      reserve_(std::move(reserve)) {}

void ConnectionAcceptor::Start() {
  thread_ = std::thread([this] {
    while (!stopping_.load(std::memory_order_acquire)) Step(absl::InfiniteDuration());
  });
}

void ConnectionAcceptor::StopAccepting() {
  accepting_.store(false, std::memory_order_release);
  if (thread_.joinable()) return Wake();
  for (ListeningSockets& sockets : listening_) sockets.Close();
}

void ConnectionAcceptor::Stop() {
  stopping_.store(true, std::memory_order_release);
  Wake();
  if (thread_.joinable()) thread_.join();
  for (ListeningSockets& sockets : listening_) sockets.Close();
}

void ConnectionAcceptor::Wake() {
  const uint64_t one = 1;
  // Full means that it is readable.
  if (wake_.valid()) (void)!write(wake_.fd(), &one, sizeof(one));
}

void ConnectionAcceptor::Step(absl::Duration timeout) {
  if (!accepting_.load(std::memory_order_acquire)) {
    for (ListeningSockets& sockets : listening_) sockets.Close();
  }
  std::vector<pollfd> waits = {{.fd = wake_.fd(), .events = POLLIN, .revents = 0},
                               {.fd = hooks_.also_fd, .events = POLLIN, .revents = 0}};
  const size_t first_listener = waits.size();
  std::vector<const Address*> addresses;
  for (const ListeningSockets& sockets : listening_) {
    for (const Descriptor& socket : sockets.sockets()) {
      const bool wanted = Wants(sockets.address(), socket.fd());
      waits.push_back({.fd = wanted ? socket.fd() : -1, .events = POLLIN, .revents = 0});
      addresses.push_back(&sockets.address());
    }
  }
  if (hooks_.until_also_step) timeout = std::min(timeout, hooks_.until_also_step());
  // Rounded up: a wait that is too short by a fraction would be a loop without one.
  const int wait_ms = timeout == absl::InfiniteDuration()
                          ? -1
                          : static_cast<int>(absl::Ceil(timeout, absl::Milliseconds(1)) / absl::Milliseconds(1));
  if (poll(waits.data(), waits.size(), wait_ms) < 0) return;
  if (waits[0].revents != 0) {
    uint64_t count = 0;
    (void)!read(wake_.fd(), &count, sizeof(count));
  }
  if (hooks_.also_step) hooks_.also_step();
  for (size_t i = first_listener; i < waits.size(); ++i) {
    if (waits[i].revents != 0) AcceptFrom(*addresses[i - first_listener], waits[i].fd);
  }
}

bool ConnectionAcceptor::Wants(const Address& address, int listener) const {
  return !hooks_.wants || hooks_.wants(address) || QueueIsLong(listener);
}

void ConnectionAcceptor::AcceptFrom(const Address& address, int listener) {
  for (int i = 0; i < kAcceptsPerTurn && Wants(address, listener); ++i) {
    Descriptor socket = Accept(listener);
    if (socket.valid()) {
      Take(address, std::move(socket));
      continue;
    }
    switch (errno) {
      case EAGAIN:
        return;
      case EMFILE:
      case ENFILE:
        if (!Shed(listener)) return;
        break;
      case ENOBUFS:
      case ENOMEM:
        Pause(kBackOff);
        return;
      default:
        // EINTR, ECONNABORTED and what the network left on the newcomer: nothing that concerns the next one.
        break;
    }
  }
}

void ConnectionAcceptor::Take(const Address& address, Descriptor socket) {
  const Peer peer = PeerOfSocket(socket.fd());
  // It may be gone again.
  if (!peer.unix_socket && peer.host.empty()) return;
  if (hooks_.admit && !hooks_.admit(address, peer)) return;
  hooks_.hand_over(std::move(socket), peer);
}

bool ConnectionAcceptor::Shed(int listener) {
  reserve_.Close();
  Descriptor newcomer = Accept(listener);
  const bool shed = newcomer.valid();
  const int error = shed ? 0 : errno;
  newcomer.Close();
  // Should another thread have been quicker, the next turn tries again.
  reserve_ = OpenReserve();
  if (shed) {
    num_shed_.fetch_add(1, std::memory_order_relaxed);
    WarnOfShedding();
  } else if (error != EAGAIN) {
    Pause(kBackOff);
  }
  return shed;
}

void ConnectionAcceptor::WarnOfShedding() {
  // Not base::Clock: UBSan looks at an object's type through a pipe, for which there is no descriptor now.
  const absl::Duration now = absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch());
  if (now < last_warning_ + kWarningInterval) return;
  last_warning_ = now;
  TROUPE_WARN("connections are closed unanswered, no file descriptor is left (ulimit -n) total={}", num_shed());
}

}  // namespace troupe::rpc
