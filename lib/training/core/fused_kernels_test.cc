#include "lib/training/core/fused_kernels.h"

#include <cmath>
#include <string>
#include <vector>

#include "lib/base/philox.h"
#include <gtest/gtest.h>

namespace troupe::training::fused {
namespace {

/// Layers are cut into tiles; these sizes meet every width of a tile, whole ones and what is left over.
constexpr int kSizes[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 18, 21, 57, 64};
constexpr int kVectorCounts[] = {1, 2, 3, 4, 8};

struct Processor {
  const char* name;
  const Kernels* (*kernels)();
  bool (*has)();
};

class FusedKernelsTest : public testing::TestWithParam<Processor> {
 protected:
  void SetUp() override {
    if (!GetParam().has()) GTEST_SKIP() << "the processor has no " << GetParam().name;
    kernels_ = GetParam().kernels();
    ASSERT_NE(kernels_, nullptr);
    panel_rows_ = kPanelVectors * kernels_->lanes;
  }

  std::vector<float> Numbers(int64_t count) {
    std::vector<float> numbers(static_cast<size_t>(count));
    for (float& number : numbers) number = static_cast<float>(random_.Normal());
    return numbers;
  }
  /// Element (feature, row) of panels that start `stride` apart.
  float At(const std::vector<float>& panels, int64_t stride, int feature, int row) const {
    return panels[static_cast<size_t>(row / panel_rows_ * stride + feature * panel_rows_ + row % panel_rows_)];
  }

  const Kernels* kernels_ = nullptr;
  int panel_rows_ = 0;
  base::PhiloxSequence random_{base::PhiloxKey::Make(1, base::RandomStream::kTest), {}};
};

TEST_P(FusedKernelsTest, WeightGradientAddsTheSumOverRowsToEveryWeightAndBias) {
  for (const int out : kSizes) {
    for (const int in : kSizes) {
      for (const int vectors : kVectorCounts) {
        SCOPED_TRACE(testing::Message() << in << " inputs, " << out << " outputs, " << vectors << " vectors");
        const int rows = vectors * kernels_->lanes;
        const int panels = (vectors + kPanelVectors - 1) / kPanelVectors;
        const int64_t x_stride = int64_t{in} * panel_rows_;
        const int64_t dy_stride = int64_t{out} * panel_rows_;
        const std::vector<float> x = Numbers(panels * x_stride);
        const std::vector<float> dy = Numbers(panels * dy_stride);
        std::vector<float> dw(static_cast<size_t>(out) * static_cast<size_t>(in) + 1, 0.5f);
        std::vector<float> db(static_cast<size_t>(out) + 1, 0.25f);
        kernels_->weight_gradient(dy.data(), dy_stride, out, x.data(), x_stride, in, vectors, dw.data(), db.data());
        for (int o = 0; o < out; ++o) {
          double bias = 0.25;
          for (int r = 0; r < rows; ++r) bias += At(dy, dy_stride, o, r);
          ASSERT_NEAR(db[static_cast<size_t>(o)], bias, 1e-4) << "bias " << o;
          for (int i = 0; i < in; ++i) {
            double weight = 0.5;
            for (int r = 0; r < rows; ++r) weight += double{At(dy, dy_stride, o, r)} * At(x, x_stride, i, r);
            ASSERT_NEAR(dw[static_cast<size_t>(o * in + i)], weight, 1e-4) << "weight " << o << ", " << i;
          }
        }
        // Nothing is written behind the end.
        ASSERT_EQ(dw.back(), 0.5f);
        ASSERT_EQ(db.back(), 0.25f);
      }
    }
  }
}

TEST_P(FusedKernelsTest, ForwardIsTheLayerAndBackwardItsTranspose) {
  for (const int out : kSizes) {
    for (const int in : kSizes) {
      for (int vectors = 1; vectors <= kPanelVectors; ++vectors) {
        SCOPED_TRACE(testing::Message() << in << " inputs, " << out << " outputs, " << vectors << " vectors");
        const std::vector<float> w = Numbers(int64_t{out} * in);
        const std::vector<float> b = Numbers(out);
        const std::vector<float> x = Numbers(int64_t{in} * panel_rows_);
        std::vector<float> y(static_cast<size_t>(out * panel_rows_));
        kernels_->forward(w.data(), b.data(), out, in, x.data(), vectors, Activation::kTanh, y.data());
        std::vector<float> a = x;
        kernels_->backward(w.data(), out, in, y.data(), vectors, Activation::kTanh, a.data());
        for (int r = 0; r < vectors * kernels_->lanes; ++r) {
          for (int o = 0; o < out; ++o) {
            double sum = b[static_cast<size_t>(o)];
            for (int i = 0; i < in; ++i) sum += double{w[static_cast<size_t>(o * in + i)]} * At(x, 0, i, r);
            ASSERT_NEAR(At(y, 0, o, r), std::tanh(sum), 1e-5) << "output " << o << ", row " << r;
          }
          for (int i = 0; i < in; ++i) {
            double sum = 0;
            for (int o = 0; o < out; ++o) sum += double{w[static_cast<size_t>(o * in + i)]} * At(y, 0, o, r);
            const double activation = At(x, 0, i, r);
            ASSERT_NEAR(At(a, 0, i, r), sum * (1 - activation * activation), 2e-4) << "input " << i << ", row " << r;
          }
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Processors, FusedKernelsTest,
    testing::Values(Processor{"AVX2", Avx2Kernels,
                              [] { return __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0; }},
                    Processor{"AVX512", Avx512Kernels, [] { return __builtin_cpu_supports("avx512vl") != 0; }}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace troupe::training::fused
