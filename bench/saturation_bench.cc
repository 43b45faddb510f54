// Many clients at once of a policy server, each with a connection of its own and one query on its way, by calls and by
// streams, with one row and with 64: of one policy, and of 1,000 drawn by Zipf's law (exponent 1) of which 100 have
// their actors in memory. Beside bare gRPC calls of the same bytes. The server is one process, the clients another; all
// kinds in turns, so many seconds each a round.
//
//   saturation_bench [--clients 16] [--rounds 5] [--milliseconds 500]

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "bench/bare_query.h"
#include "bench/child.h"
#include "lib/base/check.h"
#include "lib/base/clock.h"
#include "lib/base/log.h"
#include "lib/rpc/serve/query_client.h"
#include "lib/rpc/serve/query_codec.h"
#include "lib/rpc/serve/query_server.h"
#include "lib/rpc/transport/listen.h"
#include "lib/serving/query_engine.h"
#include "lib/serving/testing/query_builder.h"

namespace troupe::bench {
namespace {

constexpr int kPolicies = 1000;
constexpr int64_t kCapacity = 100;
constexpr int64_t kRows[] = {1, 64};

struct Options {
  int clients = 16;
  int rounds = 5;
  int milliseconds = 500;
};

/// simple_spread's: 18 observations, five actions, two layers of 64.
policy::PolicySpec Spec(int number) {
  policy::PolicySpec spec =
      serving::MakeSpec(absl::StrCat("policy_", number), *space::Space::Box(-10, 10, {18}), *space::Space::Discrete(5));
  spec.actor.hidden_sizes = {64, 64};
  return spec;
}

double NowUs() { return absl::ToDoubleMicroseconds(base::Clock::Real().SteadyNow()); }

/// CPU time of a process.
double CpuUs(pid_t pid) {
  clockid_t clock{};
  timespec time{};
  TROUPE_CHECK(clock_getcpuclockid(pid, &clock) == 0 && clock_gettime(clock, &time) == 0);
  return 1e6 * static_cast<double>(time.tv_sec) + 1e-3 * static_cast<double>(time.tv_nsec);
}

double Percentile(std::vector<double> values, double p) {
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(p * static_cast<double>(values.size() - 1))];
}

/// What was measured in a round.
struct Load {
  double queries_per_s = 0, p50_us = 0, p99_us = 0, client_us = 0, server_us = 0;
};

/// One client: asks once.
using Ask = std::function<void()>;

/// The clients ask for so long, each as fast as it is answered.
Load Measure(const std::vector<Ask>& clients, int milliseconds) {
  const double client_cpu = CpuUs(getpid()), server_cpu = CpuUs(getppid()), begin = NowUs();
  std::vector<std::vector<double>> us(clients.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < clients.size(); ++i) {
    threads.emplace_back([&, i] {
      double now = NowUs();
      while (now < begin + 1e3 * milliseconds) {
        clients[i]();
        const double end = NowUs();
        us[i].push_back(end - now);
        now = end;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<double> all;
  for (const std::vector<double>& mine : us) all.insert(all.end(), mine.begin(), mine.end());
  const auto queries = static_cast<double>(all.size());
  return {1e6 * queries / (NowUs() - begin), Percentile(all, 0.5), Percentile(all, 0.99),
          (CpuUs(getpid()) - client_cpu) / queries, (CpuUs(getppid()) - server_cpu) / queries};
}

/// Policies by Zipf's law: the k-th as often as 1/k.
class Zipf {
 public:
  explicit Zipf(uint32_t seed) : random_(seed) {
    std::vector<double> weights;
    for (int k = 1; k <= kPolicies; ++k) weights.push_back(1.0 / k);
    draw_ = std::discrete_distribution<size_t>(weights.begin(), weights.end());
  }
  size_t Next() { return draw_(random_); }

 private:
  std::mt19937 random_;
  std::discrete_distribution<size_t> draw_;
};

/// Everything that asks: by kind its clients. What they borrow lives as long.
class Clients {
 public:
  Clients(const std::string& address, const std::string& bare_address, int count) {
    rows_.reserve(kPolicies + 1);
    for (int i = 0; i < kPolicies; ++i) rows_.push_back(serving::MakeRows(Spec(i), 1));
    rows_.push_back(serving::MakeRows(Spec(0), 64));
    for (const serving::OwnedRows& rows : rows_) queries_.push_back(serving::Ask({&rows}, false));
    for (int i = 0; i < count; ++i) {
      connections_.push_back(*rpc::QueryClient::Create(address, {}));
      rpc::QueryClient* const client = connections_.back().get();
      streams_.push_back(client->OpenStream());
      rpc::QueryStreamClient* const stream = streams_.back().get();
      for (const int64_t rows : kRows) {
        const serving::ActionQuery& query = rows == 1 ? queries_.front() : queries_.back();
        const std::string suffix = absl::StrCat(", rows ", rows);
        kinds_["call" + suffix].push_back([client, &query] { Expect(client->ComputeActions(query, kTimeout)); });
        kinds_["stream" + suffix].push_back([stream, &query] { Expect(stream->ComputeActions(query, kTimeout)); });
        auto bare = std::make_shared<BareClient>(bare_address, rpc::ToProto(query).SerializeAsString());
        kinds_["bare call" + suffix].push_back([bare] { bare->Call(); });
      }
      auto zipf = std::make_shared<Zipf>(static_cast<uint32_t>(i));
      kinds_["zipf stream, rows 1"].push_back(
          [this, stream, zipf] { Expect(stream->ComputeActions(queries_[zipf->Next()], kTimeout)); });
    }
  }
  const std::map<std::string, std::vector<Ask>>& kinds() const { return kinds_; }

 private:
  static constexpr absl::Duration kTimeout = absl::Seconds(10);
  static void Expect(const absl::StatusOr<serving::ActionAnswer>& answer) { TROUPE_CHECK(answer.ok()); }

  std::vector<serving::OwnedRows> rows_;
  std::vector<serving::ActionQuery> queries_;
  std::vector<std::unique_ptr<rpc::QueryClient>> connections_;
  std::vector<std::unique_ptr<rpc::QueryStreamClient>> streams_;
  std::map<std::string, std::vector<Ask>> kinds_;
};

double Median(const std::vector<Load>& loads, double Load::*number) {
  std::vector<double> values;
  for (const Load& load : loads) values.push_back(load.*number);
  return Percentile(values, 0.5);
}

void RunClients(const std::string& address, const std::string& bare_address, const Options& options) {
  const Clients clients(address, bare_address, options.clients);
  std::map<std::string, std::vector<Load>> loads;
  for (const auto& [kind, asks] : clients.kinds()) Measure(asks, 200);
  for (int round = 0; round < options.rounds; ++round) {
    for (const auto& [kind, asks] : clients.kinds()) loads[kind].push_back(Measure(asks, options.milliseconds));
  }
  for (const auto& [kind, of_kind] : loads) {
    const double rate = Median(of_kind, &Load::queries_per_s);
    const int64_t rows = kind.substr(kind.size() - 2) == "64" ? 64 : 1;
    std::printf(
        "%-20s %7.0f queries/s %9.0f rows/s; CPU %5.1f us a query at the client, %5.1f at the server; p50 %5.0f us, "
        "p99 %6.0f us\n",
        kind.c_str(), rate, rate * static_cast<double>(rows), Median(of_kind, &Load::client_us),
        Median(of_kind, &Load::server_us), Median(of_kind, &Load::p50_us), Median(of_kind, &Load::p99_us));
  }
  std::vector<double> shares;
  for (size_t i = 0; i < static_cast<size_t>(options.rounds); ++i) {
    shares.push_back(loads["zipf stream, rows 1"][i].queries_per_s / loads["stream, rows 1"][i].queries_per_s);
  }
  std::printf("%d policies, %d of them resident, by Zipf's law: %.2f of one policy's rate\n", kPolicies,
              static_cast<int>(kCapacity), Percentile(shares, 0.5));
  double load_average = 0;
  TROUPE_CHECK(getloadavg(&load_average, 1) == 1);
  std::printf("load average %.1f, %d clients, medians of %d rounds\n", load_average, options.clients, options.rounds);
}

int RunServer(const Options& options) {
  std::vector<policy::PolicySpec> specs;
  for (int i = 0; i < kPolicies; ++i) specs.push_back(Spec(i));
  serving::QueryEngine::Options of_engine;
  of_engine.policy_map_capacity = kCapacity;
  const auto engine = *serving::QueryEngine::Create(specs, of_engine);
  for (const policy::PolicySpec& spec : specs) TROUPE_CHECK(engine->SetWeights(serving::MakeWeights(spec, 1)).ok());
  std::map<size_t, std::string> replies;
  for (const int64_t count : kRows) {
    const serving::OwnedRows rows = serving::MakeRows(specs[0], count);
    const serving::ActionQuery query = serving::Ask({&rows}, false);
    v1::ComputeActionsReply reply;
    rpc::ToProto(*engine->Compute(query), &reply);
    replies[rpc::ToProto(query).ByteSizeLong()] = reply.SerializeAsString();
  }
  const auto server = rpc::QueryServer::Start({"127.0.0.1:0"}, {}, engine.get());
  TROUPE_CHECK(server.ok());
  BareService service(std::move(replies));
  grpc::ServerBuilder builder;
  builder.RegisterService(&service);
  auto bare = rpc::StartListening(builder, {"127.0.0.1:0"}, {});
  TROUPE_CHECK(bare.ok());
  const Child client({"client", (*server)->addresses()[0], bare->addresses()[0], absl::StrCat(options.clients),
                      absl::StrCat(options.rounds), absl::StrCat(options.milliseconds)});
  siginfo_t end{};
  // Child reaps it.
  TROUPE_CHECK(waitid(P_PID, static_cast<id_t>(client.pid()), &end, WEXITED | WNOWAIT) == 0 && end.si_status == 0);
  const serving::QueryEngine::BatchStats stats = engine->batch_stats();
  std::printf("%.1f queries a forward\n", static_cast<double>(stats.queries) / static_cast<double>(stats.batches));
  bare->Shutdown(absl::ZeroDuration());
  return 0;
}

int Main(int argc, char** argv) {
  base::InitLogging("saturation_bench", "warn");
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  Options options;
  if (arguments.size() == 6 && arguments[0] == "client" && absl::SimpleAtoi(arguments[3], &options.clients) &&
      absl::SimpleAtoi(arguments[4], &options.rounds) && absl::SimpleAtoi(arguments[5], &options.milliseconds)) {
    RunClients(arguments[1], arguments[2], options);
    return 0;
  }
  for (size_t i = 0; i < arguments.size(); i += 2) {
    int* const value = arguments[i] == "--clients"        ? &options.clients
                       : arguments[i] == "--rounds"       ? &options.rounds
                       : arguments[i] == "--milliseconds" ? &options.milliseconds
                                                          : nullptr;
    if (value == nullptr || i + 1 == arguments.size() || !absl::SimpleAtoi(arguments[i + 1], value) || *value < 1) {
      std::fprintf(stderr, "saturation_bench [--clients N] [--rounds N] [--milliseconds N]\n");
      return 2;
    }
  }
  return RunServer(options);
}

}  // namespace
}  // namespace troupe::bench

int main(int argc, char** argv) { return troupe::bench::Main(argc, argv); }
