#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "lib/base/mutex.h"
#include "lib/envhost/host_options.h"
#include "lib/envhost/python_function.h"
#include "lib/envhost/python_functions.h"
#include "lib/learner/train_chooser.h"
#include "lib/run/learner/degradations.h"

namespace troupe::run {

/// `policies_to_train: python:MODULE:NAME`: a function in a process of Python of its own beside the learner, which is
/// asked for each batch (python/troupe/function_host.py, TrainFunction).
///
/// Choose waits for the answer for kPatience at most, and not at all while an earlier question is still open; what is
/// not answered in time, or by an error, is as it was answered last. An answer that comes late counts for the next
/// batch.
///
/// Training is not undone: as long as a policy of the batch has not been answered for, its answer is waited for up to
/// the step time-out, but not after an error. Without one it is true, and where the run ends meanwhile false.
///
/// Made by the learner's process. Choose is the update thread's, Run another thread's body; Stop is thread-safe, and
/// ends Run, also in the middle of a question.
class TrainFunction final : public learner::TrainChooser {
 public:
  static constexpr absl::Duration kPatience = absl::Milliseconds(100);

  /// Starts the process and waits until it has found the function. INVALID_ARGUMENT or INTERNAL with Python's error.
  /// `ends`: whether the run is to end, which the update thread asks in a long wait.
  static absl::StatusOr<std::unique_ptr<TrainFunction>> Start(const std::string& name,
                                                              const envhost::HostOptions& python,
                                                              Degradations* degradations, std::function<bool()> ends,
                                                              absl::Duration patience = kPatience);

  std::vector<bool> Choose(const learner::BatchFacts& batch) override;

  void Run();
  void Stop();

  int64_t errors() const;  ///< questions that were not answered, or in vain
  int64_t late() const;    ///< batches that did not wait for their answer to the end

 private:
  TrainFunction(const std::string& name, const envhost::HostOptions& python, Degradations* degradations,
                std::function<bool()> ends, absl::Duration patience);
  /// Waits until the question is over, or Run is to end; false after the time-out.
  bool AwaitAnswer(int64_t number, absl::Duration timeout);
  /// The same for a first answer; true: the run is to end, and it is waited for no longer.
  bool AwaitFirstAnswer(int64_t number);
  absl::StatusOr<std::vector<bool>> Ask(const std::string& question, size_t count);
  /// What the run is degraded by; empty: nothing. `late`: the last batch's answer is.
  std::string DegradationLocked(bool late) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::shared_ptr<envhost::PythonFunctions> functions_;
  envhost::PythonFunction function_;
  Degradations* const degradations_;
  const std::function<bool()> ends_;
  const absl::Duration patience_, first_patience_;

  struct Question {
    int64_t number = 0;  ///< from 1; 0: none
    std::string text;
    std::vector<policy::PolicyId> policies;
  };
  mutable base::Mutex mutex_;
  base::CondVar changed_;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  Question open_ ABSL_GUARDED_BY(mutex_);  ///< not yet taken by Run
  int64_t asked_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t answered_ ABSL_GUARDED_BY(mutex_) = 0;  ///< the last that is over, whatever came of it
  bool asking_ ABSL_GUARDED_BY(mutex_) = false;
  std::map<policy::PolicyId, bool> answers_ ABSL_GUARDED_BY(mutex_);  ///< of the run's policies, the last
  bool failed_ ABSL_GUARDED_BY(mutex_) = false;                       ///< the last question that is over
  int64_t errors_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t late_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace troupe::run
