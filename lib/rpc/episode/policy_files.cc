#include "lib/rpc/episode/policy_files.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"
#include "lib/policy/policy_spec.h"
#include "lib/rpc/transport/limits.h"
#include "lib/storage/acting_checkpoint.h"

namespace troupe::rpc {
namespace {

/// The image that somebody reads while another is made.
constexpr size_t kImagesKept = 2;

absl::Status CheckBytes(size_t bytes) {
  if (bytes <= kMaxPolicyFilesBytes) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("a client cannot act by itself here: the policies have ", bytes,
                                                    " bytes, expected at most ", kMaxPolicyFilesBytes,
                                                    "; ask GetActions"));
}

}  // namespace

absl::Status PolicyFiles::Enter(const std::string& host) {
  return calls_.Take(host, kMaxPolicyCalls, host.empty() ? kMaxPolicyCalls : kMaxPolicyCallsOfAddress);
}

void PolicyFiles::Leave(const std::string& host) { calls_.GiveBack(host); }

absl::StatusOr<std::shared_ptr<const PolicyImage>> PolicyFiles::NewestLocked() {
  const uint64_t number = acting_.number();
  if (!images_.empty() && images_.back()->weights == number) return images_.back();
  TROUPE_ASSIGN_OR_RETURN(std::optional<outside::ActingPolicies::Players> players, acting_.Now());
  if (!players.has_value()) return nullptr;
  size_t bytes = 0;
  for (const policy::WeightSnapshotPtr& weights : players->weights) bytes += sizeof(float) * weights->actor.size();
  TROUPE_RETURN_IF_ERROR(CheckBytes(bytes));
  TROUPE_ASSIGN_OR_RETURN(const std::vector<storage::NamedFile> files,
                          storage::ActingCheckpoint(std::move(players->specs), players->weights,
                                                    std::move(players->rules), std::move(players->agent_ids)));
  auto image = std::make_shared<PolicyImage>();
  image->weights = players->number;
  bytes = 0;
  for (const storage::NamedFile& file : files) bytes += file.bytes.size();
  TROUPE_RETURN_IF_ERROR(CheckBytes(bytes));
  image->bytes.reserve(bytes);
  for (const storage::NamedFile& file : files) {
    image->files.emplace_back(file.name, file.bytes.size());
    image->bytes += file.bytes;
  }
  images_.push_back(std::move(image));
  if (images_.size() > kImagesKept) images_.pop_front();
  return images_.back();
}

absl::StatusOr<PolicyPiece> PolicyFiles::Read(uint64_t weights, uint64_t offset) {
  PolicyPiece piece;
  {
    base::MutexLock lock(&images_mutex_);
    if (weights == 0) {
      TROUPE_ASSIGN_OR_RETURN(piece.image, NewestLocked());
    } else {
      const auto kept = std::find_if(images_.begin(), images_.end(),
                                     [weights](const auto& image) { return image->weights == weights; });
      if (kept == images_.end()) {
        return absl::AbortedError(absl::StrCat("weights ", weights, " are not kept any more; begin anew with 0"));
      }
      piece.image = *kept;
    }
  }
  const size_t bytes = piece.image == nullptr ? 0 : piece.image->bytes.size();
  if (offset > bytes || (weights == 0 && offset > 0)) {
    return absl::OutOfRangeError(absl::StrCat("offset is ", offset, ", expected at most ", weights == 0 ? 0 : bytes,
                                              weights == 0 ? ", the begin of the newest" : ""));
  }
  piece.offset = static_cast<size_t>(offset);
  return piece;
}

}  // namespace troupe::rpc
