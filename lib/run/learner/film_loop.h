#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "lib/base/mutex.h"
#include "lib/config/resolved_run.h"
#include "lib/env/registry.h"
#include "lib/policy/weight_snapshot.h"
#include "lib/rollout/evaluator.h"
#include "lib/run/episode_video.h"
#include "lib/run/evaluation.h"
#include "lib/run/learner/degradations.h"

namespace troupe::run {

/// An episode of an evaluation that is to be filmed.
struct FilmOrder {
  config::ResolvedRun run;  ///< with the policies that play
  rollout::EvaluationRequest request;
  int64_t episode = 0;  ///< of the request
  int64_t length = 0;   ///< its env steps
  std::vector<policy::WeightSnapshotPtr> weights;
  EpisodeNames names;
  int64_t env_steps = 0;                         ///< that the weights were trained on
  const std::atomic<bool>* cancelled = nullptr;  ///< the loop's, VideoOptions::cancelled
};

/// A film that was made, as a GIF.
struct Film {
  int64_t env_steps = 0;
  int width = 0, height = 0;
  std::string gif;
};

/// Films episodes of a run's evaluations in a thread of its own, with less priority than those that train: training
/// never waits for it. One film at a time; of orders that come meanwhile the newest is filmed next, so that what is
/// held are two orders, and the films that nobody has taken. Writes FOLDER/<env steps>.gif, whole or not at all, and
/// removes the oldest beyond kMostKept. Where a film fails `degradations` says why, until one succeeds. Thread-safe.
/// States: running -> stopped (Stop: an order that waits is dropped, the film in hand ends
/// at its next env step; AwaitIdle before it waits for both).
class FilmLoop {
 public:
  /// For the last film at a run's end: so long it is waited for before Stop.
  static constexpr absl::Duration kPatience = absl::Seconds(20);
  static constexpr size_t kMostKept = 100;
  static constexpr size_t kMostUntaken = 4;  ///< films; of more the oldest are let go: their files are there
  static constexpr int kSize = 280;          ///< pixels of a side, without the captions
  static constexpr int64_t kMostFrames = 200;
  static constexpr int64_t kMostBytes = int64_t{4} << 20;  ///< of a film; TensorBoard's file waits for 8 MiB at most

  using Shoot = std::function<absl::StatusOr<EpisodeVideo>(const FilmOrder& order)>;

  /// `folder`: made when the first film is there. `degradations` outlives the loop.
  FilmLoop(std::string folder, Shoot shoot, Degradations* degradations)
      : folder_(std::move(folder)), shoot_(std::move(shoot)), degradations_(degradations) {}

  /// Takes the place of one that waits; false: stopped. Never blocks.
  bool Order(FilmOrder order);
  /// The films since it was last asked, in their order.
  std::vector<Film> TakeFilms();
  /// Waits until nothing is being filmed: false after `timeout`.
  bool AwaitIdle(absl::Duration timeout);
  /// The thread's body: films until Stop.
  void Run();
  /// Waits for an order and films it; false when stopped and none is left.
  bool Step();
  void Stop();

 private:
  absl::StatusOr<Film> Make(const FilmOrder& order);
  absl::Status Write(const Film& film);
  void RemoveOldest();

  const std::string folder_;
  const Shoot shoot_;
  Degradations* const degradations_;
  base::Mutex mutex_;
  base::CondVar changed_;
  std::optional<FilmOrder> order_ ABSL_GUARDED_BY(mutex_);
  bool filming_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::atomic<bool> cancelled_{false};  ///< stopped, for the film in hand
  std::vector<Film> films_ ABSL_GUARDED_BY(mutex_);
};

/// Plays the order's episode once more in an environment of its own, made to be drawn, and films it; again with fewer
/// pictures where it had more than kMostBytes. Errors as FilmEpisode. `registry` outlives what is returned.
FilmLoop::Shoot ShootWith(const env::EnvRegistry* registry);

}  // namespace troupe::run
