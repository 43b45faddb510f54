#include "lib/rpc/connection_acceptor.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <utility>

#include "absl/time/clock.h"
#include "lib/base/log.h"

namespace troupe::rpc {
namespace {

// A turn takes so many newcomers of one socket before it looks at the others.
constexpr int kAcceptsPerTurn = 64;
// After an error that waiting mends (no memory, no descriptor even for the reserve), and between two lines about it.
constexpr absl::Duration kBackOff = absl::Milliseconds(10);
constexpr absl::Duration kWarningInterval = absl::Seconds(10);

Descriptor OpenReserve() { return Descriptor(open("/dev/null", O_RDONLY | O_CLOEXEC)); }

Descriptor Accept(int listener) {
  return Descriptor(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
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

void ConnectionAcceptor::Stop() {
  stopping_.store(true, std::memory_order_release);
  const uint64_t one = 1;
  // The counter of an eventfd that nobody reads down cannot overflow by one write.
  if (wake_.valid()) (void)!write(wake_.fd(), &one, sizeof(one));
  if (thread_.joinable()) thread_.join();
  for (ListeningSockets& sockets : listening_) sockets.Close();
}

void ConnectionAcceptor::Step(absl::Duration timeout) {
  std::vector<pollfd> waits = {{.fd = wake_.fd(), .events = POLLIN, .revents = 0}};
  std::vector<const Address*> addresses = {nullptr};
  for (const ListeningSockets& sockets : listening_) {
    for (const Descriptor& socket : sockets.sockets()) {
      waits.push_back({.fd = socket.fd(), .events = POLLIN, .revents = 0});
      addresses.push_back(&sockets.address());
    }
  }
  const int wait_ms = timeout == absl::InfiniteDuration() ? -1 : static_cast<int>(absl::ToInt64Milliseconds(timeout));
  if (poll(waits.data(), waits.size(), wait_ms) <= 0) return;
  for (size_t i = 1; i < waits.size(); ++i) {
    if (waits[i].revents != 0) AcceptFrom(*addresses[i], waits[i].fd);
  }
}

void ConnectionAcceptor::AcceptFrom(const Address& address, int listener) {
  for (int i = 0; i < kAcceptsPerTurn; ++i) {
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
  const absl::Time now = absl::Now();
  if (now < last_warning_ + kWarningInterval) return;
  last_warning_ = now;
  TROUPE_WARN("connections are closed unanswered, no file descriptor is left (ulimit -n) total={}", num_shed());
}

}  // namespace troupe::rpc
