#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "lib/render/frame_writer.h"

namespace troupe::render {

/// A PNG of kMostPictures of the pictures that came, as evenly apart as they can be, the first and the last among
/// them: in rows of kColumns, from left to right. What is kept meanwhile is twice as many pictures at most.
class ContactSheet final : public FrameWriter {
 public:
  static constexpr size_t kColumns = 4;
  static constexpr size_t kMostPictures = 8;

  ContactSheet(int width, int height) : width_(width), height_(height) {}

  absl::Status Add(const Picture& picture, int times) override;
  /// FAILED_PRECONDITION where no picture came.
  absl::StatusOr<std::string> Finish() override;

 private:
  using Pixels = std::vector<uint8_t>;

  const int width_;
  const int height_;
  size_t stride_ = 1;         ///< pictures between two of kept_
  size_t count_ = 0;          ///< that came
  std::vector<Pixels> kept_;  ///< numbers 0, stride_, 2 stride_, ...
  Pixels last_;
};

/// A picture as a PNG file, [height, width, 3] bytes, red first, the top row first. INTERNAL where zlib fails.
absl::StatusOr<std::string> EncodePng(int width, int height, absl::Span<const uint8_t> rgb);

}  // namespace troupe::render
