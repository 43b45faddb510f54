#include "lib/run/learner/policy_changer.h"

#include <algorithm>
#include <functional>
#include <string>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "lib/base/await.h"
#include "lib/base/log.h"
#include "lib/base/mutex.h"
#include "lib/policy/policy_spec.h"
#include "lib/run/learner/policy_changes.h"

namespace troupe::run {

/// The state that a preparing thread and the changer share.
struct PolicyChanger::Running {
  std::thread thread;
  std::function<void()> stop;
  base::Mutex mutex;
  base::CondVar changed;
  std::optional<Prepared> result ABSL_GUARDED_BY(mutex);

  /// Waits up to `timeout`.
  bool AwaitDone(absl::Duration timeout) {
    base::MutexLock lock(&mutex);
    return base::Await(changed, &mutex, base::Deadline::After(timeout),
                       [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) { return result.has_value(); });
  }
};

PolicyChanger::~PolicyChanger() { RefuseAll(ControlHandler::PoliciesStay()); }

void PolicyChanger::Add(std::vector<Request> requests) {
  for (Request& request : requests) waiting_.push_back(std::move(request));
}

void PolicyChanger::Step() {
  while (!waiting_.empty()) {
    const policy::PolicyChange& change = waiting_.front().change;
    if (running_ == nullptr) {
      absl::StatusOr<Preparation> preparation = deps_.prepare(change);
      if (!preparation.ok()) {
        Answer(preparation.status());
        continue;
      }
      if (preparation->run == nullptr) {
        Answer(deps_.make(change, nullptr));
        continue;
      }
      abandoned_.erase(std::remove_if(abandoned_.begin(), abandoned_.end(),
                                      [](const auto& old) { return old->AwaitDone(absl::ZeroDuration()); }),
                       abandoned_.end());
      if (abandoned_.size() >= kMaxAbandoned) {
        Answer(absl::ResourceExhaustedError(absl::StrCat(
            kMaxAbandoned, " checkpoints or policies that changes before needed are still being read or tried")));
        continue;
      }
      Begin(*std::move(preparation));
    }
    const std::optional<Prepared> prepared = TakeResult();
    if (!prepared.has_value()) {
      if (deps_.clock->SteadyNow() - begun_ < deps_.timeout) return;
      GiveUp(running_->stop == nullptr ? absl::ZeroDuration() : kLastWait);
      Answer(absl::DeadlineExceededError(
          absl::StrCat("what the change needs (a checkpoint, or Python's answer) was not ", "there within ",
                       absl::FormatDuration(deps_.timeout), "; the policies stay as they are")));
      continue;
    }
    Answer(prepared->ok() ? deps_.make(change, (*prepared)->has_value() ? &***prepared : nullptr)
                          : absl::StatusOr<int64_t>(prepared->status()));
  }
}

void PolicyChanger::RefuseAll(const absl::Status& status) {
  if (running_ != nullptr) GiveUp(kLastWait);
  while (!waiting_.empty()) Answer(status);
}

void PolicyChanger::Begin(Preparation preparation) {
  running_ = std::make_shared<Running>();
  begun_ = deps_.clock->SteadyNow();
  running_->stop = std::move(preparation.stop);
  running_->thread = std::thread([running = running_, run = std::move(preparation.run)] {
    Prepared result = run();
    base::MutexLock lock(&running->mutex);
    running->result = std::move(result);
    running->changed.NotifyAll();
  });
}

std::optional<PolicyChanger::Prepared> PolicyChanger::TakeResult() {
  if (!running_->AwaitDone(absl::ZeroDuration())) return std::nullopt;
  running_->thread.join();
  const std::shared_ptr<Running> done = std::exchange(running_, nullptr);
  base::MutexLock lock(&done->mutex);
  return std::move(done->result);
}

void PolicyChanger::GiveUp(absl::Duration last_wait) {
  if (running_->stop != nullptr) running_->stop();
  if (running_->AwaitDone(last_wait)) {
    TakeResult();
    return;
  }
  TROUPE_WARN("what a change of the policies needs is not there in time, its thread is left behind seconds={}",
              absl::ToDoubleSeconds(deps_.clock->SteadyNow() - begun_));
  running_->thread.detach();
  abandoned_.push_back(std::exchange(running_, nullptr));
}

void PolicyChanger::Answer(const absl::StatusOr<int64_t>& revision) {
  if (!revision.ok()) {
    TROUPE_WARN("policies not changed error=\"{}\"", base::LogSafe(std::string(revision.status().message())));
  }
  const Request request = std::move(waiting_.front());
  waiting_.pop_front();
  request.done(revision);
}

}  // namespace troupe::run
