#pragma once

#include <sys/types.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "lib/base/clock.h"
#include "lib/base/mutex.h"
#include "lib/envhost/answer_waiters.h"
#include "lib/envhost/host_options.h"
#include "lib/envhost/python_child.h"
#include "lib/envhost/shared_layout.h"
#include "lib/envhost/shared_memory.h"
#include "lib/envhost/wait_times.h"
#include "lib/envhost/watched_time.h"
#include <nlohmann/json.hpp>

namespace troupe::envhost {

class ForkServer;

/// What a process is to run, and within which time. Plain value.
struct ProcessOrder {
  std::string interpreter;     ///< a program
  std::string package_folder;  ///< for PYTHONPATH; may be empty
  std::string start_message;   ///< the first line of the control channel
  absl::Duration start_timeout;
  absl::Duration step_timeout;
  std::shared_ptr<const std::atomic<bool>> abandoned;  ///< as HostOptions has it
  base::Clock* clock = &base::Clock::Real();           ///< of the timeouts

  /// What `options` say, and `start` as the message. NOT_FOUND for an interpreter or package folder that is not there,
  /// INVALID_ARGUMENT for options out of range.
  static absl::StatusOr<ProcessOrder> Make(const HostOptions& options, nlohmann::json start);
};

/// One process of Python environments: starts it, gives it requests through the ring in shared memory and waits for
/// answers. States: starting -> ready -> dead; starting -> dead. A dead one stays dead: its environments move to
/// another.
///
/// Requests are answered in order. While both sides are awake nobody makes a system call; a waiter sleeps until all
/// requests of its batch are answered, so that it is woken once, or by the clock where the child has the next batch
/// already. What is posted after somebody waited (as a worker does
/// that steps one group of environments while it acts for another) begins the next batch; so who waits between any two
/// posts makes batches of one.
///
/// Deadlines count the time in which somebody looks (WatchedTime), and what is there when one looks counts before them.
///
/// Thread-safe: environments of one process may belong to several threads. Post never waits. Await and AwaitDescription
/// block; a process that does not answer one request within its deadline, or ends, is dead for all of them.
/// The destructor kills a process that still runs; AskToLeave, and Left until it has, let it close its environments
/// before.
class HostProcess {
 public:
  /// A position in the ring: answered when so many requests are.
  using Ticket = uint32_t;
  /// An environment's place. The block lives as long as the process object.
  struct Slot {
    int number = -1;
    BlockHeader* block = nullptr;
  };

  /// Starts the process and does not wait for it. `name` is how the log calls it. Forked by `fork_server` where there
  /// is one that is ready.
  static absl::StatusOr<std::shared_ptr<HostProcess>> Start(const ProcessOrder& order, const std::string& name,
                                                            ForkServer* fork_server = nullptr);
  HostProcess(const HostProcess&) = delete;
  HostProcess& operator=(const HostProcess&) = delete;
  ~HostProcess();

  /// Waits for the description of the environments, a line of JSON. INVALID_ARGUMENT: the environment could not be
  /// made, with Python's error. UNAVAILABLE or DEADLINE_EXCEEDED: the process is dead.
  absl::StatusOr<std::string> AwaitDescription();
  /// What its environments are expected to be like: the description of another process, and the layout that follows
  /// from it. Before the first AcquireSlot. Requests may be posted from then on, also while the process starts.
  void Expect(std::string description, nlohmann::json layout);

  /// A place of so many bytes (whole pages) for one more environment or function. One that was released is given again,
  /// whatever its size: who releases asks for one size. RESOURCE_EXHAUSTED: kMaxEnvsPerProcess are taken. UNAVAILABLE:
  /// dead.
  absl::StatusOr<Slot> AcquireSlot(size_t block_bytes);
  /// The environment in it is closed once what was posted before is answered; the slot is free at once.
  void ReleaseSlot(const Slot& slot);

  /// Posts what the block says (kind, seed, actions). `makes`: the environment may have to be made first, which takes
  /// start_timeout. UNAVAILABLE: dead.
  absl::StatusOr<Ticket> Post(const Slot& slot, RequestKind kind, bool makes);
  /// Waits until the request is answered. DEADLINE_EXCEEDED or UNAVAILABLE: the process was killed for not answering,
  /// or ended; INVALID_ARGUMENT: its environments are not what was expected.
  absl::Status Await(Ticket ticket);
  /// Whether Await would return at once. Also does, without waiting, what Await does meanwhile: brings the start
  /// forward, notices an end and a deadline that passed. For a caller that does something else until then.
  bool Settled(Ticket ticket);
  bool Answered(Ticket ticket) const {
    return static_cast<int32_t>(page().done.load(std::memory_order_acquire) - ticket) >= 0;
  }

  bool dead() const { return dead_.load(std::memory_order_acquire); }
  /// Whether it was killed because a deadline passed.
  bool timed_out() const { return timed_out_.load(std::memory_order_relaxed); }
  /// Takes what it prints, so that it does not wait for somebody who does. Never waits.
  void Tend();
  /// Why it is dead.
  absl::Status death() const;
  /// The callback beside one of its environments that it is in, or was when it died: its place in kEpisodeHooks, from
  /// 1; 0: none.
  uint32_t callback_in_progress() const;
  pid_t pid() const { return pid_; }
  /// Until where a waiter for this ticket would sleep, and whether the child is told that a batch begins with it.
  Ticket BatchEndForTesting(Ticket ticket);
  bool BeginsBatchForTesting(Ticket ticket) const;

  /// Tells it to close its environments and to end, also the one that was made to be described; a process that starts
  /// does so once that is made. Nothing may be posted afterwards. Never waits.
  void AskToLeave();
  /// Whether it has ended. To be asked again and again, as what it prints is taken here. Never waits.
  bool Left();
  /// Has it stop what it does, close its environments and end.
  void Terminate();
  /// Kills it; who waits for an answer, and who asks it from now on, gets `why`, an error.
  void Kill(const absl::Status& why);

 private:
  HostProcess(const ProcessOrder& order, std::unique_ptr<SharedMemory> memory, std::unique_ptr<PythonChild> child);

  ControlPage& page() const { return memory_->page(); }
  /// Reads the description, if it comes within `wait`; an error when the process is dead.
  absl::Status TakeDescription(absl::Duration wait) ABSL_EXCLUSIVE_LOCKS_REQUIRED(start_mutex_);
  /// Finishes the start: takes the description, compares it, sends the layout.
  absl::Status EnsureReady();
  absl::StatusOr<Ticket> PostEntry(uint32_t entry, bool slow);
  /// The end of the batch that the ticket belongs to.
  uint32_t BatchEndLocked(Ticket ticket) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  /// The batch ends with what was posted last.
  void EndBatchLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  /// Looks for the answer for a short while, without sleeping.
  bool Spin(Ticket ticket);
  /// Sleeps by the clock until its batch is answered, up to twice the usual wait; false: not yet, or it is dead. For
  /// who need not be woken at once, since the child has more to do meanwhile: a wake costs the child a system call.
  bool Nap(Ticket ticket, Ticket batch_end);
  /// Sleeps until the child wakes those who wait for the batch's end, or the process is dead.
  absl::Status SleepUntilWoken(Ticket ticket, Ticket batch_end);
  /// Kills it, if that was not done yet. The status with which everything fails from now on.
  absl::Status DieLocked(absl::StatusCode code, const std::string& why, bool timed_out)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(child_mutex_);
  /// Logs output and notices an end. OK while it lives.
  absl::Status CheckAlive();
  /// Kills it where the order says that nobody waits any more.
  absl::Status DieIfAbandonedLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(child_mutex_);
  /// CheckAlive, and kills a process that has worked on one request for too long. `often`: does nothing when that was
  /// done a moment ago.
  absl::Status Look(bool often);

  const ProcessOrder order_;
  const pid_t pid_;
  const std::unique_ptr<SharedMemory> memory_;
  std::atomic<bool> dead_{false};
  std::atomic<bool> timed_out_{false};
  std::atomic<bool> ready_{false};
  std::atomic<int> spins_{64};       ///< looks before a waiter sleeps; adapts
  WaitTimes wait_times_;             ///< of waits that a spin did not end
  std::atomic<bool> waited_{false};  ///< somebody has waited since the last Post

  // Lock order: start_mutex_, child_mutex_, mutex_.
  base::Mutex start_mutex_;  ///< held while the start is awaited
  struct Described {
    std::string text;                                     ///< the process's own words; empty: not yet
    absl::Duration asked_at = -absl::InfiniteDuration();  ///< last look of Settled
  };
  Described described_ ABSL_GUARDED_BY(start_mutex_);

  mutable base::Mutex child_mutex_;
  const std::unique_ptr<PythonChild> child_ ABSL_PT_GUARDED_BY(child_mutex_);
  absl::Status death_ ABSL_GUARDED_BY(child_mutex_);
  WatchedTime start_time_ ABSL_GUARDED_BY(child_mutex_);

  mutable base::Mutex mutex_;
  std::string expected_ ABSL_GUARDED_BY(mutex_);
  nlohmann::json layout_ ABSL_GUARDED_BY(mutex_);
  std::vector<BlockHeader*> blocks_ ABSL_GUARDED_BY(mutex_);
  std::vector<int> free_slots_ ABSL_GUARDED_BY(mutex_);
  std::vector<uint8_t> slow_ ABSL_GUARDED_BY(mutex_);  ///< by place in the ring: it may take start_timeout
  AnswerWaiters waiters_ ABSL_GUARDED_BY(mutex_);
  uint32_t head_ ABSL_GUARDED_BY(mutex_) = 0;
  struct Progress {
    uint32_t done = 0;  ///< answered at the last Look,
    WatchedTime time;   ///< and how long it has worked on the next
    absl::Duration looked_at = -absl::InfiniteDuration();
  };
  Progress progress_ ABSL_GUARDED_BY(mutex_);
  std::vector<uint32_t> batch_ends_ ABSL_GUARDED_BY(mutex_);  ///< of batches that are not answered, in order
};

/// Has all of them close their environments and end: within `leave_timeout`, else SIGTERM, and after kTermTimeout more
/// they are left to their destructors, which kill.
void Dismiss(std::vector<std::shared_ptr<HostProcess>> processes, absl::Duration leave_timeout);
inline constexpr absl::Duration kTermTimeout = absl::Seconds(1);

}  // namespace troupe::envhost
