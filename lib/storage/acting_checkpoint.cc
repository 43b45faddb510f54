#include "lib/storage/acting_checkpoint.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"
#include "lib/policy/parameter_layout.h"
#include "lib/policy/policy_spec.h"
#include "lib/policy/policy_state.h"
#include "lib/policy/policy_table.h"
#include "lib/storage/checkpoint_format.h"

namespace troupe::storage {
namespace {

/// Keeps what is written. Nothing is read, moved or removed.
class FilesInMemory final : public FileSystem {
 public:
  absl::Status WriteNewFile(const std::string& path, absl::Span<const absl::Span<const std::byte>> pieces) override {
    NamedFile& file = files.emplace_back();
    file.name = path.substr(path.rfind('/') + 1);
    size_t bytes = 0;
    for (const absl::Span<const std::byte> piece : pieces) bytes += piece.size();
    file.bytes.reserve(bytes);
    for (const absl::Span<const std::byte> piece : pieces) {
      file.bytes.append(reinterpret_cast<const char*>(piece.data()), piece.size());
    }
    return absl::OkStatus();
  }
  absl::StatusOr<std::string> ReadFile(const std::string&, int64_t) override { return NotHere(); }
  absl::StatusOr<std::unique_ptr<OpenFile>> Open(const std::string&) override { return NotHere(); }
  absl::Status Rename(const std::string&, const std::string&) override { return NotHere(); }
  absl::Status SyncFile(const std::string&) override { return absl::OkStatus(); }
  absl::Status SyncDirectory(const std::string&) override { return absl::OkStatus(); }
  absl::Status MakeDirectories(const std::string&) override { return absl::OkStatus(); }
  absl::Status RemoveTree(const std::string&) override { return NotHere(); }
  absl::StatusOr<std::vector<std::string>> List(const std::string&) override { return NotHere(); }
  bool Exists(const std::string&) override { return false; }
  absl::Status ReplaceLink(const std::string&, const std::string&) override { return NotHere(); }
  absl::StatusOr<std::string> ReadLink(const std::string&) override { return NotHere(); }

  std::vector<NamedFile> files;

 private:
  static absl::Status NotHere() { return absl::UnimplementedError("files in memory are only written"); }
};

/// The acting network alone.
policy::PolicySpec ActorOf(policy::PolicySpec spec) {
  spec.policy_class = policy::PolicyClass();
  spec.learner_networks.clear();
  spec.learner_numbers.clear();
  spec.actor.has_target = false;
  spec.joint_action_size = 0;
  spec.joint_observation_size = 0;
  spec.state_size = 0;
  spec.normalize_state = false;
  if (!spec.remembers()) spec.sequence_length = 0;
  return spec;
}

/// What SnapshotOf makes `weights` of. INVALID_ARGUMENT: they are no weights of `spec`.
absl::StatusOr<policy::PolicyState> StateOf(const policy::WeightSnapshot& weights, const policy::PolicySpec& spec) {
  TROUPE_RETURN_IF_ERROR(weights.Validate(spec));
  policy::PolicyState state;
  state.id = weights.id;
  state.version = weights.version;
  state.Set(policy::kParameters, weights.actor);
  if (!spec.normalize_observations) return state;
  policy::RunningMoments moments;
  moments.count = 1;
  moments.mean.assign(weights.observation_mean.begin(), weights.observation_mean.end());
  for (const float inverse_std : weights.observation_inverse_std) {
    // A double of it has more than twice a float's digits: its root's inverse rounds to the same float.
    moments.variance.push_back(1.0 / (double{inverse_std} * double{inverse_std}));
  }
  state.SetMoments(policy::kObservationMoments, std::move(moments));
  return state;
}

}  // namespace

absl::StatusOr<std::vector<NamedFile>> ActingCheckpoint(std::vector<policy::PolicySpec> specs,
                                                        absl::Span<const policy::WeightSnapshotPtr> weights,
                                                        std::vector<policy::MappingRule> rules,
                                                        std::vector<std::string> agent_ids) {
  if (specs.size() != weights.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("got weights of ", weights.size(), " policies, expected ", specs.size()));
  }
  learner::LearnerState state;
  for (size_t i = 0; i < specs.size(); ++i) {
    if (!specs[i].policy_class.has_weights() || weights[i] == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat("policy \"", specs[i].id.value(), "\" has no weights"));
    }
    specs[i] = ActorOf(std::move(specs[i]));
    TROUPE_ASSIGN_OR_RETURN(state.policies.emplace_back(), StateOf(*weights[i], specs[i]));
  }
  const std::vector<bool> trains(specs.size(), false);
  TROUPE_ASSIGN_OR_RETURN(state.table,
                          policy::PolicyTable::Make(std::move(specs), trains, std::move(rules), std::move(agent_ids)));
  FilesInMemory fs;
  TROUPE_RETURN_IF_ERROR(WriteCheckpointFiles(fs, ".", state, {}, {}));
  const auto is_of_learners = [](const NamedFile& file) {
    return file.name != "manifest.json" && file.name != "policies.safetensors";
  };
  fs.files.erase(std::remove_if(fs.files.begin(), fs.files.end(), is_of_learners), fs.files.end());
  return std::move(fs.files);
}

}  // namespace troupe::storage
