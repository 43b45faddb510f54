#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "lib/learner/batch_source.h"

namespace troupe::learner {

/// The source of on-policy groups: every iteration of the sampling plan once, whole, and in order. It keeps fragments
/// in order of arrival until their iteration is selected. Its bound is the plan's: what of iterations that are not
/// trained on yet may be sampled.
class IterationSource final : public BatchSource {
 public:
  /// `first`: the iteration of the first selection.
  explicit IterationSource(int64_t first) : next_(first) {}

  std::vector<KeptFragmentPtr> Accept(KeptFragmentPtr fragment) override;
  int64_t NumReady(int64_t first_incomplete) const override { return first_incomplete - next_; }
  Selection Select(int64_t first_incomplete) override;
  int64_t Done(int64_t /*first_incomplete*/) const override { return next_; }
  bool AnyKept(absl::FunctionRef<bool(const KeptFragment&)> is_one) const override;

 private:
  int64_t next_;
  std::map<int64_t, std::vector<KeptFragmentPtr>> kept_;  ///< by iteration
};

}  // namespace troupe::learner
