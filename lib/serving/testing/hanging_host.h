#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "lib/base/mutex.h"
#include "lib/inference/actor_host.h"
#include "lib/policy/policy_class.h"
#include "lib/policy/policy_spec.h"

namespace troupe::serving {

/// Plays policies of class python:…: those whose id begins with "hangs" do not answer until Release; the others do the
/// action 1. Thread-safe.
class HangingHost final : public inference::ActorHost {
 public:
  absl::StatusOr<std::unique_ptr<inference::PolicyActor>> MakeActor(const policy::PolicySpec& spec,
                                                                    uint64_t /*seed*/) override {
    return std::make_unique<HangingActor>(*this, spec);
  }
  void Stop() override { Release(absl::CancelledError("the host is stopped")); }
  /// What hangs, now and later, ends with this.
  void Release(absl::Status status = absl::OkStatus()) {
    base::MutexLock lock(&mutex_);
    released_ = true;
    outcome_ = std::move(status);
    changed_.NotifyAll();
  }
  /// Actors that live.
  int actors() const {
    base::MutexLock lock(&mutex_);
    return actors_;
  }
  /// Calls of this policy so far.
  int calls(const std::string& id) const {
    base::MutexLock lock(&mutex_);
    const auto found = calls_.find(id);
    return found == calls_.end() ? 0 : found->second;
  }
  /// Of them, those that hang now; all policies together.
  int hanging() const {
    base::MutexLock lock(&mutex_);
    return hanging_;
  }

 private:
  class HangingActor final : public inference::PolicyActor {
   public:
    HangingActor(HangingHost& host, const policy::PolicySpec& spec) : host_(host), spec_(spec) { host_.Count(1); }
    ~HangingActor() override { host_.Count(-1); }
    bool runs_elsewhere() const override { return true; }
    absl::Status SetWeights(policy::WeightSnapshotPtr /*weights*/) override {
      return absl::FailedPreconditionError("it has none");
    }
    absl::Status Act(const inference::ActInput& input, space::ActionWord* actions, float* logp) override {
      std::fill_n(actions, input.rows * spec_.action_words(), space::ActionWord{.i32 = 1});
      std::fill_n(logp, input.rows, 0.0f);
      return host_.Await(spec_.id.value());
    }

   private:
    HangingHost& host_;
    const policy::PolicySpec spec_;
  };

  void Count(int actors) {
    base::MutexLock lock(&mutex_);
    actors_ += actors;
  }
  absl::Status Await(const std::string& id) {
    base::MutexLock lock(&mutex_);
    ++calls_[id];
    if (id.substr(0, 5) != "hangs") return absl::OkStatus();
    ++hanging_;
    while (!released_) changed_.Wait(&mutex_);
    --hanging_;
    return outcome_;
  }

  mutable base::Mutex mutex_;
  base::CondVar changed_;
  bool released_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status outcome_ ABSL_GUARDED_BY(mutex_);
  int actors_ ABSL_GUARDED_BY(mutex_) = 0;
  int hanging_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<std::string, int> calls_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace troupe::serving
