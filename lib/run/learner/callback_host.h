#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "lib/base/mutex.h"
#include "lib/base/tracked_total.h"
#include "lib/envhost/host_options.h"
#include "lib/envhost/python_child.h"
#include "lib/learner/named_values.h"
#include "lib/learner/tracked_book.h"
#include "lib/run/learner/degradations.h"
#include <nlohmann/json.hpp>

namespace troupe::run {

/// When the callbacks of a run are called.
enum class Hook : uint8_t {
  kRunStart,         ///< first of all: workers may come
  kUpdateEnd,        ///< after each update
  kEvaluationStart,  ///< training waits for the evaluation
  kEvaluationEnd,    ///< it has been played, or failed
  kCheckpointEnd,    ///< a checkpoint is durable, or could not be written
  kRunEnd,           ///< last of all: nothing changes any more
};
/// Their methods of a class in Python, by Hook.
inline constexpr std::array<std::string_view, 6> kHookNames = {
    "on_run_start", "on_update_end", "on_evaluation_start", "on_evaluation_end", "on_checkpoint_end", "on_run_end"};

/// The callbacks of a run (`callbacks` of a configuration), in one process of Python beside the learner. What happens
/// is told as events, of which none is lost: they wait in a queue, and are called one after the other, in the order in
/// which they were told. python/troupe/callbacks.py says what a callback is called with and may do.
///
/// Made by the learner's process. States: on -> off (a call did not return in time, or the process ended; it is killed,
/// what waits and what comes is dropped); any -> stopped (Stop: what waits is still called). A call that raises is
/// counted, and the next one is made all the same. `degradations`, the log and TakeValues say so.
///
/// Thread-safe. Run and Step are of one thread, which the process waits on; nothing else blocks but AwaitRoom
/// and AwaitIdle.
class CallbackHost {
 public:
  /// Events that wait. A full queue is where the update thread waits, and serves Control meanwhile.
  static constexpr size_t kMaxWaiting = 64;
  /// A call may take so long of its own. What it asks of the learner (a checkpoint, a change) is not counted, up to
  /// kAskTimeout.
  static constexpr absl::Duration kCallTimeout = absl::Seconds(30);
  static constexpr absl::Duration kAskTimeout = absl::Minutes(10);
  /// Of what callbacks track: different names, and characters of one.
  static constexpr size_t kMaxTracked = base::kMaxTrackedNames;
  static constexpr size_t kMaxTrackedName = base::kMaxTrackedNameBytes;

  struct Options {
    std::vector<std::string> callbacks;  ///< python:MODULE:CLASS
    envhost::HostOptions python;
    std::string run_directory;
    absl::Duration call_timeout = kCallTimeout;
    std::function<void(const std::string& reason)> stop;  ///< has the run end; thread-safe
    Degradations* degradations = nullptr;                 ///< outlives the host
  };

  /// Starts the process and waits until it has made the callbacks. INVALID_ARGUMENT: one cannot be made, with Python's
  /// error. Errors of the start otherwise.
  static absl::StatusOr<std::unique_ptr<CallbackHost>> Start(Options options);
  CallbackHost(const CallbackHost&) = delete;
  CallbackHost& operator=(const CallbackHost&) = delete;
  ~CallbackHost();

  /// The callbacks that are called for episodes, too, in the processes of environments, and which of the calls in
  /// envhost::kEpisodeHooks any of them overrides.
  const std::vector<std::string>& episode_callbacks() const { return episode_callbacks_; }
  const std::set<std::string>& episode_hooks() const { return episode_hooks_; }
  /// What those have tracked at workers, beside what is tracked here, and how many workers call none any more: what is
  /// degraded are those that are here, what is counted (TakeValues) all that said so.
  void AddTracked(const learner::TrackedBook::News& news);

  /// Whether somebody is called there. False when the callbacks are off.
  bool Wants(Hook hook) const;
  /// False: the queue is full, and nothing was told. `facts`: a JSON object.
  bool TryTell(Hook hook, nlohmann::json facts);
  /// Also where the queue is full: for who must not wait, because a callback may wait for it.
  void Tell(Hook hook, nlohmann::json facts);
  /// Waits, at most so long, until there is room.
  void AwaitRoom(absl::Duration timeout);
  /// Whether all that was told has been called; waits for that, at most so long.
  bool AwaitIdle(absl::Duration timeout);

  /// The thread's body: calls until Stop, then what waits, and has the process leave.
  void Run();
  /// Waits a moment for an event and calls its callbacks; false when stopped and nothing is left.
  bool Step();
  void Stop();

  /// What callbacks tracked since the last time, as means, and how many calls have failed in all.
  std::vector<learner::NamedValue> TakeValues();

 private:
  struct Event {
    Hook hook;
    nlohmann::json facts;
  };
  struct Mean {
    double sum = 0;
    int64_t count = 0;
  };

  CallbackHost(Options options, std::unique_ptr<envhost::PythonChild> child);
  absl::Status AwaitReady();
  /// What the process says that callbacks override.
  absl::Status TakeHooks(const nlohmann::json& message);
  void PushLocked(Hook hook, nlohmann::json facts) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  /// One event, from its line to the answer. An error is the callbacks' end.
  absl::Status Call(const Event& event);
  /// What the process says in a call. True: the call is over.
  absl::StatusOr<bool> Take(const std::string& line, Hook hook);
  absl::Status Track(const nlohmann::json& message);
  void NoteRaised(const nlohmann::json& message, Hook hook);
  void TurnOff(const absl::Status& why, std::string_view hook);

  const Options options_;
  std::unique_ptr<envhost::PythonChild> child_;   ///< of the thread that runs Step; nullptr when off
  bool asks_ = false;                             ///< of that thread: the call waits for the learner
  std::array<bool, kHookNames.size()> wanted_{};  ///< const once started
  std::vector<std::string> episode_callbacks_;    ///< const once started
  std::set<std::string> episode_hooks_;           ///< const once started
  mutable base::Mutex mutex_;
  base::CondVar told_;    ///< or stopped
  base::CondVar called_;  ///< an event has left the queue
  std::deque<Event> waiting_ ABSL_GUARDED_BY(mutex_);
  bool calling_ ABSL_GUARDED_BY(mutex_) = false;
  bool off_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::map<std::string, Mean> tracked_ ABSL_GUARDED_BY(mutex_);
  std::set<std::string> names_ ABSL_GUARDED_BY(mutex_);  ///< that were ever tracked
  bool leaves_out_ ABSL_GUARDED_BY(mutex_) = false;      ///< names of episodes, for there are too many
  int64_t errors_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t turned_off_ ABSL_GUARDED_BY(mutex_) = 0;  ///< workers that said that they call none for episodes any more
};

}  // namespace troupe::run
