#include "lib/learner/tracked_book.h"

#include <cmath>
#include <utility>

namespace troupe::learner {

bool TrackedBook::Report(const sample::EnvReport& report, bool before, Said* said) {
  const bool only_begins = before && !said->heard;
  said->heard = true;
  for (const base::TrackedTotal& total : report.tracked) {
    auto found = sums_.find(total.name);
    if (found == sums_.end()) {
      if (sums_.size() >= base::kMaxTrackedNames) {
        leaves_out_ = true;
        continue;
      }
      found = sums_.emplace(total.name, Sum{sums_.size()}).first;
    }
    Sum& sum = found->second;
    if (said->by_name.size() <= sum.index) said->by_name.resize(sum.index + 1);
    Said::Total& last = said->by_name[sum.index];
    if (total.episodes < last.episodes) last = {};
    const double more = sum.sum + (total.sum - last.sum);
    if (!only_begins && total.episodes > last.episodes && std::isfinite(more)) {
      sum.sum = more;
      sum.episodes += total.episodes - last.episodes;
    }
    last = {total.sum, total.episodes};
  }
  if (report.callbacks_off.empty() || std::exchange(said->off, true)) return false;
  ++workers_off_;
  if (std::exchange(said->was_off, true)) return false;
  ++turned_off_;
  return true;
}

void TrackedBook::Leave(Said* said) {
  if (std::exchange(said->off, false)) --workers_off_;
}

TrackedBook::News TrackedBook::Take() {
  News news{{}, workers_off_, turned_off_, leaves_out_};
  for (auto& [name, sum] : sums_) {
    if (sum.episodes > 0) news.tracked.push_back({name, sum.sum, sum.episodes});
    sum.sum = 0;
    sum.episodes = 0;
  }
  return news;
}

}  // namespace troupe::learner
