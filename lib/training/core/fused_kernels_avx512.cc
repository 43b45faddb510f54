// Compiled for x86-64-v4. See fused_kernels.h for what may not be included here.
// The vector type comes first.
// clang-format off
#include "lib/training/core/fused_avx512.inc"
#include "lib/training/core/fused_kernels.inc"
// clang-format on

namespace troupe::training::fused {

const Kernels* Avx512Kernels() { return &kKernels; }

}  // namespace troupe::training::fused
