#pragma once

#include <algorithm>
#include <memory>
#include <string>

#include "lib/telemetry/append_file.h"

namespace troupe::telemetry {

/// A disk that a test fills and empties.
struct FakeDisk {
  std::string contents;
  size_t capacity = static_cast<size_t>(-1);  ///< bytes that `contents` may have
  bool can_truncate = true;
  int appends = 0;
};

/// The one file on a FakeDisk, which outlives it. A write that does not fit leaves what does.
class FakeAppendFile final : public AppendFile {
 public:
  explicit FakeAppendFile(FakeDisk* disk) : disk_(disk) {}

  Appended Append(std::string_view bytes) override {
    ++disk_->appends;
    const size_t room = disk_->capacity - std::min(disk_->capacity, disk_->contents.size());
    const size_t fits = std::min(bytes.size(), room);
    disk_->contents += bytes.substr(0, fits);
    return {fits, fits == bytes.size() ? absl::OkStatus() : absl::ResourceExhaustedError("No space left on device")};
  }
  absl::Status Truncate(int64_t bytes) override {
    if (!disk_->can_truncate) return absl::InternalError("Input/output error");
    disk_->contents.resize(static_cast<size_t>(bytes));
    return absl::OkStatus();
  }
  int64_t bytes() const override { return 0; }

 private:
  FakeDisk* const disk_;
};

}  // namespace troupe::telemetry
