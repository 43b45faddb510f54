// One-row policy queries over loopback, one after another to three policies in turn whose weights are replaced all the
// time, beside a bare gRPC call that carries the same bytes both ways: servers in one process, the client in another,
// rounds of both in turn; and beside a stream of the same queries.
//
//   query_bench [--calls 2000] [--rounds 5]

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
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

// As often as a learner with updates of this length would.
constexpr absl::Duration kPublishInterval = absl::Milliseconds(50);

/// simple_spread's: 18 observations, five actions, two layers of 64.
std::vector<policy::PolicySpec> Specs() {
  std::vector<policy::PolicySpec> specs;
  for (const char* id : {"agent_0", "agent_1", "agent_2"}) {
    specs.push_back(serving::MakeSpec(id, *space::Space::Box(-10, 10, {18}), *space::Space::Discrete(5)));
    specs.back().actor.hidden_sizes = {64, 64};
  }
  return specs;
}

/// Hands new weights of every policy to an engine until it goes.
class Training {
 public:
  explicit Training(serving::QueryEngine* engine) : engine_(*engine) {
    Publish(1);
    thread_ = std::thread([this] {
      for (int64_t version = 2; !stop_; ++version) {
        absl::SleepFor(kPublishInterval);
        Publish(version);
      }
    });
  }
  ~Training() {
    stop_ = true;
    thread_.join();
  }

 private:
  void Publish(int64_t version) {
    for (const policy::PolicySpec& spec : Specs()) {
      TROUPE_CHECK(engine_.SetWeights(serving::MakeWeights(spec, version)).ok());
    }
  }

  serving::QueryEngine& engine_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

double NowUs() { return absl::ToDoubleMicroseconds(base::Clock::Real().SteadyNow()); }

double Percentile(std::vector<double> values, double p) {
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(p * static_cast<double>(values.size() - 1))];
}

struct Latency {
  double p50_us = 0;
  double p99_us = 0;
};

Latency Measure(int calls, const std::function<void()>& call) {
  std::vector<double> us;
  for (int i = 0; i < calls; ++i) {
    const double begin = NowUs();
    call();
    us.push_back(NowUs() - begin);
  }
  return {Percentile(us, 0.5), Percentile(us, 0.99)};
}

void RunClient(const std::string& query_address, const std::string& bare_address, int calls, int rounds) {
  std::vector<serving::OwnedRows> rows;
  for (const policy::PolicySpec& spec : Specs()) rows.push_back(serving::MakeRows(spec, 1));
  std::vector<serving::ActionQuery> queries;
  for (const serving::OwnedRows& each : rows) queries.push_back(serving::Ask({&each}, false));
  const auto client = *rpc::QueryClient::Create(query_address, {});
  BareClient bare(bare_address, rpc::ToProto(queries[0]).SerializeAsString());
  size_t next = 0;
  const auto ask = [&] {
    TROUPE_CHECK(client->ComputeActions(queries[next++ % queries.size()], absl::Seconds(10)).ok());
  };
  const auto call = [&] { bare.Call(); };
  const auto stream = client->OpenStream();
  const auto ask_by_stream = [&] {
    TROUPE_CHECK(stream->ComputeActions(queries[next++ % queries.size()], absl::Seconds(10)).ok());
  };
  Measure(calls / 4 + 1, ask_by_stream);
  Measure(calls / 4 + 1, ask);
  Measure(calls / 4 + 1, call);
  std::vector<double> query_p50, query_p99, bare_p50, bare_p99, ratio, stream_p50, stream_p99, stream_ratio;
  for (int round = 0; round < rounds; ++round) {
    const Latency of_query = Measure(calls, ask);
    const Latency of_bare = Measure(calls, call);
    query_p50.push_back(of_query.p50_us);
    query_p99.push_back(of_query.p99_us);
    bare_p50.push_back(of_bare.p50_us);
    bare_p99.push_back(of_bare.p99_us);
    ratio.push_back(of_query.p50_us / of_bare.p50_us);
    const Latency of_stream = Measure(calls, ask_by_stream);
    stream_p50.push_back(of_stream.p50_us);
    stream_p99.push_back(of_stream.p99_us);
    stream_ratio.push_back(of_stream.p50_us / of_query.p50_us);
  }
  std::printf(
      "%-5s one row: p50 %.0f us, p99 %.0f us; bare call: p50 %.0f us, p99 %.0f us; p50 %.2f times (medians of %d "
      "rounds of %d)\n",
      query_address.compare(0, 4, "unix") == 0 ? "unix" : "tcp", Percentile(query_p50, 0.5), Percentile(query_p99, 0.5),
      Percentile(bare_p50, 0.5), Percentile(bare_p99, 0.5), Percentile(ratio, 0.5), rounds, calls);
  std::printf("%-5s by a stream: p50 %.0f us, p99 %.0f us; p50 %.2f times the call's\n",
              query_address.compare(0, 4, "unix") == 0 ? "unix" : "tcp", Percentile(stream_p50, 0.5),
              Percentile(stream_p99, 0.5), Percentile(stream_ratio, 0.5));
}

void Run(const std::string& query_listen, const std::string& bare_listen, int calls, int rounds) {
  const auto engine = *serving::QueryEngine::Create(Specs(), {});
  const Training training(engine.get());
  const serving::OwnedRows rows = serving::MakeRows(Specs()[0], 1);
  v1::ComputeActionsReply reply;
  rpc::ToProto(*engine->Compute(serving::Ask({&rows}, false)), &reply);
  const auto server = rpc::QueryServer::Start({query_listen}, {}, engine.get());
  TROUPE_CHECK(server.ok());
  BareService service({{rpc::ToProto(serving::Ask({&rows}, false)).ByteSizeLong(), reply.SerializeAsString()}});
  grpc::ServerBuilder builder;
  builder.RegisterService(&service);
  auto bare = rpc::StartListening(builder, {bare_listen}, {});
  TROUPE_CHECK(bare.ok());
  const Child client(
      {"client", (*server)->addresses()[0], bare->addresses()[0], absl::StrCat(calls), absl::StrCat(rounds)});
  siginfo_t end{};
  // Child reaps it.
  TROUPE_CHECK(waitid(P_PID, static_cast<id_t>(client.pid()), &end, WEXITED | WNOWAIT) == 0 && end.si_status == 0);
  bare->Shutdown(absl::ZeroDuration());
}

int Main(int argc, char** argv) {
  base::InitLogging("query_bench", "warn");
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  int calls = 2000, rounds = 5;
  if (arguments.size() == 5 && arguments[0] == "client" && absl::SimpleAtoi(arguments[3], &calls) &&
      absl::SimpleAtoi(arguments[4], &rounds)) {
    RunClient(arguments[1], arguments[2], calls, rounds);
    return 0;
  }
  for (size_t i = 0; i < arguments.size(); i += 2) {
    int* value = arguments[i] == "--calls" ? &calls : arguments[i] == "--rounds" ? &rounds : nullptr;
    if (value == nullptr || i + 1 == arguments.size() || !absl::SimpleAtoi(arguments[i + 1], value) || *value < 1) {
      std::fprintf(stderr, "query_bench [--calls N] [--rounds N]\n");
      return 2;
    }
  }
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  const std::string prefix = absl::StrCat("unix-abstract:troupe-query-bench-", getpid());
  Run(absl::StrCat(prefix, "-query"), absl::StrCat(prefix, "-bare"), calls, rounds);
  Run("127.0.0.1:0", "127.0.0.1:0", calls, rounds);
  return 0;
}

}  // namespace
}  // namespace troupe::bench

int main(int argc, char** argv) { return troupe::bench::Main(argc, argv); }
