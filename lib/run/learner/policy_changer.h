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
#include "lib/policy/weight_snapshot.h"
#include "lib/run/learner/control_handler.h"
#include "lib/run/learner/policy_changes.h"

namespace troupe::run {

/// Makes the changes of the policies that were asked for, one after another in the order they came, between two
/// updates. What a change wants from a checkpoint is read by a thread of its own, because a disk may take as long as it
/// likes and training must not wait for it; the changes behind it wait. Made by PolicyDesk; used on the update
/// thread, and never blocks but for kLastWait at its end.
///
/// A checkpoint that is not read within `timeout` is given up. Its thread cannot be ended and is left behind;
/// with kMaxAbandoned of them nothing more is read until one returns.
class PolicyChanger {
 public:
  using Request = ControlHandler::ChangeRequest;
  static constexpr int kMaxAbandoned = 4;
  static constexpr absl::Duration kLastWait = absl::Seconds(1);

  struct Deps {
    /// What must be read first; on the update thread.
    std::function<absl::StatusOr<std::optional<PolicyImport>>(const policy::PolicyChange&)> import_of;
    /// Reads it, on a thread of its own, which may outlive the changer.
    std::function<absl::StatusOr<policy::PolicyState>(const PolicyImport&)> load;
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
  struct Reading;

  void Begin(PolicyImport import);
  /// nullopt: it is still being read.
  std::optional<absl::StatusOr<policy::PolicyState>> TakeResult();
  void Abandon();
  void Answer(const absl::StatusOr<int64_t>& revision);

  const Deps deps_;
  std::deque<Request> waiting_;       // the first one is worked on
  std::shared_ptr<Reading> reading_;  // for the first one
  absl::Duration begun_;
  std::vector<std::shared_ptr<Reading>> abandoned_;
};

}  // namespace troupe::run
