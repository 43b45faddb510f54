#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "lib/policy/policy_spec.h"
#include "lib/policy/weight_snapshot.h"
#include "lib/storage/checkpoint_format.h"
#include "lib/storage/file_system.h"
#include "lib/storage/safetensors.h"

namespace troupe::storage {

/// The weights in a checkpoint, read and verified one policy at a time, so that who needs a few of a thousand reads
/// those. Made and owned by a service. Immutable, thread-safe; Read blocks on the disk.
///
/// The file of all weights is held open: a checkpoint that its run removes meanwhile is still read. One that was stored
/// separately has a file for each policy, which is opened by its name each time.
class CheckpointWeights {
 public:
  /// DATA_LOSS: the manifest or the file's header is damaged; FAILED_PRECONDITION: another version's format. `fs` lives
  /// longer.
  static absl::StatusOr<std::unique_ptr<CheckpointWeights>> Open(FileSystem& fs, std::string directory);

  /// The policy's weights and normalizers without optimizer and counters. NOT_FOUND: the checkpoint has no policy of
  /// that id; INVALID_ARGUMENT: its networks differ from `spec`; DATA_LOSS: its bytes are damaged or gone, which is the
  /// loss of this policy alone. Checkpoints of a version that noted no checksum a policy are verified whole each time.
  absl::StatusOr<policy::PolicyState> Read(const policy::PolicySpec& spec) const;

 private:
  /// A file of weights whose header has been read and verified.
  struct Tensors {
    std::unique_ptr<OpenFile> file;
    SafetensorsIndex index;
    int64_t data_begin = 0;  ///< where the header ends
  };

  CheckpointWeights(FileSystem& fs, std::string directory, CheckpointManifest manifest);

  absl::StatusOr<Tensors> OpenTensors(const std::string& name) const;
  absl::StatusOr<policy::PolicyState> ReadFrom(const Tensors& tensors, const policy::PolicySpec& spec,
                                               size_t index) const;

  FileSystem& fs_;
  const std::string directory_;
  const CheckpointManifest manifest_;
  std::string shared_name_;  ///< of the file of all weights; empty when each policy has its own
  Tensors shared_;
};

}  // namespace troupe::storage
