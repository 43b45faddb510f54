#include "lib/render/frame_writer.h"

#include "absl/strings/str_cat.h"

namespace troupe::render {

absl::Status CheckSize(const Picture& picture, int width, int height) {
  if (picture.width == width && picture.height == height) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("a picture of ", picture.width, "x", picture.height, ", expected ", width, "x", height));
}

}  // namespace troupe::render
