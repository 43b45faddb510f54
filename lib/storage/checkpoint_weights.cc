#include "lib/storage/checkpoint_weights.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lib/base/crc32c.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/policy/parameter_layout.h"
#include "lib/storage/checkpoint_blocks.h"

namespace troupe::storage {
namespace {

using policy::PolicySpec;
using policy::PolicyState;

/// An array that a policy of some spec has in a file.
struct ExpectedArray {
  std::string name;  ///< behind the policy's id
  tensor::DType dtype = tensor::DType::kFloat32;
  int64_t count = 0;
  bool required = true;
};

std::vector<ExpectedArray> WeightArrays(const PolicySpec& spec) {
  std::vector<ExpectedArray> arrays;
  const policy::ParameterLayout layout = policy::ParameterLayout::For(spec);
  for (const policy::ParameterEntry& entry : layout.entries()) {
    arrays.push_back({entry.name, tensor::DType::kFloat32, entry.count, true});
  }
  // Whatever the reader normalizes: the checksum is of all that the writer had.
  for (const MomentsName& moments : kMoments) {
    for (const char* part : kMomentParts) {
      arrays.push_back(
          {absl::StrCat(moments.array, part), tensor::DType::kFloat64, moments.NumbersOf(part, spec), false});
    }
  }
  return arrays;
}

/// What else a file holds of the policy, whatever it is.
std::vector<ExpectedArray> OtherArrays(const SafetensorsIndex& index, const PolicySpec& spec) {
  std::vector<ExpectedArray> arrays;
  const std::string prefix = spec.id.value() + "/";
  for (const std::string& name : OtherArraysOf(index.tensors, prefix)) {
    const SafetensorsIndex::Entry& entry = index.tensors.at(name);
    const auto count = (entry.end - entry.begin) / std::max<size_t>(1, tensor::ElementBytes(entry.dtype));
    arrays.push_back({name.substr(prefix.size()), entry.dtype, static_cast<int64_t>(count), true});
  }
  return arrays;
}

/// Where some of a file's arrays lie, side by side, from the end of its header.
struct ArrayRange {
  uint64_t begin = 0;
  uint64_t end = 0;
};

/// Where the arrays of `spec` lie. They are all there, and nothing else of that policy: what is read of a file that
/// anybody may have written is no more than the spec needs.
absl::StatusOr<ArrayRange> FindArrays(const SafetensorsIndex& index, const PolicySpec& spec,
                                      const std::vector<ExpectedArray>& arrays) {
  const auto wrong = [&spec](const auto&... what) {
    return absl::InvalidArgumentError(absl::StrCat("policy \"", spec.id.value(), "\" of the checkpoint ", what...));
  };
  uint64_t total = 0;
  uint64_t begin = std::numeric_limits<uint64_t>::max();
  uint64_t end = 0;
  for (const ExpectedArray& array : arrays) {
    const auto found = index.tensors.find(absl::StrCat(spec.id.value(), "/", array.name));
    if (found == index.tensors.end()) {
      if (!array.required) continue;
      return absl::NotFoundError(
          absl::StrCat("policy \"", spec.id.value(), "\" of the checkpoint has no array \"", array.name, "\""));
    }
    const uint64_t bytes = found->second.end - found->second.begin;
    const uint64_t element = tensor::ElementBytes(array.dtype);
    if (found->second.dtype != array.dtype || bytes != element * static_cast<uint64_t>(array.count)) {
      return wrong("has ", bytes / element, " elements of ", std::string(tensor::DTypeName(found->second.dtype)),
                   " as \"", array.name, "\"; expected ", array.count, " of ",
                   std::string(tensor::DTypeName(array.dtype)));
    }
    total += bytes;
    begin = std::min(begin, found->second.begin);
    end = std::max(end, found->second.end);
  }
  begin = std::min(begin, end);  // there are none
  if (total > static_cast<uint64_t>(kMaxPolicyBytes)) {
    return wrong("has ", total, " bytes; expected at most ", kMaxPolicyBytes);
  }
  if (end - begin != total) return wrong("is spread over ", end - begin, " bytes; expected ", total, " side by side");
  return ArrayRange{begin, end};
}

}  // namespace

CheckpointWeights::CheckpointWeights(FileSystem& fs, std::string directory, CheckpointManifest manifest)
    : fs_(fs), directory_(std::move(directory)), manifest_(std::move(manifest)) {}

absl::StatusOr<std::unique_ptr<CheckpointWeights>> CheckpointWeights::Open(FileSystem& fs, std::string directory) {
  TROUPE_ASSIGN_OR_RETURN(CheckpointManifest manifest, ReadManifest(fs, directory, ManifestPart::kPolicies));
  std::unique_ptr<CheckpointWeights> weights(new CheckpointWeights(fs, std::move(directory), std::move(manifest)));
  const CheckpointManifest& its = weights->manifest_;
  const size_t policies = its.state.policies.size();
  if (weights->has_checksums() && policies > 0 && its.WeightsFile(0) == its.WeightsFile(policies)) {
    weights->shared_name_ = its.WeightsFile(0);
    TROUPE_ASSIGN_OR_RETURN(weights->shared_, weights->OpenTensors(weights->shared_name_, Verify::kHeader));
  }
  return weights;
}

absl::StatusOr<policy::PolicyTablePtr> PoliciesOf(const CheckpointManifest& manifest, const std::string& directory) {
  if (manifest.state.table != nullptr) return manifest.state.table;
  return absl::FailedPreconditionError(
      absl::StrCat("checkpoint ", base::LogSafe(directory),
                   " is of a version that did not note the policies' spaces; make its environment once to add them: "
                   "troupe checkpoint convert ",
                   base::LogSafe(directory)));
}

absl::StatusOr<size_t> CheckpointWeights::IndexOf(const policy::PolicyId& id) const {
  const std::vector<PolicyState>& policies = manifest_.state.policies;
  const auto found =
      std::find_if(policies.begin(), policies.end(), [&id](const PolicyState& policy) { return policy.id == id; });
  if (found != policies.end()) return static_cast<size_t>(std::distance(policies.begin(), found));
  return absl::NotFoundError(absl::StrCat("checkpoint has no policy \"", id.value(), "\""));
}

absl::StatusOr<CheckpointWeights::Tensors> CheckpointWeights::OpenTensors(const std::string& name,
                                                                          Verify verify) const {
  const auto damaged = [&](const auto&... what) { return CheckpointDamaged(directory_, absl::StrCat(what...)); };
  const CheckpointManifest::File* const noted = manifest_.Find(name);
  if (noted == nullptr) return damaged("the manifest does not name ", name);
  absl::StatusOr<std::unique_ptr<OpenFile>> file = fs_.Open(absl::StrCat(directory_, "/", name));
  if (!file.ok()) return damaged(std::string(file.status().message()));
  Tensors tensors;
  tensors.file = *std::move(file);
  if (tensors.file->bytes() != noted->bytes) {
    return damaged(name, " has ", tensors.file->bytes(), " bytes; expected ", noted->bytes);
  }
  if (verify == Verify::kWhole) TROUPE_RETURN_IF_ERROR(VerifyOpenFile(*tensors.file, directory_, *noted));
  const auto file_bytes = static_cast<uint64_t>(noted->bytes);
  absl::StatusOr<std::string> header = tensors.file->Read(0, std::min(kSafetensorsLengthBytes, noted->bytes));
  if (!header.ok()) return damaged(std::string(header.status().message()));
  const absl::StatusOr<uint64_t> header_bytes = SafetensorsHeaderBytes(*header, file_bytes);
  if (!header_bytes.ok()) return damaged(name, ": ", std::string(header_bytes.status().message()));
  tensors.data_begin = static_cast<int64_t>(*header_bytes);
  header = tensors.file->Read(0, tensors.data_begin);
  if (!header.ok()) return damaged(std::string(header.status().message()));
  if (verify == Verify::kHeader && base::Crc32c(header->data(), header->size()) != noted->header_crc32c) {
    return damaged("the header of ", name, " fails its checksum");
  }
  absl::StatusOr<SafetensorsIndex> index = ParseSafetensorsHeader(*header, file_bytes);
  if (!index.ok()) return damaged(name, ": ", std::string(index.status().message()));
  tensors.index = *std::move(index);
  return tensors;
}

absl::StatusOr<std::string> CheckpointWeights::ReadRange(const Tensors& tensors, uint64_t begin, uint64_t end) const {
  absl::StatusOr<std::string> bytes =
      tensors.file->Read(tensors.data_begin + static_cast<int64_t>(begin), static_cast<int64_t>(end - begin));
  if (!bytes.ok()) return CheckpointDamaged(directory_, std::string(bytes.status().message()));
  return bytes;
}

absl::StatusOr<PolicyState> CheckpointWeights::Read(const PolicySpec& spec) const {
  TROUPE_ASSIGN_OR_RETURN(const size_t index, IndexOf(spec.id));
  if (!shared_name_.empty()) return ReadFrom(shared_, spec, index);
  TROUPE_ASSIGN_OR_RETURN(
      const Tensors own, OpenTensors(manifest_.WeightsFile(index), has_checksums() ? Verify::kHeader : Verify::kWhole));
  return ReadFrom(own, spec, index);
}

absl::StatusOr<PolicyState> CheckpointWeights::ReadFrom(const Tensors& tensors, const PolicySpec& spec,
                                                        size_t index) const {
  TROUPE_ASSIGN_OR_RETURN(const ArrayRange range, FindArrays(tensors.index, spec, WeightArrays(spec)));
  TROUPE_ASSIGN_OR_RETURN(const std::string bytes, ReadRange(tensors, range.begin, range.end));
  if (has_checksums() && base::Crc32c(bytes.data(), bytes.size()) != manifest_.weights_crc32c[index]) {
    return CheckpointDamaged(directory_,
                             absl::StrCat("the weights of policy \"", spec.id.value(), "\" fail their checksum"));
  }
  return WeightsFromTensors(SafetensorsFile::Part(tensors.index, range.begin, bytes), spec,
                            manifest_.state.policies[index].version);
}

absl::StatusOr<PolicyState> CheckpointWeights::ReadWhole(const PolicySpec& spec) const {
  TROUPE_ASSIGN_OR_RETURN(PolicyState weights, Read(spec));
  TROUPE_ASSIGN_OR_RETURN(const size_t index, IndexOf(spec.id));
  PolicyState state = manifest_.state.policies[index];
  for (policy::StateBlock& block : weights.blocks) state.blocks.push_back(std::move(block));
  TROUPE_ASSIGN_OR_RETURN(const Tensors optimizer, OpenTensors(manifest_.OptimizerFile(index), Verify::kWhole));
  TROUPE_ASSIGN_OR_RETURN(const ArrayRange range,
                          FindArrays(optimizer.index, spec, OtherArrays(optimizer.index, spec)));
  TROUPE_ASSIGN_OR_RETURN(const std::string bytes, ReadRange(optimizer, range.begin, range.end));
  TROUPE_RETURN_IF_ERROR(
      TakeOtherBlocks(SafetensorsFile::Part(optimizer.index, range.begin, bytes), manifest_.format, &state));
  TROUPE_RETURN_IF_ERROR(state.Validate(spec));
  return state;
}

absl::StatusOr<PolicyState> ReadPolicyWeights(FileSystem& fs, const std::string& directory, const PolicySpec& spec) {
  TROUPE_ASSIGN_OR_RETURN(std::vector<PolicyState> states, ReadWeights(fs, directory, absl::MakeConstSpan(&spec, 1)));
  return std::move(states[0]);
}

absl::StatusOr<std::vector<PolicyState>> ReadWeights(FileSystem& fs, const std::string& directory,
                                                     absl::Span<const PolicySpec> specs) {
  TROUPE_ASSIGN_OR_RETURN(const std::unique_ptr<CheckpointWeights> weights, CheckpointWeights::Open(fs, directory));
  std::vector<PolicyState> states;
  for (const PolicySpec& spec : specs) {
    TROUPE_ASSIGN_OR_RETURN(states.emplace_back(), weights->Read(spec));
  }
  return states;
}

}  // namespace troupe::storage
