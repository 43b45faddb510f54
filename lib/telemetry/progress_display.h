#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"

namespace troupe::telemetry {

/// What the display shows at one moment.
struct ProgressView {
  std::string run_name;
  int64_t env_steps = 0;
  int64_t target_env_steps = 0;  ///< 0: open end, no bar and no ETA
  int64_t updates = 0;
  double env_steps_per_s = 0;
  absl::Duration elapsed = absl::ZeroDuration();
  std::optional<double> return_sum;  ///< 100-episode mean; nullopt before the first episode ended
  std::optional<double> return_mean;
  std::vector<std::pair<std::string, double>> losses;  ///< short names, shown in order
  double policy_lag = 0;
  int workers = 0;
  int64_t failed_episodes = 0;        ///< ended by an error of their environment; not shown while there are none
  std::vector<std::string> degraded;  ///< what does not work at the moment, in words
};

/// Renders progress for people: in a terminal one block that is drawn over itself, elsewhere plain lines, at most one
/// every `line_interval`. Pure text in, text out; the caller writes it. Not thread-safe.
class ProgressDisplay {
 public:
  struct Options {
    bool is_terminal = false;
    int columns = 80;
    absl::Duration block_interval = absl::Milliseconds(200);
    absl::Duration line_interval = absl::Seconds(5);
  };

  explicit ProgressDisplay(Options options) : options_(options) {}

  /// What to write for `view`; empty when it is not time yet. `last` always writes, and ends the block.
  std::string Render(const ProgressView& view, bool last);

 private:
  std::string Block(const ProgressView& view) const;
  std::string Line(const ProgressView& view) const;
  /// "+1.3", "-0.2" against the return about ten renderings ago; empty without one.
  std::string Trend(const ProgressView& view) const;

  const Options options_;
  std::optional<absl::Duration> last_render_;
  int block_lines_ = 0;
  std::vector<double> returns_;  ///< of the last renderings, oldest first, at most kTrendWindow
};

}  // namespace troupe::telemetry
