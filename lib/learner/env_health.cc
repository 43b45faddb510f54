#include "lib/learner/env_health.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "lib/base/log.h"
#include "lib/sample/ids.h"

namespace troupe::learner {

using sample::EnvIncident;
using sample::RecentEpisodes;

bool EnvHealth::Join(uint64_t worker, const std::string& name, bool own) {
  const bool beyond = workers_[worker].beyond;
  workers_[worker] = Worker{.name = base::LogSafe(name, kMaxNameChars), .own = own, .beyond = beyond};
  return beyond;
}

void EnvHealth::Leave(uint64_t worker) {
  const auto found = workers_.find(worker);
  if (found == workers_.end()) return;
  found->second.here = false;
  if (!found->second.beyond) workers_.erase(found);
  const auto departed = std::count_if(workers_.begin(), workers_.end(), [](const auto& it) { return !it.second.here; });
  if (departed <= static_cast<int64_t>(kMaxDeparted)) return;
  workers_.erase(std::find_if(workers_.begin(), workers_.end(), [](const auto& it) { return !it.second.here; }));
}

EnvHealth::News EnvHealth::Report(uint64_t worker, const sample::EnvReport& report, absl::Duration now) {
  News news;
  Worker& state = workers_.at(worker);
  for (const EnvIncident& incident : report.incidents) {
    if (state.cause.empty() && incident.what == EnvIncident::What::kFailure) {
      state.cause = base::LogSafe(incident.text.substr(0, incident.text.find('\n')), kMaxCauseChars);
    }
    if (kinds_.size() < kMostKinds && kinds_.emplace(incident.what, incident.kind).second) {
      news.first_of_their_kind.push_back(incident);
    }
  }
  state.recent = report.recent;
  any_failed_ = any_failed_ || report.recent.failed > 0;
  if (report.recent.ended > report.recent.failed) state.runs = ended_well_ = true;
  if (!state.beyond && report.recent.Beyond(max_failed_share_)) news.beyond = state.beyond = true;
  state.fails_from_the_start = report.fails_from_the_start && !state.runs;
  own_failed_from_the_start_ = own_failed_from_the_start_ || (state.fails_from_the_start && state.own);
  if (state.fails_from_the_start && !failed_from_the_start_.has_value()) failed_from_the_start_ = {now, Words(worker)};
  return news;
}

void EnvHealth::Delivered(uint64_t worker, int64_t episodes) {
  const auto found = workers_.find(worker);
  if (found == workers_.end()) return;
  ended_well_ = ended_well_ || episodes > 0;
  found->second.runs = found->second.runs || episodes > 0 || found->second.recent.failed == 0;
}

std::optional<std::string> EnvHealth::End(absl::Duration now) {
  if (!any_failed_ || max_failed_share_ >= 1) return std::nullopt;
  std::optional<std::string> why = EndFromTheStart(now);
  if (!why.has_value()) why = EndOfShare();
  if (!why.has_value()) {
    reason_since_.reset();
    return why;
  }
  if (!reason_since_.has_value()) reason_since_ = now;
  const bool grace = now - *reason_since_ < kStrangersGrace && !own_failed_from_the_start_ && !AnOwnOneFails();
  return grace ? std::nullopt : why;
}

bool EnvHealth::AnOwnOneFails() const {
  return std::any_of(workers_.begin(), workers_.end(),
                     [](const auto& it) { return it.second.here && it.second.own && it.second.recent.failed > 0; });
}

std::optional<std::string> EnvHealth::EndFromTheStart(absl::Duration now) const {
  if (!failed_from_the_start_.has_value() || ended_well_) return std::nullopt;
  bool all = true;
  for (const auto& [id, worker] : workers_) {
    if (!worker.here || worker.fails_from_the_start) continue;
    if (worker.runs) return std::nullopt;
    all = false;
  }
  const auto& [since, words] = *failed_from_the_start_;
  if (!all && now - since < kGrace) return std::nullopt;
  return absl::StrCat("the first episode failed in every environment, and none ended well anywhere: ", words);
}

std::optional<std::string> EnvHealth::EndOfShare() const {
  RecentEpisodes others;
  int32_t num_here = 0;
  int32_t num_others = 0;
  uint64_t first = 0;  // that had a failure
  for (const auto& [id, worker] : workers_) {
    if (!worker.here) continue;
    ++num_here;
    if (first == 0 && (worker.beyond || worker.recent.failed > 0)) first = id;
    if (worker.beyond) continue;
    ++num_others;
    others.ended += worker.recent.ended;
    others.failed += worker.recent.failed;
  }
  const bool all_beyond = num_here > 0 && num_others == 0;
  const bool enough = num_others > 0 && others.ended >= RecentEpisodes::kFewest * num_others;
  if (!all_beyond && !(enough && others.Beyond(max_failed_share_))) return std::nullopt;
  return absl::StrCat("more than env.max_failed_share (", max_failed_share_, ") of the last episodes ",
                      !all_beyond     ? absl::StrCat("of all workers failed, ", others.failed, " of ", others.ended)
                      : num_here == 1 ? "failed at the only worker"
                                      : "failed at every worker",
                      ": ", Words(first));
}

bool EnvHealth::beyond(uint64_t worker) const {
  const auto found = workers_.find(worker);
  return found != workers_.end() && found->second.beyond;
}

std::string EnvHealth::Words(uint64_t worker) const {
  const Worker& state = workers_.at(worker);
  return absl::StrCat("worker ", sample::WorkerText(sample::WorkerId(worker)),
                      state.name.empty() ? "" : absl::StrCat(" (", state.name, ")"), ", ", state.recent.failed,
                      " of its last ", state.recent.ended,
                      " episodes failed, the first: ", state.cause.empty() ? "it does not say why" : state.cause);
}

}  // namespace troupe::learner
