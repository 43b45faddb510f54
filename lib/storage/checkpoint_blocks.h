#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "lib/policy/learn_group.h"
#include "lib/policy/policy_spec.h"
#include "lib/policy/policy_state.h"
#include "lib/storage/safetensors.h"
#include <nlohmann/json_fwd.hpp>

namespace troupe::storage {

// Where a policy's blocks lie in a checkpoint: the parameters, by the layout's names, and the moments of observations
// and values in the file of weights, for people; integers of shape [] in the manifest; all else in the file of the
// optimizer, by the block's own name. Names of arrays begin with `<policy id>/`, those of a group with `groups/<id>/`.

/// Of manifests: 1 had PPO's blocks under names of their own, 2 has blocks of any name.
constexpr int64_t kOldestCheckpointFormat = 1;
constexpr int64_t kCheckpointFormat = 2;

/// Moments that lie with the weights, under a shorter name: `<array>.mean`, `.variance`, `.count`, each there or not.
struct MomentsName {
  const char* block;
  const char* array;
  int64_t (*columns)(const policy::PolicySpec& spec);
  bool count_each;  ///< each column has a count of its own

  /// Of one of kMomentParts.
  int64_t NumbersOf(std::string_view part, const policy::PolicySpec& spec) const;
};
inline constexpr std::array<MomentsName, 3> kMoments = {
    {{policy::kObservationMoments, "observation",
      [](const policy::PolicySpec& spec) { return spec.observation_size(); }, false},
     {policy::kValueMoments, "value", [](const policy::PolicySpec&) { return int64_t{1}; }, false},
     {policy::kStateMoments, "state", [](const policy::PolicySpec& spec) { return spec.critic_state_size(); }, true}}};
inline constexpr std::array<const char*, 3> kMomentParts = {".mean", ".variance", ".count"};

/// The arrays borrow from the state.
void AddWeights(const policy::PolicyState& state, const policy::PolicySpec& spec, std::vector<TensorToWrite>* arrays);
void AddOtherBlocks(const policy::PolicyState& state, std::vector<TensorToWrite>* arrays);
void AddGroup(const policy::GroupState& state, std::vector<TensorToWrite>* arrays);

/// The integers of shape [], by name.
nlohmann::json IntegersToJson(const std::vector<policy::StateBlock>& blocks);
/// Throws nlohmann's exceptions, as base::JsonInteger does.
void IntegersFromJson(const nlohmann::json& json, std::vector<policy::StateBlock>* blocks);
/// The same from a policy's entry in a manifest of format 1.
void IntegersFromFormat1(const nlohmann::json& entry, std::vector<policy::StateBlock>* blocks);

/// INVALID_ARGUMENT or NOT_FOUND when they are not what `spec` asks for.
absl::Status TakeWeights(const SafetensorsFile& file, const policy::PolicySpec& spec, policy::PolicyState* state);
/// INVALID_ARGUMENT for a type that no block has.
absl::Status TakeOtherBlocks(const SafetensorsFile& file, int64_t format, policy::PolicyState* state);
absl::Status TakeGroup(const SafetensorsFile& file, policy::GroupState* state);

/// The names among `arrays` (a map by name) that TakeOtherBlocks reads for a policy.
template <typename Map>
std::vector<std::string> OtherArraysOf(const Map& arrays, const std::string& prefix) {
  std::vector<std::string> names;
  for (auto it = arrays.lower_bound(prefix); it != arrays.end(); ++it) {
    if (it->first.compare(0, prefix.size(), prefix) != 0) break;
    // A policy may be called "groups".
    if (it->first.find('/', prefix.size()) == std::string::npos) names.push_back(it->first);
  }
  return names;
}

}  // namespace troupe::storage
