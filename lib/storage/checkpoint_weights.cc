#include "lib/storage/checkpoint_weights.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lib/base/crc32c.h"
#include "lib/base/status_macros.h"

namespace troupe::storage {

CheckpointWeights::CheckpointWeights(FileSystem& fs, std::string directory, CheckpointManifest manifest)
    : fs_(fs), directory_(std::move(directory)), manifest_(std::move(manifest)) {}

absl::StatusOr<std::unique_ptr<CheckpointWeights>> CheckpointWeights::Open(FileSystem& fs, std::string directory) {
  TROUPE_ASSIGN_OR_RETURN(CheckpointManifest manifest, ReadManifest(fs, directory));
  std::unique_ptr<CheckpointWeights> weights(new CheckpointWeights(fs, std::move(directory), std::move(manifest)));
  const CheckpointManifest& its = weights->manifest_;
  const size_t policies = its.state.policies.size();
  const bool noted = its.weights_crc32c.size() == policies;
  if (noted && policies > 0 && its.WeightsFile(0) == its.WeightsFile(policies)) {
    weights->shared_name_ = its.WeightsFile(0);
    TROUPE_ASSIGN_OR_RETURN(weights->shared_, weights->OpenTensors(weights->shared_name_));
  }
  return weights;
}

absl::StatusOr<CheckpointWeights::Tensors> CheckpointWeights::OpenTensors(const std::string& name) const {
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
  const auto file_bytes = static_cast<uint64_t>(noted->bytes);
  absl::StatusOr<std::string> header = tensors.file->Read(0, std::min(kSafetensorsLengthBytes, noted->bytes));
  if (!header.ok()) return damaged(std::string(header.status().message()));
  const absl::StatusOr<uint64_t> header_bytes = SafetensorsHeaderBytes(*header, file_bytes);
  if (!header_bytes.ok()) return damaged(name, ": ", std::string(header_bytes.status().message()));
  tensors.data_begin = static_cast<int64_t>(*header_bytes);
  header = tensors.file->Read(0, tensors.data_begin);
  if (!header.ok()) return damaged(std::string(header.status().message()));
  if (base::Crc32c(header->data(), header->size()) != noted->header_crc32c) {
    return damaged("the header of ", name, " fails its checksum");
  }
  TROUPE_ASSIGN_OR_RETURN(tensors.index, ParseSafetensorsHeader(*header, file_bytes));
  return tensors;
}

absl::StatusOr<policy::PolicyState> CheckpointWeights::Read(const policy::PolicySpec& spec) const {
  const std::vector<policy::PolicyState>& policies = manifest_.state.policies;
  const auto found = std::find_if(policies.begin(), policies.end(),
                                  [&spec](const policy::PolicyState& policy) { return policy.id == spec.id; });
  if (found == policies.end()) {
    return absl::NotFoundError(absl::StrCat("checkpoint has no policy \"", spec.id.value(), "\""));
  }
  if (manifest_.weights_crc32c.size() != policies.size()) return ReadPolicyWeights(fs_, directory_, spec);
  const auto index = static_cast<size_t>(std::distance(policies.begin(), found));
  if (!shared_name_.empty()) return ReadFrom(shared_, spec, index);
  TROUPE_ASSIGN_OR_RETURN(const Tensors own, OpenTensors(manifest_.WeightsFile(index)));
  return ReadFrom(own, spec, index);
}

absl::StatusOr<policy::PolicyState> CheckpointWeights::ReadFrom(const Tensors& tensors, const policy::PolicySpec& spec,
                                                                size_t index) const {
  // A policy's arrays lie one behind the other, in whatever order.
  const std::string prefix = spec.id.value() + "/";
  uint64_t begin = std::numeric_limits<uint64_t>::max();
  uint64_t end = 0;
  for (auto it = tensors.index.tensors.lower_bound(prefix);
       it != tensors.index.tensors.end() && absl::StartsWith(it->first, prefix); ++it) {
    begin = std::min(begin, it->second.begin);
    end = std::max(end, it->second.end);
  }
  begin = std::min(begin, end);  // there are none
  const absl::StatusOr<std::string> bytes =
      tensors.file->Read(tensors.data_begin + static_cast<int64_t>(begin), static_cast<int64_t>(end - begin));
  if (!bytes.ok()) return CheckpointDamaged(directory_, std::string(bytes.status().message()));
  if (base::Crc32c(bytes->data(), bytes->size()) != manifest_.weights_crc32c[index]) {
    return CheckpointDamaged(directory_,
                             absl::StrCat("the weights of policy \"", spec.id.value(), "\" fail their checksum"));
  }
  return WeightsFromTensors(SafetensorsFile::Part(tensors.index, begin, *bytes), spec,
                            manifest_.state.policies[index].version);
}

}  // namespace troupe::storage
