// One-row policy queries over loopback, one after another to three policies in turn whose weights are replaced all the
// time, beside a bare gRPC call that carries the same bytes both ways: servers in one process, the client in another,
// rounds of both in turn; and beside a stream of the same queries.
//
//   query_bench [--calls 2000] [--rounds 5]
//
// Many clients at once, each with a connection of its own, of a policy of a server that runs already; observations are
// zeros, as many as the policy has:
//
//   query_bench saturate ADDRESS POLICY [CLIENTS 8] [ROWS 1] [SECONDS 5]

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
#include "bench/child.h"
#include "lib/base/check.h"
#include "lib/base/clock.h"
#include "lib/base/log.h"
#include "lib/rpc/address.h"
#include "lib/rpc/listen.h"
#include "lib/rpc/query_client.h"
#include "lib/rpc/query_codec.h"
#include "lib/rpc/query_server.h"
#include "lib/serving/query_engine.h"
#include "lib/serving/testing/query_builder.h"
#include "proto/troupe/v1/query.grpc.pb.h"
#include <grpcpp/client_context.h>
#include <grpcpp/generic/generic_stub.h>

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

/// Takes a query's bytes and gives the bytes of an answer, neither looked into.
class BareService final : public v1::Query::WithRawCallbackMethod_ComputeActions<v1::Query::Service> {
 public:
  explicit BareService(const std::string& reply) : reply_(reply) {}

  grpc::ServerUnaryReactor* ComputeActions(grpc::CallbackServerContext* context, const grpc::ByteBuffer* /*request*/,
                                           grpc::ByteBuffer* reply) override {
    const grpc::Slice slice(reply_);
    *reply = grpc::ByteBuffer(&slice, 1);
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }

 private:
  const std::string reply_;
};

/// The least that a client does for a call: bytes out, bytes in.
class BareClient {
 public:
  BareClient(const std::string& address, const std::string& request)
      : stub_(*rpc::MakeChannel(*rpc::ParseAddress(address), {})), request_(request) {}

  void Call() {
    grpc::ClientContext context;
    const grpc::Slice slice(request_);
    const grpc::ByteBuffer request(&slice, 1);
    const auto call = stub_.PrepareUnaryCall(&context, "/troupe.v1.Query/ComputeActions", request, &queue_);
    call->StartCall();
    grpc::ByteBuffer reply;
    grpc::Status status;
    call->Finish(&reply, &status, this);
    void* tag = nullptr;
    bool ok = false;
    TROUPE_CHECK(queue_.Next(&tag, &ok) && ok && status.ok());
  }

 private:
  grpc::GenericStub stub_;
  const std::string request_;
  grpc::CompletionQueue queue_;
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

/// Queries a second, and the 99th percentile of how long one takes.
void Saturate(const std::string& address, const std::string& policy, int clients, int rows, int seconds) {
  const auto first = *rpc::QueryClient::Create(address, {});
  const auto described = first->DescribePolicies({policy::PolicyId(policy)}, absl::Seconds(10));
  TROUPE_CHECK(described.ok());
  serving::OwnedRows owned;
  owned.policy_id = policy;
  owned.rows = rows;
  owned.obs.resize(static_cast<size_t>(rows * described->policies[0].observation_size));
  if (described->policies[0].needs_agent_slots) owned.agent_slots.resize(static_cast<size_t>(rows));
  const serving::ActionQuery query = serving::Ask({&owned}, false);
  std::vector<std::vector<double>> us(static_cast<size_t>(clients));
  std::vector<std::thread> threads;
  const double end = NowUs() + 1e6 * seconds;
  for (std::vector<double>& mine : us) {
    threads.emplace_back([&] {
      const auto client = *rpc::QueryClient::Create(address, {});
      while (NowUs() < end) {
        const double begin = NowUs();
        TROUPE_CHECK(client->ComputeActions(query, absl::Seconds(10)).ok());
        mine.push_back(NowUs() - begin);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<double> all;
  for (const std::vector<double>& mine : us) all.insert(all.end(), mine.begin(), mine.end());
  std::printf("%d clients, %d rows a query: %.0f queries/s, p50 %.0f us, p99 %.0f us\n", clients, rows,
              static_cast<double>(all.size()) / seconds, Percentile(all, 0.5), Percentile(all, 0.99));
}

void Run(const std::string& query_listen, const std::string& bare_listen, int calls, int rounds) {
  const auto engine = *serving::QueryEngine::Create(Specs(), {});
  const Training training(engine.get());
  const serving::OwnedRows rows = serving::MakeRows(Specs()[0], 1);
  v1::ComputeActionsReply reply;
  rpc::ToProto(*engine->Compute(serving::Ask({&rows}, false)), &reply);
  const auto server = rpc::QueryServer::Start({query_listen}, {}, engine.get());
  TROUPE_CHECK(server.ok());
  BareService service(reply.SerializeAsString());
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
  if (arguments.size() >= 3 && arguments[0] == "saturate") {
    int numbers[] = {8, 1, 5};
    for (size_t i = 3; i < arguments.size() && i < 6; ++i)
      TROUPE_CHECK(absl::SimpleAtoi(arguments[i], &numbers[i - 3]));
    Saturate(arguments[1], arguments[2], numbers[0], numbers[1], numbers[2]);
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
