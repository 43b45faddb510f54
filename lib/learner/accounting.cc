#include "lib/learner/accounting.h"

#include "absl/strings/str_cat.h"

namespace troupe::learner {

using sample::Disposition;

Accounting::Accounting(int32_t num_policies) : per_policy_(static_cast<size_t>(num_policies)) {}

template <typename Change>
void Accounting::ForEach(absl::Span<const PolicyRowCount> rows, Change change) {
  for (const PolicyRowCount& count : rows) {
    change(totals_, count.rows);
    // An invalid fragment may name a policy that there is not: it counts in the totals alone.
    if (count.policy >= 0 && count.policy < static_cast<int32_t>(per_policy_.size())) {
      change(per_policy_[count.policy], count.rows);
    }
  }
}

void Accounting::Restore(const RowCounters& saved) {
  totals_ = saved;
  totals_.rolled_back += totals_.queued;
  totals_.queued = 0;
}

void Accounting::BookArrival(Disposition disposition, absl::Span<const PolicyRowCount> rows) {
  ++fragments_.received;
  switch (disposition) {
    case Disposition::kAccepted:
      ++fragments_.accepted;
      break;
    case Disposition::kDuplicate:
      ++fragments_.duplicate;
      break;
    case Disposition::kStale:
      ++fragments_.stale;
      break;
    case Disposition::kInvalid:
      ++fragments_.invalid;
      break;
  }
  BookRows(disposition, rows);
}

void Accounting::BookRows(Disposition disposition, absl::Span<const PolicyRowCount> rows) {
  ForEach(rows, [disposition](RowCounters& counters, int64_t n) {
    counters.received += n;
    switch (disposition) {
      case Disposition::kAccepted:
        counters.accepted += n;
        counters.queued += n;
        break;
      case Disposition::kDuplicate:
        counters.duplicate += n;
        break;
      case Disposition::kStale:
        counters.stale += n;
        break;
      case Disposition::kInvalid:
        counters.invalid += n;
        break;
    }
  });
}

void Accounting::BookUndecodable() {
  ++fragments_.received;
  ++fragments_.invalid;
}

void Accounting::BookTrained(absl::Span<const PolicyRowCount> rows) {
  ForEach(rows, [](RowCounters& counters, int64_t n) {
    counters.queued -= n;
    counters.trained += n;
  });
}

void Accounting::BookDropped(absl::Span<const PolicyRowCount> rows) {
  ForEach(rows, [](RowCounters& counters, int64_t n) {
    counters.queued -= n;
    counters.dropped += n;
  });
}

void Accounting::BookGap(uint64_t fragments, bool restarted) {
  (restarted ? fragments_.rolled_back : fragments_.unknown) += static_cast<int64_t>(fragments);
}

absl::Status CheckConservation(const RowCounters& rows) {
  for (const int64_t counter : {rows.received, rows.accepted, rows.duplicate, rows.stale, rows.invalid, rows.trained,
                                rows.queued, rows.dropped, rows.rolled_back}) {
    if (counter < 0) return absl::InternalError(absl::StrCat("row accounting: a counter is ", counter));
  }
  const int64_t fates = rows.accepted + rows.duplicate + rows.stale + rows.invalid;
  if (rows.received != fates) {
    return absl::InternalError(absl::StrCat("row accounting: received ", rows.received,
                                            ", but accepted + duplicate + stale + invalid = ", fates));
  }
  const int64_t uses = rows.trained + rows.queued + rows.dropped + rows.rolled_back;
  if (rows.accepted != uses) {
    return absl::InternalError(absl::StrCat("row accounting: accepted ", rows.accepted,
                                            ", but trained + queued + dropped + rolled_back = ", uses));
  }
  return absl::OkStatus();
}

}  // namespace troupe::learner
