#pragma once

#include <cstdint>

#include "lib/space/space.h"

namespace troupe::space {

/// Pixels that an image is at least high and wide, where nothing else says that it is one.
inline constexpr int64_t kMinImageExtent = 10;

/// Height, width and channels of a Box of [height, width, channels] or [height, width], which lies in rows as it says;
/// zeros where the space is no such Box. Plain value.
struct ImageExtent {
  int64_t height = 0;
  int64_t width = 0;
  int64_t channels = 0;

  int64_t size() const { return height * width * channels; }
  bool operator==(const ImageExtent& other) const = default;
};
ImageExtent ImageOf(const Space& space);

/// Whether observations are images of bytes, of any size.
bool IsImageOfBytes(const Space& space);
/// True for observations that lie as images do: uint8, and at least kMinImageExtent high and wide.
bool IsByteImage(const Space& space);
/// True for observations that are taken for images without being asked: an IsByteImage of 0 to 255.
bool IsImage(const Space& space);

}  // namespace troupe::space
