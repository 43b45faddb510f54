#include "lib/training/core/action_head.h"

#include "lib/space/space.h"

namespace troupe::training {

ActionHead ActionHead::For(const policy::PolicySpec& spec) {
  ActionHead head;
  int64_t output = 0;
  const std::vector<space::ActionLeaf> leaves = space::ActionLeaves(spec.action_space);
  for (const space::ActionLeaf& leaf : leaves) {
    if (leaf.kind != space::ActionLeaf::Kind::kCategorical) continue;
    head.categorical.push_back(
        {output, leaf.categories, leaf.word, static_cast<int32_t>(leaf.start), leaf.mask_offset});
    output += leaf.categories;
  }
  int64_t log_std = 0;
  for (const space::ActionLeaf& leaf : leaves) {
    if (leaf.kind != space::ActionLeaf::Kind::kContinuous) continue;
    head.gaussian.push_back({output, leaf.words, leaf.word, log_std});
    output += leaf.words;
    log_std += leaf.words;
  }
  return head;
}

}  // namespace troupe::training
