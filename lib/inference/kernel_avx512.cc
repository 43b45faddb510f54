#include "lib/inference/kernels.h"
#include "lib/tensor/vector_avx512.inc"

// AVX-512 (x86-64-v4). Everything but the table has internal linkage.

namespace troupe::inference {
namespace {

constexpr int kTileRows = 12;  // 12 x 2 accumulators and two weights of 32 registers; inputs are broadcast from memory
constexpr int kPairRows = 6;   // 6 x 4 accumulators and four weights
constexpr int kCoreTileRows = 6;  // 6 x 4 sums, six inputs and a weight
constexpr int kCorePairRows = 3;  // 3 x 8 sums, three inputs and a weight

#include "lib/inference/kernel.inc"

}  // namespace

extern const KernelTable kAvx512Kernels;
const KernelTable kAvx512Kernels = {
    "avx512",   kLanes, kPanelVectors, MlpKernel, NormedMlpKernel, CategoricalKernel, PhiloxKernel,
    CoreKernel, false,  ConvKernel,    false};

}  // namespace troupe::inference
