#pragma once

#include <string>

#include "lib/base/testing/processor.h"
#include "lib/inference/actor.h"
#include <gtest/gtest.h>

namespace troupe::inference {

/// What the processor lacks for the back end; nullptr: nothing.
inline const char* MissingFor(Backend backend) {
  if (backend == Backend::kAvx2 && !base::ProcessorHasAvx2()) return base::kNoAvx2;
  if (backend == Backend::kAvx512 && !base::ProcessorHasAvx512()) return base::kNoAvx512;
  return nullptr;
}

/// Tests for Eigen, AVX2 and AVX-512: those that this processor has.
class BackendTest : public testing::TestWithParam<Backend> {
 protected:
  void SetUp() override {
    if (const char* const missing = MissingFor(GetParam())) GTEST_SKIP() << missing;
  }
};
inline const auto kBackends = testing::Values(Backend::kEigen, Backend::kAvx2, Backend::kAvx512);
inline std::string BackendCaseName(const testing::TestParamInfo<Backend>& info) {
  return info.param == Backend::kEigen ? "Eigen" : info.param == Backend::kAvx2 ? "Avx2" : "Avx512";
}

}  // namespace troupe::inference
