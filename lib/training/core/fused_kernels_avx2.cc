// Compiled for x86-64-v3. See fused_kernels.h for what may not be included here.
// The vector type comes first.
// clang-format off
#include "lib/training/core/fused_avx2.inc"
#include "lib/training/core/fused_kernels.inc"
// clang-format on

namespace troupe::training::fused {

const Kernels* Avx2Kernels() { return &kKernels; }

}  // namespace troupe::training::fused
