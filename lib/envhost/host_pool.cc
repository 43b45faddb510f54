#include "lib/envhost/host_pool.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "lib/base/clock.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/envhost/describe_env.h"
#include "lib/envhost/host_env.h"
#include "lib/envhost/python_program.h"

namespace troupe::envhost {
namespace {

absl::Status CheckOptions(const HostOptions& options) {
  const auto wrong = [](const char* what, const auto& got, const char* expected) {
    return absl::InvalidArgumentError(absl::StrCat(what, ": got ", got, ", expected ", expected));
  };
  if (options.processes < 0 || options.processes > 1024) return wrong("processes", options.processes, "0 to 1024");
  if (options.start_timeout <= absl::ZeroDuration()) {
    return wrong("start_timeout_s", absl::ToDoubleSeconds(options.start_timeout), "a number > 0");
  }
  if (options.step_timeout <= absl::ZeroDuration()) {
    return wrong("step_timeout_s", absl::ToDoubleSeconds(options.step_timeout), "a number > 0");
  }
  if (options.max_restarts < 0) return wrong("max_restarts", options.max_restarts, "at least 0");
  return absl::OkStatus();
}

/// Waits until they have ended, at most so long; those that have not are left in `processes`.
void AwaitEnd(std::vector<std::shared_ptr<HostProcess>>& processes, absl::Duration timeout) {
  const base::Clock& clock = base::Clock::Real();
  const absl::Duration deadline = clock.SteadyNow() + timeout;
  while (true) {
    processes.erase(std::remove_if(processes.begin(), processes.end(), [](const auto& it) { return it->Left(); }),
                    processes.end());
    if (processes.empty() || clock.SteadyNow() > deadline) return;
    absl::SleepFor(absl::Milliseconds(1));
  }
}

/// Has them close their environments and end, all at the same time.
void Dismiss(std::vector<std::shared_ptr<HostProcess>> processes, absl::Duration leave_timeout) {
  for (const std::shared_ptr<HostProcess>& process : processes) process->AskToLeave();
  AwaitEnd(processes, leave_timeout);
  for (const std::shared_ptr<HostProcess>& process : processes) process->Terminate();
  AwaitEnd(processes, HostPool::kTermTimeout);
  for (const std::shared_ptr<HostProcess>& process : processes) {
    TROUPE_WARN("Python process does not end, killed pid={}", process->pid());
  }
}

}  // namespace

absl::StatusOr<std::shared_ptr<HostPool>> HostPool::Create(HostOptions options, const std::string& name,
                                                           const env::EnvArgs& args) {
  TROUPE_RETURN_IF_ERROR(CheckOptions(options));
  if (options.processes == 0) options.processes = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  ProcessOrder order;
  const absl::StatusOr<std::string> interpreter = FindInterpreter(options.interpreter);
  if (!interpreter.ok()) {
    return absl::NotFoundError(absl::StrCat("interpreter: ", std::string(interpreter.status().message())));
  }
  order.interpreter = *interpreter;
  TROUPE_ASSIGN_OR_RETURN(order.package_folder, FindPackage());
  order.start_timeout = options.start_timeout;
  order.step_timeout = options.step_timeout;
  TROUPE_ASSIGN_OR_RETURN(const std::string args_json, env::ArgsJson(args.values()));
  const std::string python_name(name.substr(absl::StartsWith(name, kPythonPrefix) ? sizeof(kPythonPrefix) - 1 : 0));
  order.start_message = nlohmann::json({{"op", "start"},
                                        {"version", kLayoutVersion},
                                        {"name", python_name},
                                        {"args", nlohmann::json::parse(args_json)},
                                        {"path", options.path},
                                        {"global_state", options.global_state}})
                            .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return std::shared_ptr<HostPool>(new HostPool(std::move(options), name, std::move(order)));
}

HostPool::HostPool(HostOptions options, std::string name, ProcessOrder order)
    : options_(std::move(options)),
      name_(std::move(name)),
      order_(std::move(order)),
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
  kind->layout = std::make_shared<BlockLayout>(kind->spec);
  process->Expect(kind->description, kind->layout);
  kind_ = std::move(kind);
  seats_[0].process = std::move(process);
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<HostProcess>> HostPool::StartProcessLocked() {
  TROUPE_ASSIGN_OR_RETURN(std::shared_ptr<HostProcess> process,
                          HostProcess::Start(order_, absl::StrCat(name_, " process ", started_)));
  ++started_;
  if (kind_ != nullptr) process->Expect(kind_->description, kind_->layout);
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
  TROUPE_RETURN_IF_ERROR(SpendRestartLocked(place.process->death()));
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

void HostPool::TendSpare() {
  std::shared_ptr<HostProcess> spare;
  {
    base::MutexLock lock(&mutex_);
    spare = spare_;
  }
  if (spare != nullptr) spare->Tend();
}

absl::Status HostPool::SpendRestartLocked(const absl::Status& death) {
  const absl::Duration now = base::Clock::Real().SteadyNow();
  while (!restarts_.empty() && now - restarts_.front() > options_.restart_window) restarts_.pop_front();
  if (static_cast<int64_t>(restarts_.size()) >= options_.max_restarts) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "its Python processes were restarted ", restarts_.size(), " times within ",
        absl::FormatDuration(options_.restart_window), ", expected at most ", options_.max_restarts,
        " (env.python.max_restarts, restart_window_s); the last ended so: ", std::string(death.message())));
  }
  restarts_.push_back(now);
  return absl::OkStatus();
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
