// Milliseconds of one PPO update of 64 policies of one shape (actor 18-64-64-5, critic 18-64-64-1, tanh) with 128 rows
// each, 10 epochs of one minibatch: in one Update, where small policies train side by side, and one after another, an
// Update for each. Fused kernels and LibTorch, on two threads and on one; all in turns in one run, medians.
//
//   stacked_update_bench [rounds] [rows] [policies]

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/random_policy.h"
#include "lib/sample/multi_agent_batch.h"
#include "lib/training/core/trainer_host.h"
#include "lib/training/fused/fused_backend.h"
#include "lib/training/testing/ppo_host.h"
#include "lib/training/testing/random_batch.h"
#include "lib/training/torch/torch_backend.h"
#include <torch/torch.h>

namespace troupe::training {
namespace {

constexpr int kEpochs = 10;
constexpr int64_t kSegmentRows = 25;

double Now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

policy::PolicySpec Spec(int index) { return SpreadSpec(policy::PolicyId(absl::StrCat("p", index))); }

/// A batch of each policy alone, and the batch of all.
struct Batches {
  Batches(int policies, int64_t rows) {
    std::vector<int64_t> segments(static_cast<size_t>(rows / kSegmentRows), kSegmentRows);
    if (rows % kSegmentRows != 0) segments.push_back(rows % kSegmentRows);
    for (int p = 0; p < policies; ++p) {
      owned.push_back(std::make_unique<RandomBatch>(Spec(p), segments, static_cast<uint64_t>(p) + 1));
      owned.back()->rows().policy = policy::PolicySlot(p);
      all.policies.push_back(owned.back()->rows());
    }
  }
  std::vector<std::unique_ptr<RandomBatch>> owned;
  learner::TrainBatch all;
};

struct Contender {
  std::string name;
  std::function<void()> update;
  std::vector<double> seconds = {};
};

int Main(int rounds, int64_t rows, int policies) {
  const Batches batches(policies, rows);
  std::vector<policy::PolicySpec> specs;
  for (int p = 0; p < policies; ++p) specs.push_back(Spec(p));
  PpoOptions options;
  options.num_epochs = kEpochs;
  options.minibatch_size = rows;
  torch::set_num_threads(1);
  std::vector<Contender> contenders;
  const auto add = [&](const char* name, int threads, bool stacked, bool libtorch) {
    const auto team = std::make_shared<ThreadTeam>(threads);
    const auto fused = std::make_shared<FusedBackends>(team);
    const auto make = [=](const policy::PolicySpec& spec) {
      return libtorch ? MakeTorchBackend(spec, Device{}, TorchPath::kHost, team) : fused->Make(spec);
    };
    auto made = MakePpoHost(specs, std::vector<PpoOptions>(specs.size(), options), 1, make, team);
    if (!made.ok()) {
      std::printf("%-44s not here: %s\n", name, std::string(made.status().message()).c_str());
      return;
    }
    std::shared_ptr<TrainerHost> trainer = *std::move(made);
    const auto update = [trainer, &batches, stacked, iteration = int64_t{0}]() mutable {
      const learner::UpdateContext context = {.seed = 1, .iteration = iteration, .next_version = {1, iteration + 1}};
      ++iteration;
      const auto check = [](const absl::StatusOr<std::vector<learner::PolicyUpdateReport>>& reports) {
        if (reports.ok() && reports->back().minibatch_steps == kEpochs) return;
        std::fprintf(stderr, "update failed\n");
        std::exit(1);
      };
      if (stacked) return check(trainer->Update(batches.all, context));
      for (const auto& one : batches.owned) check(trainer->Update(one->batch, context));
    };
    contenders.push_back({absl::StrCat(name, ", ", threads, threads == 1 ? " thread" : " threads"), update});
  };
  for (const int threads : {2, 1}) {
    add("fused, one after another", threads, false, false);
    add("fused, stacked", threads, true, false);
  }
  add("LibTorch, one after another", 2, false, true);
  add("LibTorch, stacked", 2, true, true);
  for (int round = -1; round < rounds; ++round) {  // the first is for warming up
    for (Contender& contender : contenders) {
      const double start = Now();
      contender.update();
      if (round >= 0) contender.seconds.push_back(Now() - start);
    }
  }
  std::printf("%d policies, %lld rows each, %d epochs of one minibatch, rounds %d\n", policies,
              static_cast<long long>(rows), kEpochs, rounds);
  std::printf("%-44s %10s %10s %14s\n", "", "ms p50", "ms min", "us/step p50");
  for (Contender& contender : contenders) {
    std::sort(contender.seconds.begin(), contender.seconds.end());
    const double median = contender.seconds[contender.seconds.size() / 2];
    std::printf("%-44s %10.2f %10.2f %14.1f\n", contender.name.c_str(), median * 1e3, contender.seconds.front() * 1e3,
                median * 1e6 / (kEpochs * policies));
  }
  return 0;
}

}  // namespace
}  // namespace troupe::training

int main(int argc, char** argv) {
  const auto argument = [&](int i, int otherwise) { return argc > i ? std::max(1, std::atoi(argv[i])) : otherwise; };
  return troupe::training::Main(argument(1, 15), argument(2, 128), argument(3, 64));
}
