// Payload from a worker process to the learner's training buffer, over real gRPC, and its floors in the same run:
// memcpy, and a bare ByteBuffer stream in the callback API and with completion queues.
//
//   ingest_bench [--seconds 3] [--trials 5] [--only TEXT]      (--only: rows whose name contains TEXT)
//
// "ingest" is everything: encode with CRC-32C in the worker, transport, decode with CRC-32C, shapes, finite check and
// all other checks of contents, grants, acknowledgements, and the gathering into the train batch. The update itself
// takes no time here.

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "bench/bare_stream.h"
#include "bench/child.h"
#include "lib/base/check.h"
#include "lib/base/clock.h"
#include "lib/base/log.h"
#include "lib/learner/learner.h"
#include "lib/policy/parameter_layout.h"
#include "lib/policy/policy_spec.h"
#include "lib/rpc/learner/learner_binding.h"
#include "lib/rpc/learner/learner_server.h"
#include "lib/rpc/worker/worker_client.h"
#include "lib/sample/testing/batch_maker.h"

namespace troupe::bench {
namespace {

constexpr int32_t kAgents = 3;
constexpr int32_t kEpisodeSteps = 200;

/// What is sent: simple_spread's shapes (18 floats) or larger observations, in fragments a bit below their limit of 4
/// MiB; and a quarter of that, nearer to what a small train batch gives.
struct Workload {
  const char* name;
  int64_t observation_size;
  int32_t lanes;
  int32_t steps_per_fragment;
};
constexpr Workload kWorkloads[] = {{"obs18", 18, 120, 100}, {"obs64", 64, 46, 100}, {"obs18-quarter", 18, 120, 25}};

sample::BatchSchema Schema(const Workload& workload) {
  sample::BatchSchema schema = sample::SimpleSchema(kAgents, workload.observation_size);
  // The training buffer then holds what came and nothing derived from it.
  schema.policies[policy::PolicySlot(0)].SetCriticInput(policy::NetworkInput::kObservation, 0);
  return schema;
}

/// Takes batches and gives the same weights: the time of an update is another benchmark's.
class NoTrainer final : public learner::Trainer {
 public:
  explicit NoTrainer(const policy::PolicySpec& spec) : spec_(spec) {}

  absl::StatusOr<std::vector<learner::PolicyUpdateReport>> Update(const learner::TrainBatch& batch,
                                                                  const learner::UpdateContext& context) override {
    version_ = context.next_version;
    learner::PolicyUpdateReport report;
    report.policy = batch.policies[0].policy;
    report.trained_rows = batch.policies[0].rows;
    return std::vector<learner::PolicyUpdateReport>{report};
  }
  absl::StatusOr<policy::WeightSnapshotPtr> Snapshot(policy::PolicySlot) override {
    auto snapshot = std::make_shared<policy::WeightSnapshot>();
    snapshot->id = spec_.id;
    snapshot->version = version_;
    snapshot->actor.resize(static_cast<size_t>(policy::ParameterLayout::For(spec_).acting_size()));
    return policy::WeightSnapshotPtr(std::move(snapshot));
  }
  absl::StatusOr<policy::PolicyState> ExportState(policy::PolicySlot) override { return policy::PolicyState{}; }
  absl::Status ImportState(const policy::PolicyState&, policy::PolicySlot) override { return absl::OkStatus(); }
  absl::Status AddPolicy(policy::PolicySlot, const policy::PolicySpec&, policy::PolicyState,
                         policy::PolicySlot) override {
    return absl::UnimplementedError("the policies of this benchmark never change");
  }
  absl::Status RemovePolicy(policy::PolicySlot) override {
    return absl::UnimplementedError("the policies of this benchmark never change");
  }

 private:
  const policy::PolicySpec spec_;
  policy::WeightVersion version_;
};

class NoMonitor final : public rpc::MonitorHandler {
 public:
  rpc::RunStatus GetStatus(const base::Caller&) override { return {}; }
  policy::PolicyTablePtr Policies(const base::Caller&) override { return nullptr; }
};

/// The worker process: answers every grant with the same rows under the grant's episodes, so that no time goes into
/// making them.
void RunWorker(const Workload& workload, const std::string& address) {
  const sample::BatchSchema schema = Schema(workload);
  sample::FakeRolloutOptions rollout_options;
  rollout_options.min_episode_steps = rollout_options.max_episode_steps = kEpisodeSteps;
  rollout_options.max_ticks_per_fragment = workload.steps_per_fragment;
  sample::FakeRollout rollout(schema, rollout_options);
  const auto made = rollout.Play(sample::MakeGrant(workload.lanes, kEpisodeSteps, {1, 0}), {1, 0});

  rpc::WorkerClientOptions options;
  options.address = address;
  auto client = *rpc::WorkerClient::Create(options, &base::Clock::Real());
  std::thread io([&client] { client->Run(); });
  TROUPE_CHECK(client->AwaitWelcome(absl::Seconds(30)).ok());
  client->SetPolicies(schema.policies, schema.Hash());
  while (true) {
    const auto grant = client->AwaitGrant(absl::Seconds(30));
    if (!grant.ok() || !grant->has_value()) _exit(0);
    const auto weights = client->AwaitWeights(policy::PolicySlot(0), (*grant)->min_version, absl::Seconds(30));
    if (!weights.ok()) _exit(0);
    TROUPE_CHECK((*grant)->lanes.size() == static_cast<size_t>(workload.lanes));
    for (const auto& source : made) {
      auto fragment = std::make_shared<sample::MultiAgentBatch>(*source);
      fragment->grant = (*grant)->id;
      fragment->iteration = (*grant)->iteration;
      for (sample::EpisodeEntry& episode : fragment->episodes)
        episode.episode = (*grant)->lanes[episode.env_id.value()].next_episode;
      for (sample::FinishedEpisode& episode : fragment->finished)
        episode.episode = (*grant)->lanes[episode.env_id.value()].next_episode;
      fragment->policies[0].version = weights->snapshot->version;
      if (!client->Submit(fragment).ok()) _exit(0);
    }
  }
}

struct Rate {
  double gb_per_s = 0;
  double cpu_ns_per_byte = 0;  ///< both processes
};

double CpuSeconds(pid_t pid) {
  const std::string path = absl::StrCat("/proc/", pid, "/stat");
  FILE* file = std::fopen(path.c_str(), "r");
  if (file == nullptr) return 0;
  char text[1024];
  const size_t bytes = std::fread(text, 1, sizeof(text) - 1, file);
  std::fclose(file);
  text[bytes] = '\0';
  unsigned long user = 0, system = 0;
  std::sscanf(std::strrchr(text, ')'), ") %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &system);
  return static_cast<double>(user + system) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

/// `count` says how many bytes have arrived so far.
template <typename Count>
Rate Measure(Count count, pid_t child, absl::Duration duration) {
  base::Clock& clock = base::Clock::Real();
  const auto cpu = [child] { return CpuSeconds(child) + CpuSeconds(getpid()); };
  while (count() == 0) absl::SleepFor(absl::Milliseconds(1));
  absl::SleepFor(absl::Milliseconds(500));
  const absl::Duration begin = clock.SteadyNow();
  const int64_t bytes_before = count();
  const double cpu_before = cpu();
  absl::SleepFor(duration);
  const double bytes = static_cast<double>(count() - bytes_before);
  const double cpu_seconds = cpu() - cpu_before;
  return {bytes / absl::ToDoubleSeconds(clock.SteadyNow() - begin) / 1e9, cpu_seconds / bytes * 1e9};
}

Rate MeasureBare(StreamApi receiver, StreamApi sender, const std::string& address, absl::Duration duration) {
  const auto server = StartBareReceiver(receiver, address);
  const Child child({"bare-sender", sender == StreamApi::kCallback ? "callback" : "queue", server->address()});
  return Measure([&server] { return server->bytes(); }, child.pid(), duration);
}

Rate MeasureIngest(const Workload& workload, const std::string& address, absl::Duration duration) {
  learner::LearnerConfig config;
  config.schema = Schema(workload);
  config.options.num_workers = 1;
  config.options.num_envs = workload.lanes;
  config.options.train_batch_size = int64_t{workload.lanes} * kEpisodeSteps;
  config.options.max_policy_lag = 1;
  config.options.ingest_budget_bytes = int64_t{1} << 30;
  NoTrainer trainer(config.schema.policies[policy::PolicySlot(0)]);
  // Publishing goes through the server, which needs the learner first.
  struct Publisher final : learner::WeightPublisher {
    void Publish(policy::PolicySlot slot, policy::WeightSnapshotPtr snapshot) override {
      bus->Publish(slot, std::move(snapshot));
    }
    void AnnounceVersion(policy::WeightVersion version) override { bus->AnnounceVersion(version); }
    rpc::WeightBus* bus = nullptr;
  } publisher;
  learner::LearnerDeps deps;
  deps.trainer = &trainer;
  deps.publisher = &publisher;
  auto learner = learner::Learner::Create(config, deps);
  TROUPE_CHECK(learner.ok());
  rpc::LearnerBinding binding(learner->get());
  NoMonitor monitor;
  rpc::LearnerServerOptions options;
  options.addresses = {address};
  options.schema = config.schema;
  auto server = rpc::LearnerServer::Start(options, &binding, &monitor, &base::Clock::Real());
  TROUPE_CHECK(server.ok());
  publisher.bus = &(*server)->weights();
  TROUPE_CHECK((*learner)->Start().ok());

  std::atomic<bool> stop{false};
  std::atomic<int64_t> updates{0};
  std::thread update_thread([&] {
    while (!stop) {
      const learner::StepOutcome outcome = (*learner)->Step(absl::Milliseconds(50));
      TROUPE_CHECK(outcome.kind != learner::StepOutcome::Kind::kFailed);
      if (outcome.kind == learner::StepOutcome::Kind::kUpdated) ++updates;
    }
  });
  // Payload of one iteration: what a worker's fragments of one grant take on the wire.
  sample::FakeRolloutOptions rollout_options;
  rollout_options.min_episode_steps = rollout_options.max_episode_steps = kEpisodeSteps;
  rollout_options.max_ticks_per_fragment = workload.steps_per_fragment;
  sample::FakeRollout rollout(config.schema, rollout_options);
  int64_t payload = 0;
  for (const auto& fragment : rollout.Play(sample::MakeGrant(workload.lanes, kEpisodeSteps, {1, 0}), {1, 0})) {
    const auto encoded = rpc::EncodeFragment(1, fragment);
    TROUPE_CHECK(encoded.ok());
    payload += static_cast<int64_t>(encoded->payload_bytes);
  }
  Rate rate;
  {
    const Child child({"worker", workload.name, (*server)->addresses()[0]});
    rate = Measure([&] { return updates.load() * payload; }, child.pid(), duration);
  }
  stop = true;
  update_thread.join();
  const learner::RowCounters rows = (*learner)->Status().progress.rows;
  TROUPE_CHECK(rows.stale == 0 && rows.invalid == 0 && rows.duplicate == 0);
  (*server)->Shutdown(absl::Seconds(1));
  return rate;
}

double MeasureMemcpy() {
  std::string from(size_t{64} << 20, 'x'), to(size_t{64} << 20, 'y');
  double best = 0;
  for (int i = 0; i < 5; ++i) {
    const absl::Duration begin = base::Clock::Real().SteadyNow();
    std::memcpy(to.data(), from.data(), from.size());
    asm volatile("" : : "r"(to.data()) : "memory");
    best = std::max(
        best, static_cast<double>(from.size()) / absl::ToDoubleSeconds(base::Clock::Real().SteadyNow() - begin) / 1e9);
  }
  return best;
}

Rate Median(std::vector<Rate> rates) {
  std::sort(rates.begin(), rates.end(), [](const Rate& a, const Rate& b) { return a.gb_per_s < b.gb_per_s; });
  return rates[rates.size() / 2];
}

void Run(absl::Duration duration, int trials, const std::string& only) {
  std::printf("memcpy, one core: %.1f GB/s\n", MeasureMemcpy());
  std::printf("%-46s %8s %8s\n", "GB/s (median of trials), CPU ns per byte", "unix", "tcp");
  const std::string unix_address = absl::StrCat("unix:/tmp/troupe-ingest-bench-", getpid(), ".sock");
  const std::string tcp_address = "127.0.0.1:0";
  struct Row {
    std::string name;
    std::function<Rate(const std::string&)> measure;
    std::vector<Rate> unix_rates, tcp_rates;
  };
  std::vector<Row> rows;
  for (const StreamApi receiver : {StreamApi::kCallback, StreamApi::kCompletionQueue}) {
    for (const StreamApi sender : {StreamApi::kCallback, StreamApi::kCompletionQueue}) {
      const auto name = [](StreamApi api) { return api == StreamApi::kCallback ? "callback" : "queue"; };
      rows.push_back({absl::StrCat("bare stream, ", name(sender), " -> ", name(receiver)),
                      [=](const std::string& address) { return MeasureBare(receiver, sender, address, duration); },
                      {},
                      {}});
    }
  }
  for (const Workload& workload : kWorkloads) {
    rows.push_back(
        {absl::StrCat("ingest to the training buffer, ", workload.name),
         [&workload, duration](const std::string& address) { return MeasureIngest(workload, address, duration); },
         {},
         {}});
  }
  rows.erase(std::remove_if(rows.begin(), rows.end(),
                            [&](const Row& row) { return row.name.find(only) == std::string::npos; }),
             rows.end());
  // Interleaved, so that a busy minute of the machine does not fall on one row alone.
  for (int trial = 0; trial < trials; ++trial) {
    for (Row& row : rows) {
      row.unix_rates.push_back(row.measure(unix_address));
      row.tcp_rates.push_back(row.measure(tcp_address));
    }
  }
  for (const Row& row : rows) {
    const Rate on_unix = Median(row.unix_rates), on_tcp = Median(row.tcp_rates);
    std::printf("%-46s %8.2f %8.2f   (%.2f, %.2f ns/B)\n", row.name.c_str(), on_unix.gb_per_s, on_tcp.gb_per_s,
                on_unix.cpu_ns_per_byte, on_tcp.cpu_ns_per_byte);
  }
}

int Main(int argc, char** argv) {
  base::InitLogging("ingest_bench", "warn");
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments.size() == 3 && arguments[0] == "bare-sender") {
    RunBareSender(arguments[1] == "callback" ? StreamApi::kCallback : StreamApi::kCompletionQueue, arguments[2],
                  4 << 20);
    return 0;
  }
  if (arguments.size() == 3 && arguments[0] == "worker") {
    for (const Workload& workload : kWorkloads) {
      if (arguments[1] == workload.name) RunWorker(workload, arguments[2]);
    }
    return 0;
  }
  double seconds = 3;
  int trials = 5;
  std::string only;
  for (size_t i = 0; i + 1 < arguments.size(); i += 2) {
    if (arguments[i] == "--seconds" && absl::SimpleAtod(arguments[i + 1], &seconds)) continue;
    if (arguments[i] == "--trials" && absl::SimpleAtoi(arguments[i + 1], &trials)) continue;
    if (arguments[i] == "--only") {
      only = arguments[i + 1];
      continue;
    }
    std::fprintf(stderr, "ingest_bench: unknown argument %s\n", arguments[i].c_str());
    return 2;
  }
  Run(absl::Seconds(seconds), trials, only);
  return 0;
}

}  // namespace
}  // namespace troupe::bench

int main(int argc, char** argv) { return troupe::bench::Main(argc, argv); }
