#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/types/span.h"
#include "lib/policy/state_block.h"

namespace troupe::training {

/// Writes the blocks of a state one behind another, no two of one name, into the memory of those that stood there: a
/// state that is written again allocates nothing. When the writer goes, blocks behind the last one go, too. Made on the
/// stack by who knows the blocks; not thread-safe.
class BlockWriter {
 public:
  explicit BlockWriter(std::vector<policy::StateBlock>* blocks) : blocks_(*blocks) { blocks_.reserve(kMostBlocks); }
  BlockWriter(const BlockWriter&) = delete;
  BlockWriter& operator=(const BlockWriter&) = delete;
  ~BlockWriter() { blocks_.resize(next_); }

  /// Shape [size of values].
  template <typename T>
  void Array(std::string_view name, absl::Span<const T> values) {
    policy::StateBlock& block = Next(name);
    block.shape.assign(1, static_cast<int64_t>(values.size()));
    ValuesOf<T>(&block).assign(values.begin(), values.end());
  }
  /// Shape [].
  template <typename T>
  void Scalar(std::string_view name, T value) {
    policy::StateBlock& block = Next(name);
    block.shape.clear();
    ValuesOf<T>(&block).assign(1, value);
  }
  /// `NAME.mean`, `NAME.variance` and `NAME.count`; nothing of moments without values.
  void Moments(std::string_view name, absl::Span<const double> mean, absl::Span<const double> variance,
               absl::Span<const double> count) {
    if (mean.empty()) return;
    Array(Part(name, ".mean"), mean);
    Array(Part(name, ".variance"), variance);
    Array(Part(name, ".count"), count);
  }

 private:
  /// About as many as a PolicyStore writes; more are only slower.
  static constexpr size_t kMostBlocks = 20;

  policy::StateBlock& Next(std::string_view name) {
    if (next_ == blocks_.size()) blocks_.emplace_back();
    policy::StateBlock& block = blocks_[next_++];
    block.name = name;
    return block;
  }
  template <typename T>
  static std::vector<T>& ValuesOf(policy::StateBlock* block) {
    auto* const values = std::get_if<std::vector<T>>(&block->values);
    return values != nullptr ? *values : block->values.emplace<std::vector<T>>();
  }
  /// Until the next call.
  std::string_view Part(std::string_view name, std::string_view part) { return name_.assign(name).append(part); }

  std::vector<policy::StateBlock>& blocks_;
  size_t next_ = 0;
  std::string name_;
};

}  // namespace troupe::training
