#include "lib/telemetry/progress_display.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "lib/base/terminal_block.h"

namespace troupe::telemetry {
namespace {

constexpr size_t kTrendWindow = 10;
constexpr int kFewestColumns = 20;
constexpr int kNarrow = 60;  // columns below which the bar is short
constexpr int kWideBar = 28;
constexpr int kShortBar = 12;
constexpr size_t kWideCurve = 20;
constexpr size_t kShortCurve = 8;
constexpr size_t kMostPoints = 256;  // of a curve's history

/// 950, 12.3k, 4.50M.
std::string Count(double value) {
  if (value < 1e4) return absl::StrFormat("%.0f", value);
  if (value < 1e6) return absl::StrFormat("%.1fk", value / 1e3);
  return absl::StrFormat("%.2fM", value / 1e6);
}

std::string Clock(absl::Duration duration) {
  const int64_t seconds = std::max<int64_t>(0, absl::ToInt64Seconds(duration));
  if (seconds >= 3600) return absl::StrFormat("%d:%02d:%02d", seconds / 3600, seconds / 60 % 60, seconds % 60);
  return absl::StrFormat("%d:%02d", seconds / 60, seconds % 60);
}

std::string Number(double value) { return absl::StrFormat("%.2f", value); }

std::string Eta(const ProgressView& view) { return view.left ? absl::StrCat("ETA ", Clock(*view.left)) : ""; }

/// Empty where no episode failed.
std::string Failed(const ProgressView& view) {
  return view.failed_episodes > 0 ? absl::StrCat("failed episodes ", view.failed_episodes) : "";
}

/// Empty where no row was dropped.
std::string Dropped(const ProgressView& view) {
  if (view.rows_aged == 0 && view.rows_let_go == 0) return "";
  const auto count = [](int64_t rows) { return Count(static_cast<double>(rows)); };
  return absl::StrCat("rows dropped ", count(view.rows_aged + view.rows_let_go), " (", count(view.rows_aged),
                      " too old, ", count(view.rows_let_go), " let go)");
}

std::string LearningRate(const ProgressView& view) {
  return view.learning_rate ? absl::StrFormat("lr %.3g", *view.learning_rate) : "";
}

std::string Best(const ProgressView& view) {
  if (view.best_by.empty() || !view.best) return "";
  return absl::StrCat("best ", view.best_by == "sum" ? "" : absl::StrCat(view.best_by, " "), Number(*view.best));
}

std::vector<std::string> LossTexts(const ProgressView::Losses& losses) {
  std::vector<std::string> texts;
  for (const auto& [name, value] : losses) texts.push_back(absl::StrCat(name, " ", absl::StrFormat("%.4g", value)));
  return texts;
}

/// A curve in `columns` characters at most, each the mean of as many values, from the least mean to the largest; empty
/// where they are all equal.
std::string Sparkline(const std::vector<double>& values, size_t columns) {
  static constexpr const char* kLevels[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  constexpr double kHighest = 7;
  if (values.empty()) return "";
  std::vector<double> means(std::min(columns, values.size()), 0.0);
  for (size_t i = 0; i < means.size(); ++i) {
    const size_t begin = i * values.size() / means.size(), end = (i + 1) * values.size() / means.size();
    for (size_t j = begin; j < end; ++j) means[i] += values[j] / static_cast<double>(end - begin);
  }
  const auto [least, most] = std::minmax_element(means.begin(), means.end());
  if (!(*most > *least) || !std::isfinite(*most - *least)) return "";
  std::string curve;
  for (const double mean : means) {
    const auto level = static_cast<size_t>(std::lround(kHighest * (mean - *least) / (*most - *least)));
    curve += kLevels[std::min(level, static_cast<size_t>(kHighest))];
  }
  return curve;
}

void Append(const std::vector<std::string>& from, std::vector<std::string>* to) {
  to->insert(to->end(), from.begin(), from.end());
}

bool IsContinuation(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

/// The first `columns` of it.
std::string Cut(const std::string& text, int columns) {
  size_t end = 0;
  for (; end < text.size(); ++end) {
    if (!IsContinuation(text[end]) && columns-- == 0) break;
  }
  return text.substr(0, end);
}

/// As many lines as the pieces need, two spaces apart; those that follow the first are set in.
void Fit(const std::vector<std::string>& pieces, int columns, std::vector<std::string>* lines) {
  std::string line;
  bool first = true;
  for (const std::string& piece : pieces) {
    if (piece.empty()) continue;
    if (!first && base::ColumnsOf(line) + 2 + base::ColumnsOf(piece) > columns) {
      lines->push_back(line);
      line = absl::StrCat("  ", Cut(piece, columns - 2));
    } else {
      absl::StrAppend(&line, first ? "" : "  ", first ? Cut(piece, columns) : piece);
    }
    first = false;
  }
  if (!first) lines->push_back(line);
}

}  // namespace

void ProgressDisplay::Resize(int columns, int rows) {
  resized_ = resized_ || columns != options_.columns || rows != options_.rows;
  options_.columns = columns;
  options_.rows = rows;
}

bool ProgressDisplay::IsDue(absl::Duration elapsed, bool last) const {
  const absl::Duration interval = options_.is_terminal ? options_.block_interval : options_.line_interval;
  // It goes back where an evaluation was shown that is no training.
  return last || !last_render_ || elapsed - *last_render_ >= interval || elapsed < *last_render_;
}

std::string ProgressDisplay::Back(bool clear) const {
  return absl::StrCat(base::UpOver(drawn_, options_.columns), clear ? "\x1b[J" : "");
}

std::string ProgressDisplay::Render(const ProgressView& view, bool last) {
  if (!IsDue(view.elapsed, last) && view.notes.empty()) return "";
  interrupted_ = interrupted_ || (view.interrupted && options_.is_terminal);
  if (interrupted_) return "";
  last_render_ = view.elapsed;
  const std::string notes = absl::StrCat(absl::StrJoin(view.notes, "\n"), view.notes.empty() ? "" : "\n");
  std::string out;
  if (options_.is_terminal) {
    const std::vector<std::string> lines = Block(view);
    // Line by line over the old block; \x1b[K clears what a shorter line leaves, \x1b[J what a longer block does.
    const bool clear = resized_ || !view.notes.empty();
    out = absl::StrCat(Back(clear), notes);
    for (const std::string& line : lines) absl::StrAppend(&out, line, "\x1b[K\n");
    if (lines.size() < drawn_.size() && !clear) out += "\x1b[J";
    drawn_ = last ? std::vector<std::string>() : lines;
    resized_ = false;
  } else {
    const std::string line = Line(view);
    out = last && line == again_ ? notes : absl::StrCat(notes, line);
  }
  if (!view.evaluating.empty()) return out;  // the same update
  Remember(view);
  again_ = Line(view);
  return out;
}

void ProgressDisplay::Remember(const ProgressView& view) {
  const auto note = [this](const std::string& name, std::optional<double> value) {
    if (!value) return;
    History& history = returns_[name];
    history.last.push_back(*value);
    if (history.last.size() > kTrendWindow) history.last.erase(history.last.begin());
    if (history.seen++ % history.stride == 0) history.all.push_back(*value);
    if (history.all.size() < kMostPoints) return;
    for (size_t i = 0; 2 * i < history.all.size(); ++i) history.all[i] = history.all[2 * i];
    history.all.resize((history.all.size() + 1) / 2);
    history.stride *= 2;
  };
  note("", view.return_sum);
  for (const ProgressView::Returns& policy : view.policies) note(absl::StrCat("policy ", policy.name), policy.mean);
}

std::string ProgressDisplay::ReturnText(const std::string& name, std::optional<double> value) const {
  if (!value) return "return -";
  const auto before = returns_.find(name);
  const std::string trend =
      before == returns_.end() ? "" : absl::StrFormat(" (%+.2f)", *value - before->second.last.front());
  const std::string text = absl::StrCat("return ", Number(*value), trend);
  if (!options_.is_terminal || !options_.has_unicode || before == returns_.end()) return text;
  const std::string curve = Sparkline(before->second.all, options_.columns < kNarrow ? kShortCurve : kWideCurve);
  return curve.empty() ? text : absl::StrCat(text, " ", curve);
}

ProgressDisplay::Pieces ProgressDisplay::Headline(const ProgressView& view) const {
  if (view.by_policy) return {Best(view)};
  return {ReturnText("", view.return_sum), Best(view),
          view.return_mean ? absl::StrCat("per agent ", Number(*view.return_mean)) : ""};
}

std::vector<std::string> ProgressDisplay::Block(const ProgressView& view) const {
  const int columns = std::max(kFewestColumns, options_.columns - 1);
  std::vector<std::string> lines;
  std::string bar;
  if (view.has_end) {
    const int width = options_.columns < kNarrow ? kShortBar : kWideBar;
    const int full = std::clamp(static_cast<int>(std::lround(view.fraction * width)), 0, width);
    bar = absl::StrCat("[", std::string(static_cast<size_t>(full), '='),
                       std::string(static_cast<size_t>(width - full), ' '), "] ",
                       absl::StrFormat("%3.0f%%", 100 * view.fraction));
  }
  const std::string target =
      view.target_env_steps > 0 ? absl::StrCat("/", Count(static_cast<double>(view.target_env_steps))) : "";
  Fit({bar, absl::StrCat(Count(static_cast<double>(view.env_steps)), target, " env steps"), Clock(view.elapsed),
       Eta(view)},
      columns, &lines);
  Pieces headline = {absl::StrCat(Count(view.env_steps_per_s), " env steps/s")};
  Append(Headline(view), &headline);
  Fit(headline, columns, &lines);
  for (const ProgressView::Returns& policy : view.policies) {
    Pieces pieces = {policy.name, ReturnText(absl::StrCat("policy ", policy.name), policy.mean)};
    if (policy.mean) pieces.push_back(absl::StrCat(Number(policy.min), " to ", Number(policy.max)));
    Append(LossTexts(policy.losses), &pieces);
    Fit(pieces, columns, &lines);
  }
  if (!view.agents.empty()) {
    Pieces pieces = {"by agent"};
    for (const ProgressView::Returns& agent : view.agents) {
      if (agent.mean) pieces.push_back(absl::StrCat(agent.name, " ", Number(*agent.mean)));
    }
    Fit(pieces, columns, &lines);
  }
  if (!view.evaluation.empty()) {
    Pieces pieces = {absl::StrCat("evaluation at ", Count(static_cast<double>(view.evaluation_env_steps)))};
    for (const auto& [what, mean] : view.evaluation) pieces.push_back(absl::StrCat(what, " ", Number(mean)));
    Fit(pieces, columns, &lines);
  }
  Fit({view.evaluating}, columns, &lines);
  Pieces update = {absl::StrCat("update ", view.updates)};
  Append(LossTexts(view.losses), &update);
  Fit(update, columns, &lines);
  Fit({absl::StrCat("workers ", view.workers), Failed(view), Dropped(view),
       absl::StrCat("policy lag ", absl::StrFormat("%.1f", view.policy_lag)), LearningRate(view),
       absl::StrCat("run ", view.run_name)},
      columns, &lines);
  for (const std::string& words : view.degraded) {
    // Words are wrapped, for they say what is wrong.
    Pieces pieces;
    for (std::string rest = absl::StrCat("DEGRADED: ", words); !rest.empty();) {
      pieces.push_back(Cut(rest, columns - 2));
      rest = rest.substr(pieces.back().size());
    }
    Fit(pieces, columns, &lines);
  }
  // A block that is higher than the terminal could not be drawn over.
  if (options_.rows > 1 && static_cast<int>(lines.size()) >= options_.rows) {
    lines.resize(static_cast<size_t>(options_.rows - 1));
  }
  return lines;
}

std::string ProgressDisplay::Line(const ProgressView& view) const {
  if (!view.evaluating.empty()) return absl::StrCat(Clock(view.elapsed), "  ", view.evaluating, "\n");
  Pieces pieces = {
      Clock(view.elapsed),
      absl::StrCat(view.env_steps, view.target_env_steps > 0 ? absl::StrCat("/", view.target_env_steps) : "",
                   view.has_end ? absl::StrFormat(" (%.0f%%)", 100 * view.fraction) : "", " env steps"),
      absl::StrCat(Count(view.env_steps_per_s), "/s")};
  if (!view.by_policy) pieces.push_back(ReturnText("", view.return_sum));
  for (const ProgressView::Returns& policy : view.policies) {
    pieces.push_back(absl::StrCat(policy.name, " ", ReturnText(absl::StrCat("policy ", policy.name), policy.mean)));
  }
  pieces.push_back(Best(view));
  Append(LossTexts(view.losses), &pieces);
  pieces.push_back(LearningRate(view));
  pieces.push_back(absl::StrCat("lag ", absl::StrFormat("%.1f", view.policy_lag)));
  pieces.push_back(absl::StrCat("workers ", view.workers));
  pieces.push_back(Failed(view));
  pieces.push_back(Dropped(view));
  pieces.push_back(Eta(view));
  if (!view.degraded.empty()) pieces.push_back(absl::StrCat("DEGRADED: ", absl::StrJoin(view.degraded, "; ")));
  pieces.erase(std::remove(pieces.begin(), pieces.end(), ""), pieces.end());
  return absl::StrCat(absl::StrJoin(pieces, "  "), "\n");
}

}  // namespace troupe::telemetry
