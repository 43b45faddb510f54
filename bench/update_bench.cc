// Milliseconds of one PPO update at the setting of issue 3: 4000 env steps of simple_spread with 3 agents (12,000
// rows), minibatches of 1000 rows, 10 epochs = 120 minibatch steps, actor 21-64-64-5 and critic 57-64-64-1 with tanh.
// Fused kernels beside LibTorch, and, as the floor, LibTorch's matrix products of the same shapes alone. All in turns
// in one run; medians.
//
//   update_bench [rounds]

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "lib/base/philox.h"
#include "lib/training/fused_backend.h"
#include "lib/training/ppo_trainer.h"
#include "lib/training/torch_backend.h"
#include <torch/torch.h>

namespace troupe::training {
namespace {

constexpr int kAgents = 3;
constexpr int kObservation = 18;
constexpr int kState = kAgents * kObservation + kAgents;
constexpr int kActions = 5;
constexpr int kEnvs = 160;
constexpr int kSteps = 25;
constexpr int kEnvSteps = kEnvs * kSteps;
constexpr int kRows = kEnvSteps * kAgents;
constexpr int kMinibatch = 1000;
constexpr int kEpochs = 10;

double Now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

policy::PolicySpec SpreadSpec() {
  policy::PolicySpec spec;
  spec.id = policy::PolicyId("shared");
  spec.observation_space = *space::Space::Box(-100, 100, {kObservation});
  spec.action_space = *space::Space::Discrete(kActions);
  spec.agent_id_size = kAgents;
  spec.critic_input = policy::CriticInput::kJointObservation;
  spec.critic_state_size = kState;
  return spec;
}

PpoOptions SpreadOptions() {
  PpoOptions options;
  options.learning_rate = {7e-4, 7e-4, 0};
  options.gamma = 0.95;
  options.huber_delta = 10;
  options.max_grad_norm = 10;
  options.num_epochs = kEpochs;
  options.minibatch_size = kMinibatch;
  return options;
}

/// Rows as the assembler lays them out: an agent's episode after another. Numbers do not matter, only that they are
/// usual.
struct Rows {
  Rows() {
    base::PhiloxSequence random(base::PhiloxKey::Make(1, base::RandomStream::kTest), {});
    const auto fill = [&](std::vector<float>* values, size_t size) {
      values->resize(size);
      for (float& value : *values) value = static_cast<float>(random.Normal());
    };
    fill(&obs, size_t{kRows} * kObservation);
    fill(&final_obs, size_t{kEnvs} * kAgents * kObservation);
    fill(&rewards, kRows);
    fill(&state, size_t{kEnvSteps + kEnvs} * kState);
    logp.assign(kRows, -1.6094379f);
    learner::PolicyTrainBatch rows;
    for (int env = 0; env < kEnvs; ++env) {
      for (int agent = 0; agent < kAgents; ++agent) {
        rows.segments.push_back({static_cast<int64_t>(slot.size()), kSteps, static_cast<int64_t>(final_slot.size()),
                                 static_cast<uint32_t>(env), 0, agent});
        for (int step = 0; step < kSteps; ++step) {
          slot.push_back(agent);
          critic_row.push_back(env * kSteps + step);
          space::ActionWord action;
          action.i32 = static_cast<int32_t>(random.Below(kActions));
          actions.push_back(action);
        }
        final_slot.push_back(agent);
        final_critic_row.push_back(kEnvSteps + env);
      }
    }
    rows.policy = policy::PolicySlot(0);
    rows.rows = kRows;
    rows.final_rows = kEnvs * kAgents;
    rows.obs = obs;
    rows.actions = actions;
    rows.action_logp = logp;
    rows.rewards = rewards;
    rows.slot = slot;
    rows.critic_row = critic_row;
    rows.final_obs = final_obs;
    rows.final_slot = final_slot;
    rows.final_critic_row = final_critic_row;
    rows.critic_state = state;
    rows.critic_rows = kEnvSteps + kEnvs;
    batch.env_steps = kEnvSteps;
    batch.agent_steps = kRows;
    batch.policies.push_back(rows);
  }

  std::vector<float> obs, final_obs, rewards, logp, state;
  std::vector<space::ActionWord> actions;
  std::vector<int32_t> slot, final_slot, critic_row, final_critic_row;
  learner::TrainBatch batch;
};

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

Contender TrainerContender(std::string name, const PpoTrainer::BackendFactory& make, const Rows& rows) {
  auto trainer = PpoTrainer::Make({SpreadSpec()}, {SpreadOptions()}, 1, make);
  if (!trainer.ok()) {
    std::printf("%-28s not here: %s\n", name.c_str(), std::string(trainer.status().message()).c_str());
    return {};
  }
  std::shared_ptr<PpoTrainer> shared = *std::move(trainer);
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

int Main(int rounds) {
  const Rows rows;
  const int cores = std::max(1u, std::thread::hardware_concurrency());
  const auto team = std::make_shared<ThreadTeam>(2);
  const auto alone = std::make_shared<ThreadTeam>(1);
  torch::set_num_threads(1);
  const auto fused = [](VectorUnit unit, const std::shared_ptr<ThreadTeam>& threads) -> PpoTrainer::BackendFactory {
    return [=](const policy::PolicySpec& spec) { return MakeFusedBackend(spec, threads, unit); };
  };
  const auto libtorch = [](const std::shared_ptr<ThreadTeam>& threads) -> PpoTrainer::BackendFactory {
    return [=](const policy::PolicySpec& spec) { return MakeTorchBackend(spec, Device{}, TorchPath::kHost, threads); };
  };
  const std::function<void()> actor = Products({kObservation + kAgents, 64, 64, kActions});
  const std::function<void()> critic = Products({kState, 64, 64, 1});
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
                              TrainerContender("LibTorch, 1 thread", libtorch(alone), rows),
                              TrainerContender("LibTorch, 2 threads", libtorch(team), rows),
                              {"GEMM floor, 1 thread", floor(alone), {}},
                              {"GEMM floor, 2 threads", floor(team), {}}}) {
    if (contender.update) contenders.push_back(std::move(contender));
  }
  for (int round = -1; round < rounds; ++round) {  // the first is for warming up
    for (Contender& contender : contenders) {
      const double start = Now();
      contender.update();
      if (round >= 0) contender.seconds.push_back(Now() - start);
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
  return 0;
}

}  // namespace
}  // namespace troupe::training

int main(int argc, char** argv) { return troupe::training::Main(std::max(1, argc > 1 ? std::atoi(argv[1]) : 15)); }
