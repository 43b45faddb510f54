#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "lib/learner/checkpoint.h"
#include "lib/policy/policy_fwd.h"
#include "lib/policy/policy_table.h"
#include "lib/storage/file_system.h"
#include "lib/storage/safetensors.h"

namespace troupe::storage {

/// What a checkpoint directory holds beside the tensors, for people and for the checks.
struct CheckpointOptions {
  uint64_t spec_hash = 0;           ///< sample::BatchSchema::Hash of the run; another run's checkpoint is refused by it
  std::string config_yaml;          ///< resolved configuration, stored as config.yaml
  bool store_separately = false;    ///< skrl's name: two files for each policy instead of two for all
  int64_t policy_map_capacity = 0;  ///< actors that a server of the policies holds, as the learner does; 0: not noted
};

/// Largest file that a checkpoint may hold.
constexpr int64_t kMaxCheckpointFileBytes = int64_t{64} << 30;
/// So many a checkpoint may have: weights and optimizer of each policy, what groups keep, and the configuration.
constexpr size_t kMaxCheckpointFiles = 2 * policy::PolicyTable::kMaxPolicies + 2;

/// Writes `state` into `directory`, which exists and is empty: `policies.safetensors` and `optimizer.safetensors` (or
/// `policy_<slot>.safetensors` and `optimizer_<slot>.safetensors`), `groups.safetensors` where groups keep anything,
/// `config.yaml` and, last, `manifest.json` with sizes, CRC-32C, counters and watermarks. Everything in it is synced
/// when it returns OK. Tensors are named `<policy id>/<parameter>`; file names never hold an id. A state with a table
/// has that table's policies, whatever `specs` are, and the table lies in the manifest; reading such a checkpoint gives
/// them back.
absl::Status WriteCheckpointFiles(FileSystem& fs, const std::string& directory, const learner::LearnerState& state,
                                  absl::Span<const policy::PolicySpec> specs, const CheckpointOptions& options);

/// The manifest without the tensors: counters, lanes, windows.
struct CheckpointManifest {
  int64_t format = 0;           ///< kOldestCheckpointFormat to kCheckpointFormat (checkpoint_blocks.h)
  learner::LearnerState state;  ///< policies and groups hold integers and versions only
  uint64_t spec_hash = 0;
  struct File {
    std::string name;
    int64_t bytes = 0;
    uint32_t crc32c = 0;
    uint32_t header_crc32c = 0;  ///< of the header of a safetensors file
  };
  std::vector<File> files;
  /// Of each policy's bytes in its file of weights, in the order of state.policies; empty in checkpoints of a version
  /// that did not note them.
  std::vector<uint32_t> weights_crc32c;
  int64_t policy_map_capacity = 0;  ///< as CheckpointOptions has it

  const File* Find(const std::string& name) const;
  /// Which file holds the weights of state.policies[index].
  std::string WeightsFile(size_t index) const;
  std::string OptimizerFile(size_t index) const;
};

/// How much of a manifest is read.
enum class ManifestPart : uint8_t {
  kAll = 1,       ///< of the run that goes on
  kPolicies = 2,  ///< the table, the policies' counters and files, updates and env steps: all that is needed of
                  ///< somebody else's run
};
/// DATA_LOSS when it is missing, no regular file, torn, its checksum is wrong, or it says what cannot be;
/// FAILED_PRECONDITION for another version's format. Takes little memory whatever the file is; errors hold nothing of
/// it.
absl::StatusOr<CheckpointManifest> ReadManifest(FileSystem& fs, const std::string& directory,
                                                ManifestPart part = ManifestPart::kAll);

/// Puts the policies' table into the manifest of a checkpoint, in the place of the one that it may have, atomically. It
/// has the slots of the checkpoint's policies.
absl::Status AddPolicyTable(FileSystem& fs, const std::string& directory, const policy::PolicyTable& table);

/// DATA_LOSS: the checkpoint is damaged, and how.
absl::Status CheckpointDamaged(const std::string& directory, const std::string& what);

/// A policy's weights and normalizers from the arrays that a file of weights holds of it. INVALID_ARGUMENT or NOT_FOUND
/// when they are not what `spec` asks for.
absl::StatusOr<policy::PolicyState> WeightsFromTensors(const SafetensorsFile& file, const policy::PolicySpec& spec,
                                                       policy::WeightVersion version);

/// Size and checksum of one file; DATA_LOSS says what differs. Holds little of it in memory.
absl::Status VerifyOpenFile(const OpenFile& opened, const std::string& directory, const CheckpointManifest::File& file);

/// Sizes and checksums of every file against the manifest, and that nothing else lies there. DATA_LOSS with what
/// differs.
absl::StatusOr<CheckpointManifest> VerifyCheckpoint(FileSystem& fs, const std::string& directory,
                                                    ManifestPart part = ManifestPart::kAll);

/// Everything, verified. FAILED_PRECONDITION when `spec_hash` (unless 0) is not the checkpoint's: it is of another run;
/// DATA_LOSS when it is damaged.
absl::StatusOr<learner::LearnerState> ReadCheckpoint(FileSystem& fs, const std::string& directory,
                                                     absl::Span<const policy::PolicySpec> specs, uint64_t spec_hash);

}  // namespace troupe::storage
