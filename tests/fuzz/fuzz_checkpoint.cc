// The files of a checkpoint that somebody else made: manifest.json and a file of weights in safetensors. Nothing is
// taken for whole that would make a reader look beyond what is there.
//
// Input: a byte (bit 0: manifest.json, else the file of weights; bit 1: the manifest's checksum is put right), then the
// file.

#include <cstdio>
#include <map>
#include <memory>
#include <string>

#include "lib/base/check.h"
#include "lib/base/crc32c.h"
#include "lib/policy/testing.h"
#include "lib/storage/checkpoint_blocks.h"
#include "lib/storage/checkpoint_format.h"
#include "lib/storage/safetensors.h"
#include "tests/fuzz/fuzz_input.h"

namespace troupe {
namespace {

constexpr char kChecksumKey[] = "\"manifest_crc32c\": \"";

/// Holds one file and takes no other.
class OneFile final : public storage::FileSystem {
 public:
  explicit OneFile(std::string text) : text_(std::move(text)) {}
  absl::StatusOr<std::string> ReadFile(const std::string&, int64_t max_bytes) override {
    if (static_cast<int64_t>(text_.size()) > max_bytes) return absl::ResourceExhaustedError("too large");
    return text_;
  }
  absl::Status WriteNewFile(const std::string&, absl::Span<const absl::Span<const std::byte>>) override { return No(); }
  absl::StatusOr<std::unique_ptr<storage::OpenFile>> Open(const std::string&) override { return No(); }
  absl::Status Rename(const std::string&, const std::string&) override { return No(); }
  absl::Status SyncFile(const std::string&) override { return No(); }
  absl::Status SyncDirectory(const std::string&) override { return No(); }
  absl::Status MakeDirectories(const std::string&) override { return No(); }
  absl::Status RemoveTree(const std::string&) override { return No(); }
  absl::StatusOr<std::vector<std::string>> List(const std::string&) override { return No(); }
  bool Exists(const std::string&) override { return true; }
  absl::Status ReplaceLink(const std::string&, const std::string&) override { return No(); }
  absl::StatusOr<std::string> ReadLink(const std::string&) override { return No(); }

 private:
  static absl::Status No() { return absl::UnimplementedError("not here"); }
  const std::string text_;
};

void PutRight(std::string* text) {
  const size_t key = text->find(kChecksumKey);
  if (key == std::string::npos) return;
  const size_t at = key + sizeof(kChecksumKey) - 1;
  if (at + 8 > text->size()) return;
  text->replace(at, 8, "00000000");
  char hex[9];
  std::snprintf(hex, sizeof(hex), "%08x", base::Crc32c(text->data(), text->size()));
  text->replace(at, 8, hex);
}

void ReadManifest(std::string text, bool put_right) {
  if (put_right) PutRight(&text);
  OneFile fs(std::move(text));
  for (const storage::ManifestPart part : {storage::ManifestPart::kAll, storage::ManifestPart::kPolicies}) {
    const absl::StatusOr<storage::CheckpointManifest> manifest = storage::ReadManifest(fs, "checkpoint", part);
    if (!manifest.ok()) continue;
    for (const storage::CheckpointManifest::File& file : manifest->files) {
      TROUPE_CHECK(file.bytes >= 0);
      TROUPE_CHECK(file.name.find('/') == std::string::npos);
    }
  }
}

void ReadWeights(const std::string& text) {
  const absl::StatusOr<storage::SafetensorsFile> file = storage::SafetensorsFile::Parse(text);
  if (!file.ok()) return;
  uint32_t crc = 0;
  for (const auto& [name, tensor] : file->tensors()) crc = base::Crc32c(tensor.bytes.data(), tensor.bytes.size(), crc);
  const policy::PolicySpec spec = policy::SmallSpecForTesting();
  storage::WeightsFromTensors(*file, spec, {}).IgnoreError();
  for (const int64_t format : {storage::kOldestCheckpointFormat, storage::kCheckpointFormat}) {
    policy::PolicyState state;
    state.id = spec.id;
    if (storage::TakeOtherBlocks(*file, format, &state).ok()) state.Validate(spec).IgnoreError();
  }
}

}  // namespace
}  // namespace troupe

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  troupe::fuzz::FuzzInput input(data, size);
  const uint8_t how = input.Byte();
  const std::string text(input.Rest());
  if ((how & 1) != 0) {
    troupe::ReadManifest(text, (how & 2) != 0);
  } else {
    troupe::ReadWeights(text);
  }
  return 0;
}
