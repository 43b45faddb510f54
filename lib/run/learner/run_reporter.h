#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "lib/base/clock.h"
#include "lib/base/metric_sink.h"
#include "lib/base/process_memory.h"
#include "lib/config/resolved_run.h"
#include "lib/learner/learner_options.h"
#include "lib/learner/named_values.h"
#include "lib/learner/progress.h"
#include "lib/policy/policy_change.h"
#include "lib/policy/policy_table.h"
#include "lib/rollout/evaluator.h"
#include "lib/rpc/door/door_counts.h"
#include "lib/run/learner/degradations.h"
#include "lib/run/learner/film_loop.h"
#include "lib/run/watched_evaluation.h"
#include "lib/telemetry/json_lines_writer.h"
#include "lib/telemetry/progress_display.h"
#include "lib/telemetry/tensorboard_writer.h"

namespace troupe::run {

/// What a run tells: TensorBoard events and progress.jsonl every `experiment.write_interval` env steps (and, where that
/// is auto, after 5 s at the latest), and the display on stdout at each update. What of it has a policy's or an agent's
/// name is NamedValues'. What cannot be written waits for room; `degradations` says so meanwhile, and the display shows
/// all that it says. Confined to the update thread.
///
/// The line of an update is held until Settle, so that it also has what belongs to the update and comes after it: its
/// evaluation, and what callbacks track.
class RunReporter final : public base::MetricSink, public learner::ProgressListener {
 public:
  /// What it works with; outlives it.
  struct Deps {
    Degradations* degradations = nullptr;
    const base::Clock* clock = &base::Clock::Real();
    std::function<bool()> interrupted = nullptr;  ///< whether a signal asks for the end, for the display; may be absent
    /// What callbacks tracked since it was last asked, for the next line; may be absent.
    std::function<std::vector<learner::NamedValue>()> tracked = nullptr;
    /// Films that were made since it was last asked, for TensorBoard; may be absent.
    std::function<std::vector<Film>()> films = nullptr;
    const rpc::DoorCounts* door = nullptr;  ///< of the run's addresses; may be absent
  };

  /// `resumed_env_steps`: lines of progress.jsonl behind it were rolled back and are cut.
  static absl::StatusOr<std::unique_ptr<RunReporter>> Open(const config::ResolvedRun& run, const std::string& run_name,
                                                           const std::string& directory, int64_t resumed_env_steps,
                                                           Deps deps);

  // base::MetricSink: the learner's metrics of one update, before its OnProgress.
  void Scalar(std::string_view tag, double value, int64_t env_steps) override;
  void Flush() override;
  // learner::ProgressListener
  void OnProgress(const learner::ProgressRecord& record) override;

  /// An evaluation of the weights after `env_steps`, which are those of the last update, played by the policies of
  /// `table`. It goes to TensorBoard at once and into the held line. If the update's line is written already, or none
  /// is due, it gets a line of its own, which has the update's values again.
  /// `tracked`: by callbacks of its episodes, by name.
  void OnEvaluation(const rollout::EvaluationResult& evaluation, const policy::PolicyTable& table, int64_t env_steps,
                    const std::vector<std::pair<std::string, double>>& tracked = {});
  /// A policy trains otherwise from the next update on. The line of the last one says so; if it is written already, it
  /// is written again.
  void OnSettings(const policy::SetPolicy& set);
  /// An evaluation plays: for the display. On the update thread, often.
  void OnEvaluating(const EvaluationProgress& progress);
  /// Writes the line that is held, if one is.
  void Settle();
  /// The last line and the last state of the display. The line is left out if the last update has one already and
  /// there was no evaluation, and nothing new from callbacks, since then.
  void Finish();
  /// The last evaluation by the names that all outputs use (NamedValues::OfEvaluation); empty before the first.
  const std::vector<std::pair<std::string, double>>& evaluation_values() const { return evaluation_.values; }

  const std::optional<learner::ProgressRecord>& last() const { return last_; }
  const learner::NamedValues& names() const { return names_; }

 private:
  /// To count what the allocator has handed out it looks at each free piece, of which there are thousands.
  static constexpr absl::Duration kMemoryInterval = absl::Seconds(1);

  RunReporter(const config::ResolvedRun& run, std::string run_name, Deps deps);
  /// Of the update that ends at `env_steps`: whether a multiple of the interval lies behind the last written line, or
  /// that line was written long ago.
  bool IsDue(int64_t env_steps);
  void WriteLine(const learner::ProgressRecord& record);
  /// Asks callbacks what they tracked. Whether there is something that no line has.
  bool TakeTracked();
  /// The process's, at most kMemoryInterval old.
  const base::ProcessMemory& Memory();
  /// Takes the films that were made.
  void TellFilms();
  /// Tries again to write what waits, and notes what cannot be written.
  void FlushAll();
  /// `evaluating`: the evaluation that plays now; nullptr: none does.
  void Display(const learner::ProgressRecord& record, bool last, const EvaluationProgress* evaluating = nullptr);
  telemetry::ProgressView View(const learner::ProgressRecord& record) const;

  const std::string run_name_;
  const int64_t interval_env_steps_;
  const absl::Duration longest_pause_;
  const learner::StopOptions stop_;
  const Deps deps_;
  std::unique_ptr<telemetry::TensorBoardWriter> tensorboard_;
  std::unique_ptr<telemetry::JsonLinesWriter> lines_;
  telemetry::ProgressDisplay display_;
  learner::NamedValues names_;
  base::ProcessMemory memory_;
  absl::Duration memory_at_ = -absl::InfiniteDuration();
  int64_t written_env_steps_ = 0;
  absl::Duration written_at_;
  int64_t decided_env_steps_ = -1;  ///< IsDue's last question, and its answer
  bool due_ = false;
  std::optional<learner::ProgressRecord> last_;
  bool last_written_ = true;
  bool held_ = false;                         ///< a line of last_ is to be written
  std::vector<learner::NamedValue> tracked_;  ///< by callbacks, for the next line
  std::vector<std::string> settings_;         ///< "POLICY algorithm.KEY=VALUE", for the next line
  double callback_errors_ = 0;                ///< as the last line has them
  /// The last evaluation.
  struct Evaluation {
    std::vector<std::pair<std::string, double>> values;  ///< as lines have it
    std::vector<std::pair<std::string, double>> shown;   ///< as the display does
    int64_t env_steps = 0;
    bool is_new = false;  ///< no line has it yet
  };
  Evaluation evaluation_;
  bool told_no_best_ = false;
};

}  // namespace troupe::run
