#include "lib/rpc/worker/grant_queue.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"
#include "lib/rpc/transport/limits.h"

namespace troupe::rpc {

absl::Status GrantIsOver(sample::GrantId id) {
  return absl::AbortedError(absl::StrCat("grant ", id.value(), " was out for too long, others have it"));
}

absl::Status GrantQueue::CheckRoom(const sample::Grant& grant) const {
  size_t lanes = grant.lanes.size();
  std::set<const policy::PolicyTable*> tables = {grant.policies.get()};
  for (const sample::Grant& waiting : waiting_) {
    lanes += waiting.lanes.size();
    tables.insert(waiting.policies.get());
  }
  if (waiting_.size() < kMaxWaitingGrants && lanes <= kMaxWaitingLanes && tables.size() <= kMaxWaitingTables) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("grant ", grant.id.value(), ": with it ", waiting_.size() + 1,
                                                 " grants wait, of ", lanes, " environments and by ", tables.size(),
                                                 " policy tables, expected at most ", kMaxWaitingGrants, ", ",
                                                 kMaxWaitingLanes, " and ", kMaxWaitingTables));
}

absl::Status GrantQueue::Add(sample::Grant grant) {
  if (closed_) return absl::OkStatus();
  TROUPE_RETURN_IF_ERROR(CheckRoom(grant));
  waiting_.push_back(std::move(grant));
  return absl::OkStatus();
}

sample::Grant GrantQueue::Take() {
  sample::Grant grant = std::move(waiting_.front());
  waiting_.pop_front();
  taken_ = grant.id;
  return grant;
}

GrantQueue::Dropped GrantQueue::OnOver(sample::GrantId id) {
  Dropped dropped;
  const auto waiting =
      std::find_if(waiting_.begin(), waiting_.end(), [id](const sample::Grant& grant) { return grant.id == id; });
  if (waiting == waiting_.end()) {
    over_ = id;
    return dropped;
  }
  dropped.push_back(std::move(*waiting));
  waiting_.erase(waiting);
  return dropped;
}

absl::Status GrantQueue::CheckTaken() const { return IsOver(taken_) ? GrantIsOver(over_) : absl::OkStatus(); }

GrantQueue::Dropped GrantQueue::Clear() {
  Dropped dropped(std::make_move_iterator(waiting_.begin()), std::make_move_iterator(waiting_.end()));
  waiting_.clear();
  return dropped;
}

GrantQueue::Dropped GrantQueue::Close(std::string reason) {
  closed_ = true;
  close_reason_ = std::move(reason);
  return Clear();
}

}  // namespace troupe::rpc
