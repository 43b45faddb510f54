#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/render/frame_writer.h"

namespace troupe::render {

/// Makes an animated GIF (89a, which repeats for ever) in memory, a picture after another; each has a palette of its
/// own, of at most 256 colors. Not thread-safe.
class GifWriter final : public FrameWriter {
 public:
  static constexpr int64_t kMostBytes = int64_t{512} << 20;  ///< of what was encoded; unless Create is told otherwise

  /// Every picture is shown for `delay_ms`, in GIF's steps of 10 ms; viewers show less than 20 as 100.
  static absl::StatusOr<std::unique_ptr<GifWriter>> Create(int width, int height, int delay_ms,
                                                           int64_t most_bytes = kMostBytes);
  ~GifWriter() override;

  /// RESOURCE_EXHAUSTED beyond most_bytes.
  absl::Status Add(const Picture& picture, int times) override;
  absl::StatusOr<std::string> Finish() override;

 private:
  struct File;
  explicit GifWriter(std::unique_ptr<File> file);
  absl::Status AddOnce(const Picture& picture);

  std::unique_ptr<File> file_;
};

}  // namespace troupe::render
