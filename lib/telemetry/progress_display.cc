#include "lib/telemetry/progress_display.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace troupe::telemetry {
namespace {

constexpr size_t kTrendWindow = 10;
constexpr int kBarWidth = 28;

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

double Fraction(const ProgressView& view) {
  return view.target_env_steps > 0
             ? std::min(1.0, static_cast<double>(view.env_steps) / static_cast<double>(view.target_env_steps))
             : 0.0;
}

std::string Eta(const ProgressView& view) {
  const int64_t left = view.target_env_steps - view.env_steps;
  if (view.target_env_steps <= 0 || view.env_steps_per_s <= 0 || left <= 0) return "";
  return absl::StrCat("  ETA ", Clock(absl::Seconds(static_cast<double>(left) / view.env_steps_per_s)));
}

/// Empty where no episode failed.
std::string Failed(const ProgressView& view) {
  return view.failed_episodes > 0 ? absl::StrCat("  failed episodes ", view.failed_episodes) : "";
}

std::string Losses(const ProgressView& view) {
  return absl::StrJoin(view.losses, "  ", [](std::string* out, const auto& loss) {
    absl::StrAppend(out, loss.first, " ", absl::StrFormat("%.4g", loss.second));
  });
}

}  // namespace

std::string ProgressDisplay::Render(const ProgressView& view, bool last) {
  const absl::Duration interval = options_.is_terminal ? options_.block_interval : options_.line_interval;
  if (!last && last_render_ && view.elapsed - *last_render_ < interval) return "";
  last_render_ = view.elapsed;
  std::string out;
  if (options_.is_terminal) {
    // Up to where the block began, then line by line over the old one; \x1b[K clears what a shorter line leaves.
    if (block_lines_ > 0) absl::StrAppend(&out, "\x1b[", block_lines_, "A\r");
    const std::string block = Block(view);
    const int lines_before = block_lines_;
    block_lines_ = static_cast<int>(std::count(block.begin(), block.end(), '\n'));
    out += block;
    if (block_lines_ < lines_before) out += "\x1b[J";  // what a longer block leaves
    if (last) block_lines_ = 0;
  } else {
    out = Line(view);
  }
  if (view.return_sum) {
    returns_.push_back(*view.return_sum);
    if (returns_.size() > kTrendWindow) returns_.erase(returns_.begin());
  }
  return out;
}

std::string ProgressDisplay::Trend(const ProgressView& view) const {
  if (!view.return_sum || returns_.empty()) return "";
  const double change = *view.return_sum - returns_.front();
  return absl::StrFormat(" (%+.2f)", change);
}

std::string ProgressDisplay::Block(const ProgressView& view) const {
  std::vector<std::string> lines;
  std::string bar;
  if (view.target_env_steps > 0) {
    const int full = static_cast<int>(std::lround(Fraction(view) * kBarWidth));
    bar = absl::StrCat("[", std::string(full, '='), std::string(kBarWidth - full, ' '), "] ",
                       absl::StrFormat("%3.0f%%", 100 * Fraction(view)), "  ");
  }
  lines.push_back(absl::StrCat(
      bar, Count(static_cast<double>(view.env_steps)),
      view.target_env_steps > 0 ? absl::StrCat("/", Count(static_cast<double>(view.target_env_steps))) : "",
      " env steps  ", Clock(view.elapsed), Eta(view)));
  lines.push_back(absl::StrCat(Count(view.env_steps_per_s), " env steps/s  return ",
                               view.return_sum ? absl::StrFormat("%.2f", *view.return_sum) : "-", Trend(view),
                               view.return_mean ? absl::StrFormat("  per agent %.2f", *view.return_mean) : ""));
  lines.push_back(absl::StrCat("update ", view.updates, "  ", Losses(view)));
  lines.push_back(absl::StrCat("workers ", view.workers, Failed(view), "  policy lag ",
                               absl::StrFormat("%.1f", view.policy_lag), "  run ", view.run_name));
  for (const std::string& words : view.degraded) lines.push_back(absl::StrCat("DEGRADED: ", words));
  std::string out;
  for (const std::string& line : lines) {
    absl::StrAppend(&out, line.substr(0, static_cast<size_t>(std::max(20, options_.columns - 1))), "\x1b[K\n");
  }
  return out;
}

std::string ProgressDisplay::Line(const ProgressView& view) const {
  return absl::StrCat(
      Clock(view.elapsed), "  ", view.env_steps,
      view.target_env_steps > 0 ? absl::StrFormat("/%d (%.0f%%)", view.target_env_steps, 100 * Fraction(view)) : "",
      " env steps  ", Count(view.env_steps_per_s), "/s  return ",
      view.return_sum ? absl::StrFormat("%.2f", *view.return_sum) : "-", Trend(view), "  ", Losses(view), "  lag ",
      absl::StrFormat("%.1f", view.policy_lag), "  workers ", view.workers, Failed(view), Eta(view),
      view.degraded.empty() ? "" : absl::StrCat("  DEGRADED: ", absl::StrJoin(view.degraded, "; ")), "\n");
}

}  // namespace troupe::telemetry
