#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "lib/policy/policy_fwd.h"
#include "lib/policy/policy_table.h"
#include "lib/policy/weight_snapshot.h"
#include "lib/storage/checkpoint_format.h"
#include "lib/storage/file_system.h"
#include "lib/storage/safetensors.h"

namespace troupe::storage {

/// Bytes of one policy's weights that are read at most, its optimizer's besides.
inline constexpr int64_t kMaxPolicyBytes = int64_t{2} << 30;

/// The policies that the checkpoint in `directory` holds and who played them. FAILED_PRECONDITION with the command that
/// mends it: it was written by a version that did not note them.
absl::StatusOr<policy::PolicyTablePtr> PoliciesOf(const CheckpointManifest& manifest, const std::string& directory);

/// The policies in a checkpoint of anybody's run, read and verified one at a time, so that who needs a few of a
/// thousand reads those. It is data: manifest and safetensors alone are read, regular files, and of them no more than
/// the specs that are asked for need. Made and owned by a service. Immutable, thread-safe; all blocks on the disk.
///
/// The file of all weights is held open: a checkpoint that its run removes meanwhile is still read. One that was stored
/// separately has a file for each policy, which is opened by its name each time.
class CheckpointWeights {
 public:
  /// DATA_LOSS: the manifest or the file's header is damaged; FAILED_PRECONDITION: another version's format. `fs` lives
  /// longer.
  static absl::StatusOr<std::unique_ptr<CheckpointWeights>> Open(FileSystem& fs, std::string directory);

  /// Its part kPolicies.
  const CheckpointManifest& manifest() const { return manifest_; }

  /// As PoliciesOf its manifest.
  absl::StatusOr<policy::PolicyTablePtr> Policies() const { return PoliciesOf(manifest_, directory_); }

  /// The policy's weights and normalizers without optimizer and counters. NOT_FOUND: the checkpoint has no policy of
  /// that id; INVALID_ARGUMENT: its networks differ from `spec`, or have more than kMaxPolicyBytes; DATA_LOSS: its
  /// bytes are damaged or gone, which is the loss of this policy alone. Checkpoints of a version that noted no checksum
  /// a policy have the whole file verified each time.
  absl::StatusOr<policy::PolicyState> Read(const policy::PolicySpec& spec) const;
  /// All of the policy: optimizer and counters, too. Verifies the optimizers' file whole.
  absl::StatusOr<policy::PolicyState> ReadWhole(const policy::PolicySpec& spec) const;

 private:
  /// A file whose header has been read and verified.
  struct Tensors {
    std::unique_ptr<OpenFile> file;
    SafetensorsIndex index;
    int64_t data_begin = 0;  ///< where the header ends
  };
  /// How a file is verified when it is opened.
  enum class Verify : uint8_t {
    kHeader = 1,  ///< the rest when it is read
    kWhole = 2,
  };

  CheckpointWeights(FileSystem& fs, std::string directory, CheckpointManifest manifest);

  bool has_checksums() const { return manifest_.weights_crc32c.size() == manifest_.state.policies.size(); }
  absl::StatusOr<size_t> IndexOf(const policy::PolicyId& id) const;
  absl::StatusOr<Tensors> OpenTensors(const std::string& name, Verify verify) const;
  absl::StatusOr<std::string> ReadRange(const Tensors& tensors, uint64_t begin, uint64_t end) const;
  absl::StatusOr<policy::PolicyState> ReadFrom(const Tensors& tensors, const policy::PolicySpec& spec,
                                               size_t index) const;

  FileSystem& fs_;
  const std::string directory_;
  const CheckpointManifest manifest_;
  std::string shared_name_;  ///< of the file of all weights; empty when each policy has its own
  Tensors shared_;
};

/// One policy's weights and normalizers without optimizer and counters: CheckpointWeights of one use.
absl::StatusOr<policy::PolicyState> ReadPolicyWeights(FileSystem& fs, const std::string& directory,
                                                      const policy::PolicySpec& spec);
/// The same of several policies, in the order of `specs`.
absl::StatusOr<std::vector<policy::PolicyState>> ReadWeights(FileSystem& fs, const std::string& directory,
                                                             absl::Span<const policy::PolicySpec> specs);

}  // namespace troupe::storage
