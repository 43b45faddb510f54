#include "lib/config/frozen_weights.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/base/local_path.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/config/overrides.h"
#include "lib/config/schema.h"
#include "lib/policy/parameter_globs.h"
#include "lib/policy/parameter_layout.h"
#include "lib/policy/policy_mapping.h"
#include "lib/storage/checkpoint_blocks.h"
#include "lib/storage/checkpoint_weights.h"
#include "lib/storage/run_folder.h"
#include "lib/training/algorithm_options.h"
#include "proto/troupe/v1/config.pb.h"

namespace troupe::config {

using policy::PolicySpec;
using policy::PolicyState;

namespace {

/// The checkpoint directory that a path means: itself, or the latest of a run folder. Reads no file of it. NOT_FOUND:
/// neither, or there is none yet.
absl::StatusOr<std::string> FindCheckpointAt(const std::string& path) {
  TROUPE_RETURN_IF_ERROR(base::CheckIsPath(path));
  storage::FileSystem& fs = storage::FileSystem::Posix();
  if (fs.Exists(path + "/manifest.json")) return path;
  if (fs.Exists(path + "/config.yaml")) return storage::FindCheckpoint(fs, path, "latest");
  return absl::NotFoundError(absl::StrCat("\"", base::LogSafe(path),
                                          "\" is neither a checkpoint nor a run folder, expected one of them, as "
                                          "runs/NAME or runs/NAME/checkpoints/N"));
}

/// The result of `read` for the checkpoint directory that `path` means (storage::ReadFoundCheckpoint).
template <typename Read>
auto ReadCheckpointAt(const std::string& path, Read read) {
  return storage::ReadFoundCheckpoint(
      storage::FileSystem::Posix(), [&path] { return FindCheckpointAt(path); }, std::move(read));
}

/// A policy of an opened checkpoint.
struct Found {
  PolicySpec spec;
  std::string what;  ///< `policy "main" of runs/a/checkpoints/400`, for errors
};

/// NOT_FOUND: there is none of that id, with those that are; FAILED_PRECONDITION: the checkpoint does not say what it
/// holds, or the policy has no weights.
absl::StatusOr<Found> FindSpec(const storage::CheckpointWeights& weights, const std::string& directory,
                               const policy::PolicyId& id) {
  TROUPE_ASSIGN_OR_RETURN(const policy::PolicyTablePtr table, weights.Policies());
  const std::string what = absl::StrCat("policy \"", id.value(), "\" of ", base::LogSafe(directory));
  std::vector<std::string> ids;
  for (const PolicySpec& spec : table->Specs()) {
    if (spec.id.value().empty()) continue;  // a free slot
    if (spec.id != id) {
      ids.push_back(spec.id.value());
    } else if (spec.policy_class.has_weights()) {
      return Found{spec, what};
    } else {
      return absl::FailedPreconditionError(absl::StrCat(
          what, " is of class ", base::LogSafe(spec.policy_class.ToString(), 128), ", which has no weights"));
    }
  }
  return absl::NotFoundError(absl::StrCat(what, " is not there, expected one of ", absl::StrJoin(ids, ", ")));
}

/// The file of a checkpoint that has the policy's weights.
std::string WeightsFile(const storage::CheckpointWeights& weights, const policy::PolicyId& id) {
  const std::vector<PolicyState>& policies = weights.manifest().state.policies;
  const auto found =
      std::find_if(policies.begin(), policies.end(), [&id](const auto& state) { return state.id == id; });
  return weights.manifest().WeightsFile(static_cast<size_t>(found - policies.begin()));
}

/// What of a policy of another run does not fit into one of `spec`: the setting, and the tensor with its file.
absl::Status Misfit(const storage::CheckpointWeights& weights, const Found& found, const PolicySpec& spec) {
  const std::string tensor = policy::FirstShapeDifference(found.spec, spec);
  return absl::FailedPreconditionError(
      absl::StrCat(found.what, " does not fit: ", policy::FirstDifference(found.spec, spec),
                   tensor.empty() ? "" : absl::StrCat(" (", WeightsFile(weights, found.spec.id), ": ", tensor, ")")));
}

bool HasMoments(const PolicyState& state, const storage::MomentsName& name) {
  return std::any_of(storage::kMomentParts.begin(), storage::kMomentParts.end(),
                     [&](const char* part) { return state.Find(absl::StrCat(name.block, part)) != nullptr; });
}

/// Fresh weights of the run's policy in `slot`, with what `globs` match of another's, whose state has no optimizer.
absl::StatusOr<PolicyState> TakePart(const ResolvedRun& run, size_t slot, const std::vector<std::string>& globs,
                                     const Found& found, const PolicyState& theirs) {
  constexpr char kKey[] = "multi_agent.load_parameters";
  const PolicySpec& spec = run.policies[slot];
  const policy::ParameterLayout to = policy::ParameterLayout::For(spec);
  const policy::ParameterLayout from = policy::ParameterLayout::For(found.spec);
  TROUPE_ASSIGN_OR_RETURN(PolicyState state, training::InitialState(spec, run.algorithms[slot], run.seed));
  std::vector<std::string> moments;
  for (const storage::MomentsName& name : storage::kMoments) {
    if (HasMoments(state, name)) moments.emplace_back(name.array);
  }
  const absl::StatusOr<std::vector<bool>> matched =
      policy::MatchEntries(to, globs, absl::StrCat("policy \"", spec.id.value(), "\""), moments);
  if (!matched.ok()) return run.config.KeyError(kKey, std::string(matched.status().message()));
  const absl::Span<float> values = state.MutableFloats(policy::kParameters);
  for (size_t i = 0; i < to.entries().size(); ++i) {
    if (!(*matched)[i]) continue;
    const policy::ParameterEntry& entry = to.entries()[i];
    const policy::ParameterEntry* const source = from.Find(entry.name);
    if (source == nullptr || source->shape != entry.shape) {
      const std::string got =
          source == nullptr ? "is not there" : absl::StrCat("is [", absl::StrJoin(source->shape, ", "), "]");
      return absl::FailedPreconditionError(absl::StrCat(found.what, ": \"", entry.name, "\", which ", kKey, " takes, ",
                                                        got, ", expected [", absl::StrJoin(entry.shape, ", "), "]"));
    }
    std::copy_n(theirs.parameters().begin() + source->offset, entry.count, values.begin() + entry.offset);
  }
  for (const storage::MomentsName& name : storage::kMoments) {
    const bool taken = std::any_of(globs.begin(), globs.end(),
                                   [&name](const std::string& glob) { return policy::GlobMatches(glob, name.array); });
    if (!taken || !HasMoments(state, name)) continue;
    for (const char* part : storage::kMomentParts) {
      const policy::StateBlock* const other = theirs.Find(absl::StrCat(name.block, part));
      const policy::StateBlock* const own = state.Find(absl::StrCat(name.block, part));
      if (own == nullptr) continue;
      if (other == nullptr || other->shape != own->shape) {
        return absl::FailedPreconditionError(absl::StrCat(
            found.what, " has no ", name.array, " moments of this shape, which ", kKey, " takes; leave them out"));
      }
      policy::SetBlock(&state.blocks, *other);
    }
  }
  return state;
}

/// The warm start of a policy, of which the checkpoint says what it has.
absl::StatusOr<PolicyState> TakeFrom(const storage::CheckpointWeights& weights, const std::string& directory,
                                     const ResolvedRun& run, size_t slot) {
  const PolicySpec& spec = run.policies[slot];
  const absl::StatusOr<Found> found = FindSpec(weights, directory, spec.id);
  if (absl::IsNotFound(found.status())) {
    return absl::NotFoundError(absl::StrCat(found.status().message(), "; call the run's policy so, too"));
  }
  TROUPE_RETURN_IF_ERROR(found.status());
  const auto& globs = run.config.proto().multi_agent().load_parameters().values();
  if (!globs.empty()) {
    TROUPE_ASSIGN_OR_RETURN(const PolicyState theirs, weights.Read(found->spec));
    return TakePart(run, slot, {globs.begin(), globs.end()}, *found, theirs);
  }
  // A critic without the moments that its inputs were normalized by, with other heads, or behind another encoder, is
  // another one; and so is a network whose inputs or actions are scaled otherwise.
  const PolicySpec& theirs = found->spec;
  const bool same_moments = theirs.normalize_state == spec.normalize_state &&
                            (!spec.normalize_state || theirs.critic_state_size() == spec.critic_state_size());
  if (!policy::FirstShapeDifference(theirs, spec).empty() || !same_moments ||
      theirs.shares_encoder() != spec.shares_encoder() || theirs.bytes_by_255 != spec.bytes_by_255 ||
      theirs.action_scaling != spec.action_scaling ||
      theirs.critic().attention.heads != spec.critic().attention.heads) {
    return Misfit(weights, *found, spec);
  }
  return weights.Read(spec);
}

/// LoadPolicy of the checkpoint in `directory`.
absl::StatusOr<PolicyState> LoadPolicyOf(const std::string& directory, const policy::PolicyId& source,
                                         const PolicySpec& spec, PolicyPart part) {
  TROUPE_ASSIGN_OR_RETURN(const std::unique_ptr<storage::CheckpointWeights> weights,
                          storage::CheckpointWeights::Open(storage::FileSystem::Posix(), directory));
  const absl::StatusOr<Found> found = FindSpec(*weights, directory, source.value().empty() ? spec.id : source);
  if (absl::IsNotFound(found.status())) {
    return absl::NotFoundError(absl::StrCat(found.status().message(), "; write PATH#ID"));
  }
  TROUPE_RETURN_IF_ERROR(found.status());
  if (!policy::FirstDifference(found->spec, spec).empty()) return Misfit(*weights, *found, spec);
  TROUPE_ASSIGN_OR_RETURN(PolicyState state,
                          part == PolicyPart::kWeights ? weights->Read(found->spec) : weights->ReadWhole(found->spec));
  state.id = spec.id;
  state.version = {};
  TROUPE_RETURN_IF_ERROR(state.Validate(spec));
  return state;
}

/// Loads the weights that a policy's key `name` names. Errors begin with the key's place.
absl::StatusOr<PolicyState> LoadNamed(const ResolvedRun& run, const PolicySpec& spec, const char* name,
                                      const policy::PolicyClass& from) {
  absl::StatusOr<PolicyState> state = LoadPolicy(from.path, from.source, spec, PolicyPart::kWeights);
  if (state.ok()) return state;
  const std::string key = JoinKey(JoinKey("multi_agent.policies", spec.id.value()), name);
  return absl::Status(state.status().code(),
                      absl::StrCat(run.config.Where(key), ": ", key, ": ", state.status().message()));
}

}  // namespace

absl::StatusOr<PolicyState> LoadPolicy(const std::string& path, const policy::PolicyId& source, const PolicySpec& spec,
                                       PolicyPart part) {
  const auto load = [&](const std::string& directory) { return LoadPolicyOf(directory, source, spec, part); };
  return ReadCheckpointAt(path, load);
}

absl::Status LoadWarmStart(const std::string& path, const ResolvedRun& run,
                           std::vector<std::optional<PolicyState>>* states) {
  std::vector<bool> given;
  for (const std::optional<PolicyState>& state : *states) given.push_back(state.has_value());
  const auto load = [&](const std::string& directory) -> absl::Status {
    TROUPE_ASSIGN_OR_RETURN(const std::unique_ptr<storage::CheckpointWeights> weights,
                            storage::CheckpointWeights::Open(storage::FileSystem::Posix(), directory));
    const bool takes_part = !run.config.proto().multi_agent().load_parameters().values().empty();
    for (size_t slot = 0; slot < run.policies.size(); ++slot) {
      const PolicySpec& spec = run.policies[slot];
      if (!spec.policy_class.trainable() || given[slot]) continue;
      // Those of the first versions do not say what they hold; what does not fit is then seen in the tensors alone, and
      // a part of them is not taken.
      if (weights->manifest().state.table != nullptr || takes_part) {
        TROUPE_ASSIGN_OR_RETURN((*states)[slot], TakeFrom(*weights, directory, run, slot));
      } else {
        TROUPE_ASSIGN_OR_RETURN((*states)[slot], weights->Read(spec));
      }
      (*states)[slot]->version = {};
    }
    return absl::OkStatus();
  };
  const absl::Status loaded = ReadCheckpointAt(path, load);
  if (loaded.ok()) return loaded;
  return absl::Status(loaded.code(), absl::StrCat("--warm-start ", base::LogSafe(path), ": ", loaded.message()));
}

absl::Status CheckNoWarmStart(const ResolvedRun& run) {
  if (run.config.proto().multi_agent().load_parameters().values().empty()) return absl::OkStatus();
  return run.config.KeyError("multi_agent.load_parameters",
                             "got what to take, but from nowhere, expected --warm-start PATH beside it");
}

absl::StatusOr<std::vector<std::optional<PolicyState>>> LoadFrozenWeights(const ResolvedRun& run) {
  std::vector<std::optional<PolicyState>> states(run.policies.size());
  for (size_t slot = 0; slot < run.policies.size(); ++slot) {
    const PolicySpec& spec = run.policies[slot];
    if (spec.policy_class.kind != policy::PolicyClass::Kind::kCheckpoint) continue;
    TROUPE_ASSIGN_OR_RETURN(states[slot], LoadNamed(run, spec, "class", spec.policy_class));
  }
  return states;
}

absl::Status LoadGivenWeights(const ResolvedRun& run, std::vector<std::optional<PolicyState>>* states) {
  for (size_t slot = 0; slot < run.policies.size(); ++slot) {
    const PolicySpec& spec = run.policies[slot];
    const v1::PolicyConfig* const policy = FindPolicyConfig(run.config, spec.id);
    if (policy == nullptr || policy->load().empty()) continue;
    if (!spec.policy_class.trainable()) {
      return run.config.KeyError(
          JoinKey(JoinKey("multi_agent.policies", spec.id.value()), "load"),
          absl::StrCat("is of policies that are trained, got class ", base::LogSafe(spec.policy_class.ToString())));
    }
    TROUPE_ASSIGN_OR_RETURN(const policy::PolicyClass from, policy::ParsePolicyClass("checkpoint:" + policy->load()));
    TROUPE_ASSIGN_OR_RETURN((*states)[slot], LoadNamed(run, spec, "load", from));
  }
  return absl::OkStatus();
}

}  // namespace troupe::config
