#include "lib/serving/batch_lane.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace troupe::serving {

absl::Status BatchBudget::Take(int64_t bytes) {
  const int64_t count = count_.fetch_add(1, std::memory_order_relaxed) + 1;
  const int64_t all_bytes = bytes_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  // One alone is let through whatever it takes: the transport has bounded it.
  if (count <= limits_.count && (all_bytes <= limits_.bytes || count == 1)) return absl::OkStatus();
  GiveBack(bytes);
  return absl::ResourceExhaustedError(absl::StrCat("queries that wait for their policies are ", count - 1, " of ",
                                                   all_bytes - bytes, " bytes, expected at most ", limits_.count,
                                                   " of ", limits_.bytes, " with this one; ask again later"));
}

void BatchBudget::GiveBack(int64_t bytes) {
  count_.fetch_sub(1, std::memory_order_relaxed);
  bytes_.fetch_sub(bytes, std::memory_order_relaxed);
}

bool BatchLane::TryLead() {
  base::MutexLock lock(&mutex_);
  return !std::exchange(led_, true);
}

absl::StatusOr<bool> BatchLane::Enter(BatchWork* work) {
  if (absl::Status status = budget_.Take(work->bytes()); !status.ok()) return status;
  base::MutexLock lock(&mutex_);
  waiting_.push_back(work);
  return !std::exchange(led_, true);
}

void BatchLane::Next(std::vector<BatchWork*>* batch) {
  batch->clear();
  {
    base::MutexLock lock(&mutex_);
    int64_t rows = 0;
    size_t taken = 0;
    while (taken < waiting_.size() && (taken == 0 || rows + waiting_[taken]->rows() <= kMaxBatchRows)) {
      rows += waiting_[taken++]->rows();
    }
    if (taken == waiting_.size()) {
      batch->swap(waiting_);
    } else {
      batch->assign(waiting_.begin(), waiting_.begin() + static_cast<std::ptrdiff_t>(taken));
      waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<std::ptrdiff_t>(taken));
    }
    if (batch->empty()) led_ = false;
  }
  for (const BatchWork* const work : *batch) budget_.GiveBack(work->bytes());
}

bool BatchLane::Remove(const BatchWork* work) {
  {
    base::MutexLock lock(&mutex_);
    const auto found = std::find(waiting_.begin(), waiting_.end(), work);
    if (found == waiting_.end()) return false;
    waiting_.erase(found);
  }
  budget_.GiveBack(work->bytes());
  return true;
}

}  // namespace troupe::serving
