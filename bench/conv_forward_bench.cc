// One decision of an actor with convolutions over images of bytes beside the same network in LibTorch without
// gradients, whose convolutions are oneDNN's: DQN's layers over 84 x 84 x 4, then 512 units, relu, and 6 outputs; and
// the layers that a 42 x 42 image gets by itself, then 64 and 64 units. LibTorch has the images with channels innermost
// as the actor has, and its weights in that order, too; it divides by 255 as part of the call, as the actor does. All
// interleaved in one run on one core, medians; shares are of the fused multiply-adds that the core could do meanwhile,
// measured in every round, too.
//
//   taskset -c 0 build/release/bench/conv_forward_bench [--repetitions N] [--back_end auto|eigen|avx2|avx512]

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "bench/fma_peak.h"
#include "bench/forward_options.h"
#include "lib/base/philox.h"
#include "lib/inference/actor.h"
#include "lib/policy/parameter_layout.h"
#include <torch/torch.h>

namespace troupe::inference {
namespace {

constexpr char kProgram[] = "conv_forward_bench";

void Check(const absl::Status& status) { bench::Check(kProgram, status); }

policy::PolicySpec Spec(int64_t size, int64_t channels, std::vector<policy::ConvLayer> layers,
                        std::vector<int64_t> hidden) {
  policy::PolicySpec spec;
  spec.id = policy::PolicyId("p");
  spec.observation_space = *space::Space::Box(0, 255, {size, size, channels}, tensor::DType::kUint8);
  spec.action_space = *space::Space::Discrete(6);
  spec.actor.encoder = policy::EncoderKind::kCnn;
  spec.actor.conv_layers = std::move(layers);
  spec.actor.hidden_sizes = std::move(hidden);
  spec.SetActivation(policy::Activation::kRelu);
  return spec;
}

policy::WeightSnapshotPtr Weights(const policy::PolicySpec& spec) {
  auto weights = std::make_shared<policy::WeightSnapshot>();
  weights->id = spec.id;
  const policy::ParameterLayout layout = policy::ParameterLayout::For(spec);
  weights->actor.resize(static_cast<size_t>(layout.acting_size()));
  base::PhiloxSequence random(base::PhiloxKey::Make(1, base::RandomStream::kTest), {});
  for (const policy::ParameterEntry& entry : layout.entries()) {
    if (entry.offset >= layout.acting_size()) continue;
    const double fan_in = static_cast<double>(entry.shape.size() > 1 ? entry.count / entry.shape[0] : 16);
    for (int64_t i = 0; i < entry.count; ++i) {
      weights->actor[static_cast<size_t>(entry.offset + i)] =
          static_cast<float>(random.Normal() * std::sqrt(2.0 / fan_in));
    }
  }
  return weights;
}

/// Multiplications and additions of the products of a row.
double FlopsPerRow(const policy::PolicySpec& spec) {
  double products = 0;
  policy::ImageShape image = spec.image();
  for (const policy::ConvLayer& layer : spec.actor.conv_layers) {
    const policy::ImageShape made = layer.OutputOf(image);
    products += static_cast<double>(made.size() * layer.kernel * layer.kernel * image.channels);
    image = made;
  }
  int64_t inputs = image.size();
  for (const int64_t size : spec.actor.hidden_sizes) {
    products += static_cast<double>(inputs * size);
    inputs = size;
  }
  return 2.0 * (products + static_cast<double>(inputs * spec.actor_output_size()));
}

/// The same network in LibTorch.
class TorchNetwork {
 public:
  TorchNetwork(const policy::PolicySpec& spec, const policy::WeightSnapshot& weights) : spec_(spec) {
    const policy::ParameterLayout layout = policy::ParameterLayout::For(spec);
    const auto parameter = [&](const std::string& name) {
      const policy::ParameterEntry* const entry = layout.Find(absl::StrCat("actor.", name));
      float* const at = const_cast<float*>(weights.actor.data()) + entry->offset;
      return torch::from_blob(at, entry->shape).clone();
    };
    for (size_t i = 0; i < spec.actor.conv_layers.size(); ++i) {
      convolutions_.emplace_back(
          parameter(absl::StrCat("conv.", i, ".weight")).contiguous(at::MemoryFormat::ChannelsLast),
          parameter(absl::StrCat("conv.", i, ".bias")));
    }
    for (size_t i = 0; i < spec.actor.num_layers(); ++i) {
      layers_.emplace_back(parameter(absl::StrCat(i, ".weight")), parameter(absl::StrCat(i, ".bias")));
    }
  }

  /// [rows, outputs] of uint8 [rows, height, width, channels].
  torch::Tensor Forward(const torch::Tensor& images) const {
    const c10::InferenceMode no_gradients;
    torch::Tensor x = images.permute({0, 3, 1, 2}).to(torch::kFloat32).mul_(1.0f / 255.0f);
    for (size_t i = 0; i < convolutions_.size(); ++i) {
      const auto& [weight, bias] = convolutions_[i];
      x = at::conv2d(x, weight, bias, spec_.actor.conv_layers[i].stride).relu_();
    }
    x = x.permute({0, 2, 3, 1}).reshape({images.size(0), -1});
    for (size_t i = 0; i < layers_.size(); ++i) {
      x = at::linear(x, layers_[i].first, layers_[i].second);
      if (i + 1 < layers_.size()) x.relu_();
    }
    return x;
  }

 private:
  const policy::PolicySpec& spec_;
  std::vector<std::pair<torch::Tensor, torch::Tensor>> convolutions_, layers_;
};

class Case {
 public:
  Case(const char* name, policy::PolicySpec spec, int64_t rows, Backend back_end)
      : name_(absl::StrCat(name, ", ", rows, " rows")), spec_(std::move(spec)), rows_(rows) {
    const policy::WeightSnapshotPtr weights = Weights(spec_);
    auto actor = Actor::Create(spec_, 1, back_end);
    Check(actor.status());
    actor_ = *std::move(actor);
    Check(actor_->SetWeights(weights));
    images_.resize(static_cast<size_t>(rows * spec_.observation_size()));
    base::PhiloxSequence random(base::PhiloxKey::Make(2, base::RandomStream::kTest), {});
    for (uint8_t& x : images_) x = static_cast<uint8_t>(random.Below(256));
    keys_.resize(static_cast<size_t>(rows));
    outputs_.resize(static_cast<size_t>(rows * spec_.actor_output_size()));
    const policy::ImageShape image = spec_.image();
    torch_images_ = torch::from_blob(images_.data(), {rows, image.height, image.width, image.channels}, torch::kUInt8);
    torch_ = std::make_unique<TorchNetwork>(spec_, *weights);
    Ours();
    const torch::Tensor want = torch_->Forward(torch_images_).contiguous();
    for (size_t k = 0; k < outputs_.size(); ++k) {
      const float expected = want.data_ptr<float>()[k];
      if (std::abs(expected - outputs_[k]) < 1e-4f * (1 + std::abs(expected))) continue;
      std::fprintf(stderr, "conv_forward_bench: output %zu is %g, LibTorch's %g\n", k, static_cast<double>(outputs_[k]),
                   static_cast<double>(expected));
      std::exit(1);
    }
  }
  Case(const Case&) = delete;
  Case& operator=(const Case&) = delete;

  std::string back_end() const { return std::string(actor_->backend_name()); }
  void Run(bool counts) {
    Measure([this] { Ours(); }, counts ? &ours_ : nullptr);
    Measure([this] { torch_->Forward(torch_images_); }, counts ? &theirs_ : nullptr);
  }
  void Print(double flops_per_second) {
    const double ours = bench::MedianOf(ours_), theirs = bench::MedianOf(theirs_);
    const double share = FlopsPerRow(spec_) * static_cast<double>(rows_) / flops_per_second * 1e8;
    std::printf("%-28s %10.1f us %10.1f us %8.2f x %9.1f %% %9.1f %%\n", name_.c_str(), ours, theirs, theirs / ours,
                share / ours, share / theirs);
  }

 private:
  void Ours() { Check(actor_->Forward({rows_, images_.data(), nullptr, keys_.data()}, absl::MakeSpan(outputs_))); }
  template <typename Call>
  static void Measure(Call&& call, std::vector<double>* microseconds) {
    call();
    const auto begin = std::chrono::steady_clock::now();
    call();
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
    if (microseconds != nullptr) microseconds->push_back(took.count());
  }

  const std::string name_;
  const policy::PolicySpec spec_;
  const int64_t rows_;
  std::unique_ptr<Actor> actor_;
  std::vector<uint8_t> images_;
  std::vector<float> outputs_;
  std::vector<RowKey> keys_;
  torch::Tensor torch_images_;
  std::unique_ptr<TorchNetwork> torch_;
  std::vector<double> ours_, theirs_;
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
  for (const int64_t rows : {1, 4, 16, 64}) {
    cases.push_back(std::make_unique<Case>("84x84x4, DQN's", Spec(84, 4, {{32, 8, 4}, {64, 4, 2}, {64, 3, 1}}, {512}),
                                           rows, back_end));
  }
  for (const int64_t rows : {1, 16, 64}) {
    cases.push_back(
        std::make_unique<Case>("42x42x1", Spec(42, 1, {{16, 4, 2}, {32, 4, 2}, {32, 3, 2}}, {64, 64}), rows, back_end));
  }
  std::vector<double> peaks;
  for (int repetition = -3; repetition < repetitions; ++repetition) {
    if (repetition >= 0) peaks.push_back(bench::FmaOpsPerSecond(20'000));
    for (const std::unique_ptr<Case>& c : cases) c->Run(repetition >= 0);
  }
  const double peak = bench::MedianOf(peaks);
  std::printf("actor with convolutions, relu, back end %s, one thread, median of %d; FMA peak %.0f GFLOP/s\n",
              cases[0]->back_end().c_str(), repetitions, peak * 1e-9);
  std::printf("%-28s %13s %13s %10s %11s %11s\n", "", "actor", "torch", "faster", "of peak", "torch's");
  for (const std::unique_ptr<Case>& c : cases) c->Print(peak);
  return 0;
}

}  // namespace
}  // namespace troupe::inference

int main(int argc, char** argv) { return troupe::inference::Main(argc, argv); }
