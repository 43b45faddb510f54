#include "lib/training/core/action_head.h"

#include "lib/policy/policy_spec.h"
#include "lib/space/space.h"

namespace troupe::training {

ActionHead ActionHead::For(const policy::PolicySpec& spec) {
  ActionHead head;
  head.distribution = spec.continuous;
  head.min_log_std = spec.min_log_std;
  head.max_log_std = spec.max_log_std;
  int64_t output = 0;
  const std::vector<space::ActionLeaf> leaves = space::ActionLeaves(spec.action_space);
  for (const space::ActionLeaf& leaf : leaves) {
    if (leaf.kind != space::ActionLeaf::Kind::kCategorical) continue;
    head.categorical.push_back(
        {output, leaf.categories, leaf.word, static_cast<int32_t>(leaf.start), leaf.mask_offset});
    output += spec.OutputsOf(leaf);
  }
  const bool is_free = spec.log_std_size() > 0;
  int64_t log_std = 0;
  for (const space::ActionLeaf& leaf : leaves) {
    if (leaf.kind != space::ActionLeaf::Kind::kContinuous) continue;
    head.continuous.push_back({output, leaf.words, leaf.word, is_free ? log_std : -1});
    output += spec.OutputsOf(leaf);
    log_std += leaf.words;
  }
  return head;
}

bool ActionHead::is_plain() const {
  return continuous.empty() ||
         (distribution == policy::ContinuousDistribution::kGaussian && continuous.front().log_std >= 0);
}

}  // namespace troupe::training
