#include "lib/learner/accounting.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"

namespace troupe::learner {

using sample::Disposition;

Accounting::Accounting(int32_t num_policies)
    : per_policy_(static_cast<size_t>(num_policies)),
      group_of_(static_cast<size_t>(num_policies)),
      rows_of_(static_cast<size_t>(num_policies), &groupless_) {}

template <typename Change>
void Accounting::ForEach(absl::Span<const PolicyRowCount> rows, Change change) {
  for (const PolicyRowCount& count : rows) {
    change(totals_, count.rows);
    // An invalid fragment may name a policy that there is not: it counts in the totals alone.
    if (per_policy_.Contains(count.policy)) change(per_policy_[count.policy], count.rows);
  }
}

void Accounting::Restore(const RowCounters& saved) {
  totals_ = saved;
  totals_.rolled_back += totals_.queued;
  totals_.queued = 0;
  earlier_ = totals_;
}

const policy::GroupId* Accounting::FindGroup(policy::PolicySlot policy) const {
  if (!group_of_.Contains(policy)) return nullptr;
  const std::optional<policy::GroupId>& id = group_of_[policy];
  return id.has_value() ? &*id : nullptr;
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
  if (disposition == Disposition::kAccepted) {
    for (const PolicyRowCount& count : rows) {
      GroupRows& group = GroupOf(count.policy);
      group.accepted += count.rows;
      group.queued += count.rows;
    }
  }
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

void Accounting::BookBatch(absl::Span<const BatchFate> fates) {
  for (const BatchFate& fate : fates) {
    const auto book = [&fate](RowCounters& counters) {
      counters.queued -= fate.trained + fate.aged + fate.evicted;
      counters.trained += fate.trained;
      counters.waited += fate.waited;
      counters.dropped += fate.aged + fate.evicted;
      counters.aged += fate.aged;
    };
    book(totals_);
    if (per_policy_.Contains(fate.policy)) book(per_policy_[fate.policy]);
    GroupRows& group = GroupOf(fate.policy);
    group.queued -= fate.trained + fate.aged + fate.evicted;
    group.trained += fate.trained;
    group.aged += fate.aged;
    group.evicted += fate.evicted;
    group.uses += fate.uses;
  }
}

void Accounting::BookGivenUp(absl::Span<const BatchFate> fates) {
  std::vector<BatchFate> given_up;
  for (const BatchFate& fate : fates) {
    given_up.push_back({.policy = fate.policy, .aged = fate.aged, .evicted = fate.trained + fate.evicted});
  }
  BookBatch(given_up);
}

void Accounting::BookEvicted(absl::Span<const PolicyRowCount> rows) {
  std::vector<BatchFate> fates;
  for (const PolicyRowCount& count : rows) fates.push_back({.policy = count.policy, .evicted = count.rows});
  BookBatch(fates);
}

void Accounting::SetGroups(const policy::GroupOfSlot& group_of) {
  std::map<policy::GroupId, GroupRows> groups;
  for (const std::optional<policy::GroupId>& id : group_of) {
    if (!id.has_value() || groups.count(*id) > 0) continue;
    const auto found = groups_.find(*id);
    groups[*id] = found != groups_.end() ? found->second : GroupRows{*id};
  }
  for (const policy::PolicySlot slot : group_of.ids()) {
    if (!group_of_.Contains(slot)) break;
    const std::optional<policy::GroupId>& before = group_of_[slot];
    const int64_t waiting = per_policy_[slot].queued;
    if (waiting == 0 || group_of[slot] == before) continue;
    const auto move = [&](const std::optional<policy::GroupId>& id, std::map<policy::GroupId, GroupRows>& in,
                          int64_t rows) {
      GroupRows& group = id.has_value() ? in.at(*id) : groupless_;
      group.accepted += rows;
      group.queued += rows;
    };
    // In whichever of the two maps a group will be looked at below.
    const bool stays = before.has_value() && groups.count(*before) > 0;
    move(before, stays ? groups : groups_, -waiting);
    move(group_of[slot], groups, waiting);
  }
  for (const auto& [id, gone] : groups_) {
    if (groups.count(id) > 0) continue;
    groupless_.accepted += gone.accepted;
    groupless_.queued += gone.queued;
    groupless_.trained += gone.trained;
    groupless_.aged += gone.aged;
    groupless_.evicted += gone.evicted;
    groupless_.uses += gone.uses;
  }
  groups_ = std::move(groups);
  group_of_ = group_of;
  per_policy_.resize(group_of.size());
  rows_of_.clear();
  for (const std::optional<policy::GroupId>& id : group_of_) {
    rows_of_.push_back(id.has_value() ? &groups_.at(*id) : &groupless_);
  }
}

RowBooks Accounting::Books() const {
  RowBooks books;
  books.totals = totals_;
  books.earlier = earlier_;
  books.groups.reserve(groups_.size());
  for (const auto& [id, rows] : groups_) books.groups.push_back(rows);
  books.groupless = groupless_;
  return books;
}

void Accounting::BookGap(uint64_t fragments, bool restarted) {
  (restarted ? fragments_.rolled_back : fragments_.unknown) += static_cast<int64_t>(fragments);
}

absl::Status CheckConservation(const RowCounters& rows) {
  for (const int64_t counter : {rows.received, rows.accepted, rows.duplicate, rows.stale, rows.invalid, rows.trained,
                                rows.queued, rows.dropped, rows.rolled_back, rows.aged, rows.waited}) {
    if (counter < 0) return absl::InternalError(absl::StrCat("row accounting: a counter is ", counter));
  }
  if (rows.aged > rows.dropped) {
    return absl::InternalError(absl::StrCat("row accounting: aged ", rows.aged, ", but dropped in all ", rows.dropped));
  }
  if (rows.waited > rows.trained) {
    return absl::InternalError(
        absl::StrCat("row accounting: waited ", rows.waited, ", but trained in all ", rows.trained));
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

absl::Status CheckConservation(const GroupRows& rows) {
  const auto named = [&rows](auto... words) {
    return absl::InternalError(absl::StrCat("row accounting: group '", rows.id.value(), "': ", words...));
  };
  for (const int64_t counter : {rows.accepted, rows.queued, rows.trained, rows.aged, rows.evicted, rows.uses}) {
    if (counter < 0) return named("a counter is ", counter);
  }
  const int64_t fates = rows.trained + rows.queued + rows.aged + rows.evicted;
  if (rows.accepted != fates) {
    return named("accepted ", rows.accepted, ", but trained + queued + aged + evicted = ", fates);
  }
  if (rows.uses < rows.trained) return named("trained ", rows.trained, " rows in ", rows.uses, " uses");
  return absl::OkStatus();
}

absl::Status CheckConservation(const RowBooks& books) {
  TROUPE_RETURN_IF_ERROR(CheckConservation(books.totals));
  TROUPE_RETURN_IF_ERROR(CheckConservation(books.earlier));
  TROUPE_RETURN_IF_ERROR(CheckConservation(books.groupless));
  RowCounters sum = books.earlier;
  const auto add = [&sum](const GroupRows& group) {
    sum.accepted += group.accepted;
    sum.queued += group.queued;
    sum.trained += group.trained;
    sum.dropped += group.aged + group.evicted;
    sum.aged += group.aged;
  };
  add(books.groupless);
  for (const GroupRows& group : books.groups) {
    TROUPE_RETURN_IF_ERROR(CheckConservation(group));
    add(group);
  }
  const std::tuple<const char*, int64_t, int64_t> sums[] = {{"accepted", sum.accepted, books.totals.accepted},
                                                            {"queued", sum.queued, books.totals.queued},
                                                            {"trained", sum.trained, books.totals.trained},
                                                            {"dropped", sum.dropped, books.totals.dropped},
                                                            {"aged", sum.aged, books.totals.aged},
                                                            {"rolled_back", sum.rolled_back, books.totals.rolled_back}};
  for (const auto& [name, of_groups, total] : sums) {
    if (of_groups == total) continue;
    return absl::InternalError(
        absl::StrCat("row accounting: ", name, " is ", total, ", but the groups' add up to ", of_groups));
  }
  return absl::OkStatus();
}

}  // namespace troupe::learner
