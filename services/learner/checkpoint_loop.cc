#include "services/learner/checkpoint_loop.h"

#include <utility>

#include "lib/base/log.h"

namespace troupe::services {

void CheckpointLoop::Save(learner::LearnerState state, bool is_best, Done done) {
  Order order{std::move(state), is_best, {}};
  if (done) order.done.push_back(std::move(done));
  // Destroyed after the lock is released: declared before it.
  std::vector<Order> replaced;
  base::MutexLock lock(&mutex_);
  // Whoever asked for an older state is served by this newer one. Only the best so far must not be lost to one that is
  // not the best.
  for (auto waiting = waiting_.begin(); waiting != waiting_.end();) {
    if (waiting->is_best && !is_best) {
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

bool CheckpointLoop::Step() {
  Order order;
  {
    base::MutexLock lock(&mutex_);
    while (waiting_.empty() && !stopped_) changed_.Wait(&mutex_);
    if (waiting_.empty()) return false;
    order = std::move(waiting_.front());
    waiting_.pop_front();
  }
  const absl::Status saved = store_->Save(order.state, order.is_best);
  if (!saved.ok()) {
    TROUPE_ERROR("checkpoint not written, training goes on env_steps={} error=\"{}\"", order.state.env_steps,
                 base::LogSafe(std::string(saved.message())));
  }
  {
    base::MutexLock lock(&mutex_);
    last_error_ = std::string(saved.message());
    if (saved.ok()) last_saved_env_steps_ = order.state.env_steps;
  }
  for (const Done& done : order.done) {
    if (saved.ok()) {
      done(order.state.env_steps);
    } else {
      done(saved);
    }
  }
  return true;
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

}  // namespace troupe::services
