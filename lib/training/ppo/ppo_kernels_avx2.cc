// Compiled for x86-64-v3. See core/fused_kernels.h for what may not be included here.
// The vector type comes first.
#include "lib/tensor/vector_avx2.inc"
#include "lib/training/ppo/ppo_row_loss.inc"

namespace troupe::training::fused {

const LossKernels* PpoAvx2Kernels() { return &kLossKernels<PpoLoss>; }
const LossKernels* PpoKlAvx2Kernels() { return &kLossKernels<PpoKlLoss>; }

}  // namespace troupe::training::fused
