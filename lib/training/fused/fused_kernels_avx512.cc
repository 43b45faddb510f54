// Compiled for x86-64-v4. See fused_kernels.h for what may not be included here.
#include "lib/tensor/vector_avx512.inc"
#include "lib/training/core/fused_kernels.h"

namespace troupe::training::fused {
namespace {

constexpr const char* kKernelName = "avx512";
constexpr Unit kUnit = Unit::kAvx512;
constexpr int kTile = 8;  // 8 x 3 accumulators, 3 inputs and a weight: 28 of the 32 registers

/// Each quarter of the result has a part of the four vectors' sums.
inline Vec PartsOfFour(const Vec* v) {
  const Vec ab = _mm512_add_ps(_mm512_unpacklo_ps(v[0], v[1]), _mm512_unpackhi_ps(v[0], v[1]));
  const Vec cd = _mm512_add_ps(_mm512_unpacklo_ps(v[2], v[3]), _mm512_unpackhi_ps(v[2], v[3]));
  return _mm512_add_ps(_mm512_shuffle_ps(ab, cd, 0x44), _mm512_shuffle_ps(ab, cd, 0xEE));
}
/// to[i] += the sum of v[i], i < kCount <= 8.
template <int kCount>
inline void AddSums(const Vec* v, float* to) {
  Vec all[8];
  for (int i = 0; i < 8; ++i) all[i] = i < kCount ? v[i] : _mm512_setzero_ps();
  const Vec low = PartsOfFour(all);
  const Vec high = kCount > 4 ? PartsOfFour(all + 4) : _mm512_setzero_ps();
  const Vec parts = _mm512_add_ps(_mm512_shuffle_f32x4(low, high, 0x44), _mm512_shuffle_f32x4(low, high, 0xEE));
  const __m256 sums = _mm256_add_ps(_mm512_castps512_ps256(_mm512_shuffle_f32x4(parts, parts, 0x08)),
                                    _mm512_castps512_ps256(_mm512_shuffle_f32x4(parts, parts, 0x0D)));
  constexpr __mmask8 kThese = (1 << kCount) - 1;
  _mm256_mask_storeu_ps(to, kThese, _mm256_add_ps(_mm256_maskz_loadu_ps(kThese, to), sums));
}

}  // namespace
}  // namespace troupe::training::fused

#include "lib/training/fused/fused_kernels.inc"

namespace troupe::training::fused {

const Kernels* Avx512Kernels() { return &kKernels; }

}  // namespace troupe::training::fused
