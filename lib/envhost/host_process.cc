#include "lib/envhost/host_process.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/envhost/control_message.h"
#include "lib/envhost/fork_server.h"
#include "lib/envhost/python_program.h"
#include "lib/envhost/spawn_python.h"

namespace troupe::envhost {
namespace {

/// A waiter looks after so long whether the process lives, whatever wakes it.
constexpr absl::Duration kLook = absl::Milliseconds(5);
constexpr int kMinSpins = 16;
constexpr int kMaxSpins = 2000;
/// Of the two lines that a process gets before its first request; it waits for them.
constexpr absl::Duration kSendTimeout = absl::Seconds(5);

/// A line before the first request. That the process has ended is no error here: who waits for its answer is told how.
absl::Status SendEarly(PythonChild& child, absl::string_view line) {
  const absl::Status sent = child.Send(line, kSendTimeout);
  return absl::IsUnavailable(sent) ? absl::OkStatus() : sent;
}

void Relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

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

}  // namespace

absl::StatusOr<ProcessOrder> ProcessOrder::Make(const HostOptions& options, nlohmann::json start) {
  TROUPE_RETURN_IF_ERROR(CheckOptions(options));
  ProcessOrder order;
  const absl::StatusOr<std::string> interpreter = FindInterpreter(options.interpreter);
  if (!interpreter.ok()) {
    return absl::NotFoundError(absl::StrCat("interpreter: ", std::string(interpreter.status().message())));
  }
  order.interpreter = *interpreter;
  TROUPE_ASSIGN_OR_RETURN(order.package_folder, FindPackage());
  order.start_timeout = options.start_timeout;
  order.step_timeout = options.step_timeout;
  order.abandoned = options.abandoned;
  start.update({{"op", "start"}, {"version", kLayoutVersion}, {"path", options.path}, {"usual_step", FindUsualStep()}});
  order.start_message = start.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return order;
}

absl::StatusOr<std::shared_ptr<HostProcess>> HostProcess::Start(const ProcessOrder& order, const std::string& name,
                                                                ForkServer* fork_server) {
  const auto start = [&](PythonChild::Launcher launch) -> absl::StatusOr<std::shared_ptr<HostProcess>> {
    TROUPE_ASSIGN_OR_RETURN(std::unique_ptr<SharedMemory> memory, SharedMemory::Create());
    TROUPE_ASSIGN_OR_RETURN(std::unique_ptr<PythonChild> child, PythonChild::Start(launch, memory->fd(), name));
    // The socket holds this line before the process reads it.
    TROUPE_RETURN_IF_ERROR(SendEarly(*child, order.start_message));
    return std::shared_ptr<HostProcess>(new HostProcess(order, std::move(memory), std::move(child)));
  };
  if (fork_server != nullptr && fork_server->Look() == ForkServer::State::kReady) {
    absl::StatusOr<std::shared_ptr<HostProcess>> forked =
        start([fork_server](const ChildFds& fds) { return fork_server->Fork(fds); });
    if (forked.ok()) return forked;
    // Nothing of the attempt is used again: there may be a fork that nobody told us of, which its lifeline ends.
    TROUPE_WARN("a Python process is started, not forked: {}", forked.status().ToString());
  }
  return start([&order](const ChildFds& fds) {
    return SpawnPython(order.interpreter, order.package_folder, "troupe.env_host", fds);
  });
}

HostProcess::HostProcess(const ProcessOrder& order, std::unique_ptr<SharedMemory> memory,
                         std::unique_ptr<PythonChild> child)
    : order_(order),
      pid_(child->pid()),
      memory_(std::move(memory)),
      child_(std::move(child)),
      start_time_(order_.clock->SteadyNow()),
      slow_(kRingCapacity),
      waiters_(&memory_->page()),
      progress_{.time = WatchedTime(order_.clock->SteadyNow())} {}

HostProcess::~HostProcess() = default;

absl::StatusOr<std::string> HostProcess::AwaitDescription() {
  base::MutexLock start(&start_mutex_);
  while (described_.text.empty()) TROUPE_RETURN_IF_ERROR(TakeDescription(absl::Milliseconds(10)));
  return described_.text;
}

absl::Status HostProcess::TakeDescription(absl::Duration wait) {
  base::MutexLock lock(&child_mutex_);
  if (!death_.ok()) return death_;
  absl::StatusOr<std::optional<std::string>> line = child_->TryReceive(wait);
  // What it said last may have come since.
  if (line.ok() && !line->has_value() && child_->Ended()) line = child_->TryReceive(absl::ZeroDuration());
  if (!line.ok()) return DieLocked(line.status().code(), std::string(line.status().message()), false);
  if (line->has_value()) {
    const nlohmann::json message = nlohmann::json::parse(**line, nullptr, /*allow_exceptions=*/false);
    if (TextOf(message, "op") == "failed") {
      return DieLocked(absl::StatusCode::kInvalidArgument, absl::StrCat("it failed: ", TextOf(message, "error")),
                       false);
    }
    if (TextOf(message, "op") != "described" || !message.contains("version") || message["version"] != kLayoutVersion) {
      return DieLocked(
          absl::StatusCode::kInvalidArgument,
          absl::StrCat("the process said ", base::LogSafe(**line, 200), ", expected a description in version ",
                       kLayoutVersion, ": is its Python package of another version?"),
          false);
    }
    described_.text = **std::move(line);
    return absl::OkStatus();
  }
  if (child_->Ended()) {
    std::string why = absl::StrCat("the Python process ", child_->HowItEnded(),
                                   " while it started; the last that it printed: ", child_->LastLine());
    if (absl::StrContains(why, "No module named 'troupe'")) {
      absl::StrAppend(&why, " (package troupe: looked for in ", PackagePlaces(), ")");
    }
    return DieLocked(absl::StatusCode::kUnavailable, why, false);
  }
  TROUPE_RETURN_IF_ERROR(DieIfAbandonedLocked());
  if (start_time_.Look(order_.clock->SteadyNow()) > order_.start_timeout) {
    return DieLocked(
        absl::StatusCode::kDeadlineExceeded,
        absl::StrCat("the Python process did not start within ", absl::FormatDuration(order_.start_timeout),
                     " (env.python.start_timeout_s); it printed ",
                     child_->LastOutput().empty() ? "nothing" : absl::StrCat("at last: ", child_->LastOutput())),
        true);
  }
  return absl::OkStatus();
}

void HostProcess::Expect(std::string description, nlohmann::json layout) {
  base::MutexLock lock(&mutex_);
  expected_ = std::move(description);
  layout_ = std::move(layout);
}

absl::Status HostProcess::EnsureReady() {
  if (ready_.load(std::memory_order_acquire)) return absl::OkStatus();
  TROUPE_ASSIGN_OR_RETURN(const std::string description, AwaitDescription());
  std::string expected;
  nlohmann::json message;
  {
    base::MutexLock lock(&mutex_);
    expected = expected_;
    message = layout_;
  }
  base::MutexLock lock(&child_mutex_);
  if (ready_.load(std::memory_order_acquire)) return absl::OkStatus();
  if (!death_.ok()) return death_;
  if (description != expected) {
    return DieLocked(absl::StatusCode::kInvalidArgument,
                     absl::StrCat("its spaces changed between processes: got ", base::LogSafe(description, 400),
                                  ", expected ", base::LogSafe(expected, 400)),
                     false);
  }
  message["op"] = "layout";
  const absl::Status sent = SendEarly(*child_, message.dump());
  if (!sent.ok()) return DieLocked(absl::StatusCode::kUnavailable, std::string(sent.message()), false);
  base::MutexLock ring_lock(&mutex_);
  progress_.time.Restart(order_.clock->SteadyNow());
  ready_.store(true, std::memory_order_release);
  return absl::OkStatus();
}

absl::StatusOr<HostProcess::Slot> HostProcess::AcquireSlot(size_t block_bytes) {
  if (dead()) return death();
  base::MutexLock lock(&mutex_);
  Slot slot;
  if (!free_slots_.empty()) {
    slot.number = free_slots_.back();
    free_slots_.pop_back();
    slot.block = blocks_[static_cast<size_t>(slot.number)];
    return slot;
  }
  if (blocks_.size() == static_cast<size_t>(kMaxEnvsPerProcess)) {
    return absl::ResourceExhaustedError(absl::StrCat("a Python process has ", kMaxEnvsPerProcess,
                                                     " environments, expected at most as many (env.python.processes)"));
  }
  TROUPE_ASSIGN_OR_RETURN(const SharedMemory::Block block, memory_->Add(block_bytes));
  slot.number = static_cast<int>(blocks_.size());
  slot.block = block.header;
  slot.block->block_bytes = block_bytes;
  blocks_.push_back(block.header);
  // The child looks here with the slot's first request, whose head makes it visible.
  page().block_pages[slot.number] = static_cast<uint32_t>(block.offset / kBlockAlignment);
  return slot;
}

void HostProcess::ReleaseSlot(const Slot& slot) {
  if (!PostEntry(RingEntry(RequestKind::kClose, slot.number), /*slow=*/true).ok()) return;
  base::MutexLock lock(&mutex_);
  free_slots_.push_back(slot.number);
}

absl::StatusOr<HostProcess::Ticket> HostProcess::Post(const Slot& slot, RequestKind kind, bool makes) {
  return PostEntry(RingEntry(kind, slot.number), makes);
}

absl::StatusOr<HostProcess::Ticket> HostProcess::PostEntry(uint32_t entry, bool slow) {
  if (dead()) return death();
  base::MutexLock lock(&mutex_);
  ControlPage& page = this->page();
  if (head_ - page.done.load(std::memory_order_relaxed) >= kRingCapacity) {
    return absl::ResourceExhaustedError("the ring of a Python process is full: closes that it has not answered");
  }
  if (head_ == page.done.load(std::memory_order_relaxed)) {  // it has nothing else to do
    progress_.done = head_;
    progress_.time.Restart(order_.clock->SteadyNow());
  }
  if (waited_.exchange(false, std::memory_order_relaxed)) {
    EndBatchLocked();
    if (entry != kControlEntry) entry |= kBatchBegins;
  }
  page.ring[head_ % kRingCapacity] = entry;
  slow_[head_ % kRingCapacity] = slow ? 1 : 0;
  ++head_;
  // Sequentially consistent against the child, which says that it sleeps and then looks at head.
  page.head.store(head_, std::memory_order_seq_cst);
  if (page.sleeps.load(std::memory_order_seq_cst) != 0 && page.sleeps.exchange(0) != 0) FutexWake(page.head);
  return head_;
}

uint32_t HostProcess::BatchEndLocked(Ticket ticket) {
  for (const uint32_t end : batch_ends_) {
    if (AtOrAfter(end, ticket)) return end;
  }
  EndBatchLocked();
  return head_;
}

void HostProcess::EndBatchLocked() {
  const uint32_t done = page().done.load(std::memory_order_relaxed);
  batch_ends_.erase(
      std::remove_if(batch_ends_.begin(), batch_ends_.end(), [done](uint32_t end) { return AtOrAfter(done, end); }),
      batch_ends_.end());
  if (done != head_ && (batch_ends_.empty() || batch_ends_.back() != head_)) batch_ends_.push_back(head_);
}

HostProcess::Ticket HostProcess::BatchEndForTesting(Ticket ticket) {
  base::MutexLock lock(&mutex_);
  return BatchEndLocked(ticket);
}

bool HostProcess::BeginsBatchForTesting(Ticket ticket) const {
  base::MutexLock lock(&mutex_);
  return (page().ring[(ticket - 1) % kRingCapacity] & kBatchBegins) != 0;
}

bool HostProcess::Spin(Ticket ticket) {
  const int spins = spins_.load(std::memory_order_relaxed);
  for (int i = 0; i < spins; ++i) {
    if (Answered(ticket)) {
      if (i > 0) spins_.store(std::min(kMaxSpins, 2 * spins), std::memory_order_relaxed);
      return true;
    }
    Relax();
  }
  spins_.store(std::max(kMinSpins, spins / 2), std::memory_order_relaxed);
  return false;
}

bool HostProcess::Nap(Ticket ticket, Ticket batch_end) {
  const absl::Duration nap = wait_times_.Nap();
  if (nap == absl::ZeroDuration()) return false;
  for (int i = 0; i < 2 * WaitTimes::kNapsAWait; ++i) {
    absl::SleepFor(nap);
    if (Answered(batch_end)) return true;
    if (nap * i > kLook && Answered(ticket)) return true;  // the rest of its batch takes long
    if (dead() || !Look(/*often=*/true).ok()) return false;
  }
  return false;
}

absl::Status HostProcess::Await(Ticket ticket) {
  waited_.store(true, std::memory_order_relaxed);
  TROUPE_RETURN_IF_ERROR(EnsureReady());
  // A dead one answers nothing more: there is nothing to sleep for.
  if (dead()) return Answered(ticket) ? absl::OkStatus() : death();
  if (Spin(ticket)) return absl::OkStatus();
  const absl::Duration begin = base::Clock::Real().SteadyNow();
  Ticket end = 0;
  bool more = false;
  {
    base::MutexLock lock(&mutex_);
    end = BatchEndLocked(ticket);
    more = end != head_;
  }
  const absl::Status status = more && Nap(ticket, end) ? absl::OkStatus() : SleepUntilWoken(ticket, end);
  wait_times_.Learn(base::Clock::Real().SteadyNow() - begin);
  return status;
}

absl::Status HostProcess::SleepUntilWoken(Ticket ticket, Ticket batch_end) {
  {
    base::MutexLock lock(&mutex_);
    waiters_.Add(batch_end);
  }
  ControlPage& page = this->page();
  absl::Status status;
  while (true) {
    const uint32_t done = page.done.load(std::memory_order_seq_cst);
    if (AtOrAfter(done, ticket)) break;
    FutexWait(page.done, done, kLook);
    if (Answered(ticket)) break;
    status = Look(/*often=*/false);
    if (!status.ok()) {
      if (Answered(ticket)) status = absl::OkStatus();  // an answer that came before the end counts
      break;
    }
    base::MutexLock lock(&mutex_);
    waiters_.Renew();
  }
  base::MutexLock lock(&mutex_);
  waiters_.Remove(batch_end);
  return status;
}

bool HostProcess::Settled(Ticket ticket) {
  if (dead() || Answered(ticket)) return true;
  if (!ready_.load(std::memory_order_acquire)) {
    {
      base::MutexLock start(&start_mutex_);
      if (described_.text.empty()) {
        // Every look is some system calls, and whoever steps other processes beside it comes here all the time.
        const absl::Duration now = order_.clock->SteadyNow();
        if (now - described_.asked_at < kLook) return false;
        described_.asked_at = now;
        if (!TakeDescription(absl::ZeroDuration()).ok()) return true;
      }
      if (described_.text.empty()) return false;
    }
    if (!EnsureReady().ok()) return true;
  }
  return !Look(/*often=*/true).ok() || Answered(ticket);
}

absl::Status HostProcess::Look(bool often) {
  const absl::Duration now = order_.clock->SteadyNow();
  absl::Duration patience;
  uint32_t done;
  {
    base::MutexLock lock(&mutex_);
    if (often && now - progress_.looked_at < kLook) return absl::OkStatus();
    progress_.looked_at = now;
    done = page().done.load(std::memory_order_acquire);
    if (done != progress_.done || done == head_) progress_.time.Restart(now);
    progress_.done = done;
    patience = slow_[done % kRingCapacity] != 0 ? order_.start_timeout : order_.step_timeout;
    if (progress_.time.Look(now) <= patience) patience = absl::InfiniteDuration();
  }
  TROUPE_RETURN_IF_ERROR(CheckAlive());
  if (patience == absl::InfiniteDuration()) return absl::OkStatus();
  base::MutexLock lock(&child_mutex_);
  if (page().done.load(std::memory_order_acquire) != done) return absl::OkStatus();
  return DieLocked(absl::StatusCode::kDeadlineExceeded,
                   absl::StrCat("an environment of Python process ", pid_, " did not answer within ",
                                absl::FormatDuration(patience), "; the process was killed"),
                   true);
}

void HostProcess::Tend() {
  base::MutexLock lock(&child_mutex_);
  if (death_.ok()) child_->DrainOutput();
}

absl::Status HostProcess::CheckAlive() {
  base::MutexLock lock(&child_mutex_);
  if (!death_.ok()) return death_;
  child_->DrainOutput();
  if (!child_->Ended()) return DieIfAbandonedLocked();
  return DieLocked(absl::StatusCode::kUnavailable,
                   absl::StrCat("Python process ", pid_, " ", child_->HowItEnded(),
                                child_->LastOutput().empty() ? "" : "; it printed: ", child_->LastOutput()),
                   false);
}

absl::Status HostProcess::DieIfAbandonedLocked() {
  if (order_.abandoned == nullptr || !order_.abandoned->load(std::memory_order_relaxed)) return absl::OkStatus();
  return DieLocked(absl::StatusCode::kCancelled,
                   absl::StrCat("nobody waits for Python process ", pid_, " any more; it was killed"), false);
}

absl::Status HostProcess::DieLocked(absl::StatusCode code, const std::string& why, bool timed_out) {
  if (!death_.ok()) return death_;
  child_->Kill();
  death_ = absl::Status(code, why);
  timed_out_.store(timed_out, std::memory_order_relaxed);
  dead_.store(true, std::memory_order_release);
  return death_;
}

uint32_t HostProcess::callback_in_progress() const {
  base::MutexLock lock(&mutex_);
  for (const BlockHeader* const block : blocks_) {
    const uint32_t hook = block == nullptr ? 0 : block->in_callback;
    if (hook >= 1 && hook <= kEpisodeHooks.size()) return hook;
  }
  return 0;
}

absl::Status HostProcess::death() const {
  base::MutexLock lock(&child_mutex_);
  return death_;
}

void HostProcess::AskToLeave() {
  base::MutexLock lock(&child_mutex_);
  if (!death_.ok()) return;
  // One that is not ready reads the line where it waits for its layout.
  if (child_->Send(R"({"op": "exit"})", absl::ZeroDuration()).ok() &&
      (!ready_.load(std::memory_order_acquire) || PostEntry(kControlEntry, /*slow=*/true).ok())) {
    return;
  }
  child_->Terminate();
}

bool HostProcess::Left() {
  base::MutexLock lock(&child_mutex_);
  if (!death_.ok()) return true;
  child_->TryReceive(absl::ZeroDuration()).IgnoreError();  // a description that nobody wants any more
  return child_->Ended();
}

void HostProcess::Terminate() {
  base::MutexLock lock(&child_mutex_);
  child_->Terminate();
}

void HostProcess::Kill(const absl::Status& why) {
  base::MutexLock lock(&child_mutex_);
  DieLocked(why.code(), std::string(why.message()), false).IgnoreError();
}

void Dismiss(std::vector<std::shared_ptr<HostProcess>> processes, absl::Duration leave_timeout) {
  for (const std::shared_ptr<HostProcess>& process : processes) process->AskToLeave();
  AwaitEnd(processes, leave_timeout);
  for (const std::shared_ptr<HostProcess>& process : processes) process->Terminate();
  AwaitEnd(processes, kTermTimeout);
  for (const std::shared_ptr<HostProcess>& process : processes) {
    TROUPE_WARN("Python process does not end, killed pid={}", process->pid());
  }
}

}  // namespace troupe::envhost
