#pragma once

#include "absl/types/span.h"

namespace troupe::base {

/// Whether no number is NaN or infinite.
bool AllFinite(absl::Span<const float> values);

}  // namespace troupe::base
