#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include <grpcpp/security/credentials.h>

// The installed C++ client of policy servers (`troupe serve`) and learners. This header stands alone: it needs Abseil
// and gRPC, and nothing else of Troupe.

namespace troupe {

/// What a policy remembers of agents, to be brought again with their next decisions. Plain value.
struct PolicyState {
  std::vector<float> values;  ///< [rows, state size]; empty: nothing
  uint64_t tag = 0;           ///< which policy and network it is of; another one refuses it
};

/// Which weights: ordered by learner epoch, then by updates. Plain value.
struct PolicyVersion {
  uint64_t learner_epoch = 0;
  int64_t updates = 0;
};

/// Rows for one policy to act on. Plain value.
struct PolicyRows {
  std::string policy_id;               ///< empty: the one policy that plays agent_ids
  std::vector<std::string> agent_ids;  ///< one for all rows, or [rows]; empty: agents are not named
  int64_t rows = 1;
  std::vector<float> obs;            ///< [rows, obs size]; of policies with other observations than a uint8 Box
  std::vector<uint8_t> byte_obs;     ///< [rows, obs size]; of a uint8 Box
  std::vector<uint8_t> action_mask;  ///< [rows, mask size] of 0 and 1; empty: everything is allowed
  std::vector<int32_t> agent_slots;  ///< [rows], in the place of agent_ids; empty: none
  PolicyState state;                 ///< of the agents' decisions before; empty: each row is its agent's first
  std::string version;               ///< "" or "latest", "best", another label, or a number of updates
  PolicyVersion min_version;         ///< at least so new
};

/// One question, maybe to several policies. Plain value.
struct PolicyQuery {
  std::vector<PolicyRows> policies;
  bool deterministic = false;    ///< the most probable action instead of a sample
  std::optional<uint64_t> seed;  ///< of the samples: the same one has the same answer; none: the server's own
  std::vector<std::string>
      outputs;  ///< by name what the answer has; empty: action, sampled_action, log_prob, state_out
};

/// 4 bytes of an action.
union ActionWord {
  int32_t i32;
  float f32;
};

/// What one policy does. Arrays that were not asked for are empty. Plain value.
struct PolicyActions {
  std::string policy_id;
  PolicyVersion version;  ///< of the weights of all rows
  int64_t rows = 0;
  std::vector<bool> is_float;               ///< [words]: f32 or i32 of each word of an action
  std::vector<ActionWord> actions;          ///< [rows, words], as an environment gets them
  std::vector<ActionWord> sampled_actions;  ///< [rows, words], before they are clipped or scaled
  std::vector<float> log_prob;              ///< [rows], nats, of sampled_actions
  PolicyState state;                        ///< for the same agents' next decisions
  std::vector<float> logits;                ///< [rows, logits size]
  std::vector<float> mean;                  ///< [rows, mean size]
  std::vector<float> values;                ///< [rows], of the critic, in the units of rewards
};

/// What there is to ask. Plain value.
struct PolicyDescription {
  std::string policy_id;
  PolicyVersion version;  ///< of the newest weights; (0, 0): none, or none were read yet
  std::string observation_space, action_space, network;
  bool has_byte_obs = false;
  int64_t obs_size = 0, mask_size = 0, state_size = 0, logits_size = 0, mean_size = 0;
  bool needs_agents = false;                                    ///< each row names its agent, by id or slot
  std::vector<std::string> agents;                              ///< ids of those that may play it
  std::vector<std::string> outputs;                             ///< what PolicyQuery::outputs may name
  std::vector<std::pair<std::string, PolicyVersion>> versions;  ///< beside the newest, by label
};

/// A stream of queries to one of a client's servers, an answer after each: for who asks again and again, in about two
/// thirds of the time of calls. When its server is gone it goes on at the next one. Made by PolicyClient, which
/// outlives it. Used by one thread at a time.
class PolicyStream {
 public:
  virtual ~PolicyStream() = default;
  /// As PolicyClient's.
  virtual absl::StatusOr<std::vector<PolicyActions>> ComputeActions(const PolicyQuery& query) = 0;
};

/// Asks one or more policy servers, or learners, what policies do: in turns, and another one where one is not there.
/// Keeps a connection to each. Thread-safe; calls block up to Options::timeout. A query changes nothing, so that it may
/// be asked again.
class PolicyClient {
 public:
  struct Options {
    absl::Duration timeout = absl::Seconds(10);  ///< of a call, its tries together
    int retries = 2;                             ///< tries beyond the first, after UNAVAILABLE
    /// Of the connection; nullptr: plain text, which is neither encrypted nor authenticated.
    std::shared_ptr<grpc::ChannelCredentials> credentials = nullptr;
    bool insecure_plaintext_network = false;  ///< plain text to other machines, too
    bool use_http_proxy = false;  ///< through the proxy that the environment names (http_proxy), ignored otherwise
    std::vector<std::pair<std::string, std::string>> metadata = {};  ///< with every call
  };

  /// Connects with the first call. `addresses`: unix:PATH, unix-abstract:NAME or HOST:PORT each. INVALID_ARGUMENT:
  /// none, one of another form, or an option out of range; FAILED_PRECONDITION: plain text to another machine without
  /// its option.
  static absl::StatusOr<std::unique_ptr<PolicyClient>> Create(std::vector<std::string> addresses, Options options);
  static absl::StatusOr<std::unique_ptr<PolicyClient>> Create(std::vector<std::string> addresses) {
    return Create(std::move(addresses), Options());
  }
  virtual ~PolicyClient() = default;

  /// An answer for each of the query's rows, in its order; all or none. INVALID_ARGUMENT malformed (shape, dtype, mask,
  /// agent, state), NOT_FOUND unknown policy or version, RESOURCE_EXHAUSTED above a limit, FAILED_PRECONDITION a label
  /// that is older than min_version, UNAVAILABLE nobody is there, or has such weights yet, DEADLINE_EXCEEDED, INTERNAL
  /// an answer that makes no sense. Messages begin with the server's address.
  virtual absl::StatusOr<std::vector<PolicyActions>> ComputeActions(const PolicyQuery& query) = 0;
  /// The policies `ids`, or all. Errors as above.
  virtual absl::StatusOr<std::vector<PolicyDescription>> DescribePolicies(const std::vector<std::string>& ids) = 0;
  /// Connects with its first query.
  virtual std::unique_ptr<PolicyStream> OpenStream() = 0;
};

}  // namespace troupe
