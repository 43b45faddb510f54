#include <immintrin.h>

#include "lib/inference/kernels.h"

// AVX2 and FMA (x86-64-v3), eight floats at a time. Everything but the table has internal linkage.

namespace troupe::inference {
namespace {

constexpr int kLanes = 8;
constexpr int kTileRows = 6;  // 6 x 2 accumulators, two weights and one input fill the 16 registers
constexpr int kPairRows = 2;  // 2 x 4 accumulators, four weights and one input

using Vec = __m256;
using Mask = __m256;

inline Vec Load(const float* p) { return _mm256_loadu_ps(p); }
inline void Store(float* p, Vec v) { _mm256_storeu_ps(p, v); }
inline Vec Set1(float x) { return _mm256_set1_ps(x); }
inline Vec Add(Vec a, Vec b) { return _mm256_add_ps(a, b); }
inline Vec Sub(Vec a, Vec b) { return _mm256_sub_ps(a, b); }
inline Vec Mul(Vec a, Vec b) { return _mm256_mul_ps(a, b); }
inline Vec Div(Vec a, Vec b) { return _mm256_div_ps(a, b); }
inline Vec Fma(Vec a, Vec b, Vec c) { return _mm256_fmadd_ps(a, b, c); }
inline Vec Max(Vec a, Vec b) { return _mm256_max_ps(a, b); }
inline Vec Min(Vec a, Vec b) { return _mm256_min_ps(a, b); }
inline Vec Round(Vec a) { return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
inline Vec Abs(Vec a) { return _mm256_andnot_ps(Set1(-0.0f), a); }
inline Vec CopySign(Vec magnitude, Vec sign) {
  return _mm256_or_ps(_mm256_andnot_ps(Set1(-0.0f), magnitude), _mm256_and_ps(Set1(-0.0f), sign));
}
/// v * 2^n for integral n in [-126, 127].
inline Vec ScaleByPowerOfTwo(Vec v, Vec n) {
  const __m256i exponent = _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23);
  return Mul(v, _mm256_castsi256_ps(exponent));
}
inline Mask Greater(Vec a, Vec b) { return _mm256_cmp_ps(a, b, _CMP_GT_OQ); }
inline Mask And(Mask a, Mask b) { return _mm256_and_ps(a, b); }
inline Vec Select(Mask m, Vec yes, Vec no) { return _mm256_blendv_ps(no, yes, m); }
inline unsigned Bits(Mask m) { return static_cast<unsigned>(_mm256_movemask_ps(m)); }

/// The first `count` lanes (0..8).
inline Mask FirstLanes(int64_t count) {
  const __m256i index = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return _mm256_castsi256_ps(_mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)), index));
}
/// Lanes whose byte is not 0; reads no byte beyond `count`.
inline Mask BytesNotZero(const uint8_t* bytes, int64_t count) {
  alignas(8) uint8_t copy[8] = {};
  for (int64_t i = 0; i < count; ++i) copy[i] = bytes[i];
  const __m256i wide = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(copy)));
  return _mm256_castsi256_ps(_mm256_cmpgt_epi32(wide, _mm256_setzero_si256()));
}
/// Reads only the lanes of `m`; the others are 0.
inline Vec LoadMasked(const float* p, Mask m) { return _mm256_maskload_ps(p, _mm256_castps_si256(m)); }

inline float HorizontalMax(Vec v) {
  __m128 x = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  x = _mm_max_ps(x, _mm_movehl_ps(x, x));
  x = _mm_max_ss(x, _mm_movehdup_ps(x));
  return _mm_cvtss_f32(x);
}
inline float LastLane(Vec v) {
  const __m128 high = _mm256_extractf128_ps(v, 1);
  return _mm_cvtss_f32(_mm_shuffle_ps(high, high, 0xFF));
}
/// Inclusive prefix sums.
inline Vec PrefixSum(Vec v) {
  v = Add(v, _mm256_castsi256_ps(_mm256_slli_si256(_mm256_castps_si256(v), 4)));
  v = Add(v, _mm256_castsi256_ps(_mm256_slli_si256(_mm256_castps_si256(v), 8)));
  // Now each 128-bit half holds its own sums: the low half's total goes to the high half.
  const __m256 totals = _mm256_permute_ps(v, 0xFF);
  return Add(v, _mm256_permute2f128_ps(totals, totals, 0x08));
}

#include "lib/inference/kernel.inc"

}  // namespace

extern const KernelTable kAvx2Kernels;
const KernelTable kAvx2Kernels = {"avx2", kLanes, kPanelVectors, MlpKernel, CategoricalKernel, PhiloxKernel};

}  // namespace troupe::inference
