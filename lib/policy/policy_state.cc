#include "lib/policy/policy_state.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"
#include "lib/policy/parameter_layout.h"
#include "lib/policy/policy_spec.h"

namespace troupe::policy {
namespace {

constexpr const char* kCount = ".count";
constexpr const char* kMean = ".mean";
constexpr const char* kVariance = ".variance";

std::string Part(std::string_view name, const char* part) { return std::string(name).append(part); }

/// Blocks of `known` are as it says; others may be there, too.
absl::Status CheckParts(const std::string& owner, const std::vector<StateBlock>& blocks,
                        const std::vector<BlockSpec>& known) {
  for (const BlockSpec& spec : known) {
    const StateBlock* const block = FindBlock(blocks, spec.name);
    if (block == nullptr && spec.required) return CheckKnownBlocks(owner, {}, {spec});
    if (block == nullptr || (block->type() == spec.type && block->shape == spec.shape)) continue;
    return CheckKnownBlocks(owner, {*block}, {spec});
  }
  return absl::OkStatus();
}

}  // namespace

absl::Span<float> PolicyState::MutableFloats(std::string_view name) {
  for (StateBlock& block : blocks) {
    auto* const values = block.name == name ? std::get_if<std::vector<float>>(&block.values) : nullptr;
    if (values != nullptr) return absl::MakeSpan(*values);
  }
  return {};
}

int64_t PolicyState::Integer(std::string_view name) const {
  const std::vector<int64_t>& values = BlockValues<int64_t>(blocks, name);
  return values.empty() ? 0 : values[0];
}

RunningMoments PolicyState::Moments(std::string_view name) const {
  RunningMoments moments;
  moments.mean = Doubles(Part(name, kMean));
  moments.variance = Doubles(Part(name, kVariance));
  const std::vector<double>& count = Doubles(Part(name, kCount));
  if (!count.empty()) moments.count = count[0];
  return moments;
}

void PolicyState::SetMoments(std::string_view name, RunningMoments moments) {
  if (moments.mean.empty()) {
    for (const char* part : {kMean, kVariance, kCount}) Remove(Part(name, part));
    return;
  }
  Set(Part(name, kMean), std::move(moments.mean));
  Set(Part(name, kVariance), std::move(moments.variance));
  Set(Part(name, kCount), std::vector<double>{moments.count});
}

absl::Status PolicyState::Validate(const PolicySpec& spec) const {
  if (id != spec.id) {
    return absl::InvalidArgumentError(
        absl::StrCat("state is of policy \"", id.value(), "\"; expected \"", spec.id.value(), "\""));
  }
  const std::string owner = absl::StrCat("policy \"", id.value(), "\"");
  TROUPE_RETURN_IF_ERROR(CheckBlocks(owner, blocks));
  const int64_t size = ParameterLayout::For(spec).size();
  std::vector<BlockSpec> known = {{kParameters, BlockType::kF32, {size}, size > 0}};
  AddMomentSpecs(kObservationMoments, spec.normalize_observations ? spec.observation_size() : 0,
                 spec.normalize_observations, &known);
  return CheckParts(owner, blocks, known);
}

void AddMomentSpecs(std::string_view name, int64_t columns, bool required, std::vector<BlockSpec>* known) {
  known->push_back({Part(name, kMean), BlockType::kF64, {columns}, required});
  known->push_back({Part(name, kVariance), BlockType::kF64, {columns}, required});
  known->push_back({Part(name, kCount), BlockType::kF64, {columns > 0 ? 1 : 0}, required});
}

int64_t BytesOf(const PolicyState& state) {
  size_t bytes = sizeof(PolicyState) + state.id.value().size();
  for (const StateBlock& block : state.blocks) {
    bytes += sizeof(StateBlock) + block.name.size() + block.shape.size() * sizeof(int64_t);
    bytes += std::visit([](const auto& v) { return v.size() * sizeof(v[0]); }, block.values);
  }
  return static_cast<int64_t>(bytes);
}

}  // namespace troupe::policy
