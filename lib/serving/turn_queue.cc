#include "lib/serving/turn_queue.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace troupe::serving {
namespace {

absl::Status Closed() { return absl::CancelledError("no more is answered here: it ends"); }

}  // namespace

absl::Status TurnQueue::CheckLocked(Key key, const Entry& entry, bool comes_in) const {
  if (closed_) return Closed();
  if (entry.count == 0) return absl::OkStatus();
  const auto full = [](const char* whose, int64_t count, int64_t max_count, int64_t bytes, int64_t max_bytes) {
    return absl::ResourceExhaustedError(absl::StrCat(whose, " that wait or are being answered are ", count, " of ",
                                                     bytes, " bytes, expected at most ", max_count, " of ", max_bytes,
                                                     " with this one; ask again later"));
  };
  const auto found = lanes_.find(key);
  const int64_t count = found == lanes_.end() ? 0 : found->second.count;
  const int64_t bytes = found == lanes_.end() ? 0 : found->second.bytes;
  if (count + entry.count > limits_.count_per_key || bytes + entry.bytes > limits_.bytes_per_key) {
    return full("its queries", count, limits_.count_per_key, bytes, limits_.bytes_per_key);
  }
  if (comes_in && (count_ + entry.count > limits_.count || bytes_ + entry.bytes > limits_.bytes)) {
    return full("queries of all policies in Python", count_, limits_.count, bytes_, limits_.bytes);
  }
  return absl::OkStatus();
}

void TurnQueue::WaitLocked(Key key, Entry entry) {
  Lane& lane = lanes_[key];
  if (lane.waiting.empty() && !lane.running) {
    turns_.push_back(key);
    changed_.NotifyOne();
  }
  lane.count += entry.count;
  lane.bytes += entry.bytes;
  lane.waiting.push_back(std::move(entry));
}

void TurnQueue::LeaveLocked(Key key, const Entry& entry) {
  Lane& lane = lanes_[key];
  lane.count -= entry.count;
  lane.bytes -= entry.bytes;
  if (lane.waiting.empty() && !lane.running) lanes_.erase(key);
}

absl::Status TurnQueue::Push(std::shared_ptr<Work> work, Key key, int64_t bytes) {
  Entry entry{std::move(work), bytes, 1};
  base::MutexLock lock(&mutex_);
  if (absl::Status status = CheckLocked(key, entry, /*comes_in=*/true); !status.ok()) return status;
  count_ += entry.count;
  bytes_ += entry.bytes;
  WaitLocked(key, std::move(entry));
  return absl::OkStatus();
}

absl::Status TurnQueue::PushUncounted(std::shared_ptr<Work> work, Key key) {
  Entry entry{std::move(work), 0, 0};
  base::MutexLock lock(&mutex_);
  if (closed_) return Closed();
  WaitLocked(key, std::move(entry));
  return absl::OkStatus();
}

bool TurnQueue::Remove(const Work* work) {
  Entry removed;  // destroyed after the lock
  base::MutexLock lock(&mutex_);
  for (auto& [key, lane] : lanes_) {
    const auto found = std::find_if(lane.waiting.begin(), lane.waiting.end(),
                                    [work](const Entry& entry) { return entry.work.get() == work; });
    if (found == lane.waiting.end()) continue;
    removed = std::move(*found);
    lane.waiting.erase(found);
    if (lane.waiting.empty() && !lane.running) turns_.erase(std::find(turns_.begin(), turns_.end(), key));
    count_ -= removed.count;
    bytes_ -= removed.bytes;
    LeaveLocked(key, removed);  // may erase the lane
    return true;
  }
  return false;
}

bool TurnQueue::Await() {
  base::MutexLock lock(&mutex_);
  while (turns_.empty() && !closed_) changed_.Wait(&mutex_);
  return !closed_;
}

bool TurnQueue::Step() {
  Key key = 0;
  Entry entry;
  {
    base::MutexLock lock(&mutex_);
    if (turns_.empty()) return false;
    key = turns_.front();
    turns_.pop_front();
    Lane& lane = lanes_[key];
    entry = std::move(lane.waiting.front());
    lane.waiting.pop_front();
    lane.running = true;
  }
  const std::optional<Key> next = entry.work->Run();
  absl::Status refused;
  {
    base::MutexLock lock(&mutex_);
    Lane& lane = lanes_[key];
    lane.running = false;
    if (!lane.waiting.empty()) {
      turns_.push_back(key);
      changed_.NotifyOne();
    }
    LeaveLocked(key, entry);
    if (next.has_value()) refused = CheckLocked(*next, entry, /*comes_in=*/false);
    if (!next.has_value() || !refused.ok()) {
      count_ -= entry.count;
      bytes_ -= entry.bytes;
    } else {
      WaitLocked(*next, std::move(entry));
    }
  }
  if (!refused.ok()) entry.work->Refuse(refused);
  return true;
}

void TurnQueue::Close() {
  std::vector<Entry> refused;
  {
    base::MutexLock lock(&mutex_);
    closed_ = true;
    turns_.clear();
    for (auto lane = lanes_.begin(); lane != lanes_.end();) {
      for (Entry& entry : lane->second.waiting) {
        count_ -= entry.count;
        bytes_ -= entry.bytes;
        lane->second.count -= entry.count;
        lane->second.bytes -= entry.bytes;
        refused.push_back(std::move(entry));
      }
      lane->second.waiting.clear();
      lane = lane->second.running ? std::next(lane) : lanes_.erase(lane);
    }
    changed_.NotifyAll();
  }
  for (Entry& entry : refused) entry.work->Refuse(Closed());
}

int64_t TurnQueue::count() const {
  base::MutexLock lock(&mutex_);
  return count_;
}

}  // namespace troupe::serving
