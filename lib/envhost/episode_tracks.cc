#include "lib/envhost/episode_tracks.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/log.h"
#include "lib/envhost/control_message.h"
#include <nlohmann/json.hpp>

namespace troupe::envhost {
namespace {

using nlohmann::json;

absl::Status NoAnswer() { return absl::InternalError("callbacks of episodes said what is no answer"); }

/// That one answer is about.
constexpr uint64_t kMaxEpisodesAtOnce = 1 << 20;

bool IsTracked(const json& entry) {
  return entry.is_array() && entry.size() == 3 && entry[0].is_string() &&
         base::IsTrackedName(entry[0].get_ref<const std::string&>()) && entry[1].is_number() &&
         entry[2].is_number_unsigned() && entry[2] <= kMaxEpisodesAtOnce;
}

}  // namespace

void EpisodeTracks::Take(std::string_view answer) {
  if (const absl::Status added = Add(answer); !added.ok()) TurnOff(std::string(added.message()));
}

absl::Status EpisodeTracks::Add(std::string_view answer) {
  const json message = json::parse(answer, nullptr, /*allow_exceptions=*/false);
  const auto tracked = message.is_object() ? message.find("tracked") : message.end();
  if (tracked == message.end() || !tracked->is_array()) return NoAnswer();
  {
    base::MutexLock lock(&mutex_);
    for (const json& entry : *tracked) {
      if (!IsTracked(entry)) return NoAnswer();
      const std::string& name = entry[0].get_ref<const std::string&>();
      const auto found = sums_.find(name);
      if (found == sums_.end() && sums_.size() >= base::kMaxTrackedNames) {
        return absl::ResourceExhaustedError(absl::StrCat("tracked more than ", base::kMaxTrackedNames, " names"));
      }
      Sum sum = found == sums_.end() ? Sum{} : found->second;
      sum.sum += entry[1].get<double>();
      sum.episodes += entry[2].get<int64_t>();
      // A learner would take the worker for a broken one.
      if (!base::IsTrackedNumber(sum.sum) || sum.episodes > base::kMaxTrackedEpisodes) {
        return absl::OutOfRangeError(absl::StrCat("tracked ", name, ": the sum over ", sum.episodes, " episodes is ",
                                                  sum.sum, ", expected at most ", base::kMaxTrackedSum,
                                                  " either way and ", base::kMaxTrackedEpisodes, " episodes"));
      }
      sums_[name] = sum;
    }
  }
  if (std::string words = TextOf(message, "off"); !words.empty()) TurnOff(std::move(words));
  return absl::OkStatus();
}

void EpisodeTracks::TurnOff(std::string words) {
  const std::string safe = base::LogSafe(words, kMaxWordsBytes);
  {
    base::MutexLock lock(&mutex_);
    if (!why_off_.empty()) return;
    why_off_ = safe;
  }
  off_.store(true, std::memory_order_relaxed);
  TROUPE_WARN("callbacks of episodes are off, sampling goes on: {}", safe);
}

std::string EpisodeTracks::why_off() const {
  base::MutexLock lock(&mutex_);
  return why_off_;
}

std::vector<base::TrackedTotal> EpisodeTracks::totals() const {
  std::vector<base::TrackedTotal> totals;
  base::MutexLock lock(&mutex_);
  for (const auto& [name, sum] : sums_) totals.push_back({name, sum.sum, sum.episodes});
  return totals;
}

}  // namespace troupe::envhost
