#include "services/worker/worker_process.h"

#include <unistd.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "lib/base/await.h"
#include "lib/base/clock.h"
#include "lib/base/exit_code.h"
#include "lib/base/log.h"
#include "lib/base/mutex.h"
#include "lib/base/named_loop.h"
#include "lib/base/process_memory.h"
#include "lib/base/status_macros.h"
#include "lib/config/permits.h"
#include "lib/config/resolved_run.h"
#include "lib/config/run_config.h"
#include "lib/config/torch_modules.h"
#include "lib/config/worker_yaml.h"
#include "lib/policy/module_reader.h"
#include "lib/rollout/rollout_worker.h"
#include "lib/rpc/worker/worker_client.h"
#include "lib/run/episode_door.h"
#include "lib/run/life_report.h"
#include "lib/run/rollout_setup.h"
#include "services/common/signals.h"

namespace troupe::services {
namespace {

/// From a signal to the end of every wait for the learner, and to the end of the process. Longer, but not beyond
/// kMostPatience, is waited for environments that are no native ones: how long those take is the operator's doing.
constexpr absl::Duration kHandInTime = absl::Milliseconds(1400);
constexpr absl::Duration kStopTime = absl::Milliseconds(1900);
constexpr absl::Duration kMostPatience = absl::Seconds(8);
/// Between two looks at the process's memory.
constexpr absl::Duration kMemoryInterval = absl::Seconds(1);

std::string ProcessName() {
  char host[65] = {};
  if (gethostname(host, sizeof(host) - 1) != 0) host[0] = '\0';
  return absl::StrCat(host, ":", getpid());
}

uint64_t DrawIncarnation() {
  // Not one of a run's random numbers: it must differ between processes, also after a restart with the same seed.
  std::random_device device;
  const uint64_t drawn = (static_cast<uint64_t>(device()) << 32) | device();
  return drawn == 0 ? 1 : drawn;
}

/// Turns the first signal into a stop of the client's grants and of the worker, and into the client's end as soon as
/// the learner is away; from a thread of its own: the stepping thread may be in the middle of a grant, or waiting for a
/// learner, or for its acknowledgements. What a learner says decides how long each of that takes, and how long a worker
/// needs to make of it what it is to sample: so the watch ends the process where it has not ended by itself in time.
class SignalWatch {
 public:
  explicit SignalWatch(rpc::WorkerClient* client) : client_(client) {}
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

  /// From now on `worker`, or nobody, samples and is stopped by a signal; then the process has `patience` longer to
  /// end.
  void WatchOver(rollout::RolloutWorker* worker, absl::Duration patience) {
    base::MutexLock lock(&mutex_);
    worker_ = worker;
    patience_ = patience;
  }

 private:
  absl::Duration Look() {
    LookAtMemory();
    if (DrainSignals::Received()) Leave();
    return kSignalInterval;
  }
  void Leave() {
    const absl::Duration now = base::Clock::Real().SteadyNow();
    if (!signalled_.has_value()) {
      TROUPE_INFO("signal received, handing in what there is");
      client_->StopGrants("signal");
      client_->Hurry(kHandInTime);
      signalled_ = now;
    }
    bool samples;
    absl::Duration patience;
    {
      base::MutexLock lock(&mutex_);
      samples = worker_ != nullptr;
      if (samples) worker_->RequestStop();
      patience = patience_;
    }
    const int64_t fragments = client_->unacked_fragments();
    if (now - *signalled_ >= kStopTime + patience) {
      TROUPE_WARN("not at an end {} after the signal, ending now fragments={}", absl::FormatDuration(now - *signalled_),
                  fragments);
      ::_exit(static_cast<int>(fragments > 0 ? base::ExitCode::kFailed : DrainSignals::CodeInOrder()));
    }
    if (client_->joined() || client_->ended()) return;
    if (samples) TROUPE_WARN("the learner is away: nobody takes what is left fragments={}", fragments);
    client_->End();
  }
  /// Its lines are for bench/soak.py.
  void LookAtMemory() {
    const absl::Duration now = base::Clock::Real().SteadyNow();
    if (now - looked_at_memory_ < kMemoryInterval) return;
    looked_at_memory_ = now;
    heap_trimmer_.MaybeTrim(now);
    if (!base::LogsAt(base::LogLevel::kDebug)) return;
    const base::ProcessMemory memory = base::ProcessMemory::Now();
    TROUPE_DEBUG("memory pid={} rss_bytes={} heap_bytes={}", getpid(), memory.rss_bytes, memory.heap_bytes);
  }

  rpc::WorkerClient* const client_;
  base::Mutex mutex_;
  rollout::RolloutWorker* worker_ ABSL_GUARDED_BY(mutex_) = nullptr;
  absl::Duration patience_ ABSL_GUARDED_BY(mutex_) = absl::ZeroDuration();
  // Of the loop.
  std::optional<absl::Duration> signalled_;
  absl::Duration looked_at_memory_ = -absl::InfiniteDuration();
  base::HeapTrimmer heap_trimmer_;
  base::NamedLoop loop_{"signals", [this] { return Look(); }, kSignalInterval};  // last: it uses the rest
};

/// Blocks until welcomed; CANCELLED when a signal came first.
absl::StatusOr<rpc::Welcome> AwaitWelcome(rpc::WorkerClient& client, absl::Duration timeout) {
  const base::Deadline deadline = base::Deadline::After(timeout);
  while (true) {
    const absl::StatusOr<rpc::Welcome> welcome = client.AwaitWelcome(kSignalInterval);
    if (welcome.ok() || client.ended() || deadline.passed()) return welcome;
    if (DrainSignals::Received()) return absl::CancelledError("signal before the learner was reached");
  }
}

/// What the worker's own side permits.
absl::StatusOr<config::Permits> ReadPermits(const WorkerFlags& flags) {
  config::RunConfig own;
  if (!flags.config.empty()) {
    TROUPE_ASSIGN_OR_RETURN(own, config::RunConfig::FromFile(flags.config, flags.overrides));
    TROUPE_ASSIGN_OR_RETURN(own, config::PinModules(own, config::ModuleUse::kActing));
  }
  TROUPE_ASSIGN_OR_RETURN(const std::vector<std::string> modules, config::AddModuleFiles(flags.allow_torchscript));
  return config::Permits::Make(own, flags.allow_python, modules);
}

/// The learner's configuration as far as it is permitted: read as text, nothing of it looked up or made.
absl::StatusOr<config::RunConfig> ReadWelcome(const std::string& config_yaml, const config::Permits& permits) {
  TROUPE_ASSIGN_OR_RETURN(const config::RunConfig asked, config::FromWelcome(config_yaml));
  return permits.Admit(asked);
}

/// The run as this build understands the learner's configuration.
absl::StatusOr<config::ResolvedRun> ResolveWelcome(const rpc::Welcome& welcome, const config::Permits& permits,
                                                   const env::EnvRegistry& registry) {
  TROUPE_ASSIGN_OR_RETURN(const config::RunConfig config, ReadWelcome(welcome.config_yaml, permits));
  TROUPE_ASSIGN_OR_RETURN(config::ResolvedRun run, config::ResolveRun(config, registry));
  if (run.schema.WorkerHash() != welcome.spec_hash) {
    return absl::FailedPreconditionError(absl::StrCat(
        "this worker makes spec ", absl::Hex(run.schema.WorkerHash()), " of the learner's configuration, expected ",
        absl::Hex(welcome.spec_hash), ": use builds of the same release on both ends"));
  }
  return run;
}

/// How long a step may take beyond what one of native environments and policies does.
absl::Duration PatienceOf(const config::ResolvedRun& run) {
  if (config::StatementsOf(run.config).empty()) return absl::ZeroDuration();
  return std::min(kMostPatience, run.env.python.step_timeout);
}

}  // namespace

absl::Status RunWorker(const WorkerFlags& flags, const env::EnvRegistry& registry) {
  base::LimitHeapArenas(1);  // one thread steps; the others pass on what it has made
  TROUPE_ASSIGN_OR_RETURN(const config::Permits permits, ReadPermits(flags));
  rpc::WorkerClientOptions options;
  options.permits = permits.Digests();
  options.check_config = [&permits](const std::string& config_yaml) {
    return ReadWelcome(config_yaml, permits).status();
  };
  options.check_table = [&permits](const policy::PolicyTable& table) { return permits.Check(table); };
  options.address = flags.learner;
  options.security = flags.security;
  options.name = ProcessName();
  options.incarnation = DrawIncarnation();
  options.reconnect_timeout = flags.reconnect_timeout;
  std::optional<run::LifeReport> report;  // outlives the client, which uses it
  if (flags.report_fd) {
    TROUPE_ASSIGN_OR_RETURN(run::LifeReport adopted, run::LifeReport::Adopt(*flags.report_fd));
    options.on_first_accepted = [&report] { report->Fruitful(); };
    report.emplace(std::move(adopted));
  }
  absl::StatusOr<std::unique_ptr<rpc::WorkerClient>> made =
      rpc::WorkerClient::Create(std::move(options), &base::Clock::Real());
  if (!made.ok()) return base::RefusedIfFinal(made.status());  // the address, or how it is to be reached
  const std::unique_ptr<rpc::WorkerClient> client = *std::move(made);
  SignalWatch watch(client.get());  // outlives the other loop, whose end may be waited for
  const auto keep_connected = [&client] {
    client->Run();
    return absl::InfiniteDuration();
  };
  const base::NamedLoop io_loop("client", keep_connected);
  const absl::Cleanup close = [&client] { client->Close(); };  // ends Run, before its loop is waited for

  const absl::StatusOr<rpc::Welcome> welcome = AwaitWelcome(*client, flags.connect_timeout);
  // A signal, or a run that is over already: there is nothing to hand in.
  if (absl::IsCancelled(welcome.status())) return absl::OkStatus();
  TROUPE_RETURN_IF_ERROR(welcome.status());
  TROUPE_ASSIGN_OR_RETURN(config::ResolvedRun run, ResolveWelcome(*welcome, permits, registry));
  // The learner numbers workers from 1 in each of its epochs.
  run.env.python.worker_index = static_cast<int32_t>((welcome->worker_id.value() - 1) & 0x7fffffff);
  client->SetPolicies(run.schema.policies, welcome->spec_hash);
  TROUPE_INFO("worker joined id={} learner={} learner_epoch={}", sample::WorkerText(welcome->worker_id), flags.learner,
              welcome->learner_epoch);

  run::TendedDoor door;  // outlives the collector
  TROUPE_RETURN_IF_ERROR(door.Open(run, flags.security, [&client]() -> std::optional<outside::Closing> {
    if (client->run_ended()) return outside::Closing::kRunEnded;
    return client->end_reason().empty() ? std::nullopt : std::optional(outside::Closing::kWorkerEnds);
  }));
  TROUPE_ASSIGN_OR_RETURN(rollout::RolloutConfig config,
                          run::MakeRolloutConfig(run, registry, run.callbacks, door.book()));
  config.options.num_envs = run.schema.num_envs;
  config.options.worker = run.env.python.worker_index;
  TROUPE_ASSIGN_OR_RETURN(std::unique_ptr<rollout::Collector> collector, rollout::Collector::Create(std::move(config)));
  rollout::RolloutWorker worker(std::move(collector), *client, *client, *client);
  watch.WatchOver(&worker, PatienceOf(run));
  const absl::Status status = worker.Run();
  door.Close();
  const std::string reason = client->end_reason();
  const absl::Status drained = client->Drain(flags.drain_timeout);
  watch.WatchOver(nullptr, PatienceOf(run));
  const rollout::RolloutStats stats = worker.collector().stats();
  const rpc::AckCounters acks = client->acks();
  TROUPE_INFO(
      "worker ends reason=\"{}\" env_steps={} agent_steps={} episodes={} fragments={} accepted={} stale={} "
      "duplicate={} invalid={} "
      "reconnects={} env_errors={} policy_hits={} policy_misses={} policy_evictions={} weight_waits={} given_up={}",
      reason, stats.env_steps, stats.agent_steps, stats.episodes, stats.fragments, acks.accepted, acks.stale,
      acks.duplicate, acks.invalid, client->reconnects(), stats.env_errors, stats.policy_hits, stats.policy_misses,
      stats.policy_evictions, stats.weight_waits, stats.given_up);
  if (acks.invalid > 0) TROUPE_WARN("the learner refused fragments as invalid last_reason=\"{}\"", acks.last_reason);
  TROUPE_RETURN_IF_ERROR(status);
  return drained;
}

}  // namespace troupe::services
