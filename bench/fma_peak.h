#pragma once

#include <chrono>
#include <cstdint>

#if defined(__x86_64__)
#if defined(__GNUC__) && !defined(__clang__)
// g++ 12's own intrinsics read "undefined" vectors on purpose (GCC bug 105593).
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>
#endif

namespace troupe::bench {

#if defined(__x86_64__)
__attribute__((target("avx512f"))) inline double FmaOps512(int64_t rounds) {
  __m512 sums[16];
  for (int i = 0; i < 16; ++i) sums[i] = _mm512_set1_ps(static_cast<float>(i));
  const __m512 factor = _mm512_set1_ps(0.999999f);
  for (int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) sums[i] = _mm512_fmadd_ps(sums[i], factor, factor);
  }
  __m512 all = sums[0];
  for (int i = 1; i < 16; ++i) all = _mm512_add_ps(all, sums[i]);
  volatile float kept = _mm512_reduce_add_ps(all);
  static_cast<void>(kept);
  return static_cast<double>(rounds) * 16 * 16 * 2;
}
__attribute__((target("avx2,fma"))) inline double FmaOps256(int64_t rounds) {
  __m256 sums[12];
  for (int i = 0; i < 12; ++i) sums[i] = _mm256_set1_ps(static_cast<float>(i));
  const __m256 factor = _mm256_set1_ps(0.999999f);
  for (int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 12
    for (int i = 0; i < 12; ++i) sums[i] = _mm256_fmadd_ps(sums[i], factor, factor);
  }
  __m256 all = sums[0];
  for (int i = 1; i < 12; ++i) all = _mm256_add_ps(all, sums[i]);
  float kept[8];
  _mm256_storeu_ps(kept, all);
  volatile float first = kept[0];
  static_cast<void>(first);
  return static_cast<double>(rounds) * 12 * 8 * 2;
}
#endif

/// Floating-point operations a second of this core when it does nothing but fused multiply-adds of single precision in
/// registers, with its widest vectors: the roof over every matrix product. Measures for some 10 ms a million rounds; 0
/// where the processor has no AVX2.
inline double FmaOpsPerSecond([[maybe_unused]] int64_t rounds = 1'000'000) {
#if defined(__x86_64__)
  const auto begin = std::chrono::steady_clock::now();
  double ops = 0;
  if (__builtin_cpu_supports("avx512f")) {
    ops = FmaOps512(rounds);
  } else if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    ops = FmaOps256(rounds);
  }
  return ops / std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
#else
  return 0;
#endif
}

}  // namespace troupe::bench
