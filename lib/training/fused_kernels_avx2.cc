// Compiled for x86-64-v3: AVX2 and FMA. See fused_kernels.h for what may not be included here.
#include <immintrin.h>

#include "lib/training/fused_kernels.h"

namespace troupe::training::fused {
namespace {

constexpr const char* kKernelName = "avx2";
constexpr int kLanes = 8;
constexpr int kTile = 4;  // 4 x 3 accumulators, 3 inputs and a weight: the 16 registers

using Vec = __m256;
// A vector type of its own: __m256i has 64-bit elements for operators.
typedef int32_t IVec __attribute__((vector_size(32)));
using Mask = __m256;

inline Vec Load(const float* p) { return _mm256_loadu_ps(p); }
inline void Store(float* p, Vec v) { _mm256_storeu_ps(p, v); }
inline Vec Set(float x) { return _mm256_set1_ps(x); }
inline IVec SetInt(int32_t x) { return (IVec)_mm256_set1_epi32(x); }
inline IVec LoadInt(const int32_t* p) { return (IVec)_mm256_loadu_si256((const __m256i*)p); }
inline Vec Fma(Vec a, Vec b, Vec c) { return _mm256_fmadd_ps(a, b, c); }
inline Vec Min(Vec a, Vec b) { return _mm256_min_ps(a, b); }
inline Vec Max(Vec a, Vec b) { return _mm256_max_ps(a, b); }
inline Vec Sqrt(Vec a) { return _mm256_sqrt_ps(a); }
inline IVec RoundToInt(Vec a) { return (IVec)_mm256_cvtps_epi32(a); }
inline Vec Convert(IVec a) { return _mm256_cvtepi32_ps((__m256i)a); }
inline Vec Select(Mask m, Vec a, Vec b) { return _mm256_blendv_ps(b, a, m); }
inline Mask Less(Vec a, Vec b) { return _mm256_cmp_ps(a, b, _CMP_LT_OQ); }
inline Mask Equal(IVec a, IVec b) { return _mm256_castsi256_ps(_mm256_cmpeq_epi32((__m256i)a, (__m256i)b)); }
inline IVec AsInt(Vec a) { return (IVec)_mm256_castps_si256(a); }
inline Vec AsFloat(IVec a) { return _mm256_castsi256_ps((__m256i)a); }
inline IVec ShiftLeft23(IVec a) { return (IVec)_mm256_slli_epi32((__m256i)a, 23); }
inline IVec ShiftRight23(IVec a) { return (IVec)_mm256_srai_epi32((__m256i)a, 23); }
inline float Sum(Vec a) {
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}
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

#include "lib/training/fused_kernels.inc"

namespace troupe::training::fused {

const Kernels* Avx2Kernels() { return &kKernels; }

}  // namespace troupe::training::fused
