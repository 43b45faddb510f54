// Workers that join, take what they are granted, give signs of life, and do nothing else.
//
//   silent_workers ADDRESS COUNT        until it is killed

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "lib/base/clock.h"
#include "lib/base/log.h"
#include "lib/rpc/worker/worker_client.h"

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  troupe::base::InitLogging("silent_workers", "warn");
  std::vector<std::unique_ptr<troupe::rpc::WorkerClient>> clients;
  for (int i = 0; i < std::atoi(argv[2]); ++i) {
    troupe::rpc::WorkerClientOptions options;
    options.address = argv[1];
    options.name = "silent";
    options.incarnation = static_cast<uint64_t>(i) + 1;
    auto client = troupe::rpc::WorkerClient::Create(std::move(options), &troupe::base::Clock::Real());
    if (!client.ok()) {
      std::fprintf(stderr, "silent_workers: %s\n", client.status().ToString().c_str());
      return 1;
    }
    clients.push_back(*std::move(client));
    // One after the other: what is looked at is what they do, not how they come.
    clients.back()->Step();
    if (!clients.back()->AwaitWelcome(absl::Seconds(60)).ok()) return 1;
    if (i % 50 == 0) {
      for (const auto& other : clients) other->Step();
    }
  }
  while (true) {
    for (const auto& client : clients) client->Step();
    absl::SleepFor(absl::Milliseconds(500));
  }
}
