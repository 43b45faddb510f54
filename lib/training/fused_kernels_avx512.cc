// Compiled for x86-64-v4: AVX-512 F, BW, CD, DQ, VL. See fused_kernels.h for what may not be included here.
#if defined(__GNUC__) && !defined(__clang__)
// g++ 12's own avx512fintrin.h reads "undefined" vectors on purpose (GCC bug 105593); with -Werror that would be ours.
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>

#include "lib/training/fused_kernels.h"

namespace troupe::training::fused {
namespace {

constexpr const char* kKernelName = "avx512";
constexpr int kLanes = 16;
constexpr int kTile = 8;  // 8 x 3 accumulators, 3 inputs and a weight: 28 of the 32 registers

using Vec = __m512;
typedef int32_t IVec __attribute__((vector_size(64)));
using Mask = __mmask16;

inline Vec Load(const float* p) { return _mm512_loadu_ps(p); }
inline void Store(float* p, Vec v) { _mm512_storeu_ps(p, v); }
inline Vec Set(float x) { return _mm512_set1_ps(x); }
inline IVec SetInt(int32_t x) { return (IVec)_mm512_set1_epi32(x); }
inline IVec LoadInt(const int32_t* p) { return (IVec)_mm512_loadu_si512(p); }
inline Vec Fma(Vec a, Vec b, Vec c) { return _mm512_fmadd_ps(a, b, c); }
inline Vec Min(Vec a, Vec b) { return _mm512_min_ps(a, b); }
inline Vec Max(Vec a, Vec b) { return _mm512_max_ps(a, b); }
inline Vec Sqrt(Vec a) { return _mm512_sqrt_ps(a); }
inline IVec RoundToInt(Vec a) { return (IVec)_mm512_cvtps_epi32(a); }
inline Vec Convert(IVec a) { return _mm512_cvtepi32_ps((__m512i)a); }
inline Vec Select(Mask m, Vec a, Vec b) { return _mm512_mask_blend_ps(m, b, a); }
inline Mask Less(Vec a, Vec b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
inline Mask Equal(IVec a, IVec b) { return _mm512_cmpeq_epi32_mask((__m512i)a, (__m512i)b); }
inline IVec AsInt(Vec a) { return (IVec)_mm512_castps_si512(a); }
inline Vec AsFloat(IVec a) { return _mm512_castsi512_ps((__m512i)a); }
inline IVec ShiftLeft23(IVec a) { return (IVec)_mm512_slli_epi32((__m512i)a, 23); }
inline IVec ShiftRight23(IVec a) { return (IVec)_mm512_srai_epi32((__m512i)a, 23); }
inline float Sum(Vec a) { return _mm512_reduce_add_ps(a); }
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

#include "lib/training/fused_kernels.inc"

namespace troupe::training::fused {

const Kernels* Avx512Kernels() { return &kKernels; }

}  // namespace troupe::training::fused
