#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "lib/base/mutex.h"
#include "lib/inference/action_bounds.h"
#include "lib/inference/actor.h"
#include "lib/inference/policy_actor.h"
#include "lib/policy/policy_spec.h"
#include "lib/policy/weight_snapshot.h"
#include "lib/serving/action_query.h"
#include "lib/space/space.h"

namespace troupe::serving {

/// Answers queries on the caller's thread, with the newest weights it was given (policies of a class without weights
/// need none, and answer with version (0, 0)): an actor a policy, made at the policy's first query. Made and owned by a
/// service. Thread-safe; a query waits for others of the same policy while they compute, SetWeights for nothing but
/// another SetWeights of that policy.
///
/// Invariants: 1. all rows of a QueryRows are computed with one version, the newest when its turn came; 2. versions
/// only grow; 3. a query that fails changes nothing; 4. no two sampled queries share random numbers.
///
/// Randomness: samples are drawn from Philox, whose key is of `seed` and the streams kQuery and kAction, never that of
/// the run's rollouts; the counter is (request's ordinal, high and low word; agent slot; row of the request). Each
/// sampled request takes the next ordinal, from `first_request` on: the same seed and order of requests give the same
/// actions.
///
/// Capacity: kMaxQueryRows and kMaxAnswerBytes. Memory: the newest snapshot of every policy, and for each that was
/// asked for its packed weights and room for the largest query.
class QueryEngine final : public ActionQueries {
 public:
  struct Options {
    uint64_t seed = 1;
    uint64_t first_request = 0;  ///< ordinal of the first sampled request: a process that takes over skips those before
    inference::Backend backend = inference::Backend::kAuto;
  };

  /// INVALID_ARGUMENT: a spec is invalid or two have one id.
  static absl::StatusOr<std::unique_ptr<QueryEngine>> Create(absl::Span<const policy::PolicySpec> specs,
                                                             Options options);

  /// Weights for the policy of their id, from its next turn on; ignored when not newer than what there is. NOT_FOUND
  /// for an unknown policy, INVALID_ARGUMENT when they do not fit; the old ones stay then.
  absl::Status SetWeights(policy::WeightSnapshotPtr weights);

  /// As ComputeActions, by return.
  absl::StatusOr<ActionAnswer> Compute(const ActionQuery& query);
  void ComputeActions(const ActionQuery& query, Done done) override { done(Compute(query)); }

 private:
  struct Policy {
    explicit Policy(const policy::PolicySpec& spec_in);

    const policy::PolicySpec spec;
    const std::vector<space::ActionLeaf> leaves;
    const std::vector<tensor::DType> word_dtypes;
    const inference::ActionBounds bounds;
    base::Mutex weights_mutex;  ///< never held while something is computed; taken after `mutex`
    policy::WeightSnapshotPtr newest ABSL_GUARDED_BY(weights_mutex);
    base::Mutex mutex;
    std::unique_ptr<inference::PolicyActor> actor ABSL_GUARDED_BY(mutex);
    policy::WeightSnapshotPtr acting ABSL_GUARDED_BY(mutex);  ///< what the actor was given last
  };

  explicit QueryEngine(const Options& options);

  absl::StatusOr<Policy*> Find(const policy::PolicyId& id) const;
  /// What Compute needs of each QueryRows, or why the query is refused.
  absl::StatusOr<std::vector<Policy*>> Check(const ActionQuery& query) const;
  /// `first_row`: of these rows in the request.
  absl::StatusOr<PolicyActions> Act(Policy& policy, const QueryRows& rows, uint64_t request, int64_t first_row,
                                    bool deterministic) const;

  const Options options_;
  const uint64_t actor_seed_;
  std::map<std::string, std::unique_ptr<Policy>> policies_;  ///< by id; filled by Create, then constant
  std::atomic<uint64_t> next_request_;                       ///< relaxed: a number, it orders nothing
};

}  // namespace troupe::serving
