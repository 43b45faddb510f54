#include "lib/learner/iteration_source.h"

#include <algorithm>
#include <utility>

#include "lib/sample/multi_agent_batch.h"

namespace troupe::learner {

std::vector<KeptFragmentPtr> IterationSource::Accept(KeptFragmentPtr fragment) {
  kept_[fragment->iteration()].push_back(std::move(fragment));
  return {};
}

Selection IterationSource::Select(int64_t /*first_incomplete*/) {
  Selection selection;
  selection.iteration = next_++;
  const auto found = kept_.find(selection.iteration);
  if (found == kept_.end()) return selection;
  for (KeptFragmentPtr& fragment : found->second) {
    selection.picks.push_back({std::move(fragment), /*ranges=*/{}, /*last=*/true});
  }
  kept_.erase(found);
  return selection;
}

bool IterationSource::AnyKept(absl::FunctionRef<bool(const KeptFragment&)> is_one) const {
  for (const auto& [iteration, fragments] : kept_) {
    for (const KeptFragmentPtr& fragment : fragments) {
      if (is_one(*fragment)) return true;
    }
  }
  return false;
}

}  // namespace troupe::learner
