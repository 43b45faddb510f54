#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "lib/base/clock.h"
#include "lib/policy/policy_change.h"
#include "lib/policy/policy_state.h"
#include "lib/policy/weight_snapshot.h"
#include "lib/run/learner/control_handler.h"

namespace troupe::run {

/// Makes the changes of the policies that were asked for, one after another in the order they came, between two
/// updates. What a change needs before (a checkpoint read, a policy in Python tried) a thread of its own does, because
/// disks and Python take as long as they like and training must not wait for them; the changes behind it wait. Made by
/// PolicyDesk; used on the update thread, and never blocks but for kLastWait where it gives a preparation up.
///
/// A preparation that is not over within `timeout` is given up. A thread that then does not end within kLastWait is
/// left behind; with kMaxAbandoned of them nothing more is prepared until one returns.
class PolicyChanger {
 public:
  using Request = ControlHandler::ChangeRequest;
  static constexpr int kMaxAbandoned = 4;
  static constexpr absl::Duration kLastWait = absl::Seconds(1);

  /// What comes before a change; `run` empty: nothing.
  struct Preparation {
    /// On a thread of its own, which may outlive the changer. The state of the policy to import, or nullopt.
    std::function<absl::StatusOr<std::optional<policy::PolicyState>>()> run;
    std::function<void()> stop;  ///< has `run` end soon; from any thread; empty: nothing can
  };
  struct Deps {
    /// On the update thread. An error: the change cannot be, whatever a preparation brings.
    std::function<absl::StatusOr<Preparation>(const policy::PolicyChange&)> prepare;
    /// Makes a change, whole or not at all; the new revision. On the update thread.
    std::function<absl::StatusOr<int64_t>(const policy::PolicyChange&, const policy::PolicyState* imported)> make;
    const base::Clock* clock = nullptr;
    absl::Duration timeout = absl::Seconds(60);
  };

  explicit PolicyChanger(Deps deps) : deps_(std::move(deps)) {}
  ~PolicyChanger();
  PolicyChanger(const PolicyChanger&) = delete;
  PolicyChanger& operator=(const PolicyChanger&) = delete;

  /// Whether there is room for more: what was added before has been answered.
  bool idle() const { return waiting_.empty(); }
  void Add(std::vector<Request> requests);
  /// Answers whom it can, in order.
  void Step();
  /// Answers all that wait with `status`.
  void RefuseAll(const absl::Status& status);

 private:
  using Prepared = absl::StatusOr<std::optional<policy::PolicyState>>;
  struct Running;

  void Begin(Preparation preparation);
  /// nullopt: it still runs.
  std::optional<Prepared> TakeResult();
  void GiveUp(absl::Duration last_wait);
  void Answer(const absl::StatusOr<int64_t>& revision);

  const Deps deps_;
  std::deque<Request> waiting_;       // the first one is worked on
  std::shared_ptr<Running> running_;  // for the first one
  absl::Duration begun_;
  std::vector<std::shared_ptr<Running>> abandoned_;
};

}  // namespace troupe::run
