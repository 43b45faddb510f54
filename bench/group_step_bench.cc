// Steps per second of a learn group whose loss is over tensors: Q-learning with a target network (18-64-64-5, tanh)
// from 256 transitions a step, through TrainerHost::Update, on one thread. group_step.py compares it with PyTorch.
//
//   group_step_bench [seconds] [transitions]

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include "bench/random_policy.h"
#include "lib/training/core/trainer_host.h"
#include "lib/training/testing/q_group.h"
#include "lib/training/testing/random_batch.h"
#include <torch/torch.h>

namespace troupe::training {
namespace {

double Now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

int Main(double seconds, int64_t transitions) {
  torch::set_num_threads(1);
  policy::PolicySpec spec = QSpecOf(SpreadSpec(policy::PolicyId("p")));
  spec.SetActivation(policy::Activation::kTanh);
  QSettings settings;
  settings.gamma = 0.99;
  settings.learning_rate = 5e-4;
  settings.optimizer.max_grad_norm = 10;
  settings.targets = {{"actor", 1, 100}};
  const TorchAlgorithm<QGroup> algorithm(settings);
  const auto find = [&](std::string_view) -> absl::StatusOr<const Algorithm*> { return &algorithm; };
  const auto no_backend = [](const policy::PolicySpec&) -> absl::StatusOr<std::unique_ptr<NetworkBackend>> {
    return absl::InternalError("nobody asks for one");
  };
  const auto host = TrainerHost::Make({spec}, {{.name = "torch"}}, {.seed = 1}, find, no_backend);
  // A replay gives each transition as a segment of one row and, but for the ends of episodes, a final row.
  RandomBatch batch(spec, std::vector<int64_t>(static_cast<size_t>(transitions), 1), 1);
  int64_t updates = 0;
  const auto update = [&] {
    const auto reports =
        (*host)->Update(batch.batch, {.seed = 1, .iteration = updates, .env_steps = 0, .next_version = {1, ++updates}});
    if (reports.ok()) return;
    std::fprintf(stderr, "%s\n", reports.status().ToString().c_str());
    std::exit(1);
  };
  for (int i = 0; i < 50; ++i) update();
  const int64_t before = updates;
  const double begin = Now();
  while (Now() < begin + seconds) update();
  std::printf("%.1f steps/s\n", static_cast<double>(updates - before) / (Now() - begin));
  return 0;
}

}  // namespace
}  // namespace troupe::training

int main(int argc, char** argv) {
  return troupe::training::Main(argc > 1 ? std::atof(argv[1]) : 2, argc > 2 ? std::atoll(argv[2]) : 256);
}
