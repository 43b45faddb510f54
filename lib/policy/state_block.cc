#include "lib/policy/state_block.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"

namespace troupe::policy {
namespace {

constexpr size_t kMaxNameLength = 128;

std::string FormOf(BlockType type, const std::vector<int64_t>& shape) {
  constexpr const char* kTypes[] = {"f32", "f64", "i64"};
  return absl::StrCat(kTypes[static_cast<size_t>(type)], " [", absl::StrJoin(shape, ", "), "]");
}

bool IsName(std::string_view name) {
  return !name.empty() && name.size() <= kMaxNameLength && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '.';
  });
}

template <typename... Parts>
absl::Status Wrong(std::string_view owner, const StateBlock& block, const Parts&... parts) {
  return absl::InvalidArgumentError(
      absl::StrCat(base::LogSafe(owner), ": block \"", base::LogSafe(block.name, 64), "\" ", parts...));
}

/// The block's number of values, by its shape; -1 when no block can have it.
int64_t Product(const std::vector<int64_t>& shape) {
  int64_t product = 1;
  for (const int64_t extent : shape) {
    if (extent < 0 || __builtin_mul_overflow(product, extent, &product)) return -1;
  }
  return product;
}

template <typename T>
absl::Status CheckValues(std::string_view owner, const StateBlock& block, const std::vector<T>& values) {
  const bool is_count = absl::EndsWith(block.name, ".count");
  const bool at_least_0 = is_count || absl::EndsWith(block.name, ".variance");
  for (size_t i = 0; i < values.size(); ++i) {
    if (!std::isfinite(values[i])) return Wrong(owner, block, "is not finite at [", i, "]");
    if (at_least_0 && values[i] < 0) {
      return Wrong(owner, block, "has a ", is_count ? "count" : "variance", " of ", values[i], ", expected at least 0");
    }
  }
  return absl::OkStatus();
}

}  // namespace

std::string StateBlock::Form() const { return FormOf(type(), shape); }

const StateBlock* FindBlock(const std::vector<StateBlock>& blocks, std::string_view name) {
  for (const StateBlock& block : blocks) {
    if (block.name == name) return &block;
  }
  return nullptr;
}

void SetBlock(std::vector<StateBlock>* blocks, StateBlock block) {
  for (StateBlock& old : *blocks) {
    if (old.name != block.name) continue;
    old = std::move(block);
    return;
  }
  blocks->push_back(std::move(block));
}

void RemoveBlock(std::vector<StateBlock>* blocks, std::string_view name) {
  blocks->erase(
      std::remove_if(blocks->begin(), blocks->end(), [name](const StateBlock& block) { return block.name == name; }),
      blocks->end());
}

absl::Status CheckBlocks(std::string_view owner, const std::vector<StateBlock>& blocks) {
  std::set<std::string_view> names;
  for (const StateBlock& block : blocks) {
    if (!IsName(block.name)) {
      return Wrong(owner, block, "has a bad name; expected 1 to ", kMaxNameLength, " of [a-z0-9_.]");
    }
    if (!names.insert(block.name).second) return Wrong(owner, block, "is there twice");
    if (Product(block.shape) != block.size()) {
      return Wrong(owner, block, "has ", block.size(), " values; expected those of ", block.Form());
    }
    TROUPE_RETURN_IF_ERROR(std::visit(
        [&](const auto& values) -> absl::Status {
          if constexpr (std::is_same_v<std::decay_t<decltype(values)>, std::vector<int64_t>>) {
            return absl::OkStatus();
          } else {
            return CheckValues(owner, block, values);
          }
        },
        block.values));
  }
  return absl::OkStatus();
}

absl::Status CheckKnownBlocks(std::string_view owner, const std::vector<StateBlock>& blocks,
                              const std::vector<BlockSpec>& known) {
  for (const StateBlock& block : blocks) {
    const auto expected =
        std::find_if(known.begin(), known.end(), [&block](const BlockSpec& spec) { return spec.name == block.name; });
    if (expected == known.end()) {
      return Wrong(owner, block, "is unknown; expected one of ",
                   absl::StrJoin(known, ", ", [](std::string* out, const BlockSpec& spec) { out->append(spec.name); }));
    }
    if (block.type() == expected->type && block.shape == expected->shape) continue;
    return Wrong(owner, block, "is ", block.Form(), ", expected ", FormOf(expected->type, expected->shape));
  }
  for (const BlockSpec& spec : known) {
    if (!spec.required || FindBlock(blocks, spec.name) != nullptr) continue;
    return absl::InvalidArgumentError(absl::StrCat(base::LogSafe(owner), " has no block \"", spec.name, "\"; expected ",
                                                   FormOf(spec.type, spec.shape)));
  }
  return absl::OkStatus();
}

}  // namespace troupe::policy
