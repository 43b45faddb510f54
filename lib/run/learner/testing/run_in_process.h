#pragma once

#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "lib/base/await.h"
#include "lib/base/clock.h"
#include "lib/envs/register_all.h"
#include "lib/learner/learner.h"
#include "lib/learner/trainer.h"
#include "lib/run/learner/callback_host.h"
#include "lib/run/learner/checkpoint_loop.h"
#include "lib/run/learner/control_handler.h"
#include "lib/run/learner/local_sampler.h"
#include "lib/run/learner/policy_desk.h"
#include "lib/run/learner/policy_map_cache.h"
#include "lib/run/learner/run_evaluator.h"
#include "lib/run/learner/run_reporter.h"
#include "lib/run/learner/run_setup.h"
#include "lib/run/learner/run_start.h"
#include "lib/run/learner/update_loop.h"
#include "lib/run/rollout_setup.h"
#include "lib/storage/testing/scratch_directory.h"
#include <gtest/gtest.h>

namespace troupe::run {

/// A whole run in this process, wired as services/learner does it, from its configuration to the update loop: samples
/// on a thread of its own, in a folder that goes away with it. What trains and where checkpoints go are the test's.
/// Members are public: a test looks at all of them.
struct RunInProcess {
  struct Parts {
    std::string config;  ///< YAML, with num_workers: 0
    std::function<void(config::ResolvedRun&)> change = [](config::ResolvedRun&) {};
    std::function<std::unique_ptr<learner::Trainer>(const RunSetup&, const policy::PolicyTable&)> make_trainer;
    DrawState draw;
    learner::CheckpointStore* store = nullptr;
    CallbackHost* callbacks = nullptr;
    const base::Clock* clock = &base::Clock::Real();  ///< of checkpoints
  };

  explicit RunInProcess(const Parts& parts) : checkpoints(parts.store, &degradations) {
    envs::RegisterAllEnvs(registry);
    const std::string path = scratch.path() + "/run.yaml";
    std::ofstream(path) << parts.config;
    RunRequest request;
    request.config_path = path;
    request.directory = scratch.path();
    request.name = "run";
    absl::StatusOr<RunSetup> made = SetUpRun(request, registry, base::Clock::Real());
    EXPECT_TRUE(made.ok()) << made.status();
    setup = *std::move(made);
    parts.change(setup.run);
    const policy::PolicyTablePtr policies = *FirstPolicies(setup);
    trainer = parts.make_trainer(setup, *policies);
    reporter = *RunReporter::Open(setup.run, "run", setup.folder->directory(), 0, {.degradations = &degradations});
    sampler = std::make_shared<LocalSampler>(setup.run.policies.size());
    learner::LearnerDeps deps;
    deps.trainer = trainer.get();
    deps.publisher = sampler.get();
    deps.metrics = reporter.get();
    deps.progress = reporter.get();
    auto created = learner::Learner::Create(LearnerConfigOf(setup, policies), deps);
    EXPECT_TRUE(created.ok()) << created.status();
    learner = *std::move(created);
    binding = std::make_unique<rpc::LearnerBinding>(learner.get());
    control = std::make_unique<ControlHandler>(learner.get(), binding.get(), &degradations, &door_counts, "run");
    cache = std::make_unique<PolicyMapCache>(&setup, parts.draw);
    cache->SetPolicies(policies);
    desk = std::make_unique<PolicyDesk>(PolicyDesk::Deps{.run = &setup.run,
                                                         .registry = &registry,
                                                         .learner = learner.get(),
                                                         .trainer = trainer.get(),
                                                         .workers = binding.get(),
                                                         .control = control.get(),
                                                         .cache = cache.get(),
                                                         .reporter = reporter.get(),
                                                         .draw = parts.draw});
    evaluator = std::make_unique<RunEvaluator>(RunEvaluator::Deps{.run = &setup.run,
                                                                  .registry = &registry,
                                                                  .learner = learner.get(),
                                                                  .trainer = trainer.get(),
                                                                  .reporter = reporter.get(),
                                                                  .degradations = &degradations,
                                                                  .interrupted = [this] { return interrupted(); }});
    updates = std::make_unique<UpdateLoop>(UpdateLoop::Deps{.run = &setup.run,
                                                            .learner = learner.get(),
                                                            .reporter = reporter.get(),
                                                            .evaluator = evaluator.get(),
                                                            .checkpoints = &checkpoints,
                                                            .control = control.get(),
                                                            .policies = desk.get(),
                                                            .degradations = &degradations,
                                                            .callbacks = parts.callbacks,
                                                            .clock = parts.clock},
                                           0);
    EXPECT_EQ(learner->Start(), absl::OkStatus());
    EXPECT_EQ(sampler->Join(*MakeRolloutConfig(setup.run, registry), learner.get()), absl::OkStatus());
    sampling = std::thread([this] { sampler->Run(); });
  }
  ~RunInProcess() { StopSampling(); }
  RunInProcess(const RunInProcess&) = delete;
  RunInProcess& operator=(const RunInProcess&) = delete;

  void StopSampling() {
    sampler->Stop();
    if (sampling.joinable()) sampling.join();
  }
  /// Steps until the run stops, or does anything else than wait and update; for two minutes at most.
  learner::StepOutcome StepToTheEnd() {
    using Kind = learner::StepOutcome::Kind;
    const base::Deadline deadline = base::Deadline::After(absl::Minutes(2));
    while (!deadline.passed()) {
      const absl::StatusOr<learner::StepOutcome> outcome = updates->Step(absl::Milliseconds(20));
      EXPECT_TRUE(outcome.ok()) << outcome.status();
      if (!outcome.ok()) break;
      if (outcome->kind != Kind::kWaiting && outcome->kind != Kind::kUpdated) return *outcome;
    }
    return {};
  }
  /// Writes the checkpoints that wait.
  void WriteCheckpoints() {
    checkpoints.Stop();
    checkpoints.Run();
  }

  std::function<bool()> interrupted = [] { return false; };  ///< whether an evaluation is to end
  const storage::ScratchDirectory scratch;
  env::EnvRegistry registry;
  RunSetup setup;
  Degradations degradations;
  rpc::DoorCounts door_counts;
  CheckpointLoop checkpoints;
  std::unique_ptr<learner::Trainer> trainer;
  std::unique_ptr<RunReporter> reporter;
  std::shared_ptr<LocalSampler> sampler;
  std::unique_ptr<learner::Learner> learner;
  std::unique_ptr<rpc::LearnerBinding> binding;
  std::unique_ptr<ControlHandler> control;
  std::unique_ptr<PolicyMapCache> cache;
  std::unique_ptr<PolicyDesk> desk;
  std::unique_ptr<RunEvaluator> evaluator;
  std::unique_ptr<UpdateLoop> updates;
  std::thread sampling;
};

}  // namespace troupe::run
