#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "lib/inference/kernels.h"

namespace troupe::inference {

/// The kernels that compute. Values are not stored anywhere.
enum class Backend : uint8_t {
  kAuto = 0,    ///< the fastest this processor has
  kEigen = 1,   ///< Eigen and plain C++
  kAvx2 = 2,    ///< AVX2 and FMA
  kAvx512 = 3,  ///< AVX-512 F, VL, BW, DQ
};
/// UNIMPLEMENTED when this build or processor has no such kernels.
absl::StatusOr<const KernelTable*> FindKernels(Backend backend);

}  // namespace troupe::inference
