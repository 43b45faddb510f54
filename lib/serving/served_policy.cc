#include "lib/serving/served_policy.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/policy/parameter_layout.h"
#include "lib/policy/value_network.h"

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

/// 64-bit FNV-1a of the policy's id and spec: the same in every process.
uint64_t StateTag(const policy::PolicySpec& spec) {
  if (spec.actor_state_size() == 0) return 0;
  uint64_t hash = 0xcbf29ce484222325ull;
  for (const char c : absl::StrCat(spec.id.value(), "\n", spec.ToString())) {
    hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3ull;
  }
  return std::max<uint64_t>(hash, 1);
}

}  // namespace

ServedPolicy::ServedPolicy(const policy::PolicySpec& spec, policy::PolicySlot slot, bool has_values,
                           BatchBudget* budget)
    : spec_(spec),
      slot_(slot),
      leaves_(space::ActionLeaves(spec.action_space)),
      word_dtypes_(WordDTypes(spec)),
      bounds_(spec),
      value_network_(has_values ? policy::ValueNetworkOf(spec) : std::nullopt),
      acting_size_(policy::ParameterLayout::For(spec).acting_size()),
      state_tag_(StateTag(spec)),
      lane_(budget) {}

void ServedPolicy::Offer(OfferedWeights offer) {
  base::MutexLock lock(&mutex_);
  if (!newest_.empty() && !(newest_.version < offer.version)) return;
  std::swap(newest_, offer);  // the old one is destroyed after the lock
}

OfferedWeights ServedPolicy::newest() const {
  base::MutexLock lock(&mutex_);
  return newest_;
}

}  // namespace troupe::serving
