// From Publish in the learner until 8 idle subscribers in processes of their own can use the weights, 0.35 MB each,
// beside a raw socket ping-pong in the same run.
//
//   weights_bench [--rounds 200]

#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "bench/child.h"
#include "lib/base/check.h"
#include "lib/base/clock.h"
#include "lib/base/log.h"
#include "lib/policy/parameter_layout.h"
#include "lib/policy/policy_spec.h"
#include "lib/rpc/learner/learner_server.h"
#include "lib/rpc/testing/fake_endpoint.h"
#include "lib/rpc/worker/worker_client.h"
#include "lib/sample/testing/batch_maker.h"

namespace troupe::bench {
namespace {

constexpr int kSubscribers = 8;

/// One policy of about 0.35 MB: 64 observations, two hidden layers of 256.
sample::BatchSchema Schema() {
  sample::BatchSchema schema = sample::SimpleSchema(3, 64);
  schema.policies[policy::PolicySlot(0)].actor.hidden_sizes = {256, 256};
  return schema;
}

/// What the processes tell each other: the time at which a subscriber had a version, in ns of the steady clock.
struct Board {
  struct alignas(64) Slot {
    std::atomic<int64_t> version{-1};
    std::atomic<int64_t> at_ns{0};
  };
  Slot slots[kSubscribers];
};

int64_t NowNs() { return absl::ToInt64Nanoseconds(base::Clock::Real().SteadyNow()); }

Board* MapBoard(int fd) {
  void* memory = mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  TROUPE_CHECK(memory != MAP_FAILED);
  return static_cast<Board*>(memory);
}

void RunSubscriber(int index, const std::string& address, int fd) {
  Board::Slot& slot = MapBoard(fd)->slots[index];
  const sample::BatchSchema schema = Schema();
  rpc::WorkerClientOptions options;
  options.address = address;
  options.incarnation = static_cast<uint64_t>(index) + 1;
  auto client = *rpc::WorkerClient::Create(options, &base::Clock::Real());
  std::thread io([&client] { client->Run(); });
  TROUPE_CHECK(client->AwaitWelcome(absl::Seconds(30)).ok());
  client->SetPolicies(schema.policies, schema.Hash());
  for (int64_t n = 0;; ++n) {
    const auto weights = client->AwaitWeights(policy::PolicySlot(0), {1, n}, absl::Seconds(60));
    if (!weights.ok()) _exit(0);
    n = weights->snapshot->version.n;
    slot.at_ns.store(NowNs(), std::memory_order_relaxed);
    slot.version.store(n, std::memory_order_release);
  }
}

double Percentile(std::vector<double> values, double p) {
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(p * static_cast<double>(values.size() - 1))];
}

/// Round trip of one byte between two threads over a Unix socket: what waking somebody up costs here.
double PingPongUs() {
  int fds[2];
  TROUPE_CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
  std::thread echo([fd = fds[1]] {
    char byte;
    while (read(fd, &byte, 1) == 1 && write(fd, &byte, 1) == 1) {
    }
  });
  std::vector<double> us;
  for (int i = 0; i < 500; ++i) {
    char byte = 'x';
    const int64_t begin = NowNs();
    TROUPE_CHECK(write(fds[0], &byte, 1) == 1 && read(fds[0], &byte, 1) == 1);
    us.push_back(static_cast<double>(NowNs() - begin) * 1e-3);
  }
  shutdown(fds[0], SHUT_RDWR);
  echo.join();
  close(fds[0]);
  close(fds[1]);
  return Percentile(us, 0.5);
}

void Run(const std::string& listen, int rounds) {
  const sample::BatchSchema schema = Schema();
  const int fd = memfd_create("troupe-board", 0);
  TROUPE_CHECK(fd >= 0 && ftruncate(fd, sizeof(Board)) == 0);
  Board* board = new (MapBoard(fd)) Board;
  rpc::FakeEndpoint endpoint;
  rpc::LearnerServerOptions options;
  options.addresses = {listen};
  options.schema = schema;
  auto server = rpc::LearnerServer::Start(options, &endpoint, &endpoint, &base::Clock::Real());
  TROUPE_CHECK(server.ok());
  std::vector<std::unique_ptr<Child>> children;
  for (int i = 0; i < kSubscribers; ++i) {
    children.push_back(std::make_unique<Child>(
        std::vector<std::string>{"subscriber", absl::StrCat(i), (*server)->addresses()[0], absl::StrCat(fd)}));
  }
  std::vector<double> all_ms, first_ms, publish_us;
  const auto actor_size =
      static_cast<size_t>(policy::ParameterLayout::For(schema.policies[policy::PolicySlot(0)]).acting_size());
  for (int n = 0; n < rounds + 1; ++n) {
    auto snapshot = std::make_shared<policy::WeightSnapshot>();
    snapshot->id = schema.policies[policy::PolicySlot(0)].id;
    snapshot->version = {1, n};
    snapshot->actor.assign(actor_size, static_cast<float>(n));
    const int64_t begin = NowNs();
    (*server)->weights().Publish(policy::PolicySlot(0), snapshot);
    publish_us.push_back(static_cast<double>(NowNs() - begin) * 1e-3);
    int64_t first = INT64_MAX, last = 0;
    for (Board::Slot& slot : board->slots) {
      while (slot.version.load(std::memory_order_acquire) < n) absl::SleepFor(absl::Microseconds(200));
      first = std::min(first, slot.at_ns.load(std::memory_order_relaxed));
      last = std::max(last, slot.at_ns.load(std::memory_order_relaxed));
    }
    if (n == 0) continue;  // connecting took its time
    first_ms.push_back(static_cast<double>(first - begin) * 1e-6);
    all_ms.push_back(static_cast<double>(last - begin) * 1e-6);
    absl::SleepFor(absl::Milliseconds(10));  // subscribers are idle before each publish
  }
  std::printf(
      "%-6s %.2f MB to %d subscribers: first p50 %.2f ms, all p50 %.2f ms, p99 %.2f ms; Publish returns after %.0f "
      "us\n",
      listen.compare(0, 4, "unix") == 0 ? "unix" : "tcp", static_cast<double>(actor_size) * 4e-6, kSubscribers,
      Percentile(first_ms, 0.5), Percentile(all_ms, 0.5), Percentile(all_ms, 0.99), Percentile(publish_us, 0.5));
  children.clear();
  (*server)->Shutdown(absl::Seconds(1));
  munmap(board, sizeof(Board));
  close(fd);
}

int Main(int argc, char** argv) {
  base::InitLogging("weights_bench", "warn");
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  int index = 0, fd = 0, rounds = 200;
  if (arguments.size() == 4 && arguments[0] == "subscriber" && absl::SimpleAtoi(arguments[1], &index) &&
      absl::SimpleAtoi(arguments[3], &fd)) {
    RunSubscriber(index, arguments[2], fd);
    return 0;
  }
  if (arguments.size() == 2 && arguments[0] == "--rounds" && !absl::SimpleAtoi(arguments[1], &rounds)) return 2;
  std::printf("floor: raw Unix socket ping-pong p50 %.1f us\n", PingPongUs());
  Run(absl::StrCat("unix:/tmp/troupe-weights-bench-", getpid(), ".sock"), rounds);
  Run("127.0.0.1:0", rounds);
  return 0;
}

}  // namespace
}  // namespace troupe::bench

int main(int argc, char** argv) { return troupe::bench::Main(argc, argv); }
