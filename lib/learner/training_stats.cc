#include "lib/learner/training_stats.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <numeric>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lib/base/check.h"

namespace troupe::learner {
namespace {

/// Also on rows of dead agents alone, which are no trained rows.
bool HasTrained(const PolicyUpdateReport& report) { return report.trained_rows > 0 || report.minibatch_steps > 0; }

/// Weighted means by tag, in the order in which tags come.
class Means {
 public:
  void Add(std::string_view tag, double value, double weight) {
    auto it = places_.find(tag);
    if (it == places_.end()) {
      it = places_.emplace(tag, means_.size()).first;
      means_.emplace_back(tag, 0.0);
      weights_.push_back(0);
    }
    means_[it->second].second += weight * value;
    weights_[it->second] += weight;
  }
  std::vector<TaggedValue> Take() {
    for (size_t i = 0; i < means_.size(); ++i) means_[i].second /= weights_[i];
    return std::move(means_);
  }

 private:
  std::map<std::string, size_t, std::less<>> places_;
  std::vector<TaggedValue> means_;
  std::vector<double> weights_;
};

}  // namespace

std::vector<TaggedValue> MeanMetrics(absl::Span<const PolicyUpdateReport> reports) {
  Means means;
  for (const PolicyUpdateReport& report : reports) {
    for (const auto& [tag, value] : report.metrics) means.Add(tag, value, 1);
  }
  return means.Take();
}

std::optional<double> JoinTrainTimes(absl::Span<const PolicyUpdateReport> reports, TrainTimeAggregator aggregator) {
  std::vector<double> times;
  for (const PolicyUpdateReport& report : reports) {
    if (HasTrained(report)) times.push_back(report.train_time_s);
  }
  if (times.empty()) return std::nullopt;
  switch (aggregator) {
    case TrainTimeAggregator::kMin:
      return *std::min_element(times.begin(), times.end());
    case TrainTimeAggregator::kMax:
      return *std::max_element(times.begin(), times.end());
    case TrainTimeAggregator::kMean:
      break;
  }
  return std::accumulate(times.begin(), times.end(), 0.0) / static_cast<double>(times.size());
}

std::vector<TaggedValue> AgentLosses(const TrainBatch& batch, absl::Span<const PolicyUpdateReport> reports,
                                     absl::Span<const std::string> agent_ids) {
  TROUPE_CHECK(reports.size() == batch.policies.size());
  std::vector<Means> agents(agent_ids.size());
  std::vector<int64_t> rows(agent_ids.size());
  std::vector<int64_t> rows_in_all(agent_ids.size());
  for (size_t i = 0; i < reports.size(); ++i) {
    if (!HasTrained(reports[i])) continue;
    const bool on_the_dead = reports[i].trained_rows == 0;
    std::fill(rows.begin(), rows.end(), 0);
    const PolicyTrainBatch& policy = batch.policies[i];
    for (const TrainSegment& segment : policy.segments) {
      int64_t& count = rows[static_cast<size_t>(segment.slot.value())];
      if (policy.agent_mask.empty() || (on_the_dead && segment.trains)) {
        count += segment.rows;
      } else {
        const auto first = policy.agent_mask.begin() + segment.first_row;
        count = std::accumulate(first, first + segment.rows, count);
      }
    }
    for (size_t agent = 0; agent < rows.size(); ++agent) {
      if (rows[agent] == 0) continue;
      rows_in_all[agent] += rows[agent];
      for (const auto& [tag, value] : reports[i].metrics) {
        if (absl::StartsWith(tag, "Loss/")) agents[agent].Add(tag, value, static_cast<double>(rows[agent]));
      }
    }
  }
  std::vector<size_t> told(agents.size());
  std::iota(told.begin(), told.end(), size_t{0});
  if (told.size() > kMaxAgentsWithLosses) {
    std::stable_sort(told.begin(), told.end(), [&](size_t a, size_t b) { return rows_in_all[a] > rows_in_all[b]; });
    told.resize(kMaxAgentsWithLosses);
    std::sort(told.begin(), told.end());
  }
  std::vector<TaggedValue> losses;
  for (const size_t agent : told) {
    for (const auto& [tag, value] : agents[agent].Take()) {
      losses.emplace_back(absl::StrCat(agent_ids[agent], "/", tag), value);
    }
  }
  return losses;
}

}  // namespace troupe::learner
