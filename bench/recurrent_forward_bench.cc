// One decision of an actor with a core (18-64, tanh, a GRU or an LSTM of 64 units, 5 outputs) beside the same network
// in LibTorch without gradients: linear, tanh, gru_cell or lstm_cell, linear; and at::gru or at::lstm in the place of
// the cell. A worker acts for 3, 16, 64 or 192 rows. All interleaved in one run on one core, medians; shares are of the
// fused multiply-adds that the core could do meanwhile, measured in every round, too.
//
//   taskset -c 0 build/release/bench/recurrent_forward_bench [--repetitions N] [--back_end auto|eigen|avx2|avx512]

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "bench/fma_peak.h"
#include "bench/forward_options.h"
#include "bench/random_policy.h"
#include "lib/base/philox.h"
#include "lib/inference/actor.h"
#include <torch/torch.h>

namespace troupe::inference {
namespace {

constexpr int64_t kUnits = 64;

constexpr char kProgram[] = "recurrent_forward_bench";

void Check(const absl::Status& status) { bench::Check(kProgram, status); }

policy::PolicySpec Spec(policy::CoreKind core) {
  policy::PolicySpec spec = SpreadSpec(policy::PolicyId("p"));
  spec.actor.hidden_sizes = {kUnits};
  spec.actor.core = {core, kUnits, 1};
  spec.sequence_length = 16;
  return spec;
}

/// Multiplications and additions of the products of a row.
double FlopsPerRow(const policy::PolicySpec& spec) {
  const int64_t gates = spec.actor.core.gates();
  return 2.0 * static_cast<double>(spec.observation_size() * kUnits + gates * kUnits * 2 * kUnits +
                                   kUnits * spec.actor_output_size());
}

/// The same network in LibTorch. `cell`: gru_cell or lstm_cell; else the layer that runs sequences, with one of
/// length 1.
class TorchNetwork {
 public:
  TorchNetwork(const policy::PolicySpec& spec, const policy::WeightSnapshot& weights, bool cell)
      : lstm_(spec.actor.core.kind == policy::CoreKind::kLstm), cell_(cell) {
    const policy::ParameterLayout layout = policy::ParameterLayout::For(spec);
    for (const char* name : {"0.weight", "0.bias", "core.weight_ih_l0", "core.weight_hh_l0", "core.bias_ih_l0",
                             "core.bias_hh_l0", "1.weight", "1.bias"}) {
      const policy::ParameterEntry* entry = layout.Find(absl::StrCat("actor.", name));
      float* const at = const_cast<float*>(weights.actor.data()) + entry->offset;
      parameters_.push_back(torch::from_blob(at, entry->shape).clone());
    }
  }

  /// [rows, outputs]; `state` ([rows, units], and the cell) becomes the new one.
  torch::Tensor Forward(const torch::Tensor& obs, std::vector<torch::Tensor>* state) const {
    const c10::InferenceMode no_gradients;
    const auto& p = parameters_;
    const torch::Tensor x = at::linear(obs, p[0], p[1]).tanh_();
    torch::Tensor y;
    if (cell_ && lstm_) {
      std::tie((*state)[0], (*state)[1]) = at::lstm_cell(x, *state, p[2], p[3], p[4], p[5]);
      y = (*state)[0];
    } else if (cell_) {
      y = (*state)[0] = at::gru_cell(x, (*state)[0], p[2], p[3], p[4], p[5]);
    } else {
      const std::vector<torch::Tensor> core(p.begin() + 2, p.begin() + 6);
      std::vector<torch::Tensor> before;
      for (const torch::Tensor& part : *state) before.push_back(part.unsqueeze(0));
      torch::Tensor h, c;
      if (lstm_) {
        std::tie(y, h, c) = at::lstm(x.unsqueeze(0), before, core, true, 1, 0.0, false, false, false);
        (*state)[1] = c.squeeze(0);
      } else {
        std::tie(y, h) = at::gru(x.unsqueeze(0), before[0], core, true, 1, 0.0, false, false, false);
      }
      (*state)[0] = h.squeeze(0);
      y = y.squeeze(0);
    }
    return at::linear(y, p[6], p[7]);
  }

 private:
  const bool lstm_;
  const bool cell_;
  std::vector<torch::Tensor> parameters_;
};

struct Leg {
  std::function<void()> call;
  std::vector<double> microseconds = {};
  double median() const { return bench::MedianOf(microseconds); }
};

/// Rows to act for, and what three ways to do it remember of them.
class Case {
 public:
  Case(policy::CoreKind core, int64_t rows, Backend back_end) : spec_(Spec(core)), rows_(rows) {
    const policy::WeightSnapshotPtr weights = RandomWeights(spec_);
    auto actor = Actor::Create(spec_, 1, back_end);
    Check(actor.status());
    actor_ = *std::move(actor);
    Check(actor_->SetWeights(weights));
    obs_.resize(static_cast<size_t>(rows * spec_.observation_size()));
    base::PhiloxSequence random(base::PhiloxKey::Make(2, base::RandomStream::kTest), {});
    for (float& x : obs_) x = static_cast<float>(random.Uniform(-1.5, 1.5));
    keys_.resize(static_cast<size_t>(rows));
    state_.resize(static_cast<size_t>(rows * spec_.actor_state_size()));
    outputs_.resize(static_cast<size_t>(rows * spec_.actor_output_size()));
    torch_obs_ = torch::from_blob(obs_.data(), {rows, spec_.observation_size()});
    legs_.push_back({[this] { Ours(); }});
    for (const bool cell : {true, false}) {
      torch_.push_back(std::make_unique<TorchNetwork>(spec_, *weights, cell));
      torch_states_.emplace_back(static_cast<size_t>(spec_.actor_state_size() / kUnits), torch::zeros({rows, kUnits}));
      legs_.push_back({[this, i = torch_.size() - 1] { torch_[i]->Forward(torch_obs_, &torch_states_[i]); }});
    }
    CheckThatTheyAgree();
  }
  Case(const Case&) = delete;  // its legs point into it
  Case& operator=(const Case&) = delete;

  std::vector<Leg>& legs() { return legs_; }
  /// Of a leg between two looks at the clock: fewer of long ones, which others would interrupt.
  int calls() const { return static_cast<int>(std::clamp<int64_t>(320 / rows_, 2, 20)); }
  std::string back_end() const { return std::string(actor_->backend_name()); }
  void Print(double flops_per_second) {
    const double ours = legs_[0].median(), cell = legs_[1].median(), layer = legs_[2].median();
    const std::string name = absl::StrCat(policy::KindName(spec_.actor), ", ", rows_, " rows");
    std::printf("%-24s %10.2f us %10.2f us %10.2f us %9.2f x %9.1f %%\n", name.c_str(), ours, cell, layer,
                std::min(cell, layer) / ours,
                100 * FlopsPerRow(spec_) * static_cast<double>(rows_) / (ours * 1e-6 * flops_per_second));
  }

 private:
  void Ours() {
    Check(actor_->Forward({rows_, obs_.data(), nullptr, keys_.data(), false, state_.data(), state_.data()},
                          absl::MakeSpan(outputs_)));
  }
  /// What computes something else is no floor.
  void CheckThatTheyAgree() {
    for (int decision = 0; decision < 3; ++decision) {
      Ours();
      for (size_t i = 0; i < torch_.size(); ++i) {
        const torch::Tensor want = torch_[i]->Forward(torch_obs_, &torch_states_[i]).contiguous();
        for (size_t k = 0; k < outputs_.size(); ++k) {
          if (std::abs(want.data_ptr<float>()[k] - outputs_[k]) < 1e-4f) continue;
          std::fprintf(stderr, "recurrent_forward_bench: output %zu is %g, LibTorch's %g\n", k,
                       static_cast<double>(outputs_[k]), static_cast<double>(want.data_ptr<float>()[k]));
          std::exit(1);
        }
      }
    }
  }

  const policy::PolicySpec spec_;
  const int64_t rows_;
  std::unique_ptr<Actor> actor_;
  std::vector<float> obs_, state_, outputs_;
  std::vector<RowKey> keys_;
  torch::Tensor torch_obs_;
  std::vector<std::unique_ptr<TorchNetwork>> torch_;
  std::vector<std::vector<torch::Tensor>> torch_states_;
  std::vector<Leg> legs_;
};

int Main(int argc, char** argv) {
  int repetitions = 100;
  Backend back_end = Backend::kAuto;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i], value = argv[i + 1];
    if (flag == "--repetitions") repetitions = std::max(1, std::atoi(value.c_str()));
    if (flag == "--back_end") back_end = bench::BackendOrExit(kProgram, value);
  }
  torch::set_num_threads(1);
  std::vector<std::unique_ptr<Case>> cases;
  for (const policy::CoreKind core : {policy::CoreKind::kGru, policy::CoreKind::kLstm}) {
    for (const int64_t rows : {3, 16, 64, 192}) cases.push_back(std::make_unique<Case>(core, rows, back_end));
  }
  std::vector<double> peaks;
  for (int repetition = -3; repetition < repetitions; ++repetition) {
    if (repetition >= 0) peaks.push_back(bench::FmaOpsPerSecond(20'000));  // as long as a leg
    for (const std::unique_ptr<Case>& c : cases) {
      for (Leg& leg : c->legs()) {
        leg.call();
        const auto begin = std::chrono::steady_clock::now();
        for (int i = 0; i < c->calls(); ++i) leg.call();
        const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
        if (repetition >= 0) leg.microseconds.push_back(took.count() / c->calls());
      }
    }
  }
  const double peak = bench::MedianOf(peaks);
  std::printf("actor 18-64-core of 64-5 tanh, back end %s, one thread, median of %d; FMA peak %.0f GFLOP/s\n",
              cases[0]->back_end().c_str(), repetitions, peak * 1e-9);
  std::printf("%-24s %13s %13s %13s %11s %11s\n", "", "actor", "torch, cell", "torch, layer", "faster", "of peak");
  for (const std::unique_ptr<Case>& c : cases) c->Print(peak);
  return 0;
}

}  // namespace
}  // namespace troupe::inference

int main(int argc, char** argv) { return troupe::inference::Main(argc, argv); }
