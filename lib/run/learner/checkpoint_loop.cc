#include "lib/run/learner/checkpoint_loop.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"

namespace troupe::run {
namespace {

/// Why a store failed; its own message may hold a path.
std::string WordsOf(const absl::Status& error) {
  switch (error.code()) {
    case absl::StatusCode::kResourceExhausted:
      return "no room on the disk, or a limit on the size of files";
    case absl::StatusCode::kPermissionDenied:
      return "permission denied";
    case absl::StatusCode::kNotFound:
      return "the run folder is gone";
    case absl::StatusCode::kAborted:
      return "another learner has taken the run over";
    case absl::StatusCode::kDataLoss:
      return "the disk did not confirm what was written";
    default:
      return "an error of the disk";
  }
}

}  // namespace

void CheckpointLoop::Save(learner::LearnerState state, bool is_best, Done done) {
  Order order{std::move(state), is_best, {}};
  if (done) order.done.push_back(std::move(done));
  // Destroyed after the lock is released: declared before it.
  std::vector<Order> replaced;
  base::MutexLock lock(&mutex_);
  // Whoever asked for an older state is served by this newer one. Only the best so far must not be lost to one that is
  // not the best.
  for (auto waiting = waiting_.begin(); waiting != waiting_.end();) {
    if ((waiting->is_best && !is_best) || waiting->state.env_steps > order.state.env_steps) {
      ++waiting;
      continue;
    }
    for (Done& asked : waiting->done) order.done.push_back(std::move(asked));
    replaced.push_back(std::move(*waiting));
    waiting = waiting_.erase(waiting);
  }
  waiting_.push_back(std::move(order));
  changed_.NotifyAll();
}

void CheckpointLoop::SaveTo(learner::LearnerState state, const std::string& path, Done done) {
  const auto shared = std::make_shared<const learner::LearnerState>(std::move(state));
  Post(
      [this, shared, path]() -> absl::StatusOr<int64_t> {
        TROUPE_RETURN_IF_ERROR(store_->SaveTo(*shared, path));
        return shared->env_steps;
      },
      std::move(done));
}

void CheckpointLoop::Prune(int keep, Done done) {
  Post([this, keep] { return store_->Prune(keep); }, std::move(done));
}

void CheckpointLoop::Post(Job job, Done done) {
  {
    base::MutexLock lock(&mutex_);
    if (jobs_.size() < kMaxJobs) {
      jobs_.emplace_back(std::move(job), std::move(done));
      changed_.NotifyAll();
      return;
    }
  }
  done(absl::ResourceExhaustedError(absl::StrCat(kMaxJobs, " such requests wait already; try again")));
}

bool CheckpointLoop::Step() {
  Order order;
  std::pair<Job, Done> job;
  {
    base::MutexLock lock(&mutex_);
    while (waiting_.empty() && jobs_.empty() && !stopped_) changed_.Wait(&mutex_);
    if (!waiting_.empty()) {  // the run's own come first
      order = std::move(waiting_.front());
      waiting_.pop_front();
    } else if (!jobs_.empty()) {
      job = std::move(jobs_.front());
      jobs_.pop_front();
    } else {
      return false;
    }
  }
  if (job.first) {
    job.second(job.first());
    return true;
  }
  const absl::Status saved = store_->Save(order.state, order.is_best);
  Note(saved, order.state.env_steps);
  if (listener_) listener_(saved, order.state.env_steps, order.is_best);
  for (const Done& done : order.done) {
    if (saved.ok()) {
      done(order.state.env_steps);
    } else {
      done(saved);
    }
  }
  return true;
}

void CheckpointLoop::Note(const absl::Status& saved, int64_t env_steps) {
  if (!saved.ok()) {
    TROUPE_ERROR("checkpoint not written, training goes on env_steps={} error=\"{}\"", env_steps,
                 base::LogSafe(std::string(saved.message())));
  }
  std::string words;
  {
    base::MutexLock lock(&mutex_);
    last_error_ = std::string(saved.message());
    if (saved.ok()) last_saved_env_steps_ = std::max(last_saved_env_steps_, env_steps);
    if (!saved.ok()) words = absl::StrCat("checkpoints cannot be written: ", WordsOf(saved), "; ");
    if (!saved.ok() && last_saved_env_steps_ >= 0) {
      absl::StrAppend(&words, "the newest of this process is of ", last_saved_env_steps_, " env steps");
    } else if (!saved.ok()) {
      absl::StrAppend(&words, "this process has written none");
    }
  }
  degradations_->Set("checkpoints", std::move(words));
}

void CheckpointLoop::Run() {
  while (Step()) {
  }
}

void CheckpointLoop::Stop() {
  base::MutexLock lock(&mutex_);
  stopped_ = true;
  changed_.NotifyAll();
}

std::string CheckpointLoop::last_error() const {
  base::MutexLock lock(&mutex_);
  return last_error_;
}

int64_t CheckpointLoop::last_saved_env_steps() const {
  base::MutexLock lock(&mutex_);
  return last_saved_env_steps_;
}

}  // namespace troupe::run
