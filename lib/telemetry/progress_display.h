#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"

namespace troupe::telemetry {

/// What the display shows at one moment.
struct ProgressView {
  /// Losses by short name, shown in order.
  using Losses = std::vector<std::pair<std::string, double>>;
  /// 100-episode returns of a policy, an agent, or several that have no line of their own.
  struct Returns {
    std::string name;
    std::optional<double> mean;  ///< nullopt: it played in none of them
    double min = 0;
    double max = 0;
    Losses losses = {};
  };

  std::string run_name;
  int64_t env_steps = 0;
  int64_t target_env_steps = 0;  ///< 0: open end
  double fraction = 0;           ///< 0..1, of the way to the limit that comes first; no bar where `has_end` is false
  bool has_end = false;
  std::optional<absl::Duration> left;  ///< until then; nullopt: nobody knows
  int64_t updates = 0;
  double env_steps_per_s = 0;
  absl::Duration elapsed = absl::ZeroDuration();
  std::optional<double> return_sum;  ///< 100-episode mean; nullopt before the first episode ended
  std::optional<double> return_mean;
  std::string best_by;  ///< by which return `best` is; empty: by none
  std::optional<double> best;
  bool by_policy = false;                                  ///< the headline is the policies' returns, not their sum
  std::vector<Returns> policies;                           ///< of several policies, or `by_policy`
  std::vector<Returns> agents;                             ///< where their returns differ
  std::vector<std::pair<std::string, double>> evaluation;  ///< the last one: what of it, and its mean return
  int64_t evaluation_env_steps = 0;
  std::string evaluating;  ///< how far the evaluation is that plays now, in words; empty: none does
  Losses losses;
  std::optional<double> learning_rate;  ///< of the last update
  double policy_lag = 0;
  int workers = 0;
  int64_t failed_episodes = 0;        ///< ended by an error of their environment; not shown while there are none
  int64_t rows_aged = 0;              ///< dropped because they were too old; not shown while no row is dropped
  int64_t rows_let_go = 0;            ///< dropped for other reasons
  std::vector<std::string> degraded;  ///< what does not work at the moment, in words
  std::vector<std::string> notes;     ///< to be said once, from here on
  bool interrupted = false;           ///< others write to the terminal from here on
};

/// Renders progress for people: in a terminal one block that is drawn over itself, elsewhere plain lines, at most one
/// every `line_interval`. Pure text in, text out; the caller writes it. Not thread-safe.
///
/// The block has lines as wide as the terminal at most: what does not fit begins another line. Of a terminal that has
/// become narrower the old block is taken to be wrapped, as terminals do. An interrupted block stays as it is: who
/// interrupted it made the terminal write behind it.
class ProgressDisplay {
 public:
  struct Options {
    bool is_terminal = false;
    bool has_unicode = false;  ///< for curves of returns, which are block characters
    int columns = 80;
    int rows = 0;  ///< of the terminal; a block has fewer lines. 0: nobody knows
    absl::Duration block_interval = absl::Milliseconds(200);
    absl::Duration line_interval = absl::Seconds(5);
  };

  explicit ProgressDisplay(Options options) : options_(options) {}

  /// The terminal has this size now.
  void Resize(int columns, int rows);
  /// Whether Render will write something at `elapsed`.
  bool IsDue(absl::Duration elapsed, bool last) const;
  /// Text to write for `view`; empty when it is not time yet. `last` always writes, and ends the block; a line that it
  /// would only repeat is left out.
  std::string Render(const ProgressView& view, bool last);
  /// The lines of the block that stands once this is written: for base::TerminalBlock.
  const std::vector<std::string>& standing() const { return drawn_; }

 private:
  using Pieces = std::vector<std::string>;

  std::vector<std::string> Block(const ProgressView& view) const;
  std::string Line(const ProgressView& view) const;
  /// Goes up to where the old block began, and clears what would be left of it.
  std::string Back(bool clear) const;
  /// "return -3.20 (+0.10) ▁▂▄▆█".
  std::string ReturnText(const std::string& name, std::optional<double> value) const;
  Pieces Headline(const ProgressView& view) const;
  void Remember(const ProgressView& view);

  Options options_;
  std::optional<absl::Duration> last_render_;
  std::vector<std::string> drawn_;  ///< the block that stands
  bool resized_ = false;            ///< since it was drawn
  bool interrupted_ = false;
  std::string again_;  ///< the last view's line if it were written once more, whose trend is another
  /// Of the last renderings, oldest first, and of the whole run: every `stride`-th rendering.
  struct History {
    std::vector<double> last;
    std::vector<double> all;
    int64_t stride = 1, seen = 0;
  };
  std::map<std::string, History> returns_;  ///< by name, "" for all
};

}  // namespace troupe::telemetry
