#include "lib/learner/circular_source.h"

#include <utility>

namespace troupe::learner {

std::vector<KeptFragmentPtr> CircularSource::Accept(KeptFragmentPtr fragment) {
  kept_[fragment->iteration()].fragments.push_back(std::move(fragment));
  return {};
}

int64_t CircularSource::UsesOf(int64_t iteration) const {
  const auto found = kept_.find(iteration);
  return found == kept_.end() ? 0 : found->second.used;
}

int64_t CircularSource::NumReady(int64_t first_incomplete) const {
  int64_t ready = 0;
  for (int64_t iteration = done_; iteration < first_incomplete; ++iteration) ready += uses_ - UsesOf(iteration);
  return ready;
}

Selection CircularSource::Select(int64_t first_incomplete) {
  Selection selection;
  selection.iteration = done_;
  for (int64_t iteration = done_; iteration < first_incomplete; ++iteration) {
    if (UsesOf(iteration) < UsesOf(selection.iteration)) selection.iteration = iteration;
  }
  Batch& batch = kept_[selection.iteration];
  const bool last = ++batch.used == uses_;
  for (const KeptFragmentPtr& fragment : batch.fragments) selection.picks.push_back({fragment, /*ranges=*/{}, last});
  if (last) batch.fragments.clear();
  while (UsesOf(done_) == uses_) kept_.erase(done_++);
  return selection;
}

bool CircularSource::AnyKept(absl::FunctionRef<bool(const KeptFragment&)> is_one) const {
  for (const auto& [iteration, batch] : kept_) {
    for (const KeptFragmentPtr& fragment : batch.fragments) {
      if (is_one(*fragment)) return true;
    }
  }
  return false;
}

}  // namespace troupe::learner
