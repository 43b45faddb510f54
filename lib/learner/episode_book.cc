#include "lib/learner/episode_book.h"

#include <algorithm>
#include <utility>

#include "lib/learner/training_stats.h"

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

void EpisodeBook::Add(std::vector<sample::FinishedEpisode> finished) {
  if (!rewards_differ_ && config_.options.common_reward == CommonReward::kNone && ReturnsDiffer(finished)) {
    rewards_differ_ = true;
  }
  window_.Add(std::move(finished));
}

void EpisodeBook::Tell(policy::PolicyTablePtr table, ProgressRecord* record) {
  record->table = std::move(table);
  record->window = window_.Stats(record->table->num_slots());
  record->return_sum = record->window.return_sum.mean();
  record->return_mean = record->window.return_mean.mean();
  record->episode_length = record->window.length.mean();
  record->rewards_differ = rewards_differ_;
  const std::optional<Score> by = BestBy();
  if (!by.has_value()) return;
  record->best_by = by->Text();
  const std::optional<double> score = window_.full() ? ScoreOf(*by, record->window, *record->table) : std::nullopt;
  if (score.has_value()) best_window_ = std::max(*score, best_window_.value_or(*score));
  record->best = best_window_;
}

bool EpisodeBook::Save(const policy::PolicyTable& table, LearnerState* state) {
  window_.Save(*state);
  const std::optional<Score> by = BestBy();
  std::optional<double> score;
  if (by.has_value()) {
    if (!config_.best_by_evaluation) {
      if (window_.full()) score = ScoreOf(*by, window_.Stats(table.num_slots()), table);
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
  state->rewards_differ = rewards_differ_;
  return is_best;
}

}  // namespace troupe::learner
