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
        const int panel_vectors = 1 + (out + vectors) % kPanelVectors;
        SCOPED_TRACE(testing::Message() << in << " inputs, " << out << " outputs, " << vectors << " vectors, "
                                        << panel_vectors << " a panel");
        const int rows = vectors * kernels_->lanes;
        const int panels = (vectors + panel_vectors - 1) / panel_vectors;
        const auto at = [&](const std::vector<float>& of, int64_t stride, int feature, int row) {
          const int here = panel_vectors * kernels_->lanes;
          return of[static_cast<size_t>(row / here * stride + feature * panel_rows_ + row % here)];
        };
        const int64_t x_stride = int64_t{in} * panel_rows_;
        const int64_t dy_stride = int64_t{out} * panel_rows_;
        const std::vector<float> x = Numbers(panels * x_stride);
        const std::vector<float> dy = Numbers(panels * dy_stride);
        std::vector<float> dw(static_cast<size_t>(out) * static_cast<size_t>(in) + 1, 0.5f);
        std::vector<float> db(static_cast<size_t>(out) + 1, 0.25f);
        kernels_->weight_gradient(dy.data(), dy_stride, out, x.data(), x_stride, in, vectors, panel_vectors, dw.data(),
                                  db.data());
        for (int o = 0; o < out; ++o) {
          double bias = 0.25;
          for (int r = 0; r < rows; ++r) bias += at(dy, dy_stride, o, r);
          ASSERT_NEAR(db[static_cast<size_t>(o)], bias, 1e-4) << "bias " << o;
          for (int i = 0; i < in; ++i) {
            double weight = 0.5;
            for (int r = 0; r < rows; ++r) weight += double{at(dy, dy_stride, o, r)} * at(x, x_stride, i, r);
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

/// A cell's numbers of one element, in double: the reference that kernels are held against.
struct Cell {
  std::vector<double> gates, hidden;  ///< the products
  double before = 0;                  ///< h of a GRU, the cell of an LSTM

  static double Sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }
  double Gru() const {
    const double reset = Sigmoid(gates[0] + hidden[0]);
    const double update = Sigmoid(gates[1] + hidden[1]);
    const double candidate = std::tanh(gates[2] + reset * hidden[2]);
    return (1 - update) * candidate + update * before;
  }
  double LstmCell() const {
    return Sigmoid(gates[1] + hidden[1]) * before + Sigmoid(gates[0] + hidden[0]) * std::tanh(gates[2] + hidden[2]);
  }
  double Lstm() const { return Sigmoid(gates[3] + hidden[3]) * std::tanh(LstmCell()); }
};

/// The central difference quotient of `of` by `number`.
template <typename Of>
double Slope(double* number, Of&& of) {
  constexpr double kStep = 1e-5;
  const double at = *number;
  *number = at + kStep;
  const double above = of();
  *number = at - kStep;
  const double below = of();
  *number = at;
  return (above - below) / (2 * kStep);
}

TEST_P(FusedKernelsTest, CellsAndTheirDerivatives) {
  constexpr int kSize = 3;
  for (const bool is_gru : {true, false}) {
    const int gates_of = is_gru ? 3 : 4;
    for (int vectors = 1; vectors <= kPanelVectors; ++vectors) {
      const auto panel = [&](int units) { return Numbers(int64_t{units} * panel_rows_); };
      const std::vector<float> gates = panel(gates_of * kSize), hidden = panel(gates_of * kSize);
      const std::vector<float> before = panel(kSize), above = panel(kSize), product = panel(kSize);
      const std::vector<float> direct = panel(kSize);
      std::vector<float> made = gates, d_hidden = hidden, d_before = direct;
      std::vector<float> after(before.size()), cell_after(before.size());
      const bool first = vectors == 1;  // the last step of a sequence has no product
      const float* const given = first ? nullptr : product.data();
      if (is_gru) {
        kernels_->gru(kSize, vectors, made.data(), hidden.data(), before.data(), after.data());
      } else {
        kernels_->lstm(kSize, vectors, made.data(), hidden.data(), before.data(), cell_after.data(), after.data());
      }
      std::vector<float> d_gates = made;
      if (is_gru) {
        kernels_->gru_backward(kSize, vectors, d_gates.data(), d_hidden.data(), before.data(), above.data(), given,
                               d_before.data());
      } else {
        kernels_->lstm_backward(kSize, vectors, d_gates.data(), before.data(), cell_after.data(), above.data(), given,
                                d_before.data());
      }
      for (int unit = 0; unit < kSize; ++unit) {
        for (int row = 0; row < vectors * kernels_->lanes; ++row) {
          const auto at = [&](int gate) { return static_cast<size_t>((gate * kSize + unit) * panel_rows_ + row); };
          Cell cell;
          for (int gate = 0; gate < gates_of; ++gate) {
            cell.gates.push_back(gates[at(gate)]);
            cell.hidden.push_back(hidden[at(gate)]);
          }
          cell.before = before[at(0)];
          ASSERT_NEAR(after[at(0)], is_gru ? cell.Gru() : cell.Lstm(), 2e-6);
          if (!is_gru) {
            ASSERT_NEAR(cell_after[at(0)], cell.LstmCell(), 2e-6);
          }
          // What the derivatives are of: a GRU's output counts directly, too, an LSTM's cell beside its output.
          const double by_after = double{above[at(0)]} + (first ? 0.0 : product[at(0)]);
          const auto loss = [&] {
            return is_gru ? (by_after + direct[at(0)]) * cell.Gru()
                          : by_after * cell.Lstm() + direct[at(0)] * cell.LstmCell();
          };
          for (int gate = 0; gate < gates_of; ++gate) {
            const auto g = static_cast<size_t>(gate);
            ASSERT_NEAR(d_gates[at(gate)], Slope(&cell.gates[g], loss), 1e-5) << gate;
            if (is_gru) {
              ASSERT_NEAR(d_hidden[at(gate)], Slope(&cell.hidden[g], loss), 1e-5) << gate;
            }
          }
          ASSERT_NEAR(d_before[at(0)], Slope(&cell.before, loss), 1e-5);
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
