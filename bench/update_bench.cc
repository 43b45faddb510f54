// Milliseconds of one PPO update at the setting of issue 3: 4000 env steps of simple_spread with 3 agents (12,000
// rows), minibatches of 1000 rows, 10 epochs = 120 minibatch steps, actor 21-64-64-5 and critic 57-64-64-1 with tanh.
// Fused kernels, with minibatches of env steps too, beside LibTorch, and, as the floor, LibTorch's matrix products of
// the same shapes alone. All in turns in one run; medians. The last line is the share of the fused multiply-adds that
// the cores could do meanwhile, measured in every round, too.
//
//   update_bench [rounds] [only]     `only`: contenders whose name begins so, for a profiler

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "bench/fma_peak.h"
#include "bench/spread_update.h"
#include "lib/training/core/trainer_host.h"
#include "lib/training/fused/fused_backend.h"
#include "lib/training/testing/ppo_host.h"
#include "lib/training/torch/torch_backend.h"
#include <torch/torch.h>

namespace troupe::training {
namespace {

constexpr int kEnvSteps = 4000;
constexpr int kRows = kEnvSteps * static_cast<int>(SpreadUpdate::kAgents);
constexpr int kMinibatch = 1000;
constexpr int kEpochs = 10;

double Now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

/// The matrix products of one minibatch step of one network: forward, gradient of the weights, gradient of the inputs
/// but the first.
std::function<void()> Products(std::vector<int64_t> sizes) {
  std::vector<torch::Tensor> x, w, dy, y, dw, dx;
  for (size_t i = 0; i + 1 < sizes.size(); ++i) {
    x.push_back(torch::randn({kMinibatch, sizes[i]}));
    w.push_back(torch::randn({sizes[i + 1], sizes[i]}));
    dy.push_back(torch::randn({kMinibatch, sizes[i + 1]}));
    y.push_back(torch::empty({kMinibatch, sizes[i + 1]}));
    dw.push_back(torch::empty({sizes[i + 1], sizes[i]}));
    dx.push_back(torch::empty({kMinibatch, sizes[i]}));
  }
  return [=]() mutable {
    const torch::NoGradGuard no_grad;
    for (size_t i = 0; i < x.size(); ++i) {
      torch::mm_out(y[i], x[i], w[i].t());
      torch::mm_out(dw[i], dy[i].t(), x[i]);
      if (i > 0) torch::mm_out(dx[i], dy[i], w[i]);
    }
  };
}

struct Contender {
  std::string name;
  std::function<void()> update;
  std::vector<double> seconds;
};

Contender TrainerContender(std::string name, const TrainerHost::BackendFactory& make, const SpreadRows& rows,
                           MinibatchBy minibatch_by = MinibatchBy::kRows) {
  PpoOptions options = SpreadUpdate::Options(kEpochs, kMinibatch);
  options.minibatch_by = minibatch_by;
  auto trainer = MakePpoHost({SpreadUpdate::Spec()}, {options}, 1, make);
  if (!trainer.ok()) {
    std::printf("%-28s not here: %s\n", name.c_str(), std::string(trainer.status().message()).c_str());
    return {};
  }
  std::shared_ptr<TrainerHost> shared = *std::move(trainer);
  return {std::move(name), [shared, &rows, iteration = int64_t{0}]() mutable {
            auto reports =
                shared->Update(rows.batch, {.seed = 1, .iteration = iteration, .next_version = {1, iteration + 1}});
            ++iteration;
            if (!reports.ok() || reports->at(0).minibatch_steps != kEpochs * kRows / kMinibatch) {
              std::fprintf(stderr, "update failed\n");
              std::exit(1);
            }
          }};
}

/// `peaks`: fused multiply-adds a second that cores could do, by threads. Of contenders that were timed and sorted.
void PrintShareOfPeak(const std::vector<Contender>& contenders, std::map<int, std::vector<double>> peaks) {
  std::printf("of the FMA peak:");
  for (auto& [threads, rates] : peaks) {
    const std::string name = absl::StrCat("fused avx512, ", threads, threads == 1 ? " thread" : " threads");
    const auto fused_row = std::find_if(contenders.rbegin(), contenders.rend(), [&](const Contender& contender) {
      return contender.name == name || contender.name == absl::StrReplaceAll(name, {{"avx512", "avx2"}});
    });
    if (fused_row == contenders.rend()) continue;
    std::sort(rates.begin(), rates.end());
    const double peak = rates[rates.size() / 2];
    const double flops = SpreadUpdate::UpdateFlopsPerRow(64) * kRows * kEpochs;
    std::printf("%s %d thread%s %.1f %% of %.0f GFLOP/s", threads == 1 ? "" : ",", threads, threads == 1 ? "" : "s",
                100 * flops / (fused_row->seconds[fused_row->seconds.size() / 2] * peak), peak * 1e-9);
  }
  std::printf("\n");
}

int Main(int rounds, const std::string& only) {
  const SpreadRows rows(kRows);
  const int cores = std::max(1u, std::thread::hardware_concurrency());
  const auto team = std::make_shared<ThreadTeam>(2);
  const auto alone = std::make_shared<ThreadTeam>(1);
  torch::set_num_threads(1);
  const auto fused = [](VectorUnit unit, const std::shared_ptr<ThreadTeam>& threads) -> TrainerHost::BackendFactory {
    return [=](const policy::PolicySpec& spec) { return MakeFusedBackend(spec, threads, unit); };
  };
  const auto libtorch = [](const std::shared_ptr<ThreadTeam>& threads) -> TrainerHost::BackendFactory {
    return [=](const policy::PolicySpec& spec) { return MakeTorchBackend(spec, Device{}, TorchPath::kHost, threads); };
  };
  const std::function<void()> actor =
      Products({SpreadUpdate::kObservation + SpreadUpdate::kAgents, 64, 64, SpreadUpdate::kActions});
  const std::function<void()> critic = Products({SpreadUpdate::kState, 64, 64, 1});
  const auto floor = [&](const std::shared_ptr<ThreadTeam>& threads) {
    return [&actor, &critic, threads] {
      for (int step = 0; step < kEpochs * kRows / kMinibatch; ++step) {
        threads->Run([&](int thread) {
          if (thread == 0) actor();
          if (thread == 1 || threads->size() == 1) critic();
        });
      }
    };
  };

  std::vector<Contender> contenders;
  for (Contender& contender :
       std::vector<Contender>{TrainerContender("fused avx2, 1 thread", fused(VectorUnit::kAvx2, alone), rows),
                              TrainerContender("fused avx2, 2 threads", fused(VectorUnit::kAvx2, team), rows),
                              TrainerContender("fused avx512, 1 thread", fused(VectorUnit::kAvx512, alone), rows),
                              TrainerContender("fused avx512, 2 threads", fused(VectorUnit::kAvx512, team), rows),
                              TrainerContender("fused, env steps, 1 thread", fused(VectorUnit::kBest, alone), rows,
                                               MinibatchBy::kEnvSteps),
                              TrainerContender("fused, env steps, 2 threads", fused(VectorUnit::kBest, team), rows,
                                               MinibatchBy::kEnvSteps),
                              TrainerContender("LibTorch, 1 thread", libtorch(alone), rows),
                              TrainerContender("LibTorch, 2 threads", libtorch(team), rows),
                              {"GEMM floor, 1 thread", floor(alone), {}},
                              {"GEMM floor, 2 threads", floor(team), {}}}) {
    if (contender.update && contender.name.rfind(only, 0) == 0) contenders.push_back(std::move(contender));
  }
  if (contenders.empty()) {
    std::fprintf(stderr, "update_bench: no contender begins with \"%s\"\n", only.c_str());
    return 1;
  }
  std::map<int, std::vector<double>> peaks;        // by threads
  for (int round = -1; round < rounds; ++round) {  // the first is for warming up
    for (Contender& contender : contenders) {
      const double start = Now();
      contender.update();
      if (round >= 0) contender.seconds.push_back(Now() - start);
    }
    for (const auto& threads : {alone, team}) {
      std::vector<double> of_thread(static_cast<size_t>(threads->size()));
      threads->Run([&](int thread) { of_thread[static_cast<size_t>(thread)] = bench::FmaOpsPerSecond(); });
      if (round >= 0) peaks[threads->size()].push_back(std::accumulate(of_thread.begin(), of_thread.end(), 0.0));
    }
  }
  std::printf("cores %d, rounds %d; env steps/s: what the update alone allows\n", cores, rounds);
  std::printf("%-28s %10s %10s %12s %12s\n", "", "ms p50", "ms min", "ms/step p50", "env steps/s");
  for (Contender& contender : contenders) {
    std::sort(contender.seconds.begin(), contender.seconds.end());
    const double median = contender.seconds[contender.seconds.size() / 2];
    std::printf("%-28s %10.1f %10.1f %12.3f %12.0f\n", contender.name.c_str(), median * 1e3,
                contender.seconds.front() * 1e3, median * 1e3 / (kEpochs * kRows / kMinibatch), kEnvSteps / median);
  }
  PrintShareOfPeak(contenders, peaks);
  return 0;
}

}  // namespace
}  // namespace troupe::training

int main(int argc, char** argv) {
  return troupe::training::Main(std::max(1, argc > 1 ? std::atoi(argv[1]) : 15), argc > 2 ? argv[2] : "");
}
