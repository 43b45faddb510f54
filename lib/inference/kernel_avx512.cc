#include <immintrin.h>

#include "lib/inference/kernels.h"

// AVX-512 (x86-64-v4), sixteen floats at a time. Everything but the table has internal linkage.

namespace troupe::inference {
namespace {

constexpr int kLanes = 16;
constexpr int kTileRows = 12;  // 12 x 2 accumulators and two weights of 32 registers; inputs are broadcast from memory
constexpr int kPairRows = 6;   // 6 x 4 accumulators and four weights

using Vec = __m512;
using Mask = __mmask16;

inline Vec Load(const float* p) { return _mm512_loadu_ps(p); }
inline void Store(float* p, Vec v) { _mm512_storeu_ps(p, v); }
inline Vec Set1(float x) { return _mm512_set1_ps(x); }
inline Vec Add(Vec a, Vec b) { return _mm512_add_ps(a, b); }
inline Vec Sub(Vec a, Vec b) { return _mm512_sub_ps(a, b); }
inline Vec Mul(Vec a, Vec b) { return _mm512_mul_ps(a, b); }
inline Vec Div(Vec a, Vec b) { return _mm512_div_ps(a, b); }
inline Vec Fma(Vec a, Vec b, Vec c) { return _mm512_fmadd_ps(a, b, c); }
inline Vec Max(Vec a, Vec b) { return _mm512_maskz_max_ps(0xFFFF, a, b); }
inline Vec Min(Vec a, Vec b) { return _mm512_maskz_min_ps(0xFFFF, a, b); }
inline Vec Round(Vec a) { return _mm512_maskz_roundscale_ps(0xFFFF, a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
inline Vec Abs(Vec a) { return _mm512_andnot_ps(Set1(-0.0f), a); }
inline Vec CopySign(Vec magnitude, Vec sign) {
  return _mm512_or_ps(_mm512_andnot_ps(Set1(-0.0f), magnitude), _mm512_and_ps(Set1(-0.0f), sign));
}
/// v * 2^n for integral n.
inline Vec ScaleByPowerOfTwo(Vec v, Vec n) { return _mm512_maskz_scalef_ps(0xFFFF, v, n); }
inline Mask Greater(Vec a, Vec b) { return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ); }
inline Mask And(Mask a, Mask b) { return static_cast<Mask>(a & b); }
inline Vec Select(Mask m, Vec yes, Vec no) { return _mm512_mask_blend_ps(m, no, yes); }
inline unsigned Bits(Mask m) { return m; }

/// The first `count` lanes (0..16).
inline Mask FirstLanes(int64_t count) { return static_cast<Mask>((1u << count) - 1u); }
/// Lanes whose byte is not 0; reads no byte beyond `count`.
inline Mask BytesNotZero(const uint8_t* bytes, int64_t count) {
  const __m128i copy = _mm_maskz_loadu_epi8(FirstLanes(count), bytes);
  return _mm_test_epi8_mask(copy, copy);
}
/// Reads only the lanes of `m`; the others are 0.
inline Vec LoadMasked(const float* p, Mask m) { return _mm512_maskz_loadu_ps(m, p); }

inline float HorizontalMax(Vec v) {
  Vec x = Max(v, _mm512_maskz_shuffle_f32x4(0xFFFF, v, v, 0x4E));
  x = Max(x, _mm512_maskz_shuffle_f32x4(0xFFFF, x, x, 0xB1));
  x = Max(x, _mm512_maskz_permute_ps(0xFFFF, x, 0x4E));
  x = Max(x, _mm512_maskz_permute_ps(0xFFFF, x, 0xB1));
  return _mm512_cvtss_f32(x);
}
inline float LastLane(Vec v) {
  const __m512i index = _mm512_set1_epi32(15);
  return _mm512_cvtss_f32(_mm512_maskz_permutexvar_ps(0xFFFF, index, v));
}
/// Inclusive prefix sums.
inline Vec PrefixSum(Vec v) {
  // alignr takes lanes [n, n + 16) of (v, 0): lane i gets lane i - (16 - n), or 0.
  const __m512i zero = _mm512_setzero_si512();
  v = Add(v, _mm512_castsi512_ps(_mm512_maskz_alignr_epi32(0xFFFF, _mm512_castps_si512(v), zero, 15)));
  v = Add(v, _mm512_castsi512_ps(_mm512_maskz_alignr_epi32(0xFFFF, _mm512_castps_si512(v), zero, 14)));
  v = Add(v, _mm512_castsi512_ps(_mm512_maskz_alignr_epi32(0xFFFF, _mm512_castps_si512(v), zero, 12)));
  return Add(v, _mm512_castsi512_ps(_mm512_maskz_alignr_epi32(0xFFFF, _mm512_castps_si512(v), zero, 8)));
}

#include "lib/inference/kernel.inc"

}  // namespace

extern const KernelTable kAvx512Kernels;
const KernelTable kAvx512Kernels = {"avx512", kLanes, kPanelVectors, MlpKernel, CategoricalKernel, PhiloxKernel};

}  // namespace troupe::inference
