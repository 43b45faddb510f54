#include "lib/learner/episode_book.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/learner/stop_conditions.h"
#include "lib/learner/training_stats.h"
#include "lib/sample/multi_agent_batch.h"

namespace troupe::learner {

EpisodeBook::EpisodeBook(const LearnerConfig* config)
    : config_(*config),
      window_(static_cast<int32_t>(config->schema.agent_ids.size()),
              static_cast<int32_t>(config->schema.num_info_columns)) {}

std::optional<Score> EpisodeBook::BestBy() const {
  if (config_.best_by.has_value() || rewards_differ_) return config_.best_by;
  return Score{};
}

void EpisodeBook::Restore(const LearnerState& state, const policy::PolicyTable& table) {
  window_.Restore(state);
  window_.KeepPolicies([&table](policy::PolicySlot policy) { return table.Find(policy) != nullptr; });
  strangers_.reset();
  if (std::count(state.recent_by_strangers.begin(), state.recent_by_strangers.end(), 0) !=
      static_cast<std::ptrdiff_t>(state.recent_by_strangers.size())) {
    MeetStrangers();
  }
  rewards_differ_ = state.rewards_differ && config_.options.common_reward == CommonReward::kNone;
  // What was the best by another return is none by this one.
  const std::optional<Score> by = BestBy();
  const bool same = by.has_value() && by->Text() == state.best_by;
  has_best_ = state.has_best && same;
  best_return_ = has_best_ ? state.best_return : 0;
  best_window_ = same ? state.best_window : std::nullopt;
  // Of an earlier version: the largest that a checkpoint had.
  if (!best_window_ && has_best_ && !config_.best_by_evaluation) best_window_ = best_return_;
}

void EpisodeBook::MeetStrangers() {
  strangers_.emplace(
      Strangers{window_.WithoutStrangers(), StrangersReturns(static_cast<int32_t>(config_.schema.agent_ids.size()),
                                                             static_cast<int32_t>(config_.schema.num_info_columns))});
}

void EpisodeBook::Add(ReportedEpisodes finished) {
  if (!rewards_differ_ && config_.options.common_reward == CommonReward::kNone) {
    rewards_differ_ =
        ReturnsDiffer(finished.own) || std::any_of(finished.by_strangers.begin(), finished.by_strangers.end(),
                                                   [](const auto& reported) { return ReturnsDiffer(reported.second); });
  }
  if (!strangers_.has_value() && !finished.by_strangers.empty()) MeetStrangers();
  if (strangers_.has_value()) strangers_->own.Add(finished.own);
  window_.Add(std::move(finished.own));
  for (auto& [worker, episodes] : finished.by_strangers) {
    strangers_->returns.Add(sample::WorkerId(worker), episodes);
    window_.Add(std::move(episodes), /*by_strangers=*/true);
  }
}

void EpisodeBook::ForgetPolicy(policy::PolicySlot slot) {
  window_.ForgetPolicy(slot);
  if (!strangers_.has_value()) return;
  strangers_->own.ForgetPolicy(slot);
  strangers_->returns.ForgetPolicy(slot);
}

std::optional<double> EpisodeBook::TrainingScore(const Score& score, const policy::PolicyTable& table) const {
  const EpisodeWindow& own = strangers_.has_value() ? strangers_->own : window_;
  if (strangers_.has_value() && own.size() == 0) return strangers_->returns.ScoreOf(score, table);
  return own.full() ? ScoreOf(score, own.Stats(table.num_slots()), table) : std::nullopt;
}

std::optional<std::string> EpisodeBook::ReportEvaluation(const EpisodeStats& evaluation,
                                                         const policy::PolicyTable& table) {
  evaluation_ = evaluation;
  if (!config_.best_by_evaluation) return std::nullopt;
  StopOptions returns;
  returns.episode_return = config_.stop.episode_return;
  return StopByTimeOrReturn(returns, absl::ZeroDuration(),
                            [&](const Score& score) { return ScoreOf(score, evaluation, table); });
}

std::optional<std::string> EpisodeBook::StopByTraining(const policy::PolicyTable& table) const {
  if (config_.best_by_evaluation) return std::nullopt;
  StopOptions returns;
  returns.episode_return = config_.stop.episode_return;
  return StopByTimeOrReturn(returns, absl::ZeroDuration(),
                            [&](const Score& score) { return TrainingScore(score, table); });
}

std::optional<std::string> EpisodeBook::TakeWarning(const policy::PolicyTable& table) {
  if (warned_ || config_.best_by_evaluation || !strangers_.has_value() || !window_.full()) return std::nullopt;
  if (strangers_->own.size() > 0 || strangers_->returns.ScoreOf(Score{}, table).has_value()) return std::nullopt;
  warned_ = true;
  const std::string who = config_.strangers_play ? "clients over TCP (env.external.address)" : "workers over TCP";
  const std::string remedy = config_.strangers_play ? "let clients of this machine come to a unix: socket"
                                                    : "set evaluation.interval: the learner then plays evaluations "
                                                      "itself, and they decide";
  return absl::StrCat("the returns that ", who, " report set neither \"best\" nor stop.episode_return: anybody may ",
                      "report any. Either ", remedy, "; or have ", StrangersReturns::kFewestReporters,
                      " or more workers, and the median of their means decides");
}

int64_t ReportedEpisodes::count() const {
  auto count = static_cast<int64_t>(own.size());
  for (const auto& [worker, episodes] : by_strangers) count += static_cast<int64_t>(episodes.size());
  return count;
}

std::vector<sample::FinishedEpisode> ReportedEpisodes::All() const {
  std::vector<sample::FinishedEpisode> all = own;
  for (const auto& [worker, episodes] : by_strangers) all.insert(all.end(), episodes.begin(), episodes.end());
  return all;
}

void EpisodeBook::Tell(policy::PolicyTablePtr table, ProgressRecord* record) {
  record->table = std::move(table);
  record->window = window_.Stats(record->table->num_slots());
  for (size_t column = 0; column < config_.info_columns.size(); ++column) {
    const std::optional<double> mean = window_.info(static_cast<int32_t>(column));
    if (mean.has_value()) record->window.infos.emplace_back(config_.info_columns[column], *mean);
  }
  record->return_sum = record->window.return_sum.mean();
  record->return_mean = record->window.return_mean.mean();
  record->episode_length = record->window.length.mean();
  record->rewards_differ = rewards_differ_;
  const std::optional<Score> by = BestBy();
  if (!by.has_value()) return;
  record->best_by = by->Text();
  const std::optional<double> score = TrainingScore(*by, *record->table);
  if (score.has_value()) best_window_ = std::max(*score, best_window_.value_or(*score));
  record->best = best_window_;
}

bool EpisodeBook::Save(const policy::PolicyTable& table, LearnerState* state) {
  window_.Save(*state);
  state->rewards_differ = rewards_differ_;
  return Judge(table, state);
}

bool EpisodeBook::Judge(const policy::PolicyTable& table, LearnerState* state) {
  const std::optional<Score> by = BestBy();
  std::optional<double> score;
  if (by.has_value()) {
    if (!config_.best_by_evaluation) {
      score = TrainingScore(*by, table);
    } else if (evaluation_.has_value()) {
      score = ScoreOf(*by, *evaluation_, table);
    }
  }
  evaluation_.reset();
  has_best_ = has_best_ && by.has_value();
  if (!has_best_) best_return_ = 0;
  // Until something has been scored, any state is the best there is.
  const bool is_best = by.has_value() && (score.has_value() ? !has_best_ || *score > best_return_ : !has_best_);
  if (score.has_value() && is_best) {
    has_best_ = true;
    best_return_ = *score;
  }
  state->has_best = has_best_;
  state->best_return = best_return_;
  state->best_by = by.has_value() ? by->Text() : "";
  if (by.has_value()) state->best_window = best_window_;
  return is_best;
}

}  // namespace troupe::learner
