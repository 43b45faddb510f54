#include "lib/inference/kernels.h"
#include "lib/tensor/vector_avx2.inc"

// AVX2 and FMA (x86-64-v3). Everything but the table has internal linkage.

namespace troupe::inference {
namespace {

constexpr int kTileRows = 6;      // 6 x 2 accumulators, two weights and one input fill the 16 registers
constexpr int kPairRows = 2;      // 2 x 4 accumulators, four weights and one input
constexpr int kCoreTileRows = 3;  // 3 x 4 sums, three inputs and a weight
constexpr int kCorePairRows = 1;  // 1 x 8 sums

#include "lib/inference/kernel.inc"

}  // namespace

extern const KernelTable kAvx2Kernels;
const KernelTable kAvx2Kernels = {
    "avx2",     kLanes, kPanelVectors, MlpKernel, NormedMlpKernel, CategoricalKernel, PhiloxKernel,
    CoreKernel, false,  ConvKernel,    false};

}  // namespace troupe::inference
