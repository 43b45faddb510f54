#include "lib/run/learner/policy_changer.h"

#include <algorithm>
#include <string>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "lib/base/await.h"
#include "lib/base/log.h"
#include "lib/base/mutex.h"

namespace troupe::run {

using policy::PolicyState;

/// What a reading thread and the changer share.
struct PolicyChanger::Reading {
  std::thread thread;
  base::Mutex mutex;
  base::CondVar changed;
  std::optional<absl::StatusOr<PolicyState>> result ABSL_GUARDED_BY(mutex);

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
    if (reading_ == nullptr) {
      absl::StatusOr<std::optional<PolicyImport>> import = deps_.import_of(change);
      if (!import.ok()) {
        Answer(import.status());
        continue;
      }
      if (!import->has_value()) {
        Answer(deps_.make(change, nullptr));
        continue;
      }
      abandoned_.erase(std::remove_if(abandoned_.begin(), abandoned_.end(),
                                      [](const auto& old) { return old->AwaitDone(absl::ZeroDuration()); }),
                       abandoned_.end());
      if (abandoned_.size() >= kMaxAbandoned) {
        Answer(absl::ResourceExhaustedError(
            absl::StrCat(kMaxAbandoned, " checkpoints that were asked for before are still being read")));
        continue;
      }
      Begin(**std::move(import));
    }
    const std::optional<absl::StatusOr<PolicyState>> state = TakeResult();
    if (!state.has_value()) {
      if (deps_.clock->SteadyNow() - begun_ < deps_.timeout) return;
      Abandon();
      Answer(absl::DeadlineExceededError(absl::StrCat("the checkpoint was not read within ",
                                                      absl::FormatDuration(deps_.timeout),
                                                      "; the policies stay as they are")));
      continue;
    }
    Answer(state->ok() ? deps_.make(change, &**state) : absl::StatusOr<int64_t>(state->status()));
  }
}

void PolicyChanger::RefuseAll(const absl::Status& status) {
  if (reading_ != nullptr) {
    if (reading_->AwaitDone(kLastWait)) {
      TakeResult();
    } else {
      Abandon();
    }
  }
  while (!waiting_.empty()) Answer(status);
}

void PolicyChanger::Begin(PolicyImport import) {
  reading_ = std::make_shared<Reading>();
  begun_ = deps_.clock->SteadyNow();
  reading_->thread = std::thread([reading = reading_, load = deps_.load, import = std::move(import)] {
    absl::StatusOr<PolicyState> state = load(import);
    base::MutexLock lock(&reading->mutex);
    reading->result = std::move(state);
    reading->changed.NotifyAll();
  });
}

std::optional<absl::StatusOr<PolicyState>> PolicyChanger::TakeResult() {
  if (!reading_->AwaitDone(absl::ZeroDuration())) return std::nullopt;
  reading_->thread.join();
  const std::shared_ptr<Reading> done = std::exchange(reading_, nullptr);
  base::MutexLock lock(&done->mutex);
  return std::move(done->result);
}

void PolicyChanger::Abandon() {
  TROUPE_WARN("a checkpoint is not read in time, its reading is left behind seconds={}",
              absl::ToDoubleSeconds(deps_.clock->SteadyNow() - begun_));
  reading_->thread.detach();
  abandoned_.push_back(std::exchange(reading_, nullptr));
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
