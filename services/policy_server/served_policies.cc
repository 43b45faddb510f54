#include "services/policy_server/served_policies.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/await.h"
#include "lib/base/backoff.h"
#include "lib/base/exit_code.h"
#include "lib/base/log.h"
#include "lib/base/mutex.h"
#include "lib/base/named_loop.h"
#include "lib/base/status_macros.h"
#include "lib/rpc/worker/weight_follower.h"
#include "lib/run/followed_engine.h"
#include "services/common/signals.h"

namespace troupe::services {
namespace {

/// How long a learner may take to say what there is.
constexpr absl::Duration kFirstWeightsTimeout = absl::Seconds(30);

class CheckpointPolicies final : public ServedPolicies {
 public:
  CheckpointPolicies(std::unique_ptr<run::CheckpointEngine> opened, absl::Duration interval)
      : interval_(interval), opened_(std::move(opened)) {
    if (interval_ > absl::ZeroDuration()) {
      loop_ = std::make_unique<base::NamedLoop>(
          "reload", [this] { return Look(); }, interval_);
    }
  }
  serving::QueryEngine* engine() override { return opened_->engine(); }
  std::string Describe() override {
    return absl::StrCat("checkpoint=", opened_->checkpoint(), " policies=", opened_->num_policies(),
                        " policy_map_capacity=", opened_->capacity());
  }

 private:
  absl::Duration Look() {
    const absl::StatusOr<bool> changed = opened_->Refresh();
    if (changed.ok() && *changed) TROUPE_INFO("newer weights {}", Describe());
    // The same again and again is said once.
    const std::string error(changed.status().message());
    if (!changed.ok() && error != told_) {
      TROUPE_WARN("newer weights are not served checkpoint={} error=\"{}\"", opened_->checkpoint(),
                  base::LogSafe(error));
    }
    told_ = error;
    return interval_;
  }

  const absl::Duration interval_;
  const std::unique_ptr<run::CheckpointEngine> opened_;
  std::string told_;                       ///< of the loop's thread
  std::unique_ptr<base::NamedLoop> loop_;  ///< last: it uses the rest
};

class LearnerPolicies final : public ServedPolicies {
 public:
  explicit LearnerPolicies(const PolicyServerFlags& flags)
      : from_(flags.from),
        find_(flags.find_learner),
        security_(flags.security),
        followed_(flags.asked.permits, flags.asked.policy_map_capacity, flags.asked.seed) {
    thread_ = std::thread([this] { Follow(); });
  }
  ~LearnerPolicies() override {
    std::shared_ptr<rpc::WeightFollower> follower;
    {
      base::MutexLock lock(&mutex_);
      stopped_ = true;
      follower = follower_;
      changed_.NotifyAll();
    }
    if (follower != nullptr) follower->Stop();
    thread_.join();
  }
  serving::QueryEngine* engine() override { return followed_.engine(); }
  std::string Describe() override {
    return absl::StrCat("from=\"", from_, "\" policies=", engine()->ListPolicies().policies.size());
  }

  /// Why there is nothing to serve; OK: there is. CANCELLED: a signal asks to leave.
  absl::Status AwaitReady() {
    const base::Deadline deadline = base::Deadline::After(kFirstWeightsTimeout);
    // A refusal need not be waited out.
    while (!followed_.AwaitReady(base::Deadline::After(std::min(absl::Milliseconds(50), deadline.left())))) {
      if (DrainSignals::Received()) return absl::CancelledError("a signal came before the first weights");
      base::MutexLock lock(&mutex_);
      const bool is_final = !error_.ok() && !absl::IsUnavailable(error_);
      if (!is_final && !deadline.passed()) continue;
      if (!error_.ok()) return error_;
      return absl::UnavailableError(absl::StrCat("the learner at ", from_, " has not said all of its weights in ",
                                                 absl::FormatDuration(kFirstWeightsTimeout)));
    }
    return absl::OkStatus();
  }

 private:
  /// Where the learner is by now, until that ends.
  absl::Status FollowOnce() {
    TROUPE_ASSIGN_OR_RETURN(const std::string address, find_());
    TROUPE_ASSIGN_OR_RETURN(const std::shared_ptr<rpc::WeightFollower> follower,
                            rpc::WeightFollower::Create(address, security_));
    {
      base::MutexLock lock(&mutex_);
      if (stopped_) return absl::CancelledError("stopped");
      follower_ = follower;
    }
    return follower->Follow(&followed_);
  }

  void Follow() {
    base::Backoff backoff({}, run::DrawSeed());
    std::string told;
    while (true) {
      const absl::Status ended = FollowOnce();
      if (absl::IsCancelled(ended)) return;
      // What is served stays as it is; the same reason again and again is said once.
      const std::string error(ended.message());
      if (engine() != nullptr && error != told)
        TROUPE_WARN("the learner is not followed from=\"{}\" error=\"{}\"", from_, base::LogSafe(error));
      told = error;
      base::MutexLock lock(&mutex_);
      error_ = ended;
      const base::Deadline next = base::Deadline::After(*backoff.NextDelay());
      if (base::Await(changed_, &mutex_, next, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stopped_; }))
        return;
    }
  }

  const std::string from_;
  const std::function<absl::StatusOr<std::string>()> find_;
  const rpc::TransportSecurity security_;
  run::FollowedEngine followed_;
  base::Mutex mutex_;
  std::shared_ptr<rpc::WeightFollower> follower_ ABSL_GUARDED_BY(mutex_);  ///< of the last try
  base::CondVar changed_;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status error_ ABSL_GUARDED_BY(mutex_);  ///< why the last try ended
  std::thread thread_;                          ///< last: it uses the rest
};

}  // namespace

absl::StatusOr<std::unique_ptr<ServedPolicies>> OpenServedPolicies(const PolicyServerFlags& flags) {
  if (flags.from.empty()) {
    TROUPE_ASSIGN_OR_RETURN(std::unique_ptr<run::CheckpointEngine> opened, run::CheckpointEngine::Open(flags.asked));
    return std::make_unique<CheckpointPolicies>(std::move(opened), flags.reload_interval);
  }
  auto policies = std::make_unique<LearnerPolicies>(flags);
  TROUPE_RETURN_IF_ERROR(policies->AwaitReady());
  return policies;
}

}  // namespace troupe::services
