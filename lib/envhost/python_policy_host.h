#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "lib/base/mutex.h"
#include "lib/envhost/host_options.h"
#include "lib/envhost/python_functions.h"
#include "lib/inference/actor_host.h"

namespace troupe::envhost {

/// Plays policies in Python, every actor's in a process of its own, so that one that hangs, dies or is restarted too
/// often costs no other. The process is started, and the policy made in it, by the actor's first call, and ends with
/// the actor; so who holds the actors bounds the processes.
///
/// Made by who serves, and outlives its actors. Thread-safe. Errors are PythonFunctions'.
class PythonPolicyHost final : public inference::ActorHost {
 public:
  explicit PythonPolicyHost(HostOptions options);

  /// INVALID_ARGUMENT: the spec; CANCELLED: stopped.
  absl::StatusOr<std::unique_ptr<inference::PolicyActor>> MakeActor(const policy::PolicySpec& spec,
                                                                    uint64_t seed) override;
  /// Kills the processes that are being asked; the others end with their actors.
  void Stop() override;

 private:
  const HostOptions options_;
  base::Mutex mutex_;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::weak_ptr<PythonFunctions>> made_ ABSL_GUARDED_BY(mutex_);  ///< those that live, and a few more
};

}  // namespace troupe::envhost
