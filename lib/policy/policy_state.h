#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "lib/policy/ids.h"
#include "lib/policy/policy_fwd.h"
#include "lib/policy/state_block.h"

namespace troupe::policy {

/// Running mean and variance (Chan et al. 1983, "Algorithms for computing the sample variance"), element-wise. Plain
/// value.
struct RunningMoments {
  double count = 0;
  std::vector<double> mean;
  std::vector<double> variance;  ///< population variance
};

/// f32 [ParameterLayout::size()]: the flat parameters. Every policy with weights has it.
inline constexpr char kParameters[] = "parameters";
/// f64: `observation_moments.{mean,variance}` [observation_size()] and `observation_moments.count` [1]; there exactly
/// when PolicySpec::normalize_observations.
inline constexpr char kObservationMoments[] = "observation_moments";
/// The same of value targets, one column, where the policy's algorithm normalizes them.
inline constexpr char kValueMoments[] = "value_moments";
/// f64 `state_moments.{mean,variance,count}`, [PolicySpec::critic_state_size()] each; there exactly when
/// PolicySpec::normalize_state. A presence bit has count 0.
inline constexpr char kStateMoments[] = "state_moments";

/// Everything of a policy that lives on, as named blocks: flat parameters, normalizers, and what else its trainer keeps
/// (an optimizer, counters, ...), which only the trainer knows. What is checkpointed, spilled and swapped. Plain value.
struct PolicyState {
  PolicyId id;
  WeightVersion version;
  std::vector<StateBlock> blocks = {};

  /// nullptr when there is none.
  const StateBlock* Find(std::string_view name) const { return FindBlock(blocks, name); }
  /// The block's values; empty when there is none of this name and type.
  const std::vector<float>& Floats(std::string_view name) const { return BlockValues<float>(blocks, name); }
  const std::vector<double>& Doubles(std::string_view name) const { return BlockValues<double>(blocks, name); }
  const std::vector<float>& parameters() const { return Floats(kParameters); }
  /// To change values in place; empty when there is no such block.
  absl::Span<float> MutableFloats(std::string_view name);
  /// The first value of an i64 block; 0 when there is none.
  int64_t Integer(std::string_view name) const;
  /// The blocks `NAME.count`, `NAME.mean` and `NAME.variance`; without values when there are none.
  RunningMoments Moments(std::string_view name) const;

  /// A block of shape [size of values], in the place of the one of its name.
  template <typename T>
  void Set(std::string_view name, std::vector<T> values) {
    const auto size = static_cast<int64_t>(values.size());
    SetBlock(&blocks, {std::string(name), {size}, std::move(values)});
  }
  /// An i64 block of shape [].
  void SetInteger(std::string_view name, int64_t value) {
    SetBlock(&blocks, {std::string(name), {}, std::vector<int64_t>{value}});
  }
  /// An f64 block of shape [].
  void SetNumber(std::string_view name, double value) {
    SetBlock(&blocks, {std::string(name), {}, std::vector<double>{value}});
  }
  /// Moments without values take the blocks out.
  void SetMoments(std::string_view name, RunningMoments moments);
  void Remove(std::string_view name) { RemoveBlock(&blocks, name); }

  /// INVALID_ARGUMENT, with policy and block: another policy's state, what CheckBlocks says, parameters or
  /// observation moments other than `spec` asks for. What the other blocks mean is their trainer's to check.
  absl::Status Validate(const PolicySpec& spec) const;
};

/// What a state of RunningMoments of so many columns has as blocks, for CheckKnownBlocks.
void AddMomentSpecs(std::string_view name, int64_t columns, bool required, std::vector<BlockSpec>* known);

/// Memory that a state takes.
int64_t BytesOf(const PolicyState& state);

}  // namespace troupe::policy
