#pragma once

// What the processor has, asked of the processor: a test that asked the code under test which kernels there are would
// skip, and pass, on the day that code finds none.

namespace troupe::base {

/// Skip messages of tests; tests/skips.py lets these pass and no others of this kind.
inline constexpr char kNoAvx2[] = "the processor has no AVX2 with FMA";
inline constexpr char kNoAvx512[] = "the processor has no AVX-512";

#if defined(__x86_64__)
/// AVX2 with FMA and BMI: what x86-64-v3 is compiled for.
inline bool ProcessorHasAvx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi") &&
         __builtin_cpu_supports("bmi2");
}
/// AVX-512 F, BW, CD, DQ and VL: what x86-64-v4 is compiled for.
inline bool ProcessorHasAvx512() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
#else
inline bool ProcessorHasAvx2() { return false; }
inline bool ProcessorHasAvx512() { return false; }
#endif

}  // namespace troupe::base
