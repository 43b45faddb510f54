#include "lib/space/image.h"

#include "absl/types/span.h"
#include "lib/space/row_scaling.h"

namespace troupe::space {

ImageExtent ImageOf(const Space& space) {
  if (space.kind() != SpaceKind::kBox) return {};
  const absl::Span<const int64_t> shape = space.shape();
  if (shape.size() == 2) return {shape[0], shape[1], 1};
  if (shape.size() == 3) return {shape[0], shape[1], shape[2]};
  return {};
}

bool IsImageOfBytes(const Space& space) {
  return ImageOf(space).size() > 0 && space.flat_dtype() == tensor::DType::kUint8;
}

bool IsByteImage(const Space& space) {
  const ImageExtent image = ImageOf(space);
  return IsImageOfBytes(space) && image.height >= kMinImageExtent && image.width >= kMinImageExtent;
}

bool IsImage(const Space& space) { return IsByteImage(space) && ScalingByBounds(space) == ScalingBy255(space); }

}  // namespace troupe::space
