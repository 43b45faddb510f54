#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/base/mutex.h"
#include "lib/envhost/host_options.h"
#include "lib/envhost/host_process.h"
#include "lib/envhost/restart_budget.h"
#include "lib/inference/actor_host.h"
#include "lib/policy/mapping_host.h"

namespace troupe::envhost {

class PythonFunction;

/// Mapping functions and policies in Python, in one process of their own, which is started when the first of them is
/// made. python/troupe/function_host.py says what they are called with.
///
/// A call that raises, or answers what it must not, is an error of that call: INTERNAL with Python's error. A process
/// that ends (UNAVAILABLE) or does not answer within step_timeout (DEADLINE_EXCEEDED; start_timeout for a call that
/// makes its function) is killed, and the next call starts another, within the budget of restarts
/// (RESOURCE_EXHAUSTED).
///
/// Made by whoever samples, evaluates or serves; its actors keep it. Thread-safe; calls of one function wait for each
/// other, and all of them for the one that the process answers. The last one to go ends the process as a HostPool does.
class PythonFunctions final : public policy::MappingHost,
                              public inference::ActorHost,
                              public std::enable_shared_from_this<PythonFunctions> {
 public:
  /// Bytes of a question that is a text, and of its answer, at most.
  static constexpr size_t kMaxTextBytes = size_t{1} << 20;
  /// Rows of one call of a policy at most: as many as fit kMaxBatchBytes, at least 1 and at most kMaxRows. Larger
  /// batches become several calls.
  static constexpr size_t kMaxBatchBytes = size_t{1} << 20;
  static constexpr int64_t kMaxRows = 1024;

  static std::shared_ptr<PythonFunctions> Create(HostOptions options);
  ~PythonFunctions() override;
  PythonFunctions(const PythonFunctions&) = delete;
  PythonFunctions& operator=(const PythonFunctions&) = delete;

  /// Makes a mapping function, so that its errors are known before it is asked.
  absl::Status Prepare(std::string_view function);

  /// INVALID_ARGUMENT: the question is longer than kMaxTextBytes.
  absl::StatusOr<policy::PolicyId> Ask(const policy::HostedQuestion& question) override;
  /// INVALID_ARGUMENT: the spec.
  absl::StatusOr<std::unique_ptr<inference::PolicyActor>> MakeActor(const policy::PolicySpec& spec,
                                                                    uint64_t seed) override;
  /// Kills the process if it is being asked; one that nobody asks ends as ever.
  void Stop() override;

  HostStats stats() const;

 private:
  friend class PythonFunction;

  /// One call, or making a function, from its beginning to its end.
  class Call {
   public:
    explicit Call(PythonFunctions* functions);
    ~Call();
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;
    /// CANCELLED: stopped.
    absl::Status status() const;

   private:
    PythonFunctions& functions_;
  };

  explicit PythonFunctions(HostOptions options);

  /// The process that lives; starts one where there is none or a dead one, and waits until it is described.
  absl::StatusOr<std::shared_ptr<HostProcess>> Process();
  absl::StatusOr<std::shared_ptr<HostProcess>> RestartLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::shared_ptr<PythonFunction> MappingFunction(std::string_view function);
  void CountError(bool raised, bool bad_output);

  const HostOptions options_;
  // A Call raises calls_ and then looks at stopped_, Stop the other way round, both sequentially consistent: so each
  // call is refused or seen.
  std::atomic<int> calls_{0};
  std::atomic<bool> stopped_{false};
  base::Mutex start_mutex_;  ///< held while a process starts; taken before mutex_
  mutable base::Mutex mutex_;
  RestartBudget budget_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<HostProcess> process_ ABSL_GUARDED_BY(mutex_);
  HostStats totals_ ABSL_GUARDED_BY(mutex_);
  /// By what they are; kept, for a place in a process is not given back.
  std::map<std::string, std::shared_ptr<PythonFunction>, std::less<>> functions_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace troupe::envhost
