#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"

namespace troupe::policy {

/// Type of a block's values; the index into StateBlock::values. Values are in files: never renumber.
enum class BlockType : uint8_t {
  kF32 = 0,
  kF64 = 1,
  kI64 = 2,
};

/// A named array that outlives an update: parameters, an optimizer's moments, a normalizer, a target network, a
/// temperature. Row-major; the type is that of the values. Plain value.
struct StateBlock {
  std::string name = {};            ///< "adam.exp_avg"; [a-z0-9_.], unique within its policy or group
  std::vector<int64_t> shape = {};  ///< the product is the number of values; {} is one
  std::variant<std::vector<float>, std::vector<double>, std::vector<int64_t>> values = {};

  BlockType type() const { return static_cast<BlockType>(values.index()); }
  /// Number of values.
  int64_t size() const {
    return std::visit([](const auto& v) { return static_cast<int64_t>(v.size()); }, values);
  }
  /// "f32 [64, 3]"
  std::string Form() const;

  bool operator==(const StateBlock& other) const = default;
};

/// nullptr when there is none.
const StateBlock* FindBlock(const std::vector<StateBlock>& blocks, std::string_view name);

/// The values of the block; empty when there is none of this name and type.
template <typename T>
const std::vector<T>& BlockValues(const std::vector<StateBlock>& blocks, std::string_view name) {
  static const std::vector<T> kNone;
  const StateBlock* const block = FindBlock(blocks, name);
  const auto* const values = block == nullptr ? nullptr : std::get_if<std::vector<T>>(&block->values);
  return values == nullptr ? kNone : *values;
}

/// Puts `block` in the place of the one of its name, or behind the others.
void SetBlock(std::vector<StateBlock>* blocks, StateBlock block);
/// Takes a block out, if there is one.
void RemoveBlock(std::vector<StateBlock>* blocks, std::string_view name);

/// INVALID_ARGUMENT, in words with `owner` (`policy "p"`) and the block's name, for a name that is malformed or there
/// twice, a shape whose product is not the number of values, a number that is not finite, a variance or count
/// (`*.count`) below 0.
absl::Status CheckBlocks(std::string_view owner, const std::vector<StateBlock>& blocks);

/// What whoever imports a state expects of a block.
struct BlockSpec {
  std::string name = {};
  BlockType type = BlockType::kF32;
  std::vector<int64_t> shape = {};
  bool required = true;
};
/// INVALID_ARGUMENT, in words as above, for a block that is not in `known`, one of another type or shape, and a
/// required one that is missing.
absl::Status CheckKnownBlocks(std::string_view owner, const std::vector<StateBlock>& blocks,
                              const std::vector<BlockSpec>& known);

}  // namespace troupe::policy
