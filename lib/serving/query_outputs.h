#pragma once

#include <bitset>
#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "lib/policy/policy_fwd.h"

namespace troupe::serving {

/// What an answer may have. Values are places in QueryOutputs.
enum class QueryOutput : size_t {
  kAction = 0,         ///< "action"
  kSampledAction = 1,  ///< "sampled_action": before bounding
  kLogProb = 2,        ///< "log_prob": of the sampled action
  kStateOut = 3,       ///< "state_out", of a policy that remembers
  kLogits = 4,         ///< "logits", of a network with discrete actions
  kMean = 5,           ///< "mean", of a network with continuous ones
  kValue = 6,          ///< "value", where there is a value network
};
inline constexpr size_t kNumQueryOutputs = 7;

/// A set of them. Plain value.
class QueryOutputs {
 public:
  /// What every query gets that names none.
  static QueryOutputs Usual() { return QueryOutputs(0b1111); }

  bool Has(QueryOutput output) const { return set_[static_cast<size_t>(output)]; }
  void Add(QueryOutput output) { set_.set(static_cast<size_t>(output)); }
  QueryOutputs() = default;

 private:
  explicit QueryOutputs(unsigned bits) : set_(bits) {}
  std::bitset<kNumQueryOutputs> set_;
};

/// The names that a policy of `spec` can be asked for, in the order of the enum. `has_values`: also its value network.
std::vector<std::string> OutputNamesOf(const policy::PolicySpec& spec, bool has_values);
/// INVALID_ARGUMENT for a name that is none of these, with those that there are. No names: the usual ones.
absl::StatusOr<QueryOutputs> ParseOutputs(const policy::PolicySpec& spec, bool has_values,
                                          absl::Span<const std::string> names);

/// Elements of a row of logits, and of a mean; 0: the policy gives none.
int64_t LogitsSize(const policy::PolicySpec& spec);
int64_t MeanSize(const policy::PolicySpec& spec);

}  // namespace troupe::serving
