#include "lib/storage/checkpoint_blocks.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "lib/base/log.h"
#include "lib/base/parse_json.h"
#include "lib/base/status_macros.h"
#include "lib/policy/parameter_layout.h"
#include <nlohmann/json.hpp>

namespace troupe::storage {
namespace {

using policy::BlockType;
using policy::StateBlock;
using tensor::DType;

/// What the blocks of format 1 were called.
struct OldName {
  const char* old;
  const char* block;
};
constexpr std::array<OldName, 2> kOldArrays = {{{"exp_avg", "adam.exp_avg"}, {"exp_avg_sq", "adam.exp_avg_sq"}}};
constexpr std::array<OldName, 4> kOldIntegers = {{{"adam_steps", "adam.steps"},
                                                  {"trained_rows", "trained_rows"},
                                                  {"skipped_updates", "skipped_updates"},
                                                  {"consecutive_skips", "consecutive_skips"}}};

DType DTypeOf(BlockType type) {
  switch (type) {
    case BlockType::kF32:
      return DType::kFloat32;
    case BlockType::kF64:
      return DType::kFloat64;
    case BlockType::kI64:
      return DType::kInt64;
  }
  return DType::kUnspecified;
}

TensorToWrite ToWrite(std::string name, const StateBlock& block) {
  return std::visit(
      [&](const auto& values) {
        return TensorToWrite{std::move(name), DTypeOf(block.type()), block.shape,
                             absl::Span<const std::byte>(reinterpret_cast<const std::byte*>(values.data()),
                                                         values.size() * sizeof(values[0]))};
      },
      block.values);
}

template <typename T>
std::vector<T> Elements(const TensorRead& array) {
  std::vector<T> values(array.bytes.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), array.bytes.data(), values.size() * sizeof(T));
  return values;
}

absl::StatusOr<StateBlock> ToBlock(std::string name, const TensorRead& array) {
  switch (array.dtype) {
    case DType::kFloat32:
      return StateBlock{std::move(name), array.shape, Elements<float>(array)};
    case DType::kFloat64:
      return StateBlock{std::move(name), array.shape, Elements<double>(array)};
    case DType::kInt64:
      return StateBlock{std::move(name), array.shape, Elements<int64_t>(array)};
    default:
      return absl::InvalidArgumentError(absl::StrCat("block \"", base::LogSafe(name, 64), "\" is of ",
                                                     std::string(tensor::DTypeName(array.dtype)),
                                                     "; expected float32, float64 or int64"));
  }
}

bool IsInManifest(const StateBlock& block) { return block.type() == BlockType::kI64 && block.shape.empty(); }

bool IsWithWeights(const StateBlock& block) {
  if (block.name == policy::kParameters) return true;
  return std::any_of(kMoments.begin(), kMoments.end(), [&block](const MomentsName& moments) {
    const size_t length = std::strlen(moments.block);
    return block.name.compare(0, length, moments.block) == 0 &&
           std::any_of(kMomentParts.begin(), kMomentParts.end(),
                       [&](const char* part) { return block.name.compare(length, std::string::npos, part) == 0; });
  });
}

absl::Status TakeMoments(const SafetensorsFile& file, const policy::PolicySpec& spec, const MomentsName& moments,
                         policy::PolicyState* state) {
  const std::string prefix = absl::StrCat(spec.id.value(), "/", moments.array);
  if (file.tensors().count(prefix + ".mean") == 0) return absl::OkStatus();
  for (const char* part : kMomentParts) {
    TROUPE_ASSIGN_OR_RETURN(const TensorRead* array, file.Find(prefix + part));
    TROUPE_ASSIGN_OR_RETURN(std::vector<double> values, array->ToDoubles(moments.NumbersOf(part, spec)));
    state->Set(absl::StrCat(moments.block, part), std::move(values));
  }
  return absl::OkStatus();
}

}  // namespace

int64_t MomentsName::NumbersOf(std::string_view part, const policy::PolicySpec& spec) const {
  return part == kMomentParts.back() && !count_each ? 1 : columns(spec);
}

void AddWeights(const policy::PolicyState& state, const policy::PolicySpec& spec, std::vector<TensorToWrite>* arrays) {
  const std::string prefix = state.id.value() + "/";
  const policy::ParameterLayout layout = policy::ParameterLayout::For(spec);
  const std::vector<float>& parameters = state.parameters();
  for (const policy::ParameterEntry& entry : layout.entries()) {
    const auto* const bytes = reinterpret_cast<const std::byte*>(parameters.data() + entry.offset);
    arrays->push_back({prefix + entry.name, DType::kFloat32, entry.shape,
                       absl::Span<const std::byte>(bytes, static_cast<size_t>(entry.count) * sizeof(float))});
  }
  for (const MomentsName& moments : kMoments) {
    for (const char* part : kMomentParts) {
      const StateBlock* const block = state.Find(absl::StrCat(moments.block, part));
      if (block != nullptr) arrays->push_back(ToWrite(absl::StrCat(prefix, moments.array, part), *block));
    }
  }
}

void AddOtherBlocks(const policy::PolicyState& state, std::vector<TensorToWrite>* arrays) {
  for (const StateBlock& block : state.blocks) {
    if (IsInManifest(block) || IsWithWeights(block)) continue;
    arrays->push_back(ToWrite(absl::StrCat(state.id.value(), "/", block.name), block));
  }
}

void AddGroup(const policy::GroupState& state, std::vector<TensorToWrite>* arrays) {
  for (const StateBlock& block : state.blocks) {
    if (!IsInManifest(block))
      arrays->push_back(ToWrite(absl::StrCat("groups/", state.id.value(), "/", block.name), block));
  }
}

nlohmann::json IntegersToJson(const std::vector<StateBlock>& blocks) {
  nlohmann::json json = nlohmann::json::object();
  for (const StateBlock& block : blocks) {
    if (IsInManifest(block)) json[block.name] = std::get<std::vector<int64_t>>(block.values).at(0);
  }
  return json;
}

void IntegersFromJson(const nlohmann::json& json, std::vector<StateBlock>* blocks) {
  for (const auto& [name, value] : json.items()) {
    blocks->push_back({name, {}, std::vector<int64_t>{base::JsonInteger(value)}});
  }
}

void IntegersFromFormat1(const nlohmann::json& entry, std::vector<StateBlock>* blocks) {
  if (entry.at("id").get<std::string>().empty()) return;  // of a free slot
  for (const OldName& name : kOldIntegers) {
    blocks->push_back({name.block, {}, std::vector<int64_t>{base::JsonInteger(entry.at(name.old))}});
  }
}

absl::Status TakeWeights(const SafetensorsFile& file, const policy::PolicySpec& spec, policy::PolicyState* state) {
  const policy::ParameterLayout layout = policy::ParameterLayout::For(spec);
  std::vector<float> parameters(static_cast<size_t>(layout.size()), 0.0f);
  for (const policy::ParameterEntry& entry : layout.entries()) {
    TROUPE_ASSIGN_OR_RETURN(const TensorRead* read, file.Find(spec.id.value() + "/" + entry.name));
    TROUPE_ASSIGN_OR_RETURN(const std::vector<float> values, read->ToFloats(entry.count));
    std::copy(values.begin(), values.end(), parameters.begin() + entry.offset);
  }
  if (!parameters.empty()) state->Set(policy::kParameters, std::move(parameters));
  for (const MomentsName& moments : kMoments) {
    TROUPE_RETURN_IF_ERROR(TakeMoments(file, spec, moments, state));
  }
  return absl::OkStatus();
}

absl::Status TakeOtherBlocks(const SafetensorsFile& file, int64_t format, policy::PolicyState* state) {
  const std::string prefix = state->id.value() + "/";
  for (const std::string& array : OtherArraysOf(file.tensors(), prefix)) {
    std::string name = array.substr(prefix.size());
    for (const OldName& old : kOldArrays) {
      if (format == 1 && name == old.old) name = old.block;
    }
    TROUPE_ASSIGN_OR_RETURN(StateBlock block, ToBlock(std::move(name), file.tensors().at(array)));
    state->blocks.push_back(std::move(block));
  }
  return absl::OkStatus();
}

absl::Status TakeGroup(const SafetensorsFile& file, policy::GroupState* state) {
  const std::string prefix = absl::StrCat("groups/", state->id.value(), "/");
  for (const std::string& array : OtherArraysOf(file.tensors(), prefix)) {
    TROUPE_ASSIGN_OR_RETURN(StateBlock block, ToBlock(array.substr(prefix.size()), file.tensors().at(array)));
    state->blocks.push_back(std::move(block));
  }
  return absl::OkStatus();
}

}  // namespace troupe::storage
