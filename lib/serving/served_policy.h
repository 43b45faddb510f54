#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "lib/base/mutex.h"
#include "lib/inference/action_bounds.h"
#include "lib/policy/ids.h"
#include "lib/policy/policy_spec.h"
#include "lib/policy/weight_snapshot.h"
#include "lib/serving/batch_lane.h"
#include "lib/serving/weight_source.h"
#include "lib/space/space.h"
#include "lib/tensor/dtype.h"

namespace troupe::serving {

/// A policy that may be asked, whether its actor is in memory or not; under each label it is one of its own. Made by a
/// QueryEngine, shared with the queries that ask it, so that one that is removed lives as long as they do. Thread-safe.
class ServedPolicy {
 public:
  /// `spec` is valid; `slot`: of the engine's map, this policy's as long as it lives. `has_values`: sources of its
  /// weights have those of its value network, where it has one. `budget` outlives it.
  ServedPolicy(const policy::PolicySpec& spec, policy::PolicySlot slot, bool has_values, BatchBudget* budget);

  const policy::PolicySpec& spec() const { return spec_; }
  policy::PolicySlot slot() const { return slot_; }
  /// It is played in another process, which may take any time.
  bool runs_elsewhere() const { return spec_.policy_class.kind == policy::PolicyClass::Kind::kPython; }
  const std::vector<space::ActionLeaf>& leaves() const { return leaves_; }
  const std::vector<tensor::DType>& word_dtypes() const { return word_dtypes_; }
  const inference::ActionBounds& bounds() const { return bounds_; }
  /// nullopt: it cannot be asked for values.
  const std::optional<policy::PolicySpec>& value_network() const { return value_network_; }

  /// Elements of the weights that it acts with.
  int64_t acting_size() const { return acting_size_; }

  /// Which policy and network a state is of: a hash of its id and spec, never 0. 0: it remembers nothing.
  uint64_t state_tag() const { return state_tag_; }
  /// What wants its actor.
  BatchLane& lane() { return lane_; }

  /// Takes the offer unless there is one as new. Its weights fit the spec; it is not empty.
  void Offer(OfferedWeights offer);
  /// What was offered last; empty when nothing was.
  OfferedWeights newest() const;

 private:
  const policy::PolicySpec spec_;
  const policy::PolicySlot slot_;
  const std::vector<space::ActionLeaf> leaves_;
  const std::vector<tensor::DType> word_dtypes_;
  const inference::ActionBounds bounds_;
  const std::optional<policy::PolicySpec> value_network_;
  const int64_t acting_size_;
  const uint64_t state_tag_;
  BatchLane lane_;
  mutable base::Mutex mutex_;
  OfferedWeights newest_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace troupe::serving
