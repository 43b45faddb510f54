#include "lib/serving/served_policy.h"

#include <utility>

#include "lib/policy/parameter_layout.h"

namespace troupe::serving {
namespace {

std::vector<tensor::DType> WordDTypes(const policy::PolicySpec& spec) {
  std::vector<tensor::DType> dtypes(static_cast<size_t>(spec.action_words()), tensor::DType::kInt32);
  for (const space::ActionLeaf& leaf : space::ActionLeaves(spec.action_space)) {
    if (leaf.kind != space::ActionLeaf::Kind::kContinuous) continue;
    for (int64_t i = 0; i < leaf.words; ++i) dtypes[static_cast<size_t>(leaf.word + i)] = tensor::DType::kFloat32;
  }
  return dtypes;
}

}  // namespace

ServedPolicy::ServedPolicy(const policy::PolicySpec& spec, policy::PolicySlot slot)
    : spec_(spec),
      slot_(slot),
      leaves_(space::ActionLeaves(spec.action_space)),
      word_dtypes_(WordDTypes(spec)),
      bounds_(spec),
      acting_size_(policy::ParameterLayout::For(spec).acting_size()) {}

void ServedPolicy::Offer(policy::WeightSnapshotPtr weights) {
  base::MutexLock lock(&mutex_);
  if (newest_ != nullptr && !(newest_->version < weights->version)) return;
  newest_.swap(weights);  // the old one is destroyed after the lock
}

policy::WeightSnapshotPtr ServedPolicy::newest() const {
  base::MutexLock lock(&mutex_);
  return newest_;
}

}  // namespace troupe::serving
