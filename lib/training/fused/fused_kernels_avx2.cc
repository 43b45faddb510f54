// Compiled for x86-64-v3. See fused_kernels.h for what may not be included here.
#include "lib/tensor/vector_avx2.inc"
#include "lib/training/core/fused_kernels.h"

namespace troupe::training::fused {
namespace {

constexpr const char* kKernelName = "avx2";
constexpr Unit kUnit = Unit::kAvx2;
constexpr int kTile = 4;  // 4 x 3 accumulators, 3 inputs and a weight: the 16 registers

/// to[i] += the sum of v[i], i < kCount <= 4.
template <int kCount>
inline void AddSums(const Vec* v, float* to) {
  Vec all[4];
  for (int i = 0; i < 4; ++i) all[i] = i < kCount ? v[i] : _mm256_setzero_ps();
  const Vec ab = _mm256_add_ps(_mm256_unpacklo_ps(all[0], all[1]), _mm256_unpackhi_ps(all[0], all[1]));
  const Vec cd = _mm256_add_ps(_mm256_unpacklo_ps(all[2], all[3]), _mm256_unpackhi_ps(all[2], all[3]));
  // Each half has a part of the four sums.
  const Vec parts = _mm256_add_ps(_mm256_shuffle_ps(ab, cd, 0x44), _mm256_shuffle_ps(ab, cd, 0xEE));
  const __m128 sums = _mm_add_ps(_mm256_castps256_ps128(parts), _mm256_extractf128_ps(parts, 1));
  const __m128i these = _mm_cmpgt_epi32(_mm_set1_epi32(kCount), _mm_setr_epi32(0, 1, 2, 3));
  _mm_maskstore_ps(to, these, _mm_add_ps(_mm_maskload_ps(to, these), sums));
}

}  // namespace
}  // namespace troupe::training::fused

#include "lib/training/fused/fused_kernels.inc"

namespace troupe::training::fused {

const Kernels* Avx2Kernels() { return &kKernels; }

}  // namespace troupe::training::fused
