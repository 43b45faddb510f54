#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/config/resolved_run.h"
#include "lib/env/registry.h"
#include "lib/learner/learner.h"
#include "lib/learner/tracked_book.h"
#include "lib/learner/trainer.h"
#include "lib/policy/policy_table.h"
#include "lib/rollout/evaluator.h"
#include "lib/rollout/ports.h"
#include "lib/run/evaluation_pool.h"
#include "lib/run/learner/degradations.h"
#include "lib/run/learner/film_loop.h"
#include "lib/run/learner/run_reporter.h"

namespace troupe::run {

/// Evaluates the policies of a learner as they are now, and tells the reporter and the learner what came of it. Made by
/// the learner's process, used on the update thread.
class RunEvaluator {
 public:
  /// Of why an evaluation failed, where that is told.
  static constexpr size_t kMaxErrorChars = 1000;

  /// All of it outlives the evaluator.
  struct Deps {
    const config::ResolvedRun* run = nullptr;  ///< as it began, with the environment of evaluations
    const env::EnvRegistry* registry = nullptr;
    learner::Learner* learner = nullptr;
    learner::Trainer* trainer = nullptr;  ///< the learner's
    RunReporter* reporter = nullptr;
    Degradations* degradations = nullptr;
    FilmLoop* films = nullptr;                    ///< nullptr: no evaluation is filmed
    std::vector<std::string> callbacks = {};      ///< those that are called for episodes
    std::function<bool()> interrupted = nullptr;  ///< whether somebody wants the process to end; may be absent
  };

  explicit RunEvaluator(const Deps& deps) : deps_(deps) {}
  /// Ends an evaluation that was begun.
  ~RunEvaluator();

  /// Makes what plays the episodes, anew if the policies have changed. Errors as EvaluationPool::Create.
  absl::Status Prepare() { return PrepareFor(deps_.learner->Policies()); }
  /// Plays the episodes that `evaluation` of the configuration asks for, with the weights after `env_steps`. Blocks as
  /// long as they take; policies of its episodes are slots of the table. Errors of Prepare, of the trainer, of
  /// EvaluationPool::Run and of PlayWatched.
  absl::StatusOr<rollout::EvaluationResult> Evaluate(int64_t env_steps);

  /// The same without a wait: the weights of now are played by a thread of its own. None may be played already. Errors
  /// are the trainer's.
  absl::Status Begin(int64_t env_steps);
  /// From Begin until TakeEnded gives the result.
  bool is_playing() const { return player_.joinable(); }
  /// The result of the evaluation that was begun, and only now reporter and learner are told; nullopt while it is
  /// played, for which `wait` waits. Errors as Evaluate.
  std::optional<absl::StatusOr<rollout::EvaluationResult>> TakeEnded(bool wait);

  /// As Evaluate with the likeliest actions, or sampled ones, and nobody is told. After Evaluate. FAILED_PRECONDITION
  /// with callbacks of episodes, which would be.
  absl::StatusOr<rollout::EvaluationResult> Play(bool deterministic);
  bool deterministic() const { return deps_.run->evaluation.deterministic; }
  /// CutText of one of its results.
  std::string CutTextOf(const rollout::EvaluationResult& result) const;
  /// The policies of the last evaluation; nullptr before Prepare.
  const policy::PolicyTablePtr& evaluated() const { return evaluated_; }

 private:
  /// An evaluation as it was due.
  struct Order {
    rollout::EvaluationRequest request;
    policy::PolicyTablePtr table;
    std::vector<policy::WeightSnapshotPtr> weights;  ///< in the order of ActiveSlots
    int64_t env_steps = 0;
  };

  absl::StatusOr<Order> MakeOrder(int64_t env_steps) const;
  absl::Status PrepareFor(policy::PolicyTablePtr table);
  absl::StatusOr<rollout::EvaluationResult> PlayOrder(const Order& order);
  void Tell(Order order, const rollout::EvaluationResult& result);
  /// The result for the learner: without policies whose slots are others' by now.
  learner::EpisodeStats StatsForNow(const rollout::EvaluationResult& result) const;
  /// Tells callbacks that are not beside their environments of the episodes; what all of them tracked, by name.
  std::vector<std::pair<std::string, double>> Tracked(const rollout::EvaluationResult& result);
  /// Orders a film of the best episode, where it is time for one.
  void MaybeFilm(Order order, const rollout::EvaluationResult& result);

  const Deps deps_;
  int64_t evaluations_ = 0;           ///< of this learner's life
  bool told_no_end_ = false;          ///< that no episode ends
  policy::PolicyTablePtr evaluated_;  ///< what pool_ was made for
  std::unique_ptr<EvaluationPool> pool_;
  std::vector<policy::PolicySlot> slots_;               ///< of the table, by place among those that pool_ plays
  std::shared_ptr<rollout::EpisodeListener> listener_;  ///< pool_'s; null: nobody is called
  learner::TrackedBook tracked_;
  learner::TrackedBook::Said said_;  ///< by pool_'s
  const std::shared_ptr<std::atomic<bool>> abandoned_ = std::make_shared<std::atomic<bool>>(false);

  // The evaluation that was begun. Its thread has pool_, slots_ and evaluated_ until it has ended.
  Order begun_;
  std::thread player_;
  std::optional<absl::StatusOr<rollout::EvaluationResult>> played_;
  std::atomic<bool> has_played_{false};
  std::atomic<bool> stopped_{false};
  std::atomic<bool> shown_{true};  ///< the display shows how far it is: false while the update thread has the reporter
};

}  // namespace troupe::run
