#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "lib/learner/checked_fragment.h"
#include "lib/sample/batch_fwd.h"

namespace troupe::learner {

/// Consecutive segments of one policy's rows in a fragment. The versions that they were made with stand in the fragment
/// (PolicyRows::version, kSegmentVersionLag).
struct SegmentRange {
  size_t place = 0;  ///< index into MultiAgentBatch::policies
  int64_t first = 0;
  int64_t segments = 0;
};

/// An accepted fragment, shared by the sources that keep it and the selections that it is in. What it is stays as it
/// is; what Ingest notes of it is guarded by RunState's mutex.
class KeptFragment {
 public:
  /// `iteration`: that of the sampling plan whose data it is (SamplingPlan::Accept).
  KeptFragment(CheckedFragment checked, int64_t iteration);

  const CheckedFragment& checked() const { return checked_; }
  int64_t iteration() const { return iteration_; }
  const sample::MultiAgentBatch& batch() const { return *checked_.batch; }

 private:
  friend class Ingest;
  /// Of one policy's rows, at the same place.
  struct Uses {
    int64_t used_rows = 0;           ///< were in a batch, once or more often
    std::vector<bool> segment_used;  ///< empty: of none yet, or of all
  };
  /// Rows of the range, all and those that were in no batch before; from now on they were.
  struct Marked {
    int64_t rows = 0;
    int64_t first_time = 0;
  };
  Marked Mark(const SegmentRange& range);
  /// Of `place`: were in no batch.
  int64_t UnusedRows(size_t place) const;

  const CheckedFragment checked_;
  const int64_t iteration_;
  std::vector<Uses> of_policies_;
  int32_t holders_ = 0;        ///< sources and selections that have it
  bool was_selected_ = false;  ///< once or more often
};
using KeptFragmentPtr = std::shared_ptr<KeptFragment>;

/// What of one fragment a batch is made of.
struct Pick {
  KeptFragmentPtr fragment;
  std::vector<SegmentRange> ranges = {};  ///< empty: the whole fragment
  /// The source does not keep the fragment any longer: what of it was in no batch is evicted.
  bool last = false;
  /// Ingest says: it was in no selection before, so its episodes and env steps count in this one.
  bool first = true;
};

/// What one batch is made of: segments of kept fragments.
struct Selection {
  int64_t iteration = 0;  ///< of the sampling plan: the newest whose data it has
  std::vector<Pick> picks;
};

/// What a learn group is trained on: accepted fragments in, selections out. One per learn group, all fed by the same
/// Ingest; groups that train on the same data share one. Made by who makes the run, owned by Ingest. IterationSource
/// hands out each iteration once and whole, CircularSource several times; a replay is a holder of fragments and a
/// sampler.
///
/// Not thread-safe: called under RunState's mutex, so nothing of it may block or call out, and a fragment that it lets
/// go of is handed back, to be destroyed without the mutex.
///
/// Invariants of every source: 1. It keeps a fragment from Accept until it hands it back from Accept, or a pick says
/// `last`; once in all. 2. A selection has each fragment in one pick, and no segment twice. 3. What it hands out a
/// second time may be too old then: it is left out of that batch, and keeps the fate of its first use. A selection has
/// rows of first or of later uses, not both, where that can be. 4. It bounds what it
/// keeps.
class BatchSource {
 public:
  virtual ~BatchSource() = default;

  /// A fragment was accepted. Gives back what the source lets go of for it, perhaps the fragment itself.
  [[nodiscard]] virtual std::vector<KeptFragmentPtr> Accept(KeptFragmentPtr fragment) = 0;
  /// How many batches could be selected now, one after the other, when all data of the plan's iterations below
  /// `first_incomplete` has arrived.
  virtual int64_t NumReady(int64_t first_incomplete) const = 0;
  /// The next batch's rows. Only while one is ready; `first_incomplete` as in NumReady.
  virtual Selection Select(int64_t first_incomplete) = 0;
  /// Iterations below this one need no further batch before others may be sampled: what the plan runs ahead of. Asked
  /// between two batches; never falls.
  virtual int64_t Done(int64_t first_incomplete) const = 0;
  /// Whether a fragment that it keeps is one of those.
  virtual bool AnyKept(absl::FunctionRef<bool(const KeptFragment&)> is_one) const = 0;
};

}  // namespace troupe::learner
