#include "lib/envhost/host_pool.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/envhost/describe_env.h"
#include "lib/envhost/fork_server.h"
#include "lib/envhost/host_env.h"
#include "lib/envhost/python_program.h"

namespace troupe::envhost {

absl::StatusOr<std::shared_ptr<HostPool>> HostPool::Create(HostOptions options, const std::string& name,
                                                           const env::EnvArgs& args,
                                                           std::shared_ptr<EpisodeTracks> tracks) {
  TROUPE_ASSIGN_OR_RETURN(const std::string args_json, env::ArgsJson(args.values()));
  const std::string function = options.observation_fn;
  nlohmann::json start = {{"name", ModuleName(name, options.folder)},
                          {"global_state", options.global_state},
                          {"draws", options.draws},
                          {"worker_index", options.worker_index},
                          {"first_env_index", options.first_env_index},
                          {"observation_function", function.empty() ? "" : ModuleName(function, options.folder)},
                          {"callbacks", ModuleNames(options.callbacks, options.folder)},
                          {"evaluating", options.evaluating},
                          {"step_timeout_s", absl::ToDoubleSeconds(options.step_timeout)}};
  TROUPE_ASSIGN_OR_RETURN(ProcessOrder order, ProcessOrder::Make(options, std::move(start)));
  // As text: a JSON object would sort the arguments.
  order.start_message.insert(1, absl::StrCat("\"args\":", args_json, ","));
  if (options.processes == 0) options.processes = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  return std::shared_ptr<HostPool>(new HostPool(std::move(options), name, std::move(order), std::move(tracks)));
}

HostPool::HostPool(HostOptions options, std::string name, ProcessOrder order, std::shared_ptr<EpisodeTracks> tracks)
    : options_(std::move(options)),
      name_(std::move(name)),
      order_(std::move(order)),
      tracks_(std::move(tracks)),
      budget_(options_),
      seats_(static_cast<size_t>(options_.processes)) {}

HostPool::~HostPool() {
  std::vector<std::shared_ptr<HostProcess>> leaving;
  {
    base::MutexLock lock(&mutex_);
    for (Seat& seat : seats_) {
      if (seat.process != nullptr) leaving.push_back(std::move(seat.process));
    }
    if (spare_ != nullptr) leaving.push_back(std::move(spare_));
  }
  Dismiss(std::move(leaving), options_.leave_timeout);
}

absl::StatusOr<std::unique_ptr<env::MultiAgentEnv>> HostPool::MakeEnv() {
  std::shared_ptr<const Kind> kind;
  int seat;
  {
    base::MutexLock lock(&mutex_);
    if (kind_ == nullptr) {
      const absl::Status learned = LearnKindLocked();
      if (!learned.ok()) {
        return absl::Status(learned.code(),
                            absl::StrCat("environment ", base::LogSafe(name_), ": ", std::string(learned.message())));
      }
    }
    kind = kind_;
    seat = static_cast<int>(made_++ % options_.processes);
  }
  TROUPE_RETURN_IF_ERROR(ProcessFor(seat).status());
  return std::unique_ptr<env::MultiAgentEnv>(std::make_unique<HostEnv>(shared_from_this(), kind, seat));
}

absl::Status HostPool::LearnKindLocked() {
  TROUPE_ASSIGN_OR_RETURN(std::shared_ptr<HostProcess> process, StartProcessLocked());
  auto kind = std::make_shared<Kind>();
  TROUPE_ASSIGN_OR_RETURN(kind->description, process->AwaitDescription());
  const nlohmann::json description = nlohmann::json::parse(kind->description, nullptr, /*allow_exceptions=*/false);
  absl::StatusOr<env::EnvSpec> spec = ReadDescription(name_, description);
  if (!spec.ok()) {
    Dismiss({std::move(process)}, options_.leave_timeout);
    return spec.status();
  }
  kind->spec = *std::move(spec);
  kind->recognized_as = RecognizedAs(description);
  kind->layout = std::make_shared<BlockLayout>(kind->spec, options_.draws, tracks_ != nullptr);
  process->Expect(kind->description, kind->layout->ToJson());
  kind_ = std::move(kind);
  seats_[0].process = std::move(process);
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<HostProcess>> HostPool::StartProcessLocked() {
  TROUPE_ASSIGN_OR_RETURN(std::shared_ptr<HostProcess> process,
                          HostProcess::Start(order_, absl::StrCat(name_, " process ", started_), fork_server_.get()));
  ++started_;
  if (kind_ != nullptr) process->Expect(kind_->description, kind_->layout->ToJson());
  return process;
}

absl::StatusOr<std::shared_ptr<HostProcess>> HostPool::ProcessFor(int seat) {
  std::shared_ptr<HostProcess> dead, dead_spare;  // destroyed outside the lock
  base::MutexLock lock(&mutex_);
  Seat& place = seats_[static_cast<size_t>(seat)];
  if (place.process != nullptr && !place.process->dead()) return place.process;
  if (place.process == nullptr) {
    TROUPE_ASSIGN_OR_RETURN(place.process, StartProcessLocked());
    return place.process;
  }
  TROUPE_RETURN_IF_ERROR(budget_.Spend(place.process->death()));
  EnsureForkServerLocked();
  // Until another one is there the dead one keeps the seat, so that the next try is a restart, too.
  std::shared_ptr<HostProcess> next;
  if (spare_ != nullptr && !spare_->dead()) {
    next = std::move(spare_);
  } else {
    dead_spare = std::move(spare_);
    TROUPE_ASSIGN_OR_RETURN(next, StartProcessLocked());
  }
  ++totals_.deaths;
  if (place.process->timed_out()) ++totals_.timeouts;
  ++totals_.restarts;
  TROUPE_WARN("Python process restarted pid={} restarts={} cause={}", place.process->pid(), totals_.restarts,
              base::LogSafe(std::string(place.process->death().message()), 500));
  dead = std::exchange(place.process, std::move(next));
  absl::StatusOr<std::shared_ptr<HostProcess>> spare = StartProcessLocked();
  spare_ = spare.ok() ? *std::move(spare) : nullptr;  // without it the next restart takes longer
  return place.process;
}

void HostPool::EnsureForkServerLocked() {
  if (!options_.fork_server) return;
  if (fork_server_ != nullptr && fork_server_->Look() != ForkServer::State::kEnded) return;
  absl::StatusOr<std::shared_ptr<ForkServer>> started = ForkServer::Start(
      order_.interpreter, order_.package_folder, order_.start_message, absl::StrCat(name_, " fork server"));
  fork_server_ = started.ok() ? *std::move(started) : nullptr;  // without it restarts take longer
}

void HostPool::TendIdle() {
  std::shared_ptr<HostProcess> spare;
  std::shared_ptr<ForkServer> fork_server;
  {
    base::MutexLock lock(&mutex_);
    spare = spare_;
    fork_server = fork_server_;
  }
  if (spare != nullptr) spare->Tend();
  if (fork_server != nullptr) fork_server->Look();
}

std::string HostPool::recognized_as() const {
  base::MutexLock lock(&mutex_);
  return kind_ == nullptr ? "" : kind_->recognized_as;
}

HostStats HostPool::stats() const {
  base::MutexLock lock(&mutex_);
  HostStats stats = totals_;
  for (const Seat& seat : seats_) {
    if (seat.process == nullptr || !seat.process->dead()) continue;
    ++stats.deaths;
    if (seat.process->timed_out()) ++stats.timeouts;
  }
  stats.errors = counters_.errors.load(std::memory_order_relaxed);
  stats.exceptions = counters_.exceptions.load(std::memory_order_relaxed);
  stats.bad_outputs = counters_.bad_outputs.load(std::memory_order_relaxed);
  return stats;
}

std::vector<pid_t> HostPool::PidsForTesting() const {
  base::MutexLock lock(&mutex_);
  std::vector<pid_t> pids;
  for (const Seat& seat : seats_) {
    if (seat.process != nullptr && !seat.process->dead()) pids.push_back(seat.process->pid());
  }
  return pids;
}

}  // namespace troupe::envhost
