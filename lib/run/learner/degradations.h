#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "lib/base/mutex.h"

namespace troupe::run {

/// What of a run does not work at the moment although training goes on: files that cannot be written. `troupe status`,
/// the display and the summary show it, so words name no path. Made by the learner's process; whoever writes something
/// sets its own part. Thread-safe; never blocks.
class Degradations {
 public:
  /// `part` is only told apart from others; empty `words`: it works (again).
  void Set(const std::string& part, std::string words) {
    base::MutexLock lock(&mutex_);
    if (words.empty()) {
      by_part_.erase(part);
    } else {
      by_part_[part] = std::move(words);
    }
  }
  /// The words of the parts that do not work, by part.
  std::vector<std::string> List() const {
    std::vector<std::string> list;
    base::MutexLock lock(&mutex_);
    for (const auto& [part, words] : by_part_) list.push_back(words);
    return list;
  }

 private:
  mutable base::Mutex mutex_;
  std::map<std::string, std::string> by_part_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace troupe::run
