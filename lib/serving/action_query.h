#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "lib/base/caller.h"
#include "lib/policy/ids.h"
#include "lib/serving/policy_description.h"
#include "lib/space/space.h"
#include "lib/tensor/dtype.h"

namespace troupe::serving {

/// Rows of a query, all policies together; more are RESOURCE_EXHAUSTED.
constexpr int64_t kMaxQueryRows = 1024;
/// Bytes of an answer's arrays; more are RESOURCE_EXHAUSTED.
constexpr int64_t kMaxAnswerBytes = int64_t{4} << 20;

/// Rows for one policy to act on. Borrows its arrays, which come from outside: nothing in it was checked.
struct QueryRows {
  policy::PolicyId policy_id;
  int64_t rows = 0;
  tensor::DType obs_dtype = tensor::DType::kUnspecified;
  absl::Span<const std::byte> obs;        ///< [rows, observation_size] of obs_dtype, aligned to 4 bytes
  absl::Span<const uint8_t> action_mask;  ///< [rows, mask_size], 1 = allowed; empty: everything is
  absl::Span<const int32_t> agent_slots;  ///< [rows]; empty for policies without an agent-id one-hot
  /// [rows, actor_state_size] float32, aligned to 4 bytes: PolicyActions::state_out of each agent's decision before.
  /// Empty: each row is the first decision of its agent, or the policy's actor remembers nothing.
  absl::Span<const std::byte> state_in;
  uint64_t state_tag = 0;  ///< PolicyActions::state_tag of where state_in comes from; 0: unchecked
  /// "" or "latest": the newest weights; a label; or the number of updates that one of these has.
  std::string version = {};
  policy::WeightVersion min_version = {};   ///< (0, 0): any
  std::vector<std::string> agent_ids = {};  ///< one for all or [rows], in the place of agent_slots
};

/// One question, maybe to several policies. Plain value.
struct ActionQuery {
  std::vector<QueryRows> policies;
  bool deterministic = false;             ///< the distribution's mode instead of a sample
  base::Caller caller = {};               ///< who asks
  std::optional<uint64_t> seed = {};      ///< of the samples; none: the server's next
  std::vector<std::string> outputs = {};  ///< by name, see query_outputs.h; empty: those of every query
};

/// What one policy does. Plain value.
struct PolicyActions {
  policy::PolicyId policy_id;
  policy::WeightVersion version;  ///< of the weights of all rows
  int64_t rows = 0;
  std::vector<tensor::DType> word_dtypes;          ///< [action_words]: int32 or float32
  std::vector<space::ActionWord> actions;          ///< [rows, action_words], as the environment gets them
  std::vector<space::ActionWord> sampled_actions;  ///< [rows, action_words], before bounding, as training records them
  std::vector<float> logp;                         ///< [rows], nats, of the sampled actions
  /// [rows, actor_state_size]: what the policy remembers of each row's agent from now on; empty where it remembers
  /// nothing. Nobody here keeps it.
  std::vector<float> state_out;
  uint64_t state_tag = 0;     ///< of the policy and network that state_out is of; 0 where it remembers nothing
  std::vector<float> logits;  ///< [rows, logits size], where asked for
  std::vector<float> mean;    ///< [rows, mean size], where asked for
  std::vector<float> values;  ///< [rows], in the units of rewards, where asked for
};
/// By QueryRows of the query.
using ActionAnswer = std::vector<PolicyActions>;

/// Who answers queries: the engine itself, or later one that gathers the rows of several queries first. Thread-safe.
class ActionQueries {
 public:
  using Done = std::function<void(absl::StatusOr<ActionAnswer>)>;
  /// For who wants the answer no more: what was not begun of the query is not done, and it is answered CANCELLED:
  /// before this returns, or where a part of it is being computed in this process, when that is through. May be called
  /// at any time, also after the answer, as long as the ActionQueries live.
  using GiveUp = std::function<void()>;

  virtual ~ActionQueries() = default;
  /// Calls `done` once, from any thread, maybe before it returns. `query` and what it borrows live until then. All
  /// policies are answered or none: INVALID_ARGUMENT malformed, NOT_FOUND unknown policy, RESOURCE_EXHAUSTED above a
  /// limit, UNAVAILABLE no weights yet or none as new as min_version, FAILED_PRECONDITION a label or number is older
  /// than that, DATA_LOSS weights that are lost, INTERNAL the network's output is not finite. Never blocks on a policy
  /// in another process. nullptr: there is nothing to give up, it is answered.
  virtual GiveUp ComputeActions(const ActionQuery& query, Done done) = 0;

  /// What there is to ask: the policies `ids`, or all of them where that is empty. By return. INVALID_ARGUMENT a
  /// malformed id, NOT_FOUND unknown policy, RESOURCE_EXHAUSTED more than kMaxQueryRows ids or kMaxDescriptionBytes.
  virtual absl::StatusOr<PolicyDescriptions> DescribePolicies(const std::vector<policy::PolicyId>& ids) = 0;
  /// All of them by id: of each description id, version and versions alone.
  virtual PolicyDescriptions ListPolicies() = 0;
};

}  // namespace troupe::serving
