#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "lib/learner/batch_source.h"

namespace troupe::learner {

/// A circular buffer of batches (Luo et al. 2020, arXiv 1912.00167, section 3.1): each iteration of the sampling plan
/// is a batch, and is handed out `uses` times. Next comes the one that was handed out least often, of these the oldest:
/// a new batch at once, and older ones again while the next is sampled. An iteration is done after its last use, so
/// that the plan's max_ahead bounds how many are kept.
class CircularSource final : public BatchSource {
 public:
  /// `first`: the iteration of the first selection. `uses`: at least 1.
  CircularSource(int64_t first, int64_t uses) : uses_(uses), done_(first) {}

  std::vector<KeptFragmentPtr> Accept(KeptFragmentPtr fragment) override;
  int64_t NumReady(int64_t first_incomplete) const override;
  Selection Select(int64_t first_incomplete) override;
  int64_t Done(int64_t /*first_incomplete*/) const override { return done_; }
  bool AnyKept(absl::FunctionRef<bool(const KeptFragment&)> is_one) const override;

 private:
  struct Batch {
    std::vector<KeptFragmentPtr> fragments;  ///< in order of arrival
    int64_t used = 0;                        ///< times
  };
  int64_t UsesOf(int64_t iteration) const;

  const int64_t uses_;
  int64_t done_;                   ///< iterations below it were handed out as often as they are to be
  std::map<int64_t, Batch> kept_;  ///< by iteration; one without fragments that was not handed out is not there
};

}  // namespace troupe::learner
