#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/render/raster_canvas.h"

namespace troupe::render {

/// Makes a file of pictures that come one after another, in memory. Made for pictures of one size; not thread-safe.
class FrameWriter {
 public:
  virtual ~FrameWriter() = default;

  /// `times`: for how many pictures' time it is shown, at least 1. INVALID_ARGUMENT for a picture of another size;
  /// RESOURCE_EXHAUSTED where the file becomes too large.
  virtual absl::Status Add(const Picture& picture, int times) = 0;
  /// The file. Once, after which nothing may be added.
  virtual absl::StatusOr<std::string> Finish() = 0;
};

/// INVALID_ARGUMENT unless the picture has that size.
absl::Status CheckSize(const Picture& picture, int width, int height);

}  // namespace troupe::render
