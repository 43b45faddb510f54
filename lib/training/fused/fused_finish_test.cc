// Kernels::finish and finish_backward against the definition of torch.nn.LayerNorm and of the activations, in double;
// derivatives against difference quotients.

#include <cmath>
#include <string>
#include <vector>

#include "lib/base/philox.h"
#include "lib/base/testing/processor.h"
#include "lib/training/core/fused_kernels.h"
#include <gtest/gtest.h>

namespace troupe::training::fused {
namespace {

constexpr Activation kAll[] = {Activation::kIdentity, Activation::kTanh, Activation::kRelu, Activation::kElu,
                               Activation::kSigmoid,  Activation::kGelu, Activation::kSilu};

double ActivationInDouble(Activation activation, double x) {
  switch (activation) {
    case Activation::kIdentity:
      return x;
    case Activation::kTanh:
      return std::tanh(x);
    case Activation::kRelu:
      return x > 0 ? x : 0;
    case Activation::kElu:
      return x > 0 ? x : std::expm1(x);
    case Activation::kSigmoid:
      return 1 / (1 + std::exp(-x));
    case Activation::kGelu:
      return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
    case Activation::kSilu:
      return x / (1 + std::exp(-x));
  }
  return x;
}
bool ComesFromValue(Activation activation) {
  return activation != Activation::kGelu && activation != Activation::kSilu;
}

/// A row's products through normalization and activation.
struct RowInDouble {
  std::vector<double> products, scale, shift;  // scale empty: none
  Activation activation;

  double Mean() const {
    double mean = 0;
    for (const double x : products) mean += x / static_cast<double>(products.size());
    return mean;
  }
  /// 0 without normalization. Numbers that nearly are alike are known as well as they differ.
  double InverseStd() const {
    if (scale.empty()) return 0;
    const double mean = Mean();
    double variance = 0;
    for (const double x : products) variance += (x - mean) * (x - mean) / static_cast<double>(products.size());
    return 1 / std::sqrt(variance + 1e-5);
  }
  std::vector<double> BeforeActivation() const {
    if (scale.empty()) return products;
    const double mean = Mean();
    const double inverse_std = InverseStd();
    std::vector<double> result;
    for (size_t i = 0; i < products.size(); ++i) {
      result.push_back((products[i] - mean) * inverse_std * scale[i] + shift[i]);
    }
    return result;
  }
  std::vector<double> Outputs() const {
    std::vector<double> result = BeforeActivation();
    for (double& x : result) x = ActivationInDouble(activation, x);
    return result;
  }
  double Loss(const std::vector<double>& by_output) const {
    const std::vector<double> outputs = Outputs();
    double sum = 0;
    for (size_t i = 0; i < outputs.size(); ++i) sum += by_output[i] * outputs[i];
    return sum;
  }
  double SlopeBy(double* number, const std::vector<double>& by_output) const {
    constexpr double kStep = 1e-6;
    const double at = *number;
    *number = at + kStep;
    const double above = Loss(by_output);
    *number = at - kStep;
    const double below = Loss(by_output);
    *number = at;
    return (above - below) / (2 * kStep);
  }
};

struct FinishProcessor {
  const char* name;
  const Kernels* (*kernels)();
  bool (*has)();
};

class FusedFinishTest : public testing::TestWithParam<FinishProcessor> {
 protected:
  void SetUp() override {
    if (!GetParam().has()) GTEST_SKIP() << "the processor has no " << GetParam().name;
    kernels_ = GetParam().kernels();
    panel_rows_ = kPanelVectors * kernels_->lanes;
  }
  std::vector<float> Numbers(int count, double span) {
    std::vector<float> numbers(static_cast<size_t>(count));
    for (float& number : numbers) number = static_cast<float>(random_.Normal() * span);
    return numbers;
  }

  /// One layer of `features`, forward and backward.
  void Check(Activation activation, bool normed, int features, int vectors) {
    SCOPED_TRACE(testing::Message() << "activation " << static_cast<int>(activation)
                                    << (normed ? ", normalized, " : ", ") << features << " features, " << vectors
                                    << " vectors");
    std::vector<float> scale = Numbers(features, 0.5);
    for (float& number : scale) number += 1;
    const std::vector<float> shift = Numbers(features, 0.3);
    const Finish finish = {normed ? scale.data() : nullptr, normed ? shift.data() : nullptr, activation};
    const std::vector<float> products = Numbers(features * panel_rows_, 2);
    const std::vector<float> by_output = Numbers(features * panel_rows_, 1);
    std::vector<float> y = products;
    std::vector<float> kept(static_cast<size_t>((features + 1) * panel_rows_));
    kernels_->finish(finish, features, vectors, y.data(), kept.data());

    std::vector<float> dy = by_output;
    std::vector<double> d_scale(static_cast<size_t>(features)), d_shift(d_scale);
    std::vector<float> got_scale(static_cast<size_t>(features) + 1, 0.5f), got_shift(got_scale);
    // What `backward` gives: the activation's factor is in it where it comes from the value.
    std::vector<double> expected(dy.size()), spread(static_cast<size_t>(panel_rows_));
    for (int row = 0; row < vectors * kernels_->lanes; ++row) {
      RowInDouble reference = {{}, {}, {}, activation};
      std::vector<double> by;
      for (int f = 0; f < features; ++f) {
        const size_t at = static_cast<size_t>(f * panel_rows_ + row);
        reference.products.push_back(products[at]);
        by.push_back(by_output[at]);
        if (!normed) continue;
        reference.scale.push_back(scale[static_cast<size_t>(f)]);
        reference.shift.push_back(shift[static_cast<size_t>(f)]);
      }
      const std::vector<double> before = reference.BeforeActivation();
      const std::vector<double> outputs = reference.Outputs();
      spread[static_cast<size_t>(row)] = 1 + reference.InverseStd();
      for (int f = 0; f < features; ++f) {
        const size_t at = static_cast<size_t>(f * panel_rows_ + row);
        const auto i = static_cast<size_t>(f);
        ASSERT_NEAR(y[at], outputs[i], 2e-6 * (1 + std::abs(outputs[i])) * spread[static_cast<size_t>(row)])
            << "feature " << f << ", row " << row;
        if (ComesFromValue(activation)) {
          RowInDouble alone = {{before[i]}, {}, {}, activation};
          dy[at] = static_cast<float>(alone.SlopeBy(&alone.products[0], {by[i]}));
        }
        // A kink is no place for a difference quotient.
        if (activation == Activation::kRelu && std::abs(before[i]) < 1e-5) GTEST_FAIL() << "choose another seed";
        expected[at] = reference.SlopeBy(&reference.products[i], by);
        if (!normed) continue;
        d_scale[i] += reference.SlopeBy(&reference.scale[i], by);
        d_shift[i] += reference.SlopeBy(&reference.shift[i], by);
      }
    }
    kernels_->finish_backward(finish, features, vectors, kept.data(), dy.data(), got_scale.data(), got_shift.data());
    for (int f = 0; f < features; ++f) {
      const auto i = static_cast<size_t>(f);
      for (int row = 0; row < vectors * kernels_->lanes; ++row) {
        const size_t at = static_cast<size_t>(f * panel_rows_ + row);
        const double tolerance = 4e-6 * (1 + std::abs(expected[at])) * std::pow(spread[static_cast<size_t>(row)], 2);
        ASSERT_NEAR(dy[at], expected[at], tolerance) << "feature " << f << ", row " << row;
      }
      if (!normed) continue;
      ASSERT_NEAR(got_scale[i], 0.5 + d_scale[i], 5e-5 * (1 + std::abs(d_scale[i]))) << "scale " << f;
      ASSERT_NEAR(got_shift[i], 0.5 + d_shift[i], 5e-5 * (1 + std::abs(d_shift[i]))) << "shift " << f;
    }
    ASSERT_EQ(got_scale.back(), 0.5f) << "nothing is written behind the end";
    ASSERT_EQ(got_shift.back(), 0.5f);
    if (normed) return;
    ASSERT_EQ(got_scale[0], 0.5f) << "there is no scale";
  }

  const Kernels* kernels_ = nullptr;
  int panel_rows_ = 0;
  base::PhiloxSequence random_{base::PhiloxKey::Make(2, base::RandomStream::kTest), {}};
};

TEST_P(FusedFinishTest, LayersAndTheirDerivativesEqualTheDefinition) {
  for (const int features : {1, 2, 3, 5, 8, 9, 12, 23}) {
    for (int vectors = 1; vectors <= kPanelVectors; ++vectors) {
      for (const Activation activation : kAll) {
        Check(activation, /*normed=*/true, features, vectors);
        if (!ComesFromValue(activation)) Check(activation, /*normed=*/false, features, vectors);
      }
    }
  }
}

// Where erf and sigmoid are constant, and where a row is.
TEST_P(FusedFinishTest, FarFromZeroAndWithoutSpread) {
  for (const Activation activation : {Activation::kGelu, Activation::kSilu}) {
    for (const float x : {-300.0f, -30.0f, -6.0f, -0.0f, 0.0f, 6.0f, 30.0f, 300.0f}) {
      std::vector<float> y(static_cast<size_t>(panel_rows_), x), kept = y, dy(y.size(), 1.0f);
      const Finish finish = {nullptr, nullptr, activation};
      kernels_->finish(finish, 1, kPanelVectors, y.data(), kept.data());
      kernels_->finish_backward(finish, 1, kPanelVectors, kept.data(), dy.data(), nullptr, nullptr);
      RowInDouble reference = {{x}, {}, {}, activation};
      for (size_t row = 0; row < y.size(); ++row) {
        ASSERT_NEAR(y[row], reference.Outputs()[0], 1e-6 * (1 + std::abs(x))) << x;
        ASSERT_NEAR(dy[row], reference.SlopeBy(&reference.products[0], {1}), 2e-6) << x;
      }
    }
  }
  std::vector<float> y(static_cast<size_t>(4 * panel_rows_), 7.0f), kept(static_cast<size_t>(5 * panel_rows_));
  const std::vector<float> scale(4, 2.0f), shift(4, 0.25f);
  kernels_->finish({scale.data(), shift.data(), Activation::kIdentity}, 4, kPanelVectors, y.data(), kept.data());
  for (const float value : y) ASSERT_EQ(value, 0.25f) << "a row of equal numbers is its shift";
}

INSTANTIATE_TEST_SUITE_P(Processors, FusedFinishTest,
                         testing::Values(FinishProcessor{"AVX2", Avx2Kernels, base::ProcessorHasAvx2},
                                         FinishProcessor{"AVX512", Avx512Kernels, base::ProcessorHasAvx512}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace troupe::training::fused
