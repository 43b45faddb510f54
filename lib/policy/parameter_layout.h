#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lib/policy/policy_spec.h"

namespace troupe::policy {

/// One named tensor inside a policy's flat parameters. `offset` and `count` are in float32 elements.
struct ParameterEntry {
  std::string name;            ///< "actor.0.weight", "actor.0.bias", ..., "actor.log_std", "critic.0.weight", ...
  std::vector<int64_t> shape;  ///< weights [out, in] row-major as torch.nn.Linear, biases [out]
  int64_t offset = 0;
  int64_t count = 0;
};

/// How a policy's trained parameters lie in one contiguous float32 buffer. The actor (with log_std) is a prefix, the
/// critic follows; every entry starts at a multiple of 16 elements (64 bytes), gaps are zero and stay zero. Immutable;
/// thread-safe.
class ParameterLayout {
 public:
  /// actor.<i>.{weight,bias} for each layer, actor.log_std when log_std_size() > 0, critic.<i>.{weight,bias}. Nothing
  /// for a class without weights.
  static ParameterLayout For(const PolicySpec& spec);

  const std::vector<ParameterEntry>& entries() const& { return entries_; }
  /// Entries of a temporary would be gone before the loop over them begins.
  const std::vector<ParameterEntry>& entries() && = delete;
  /// nullptr when there is none.
  const ParameterEntry* Find(std::string_view name) const;
  int64_t actor_size() const { return actor_size_; }  ///< elements of the prefix that workers need
  int64_t size() const { return size_; }              ///< elements in all

 private:
  std::vector<ParameterEntry> entries_;
  int64_t actor_size_ = 0;
  int64_t size_ = 0;
};

/// The first tensor that policies of the two specs do not share: `tensor "ID/actor.0.weight" has shape [64, 21],
/// expected [64, 18]`, ID that of `got`; empty: their weights have the same shapes.
std::string FirstShapeDifference(const PolicySpec& got, const PolicySpec& expected);

}  // namespace troupe::policy
