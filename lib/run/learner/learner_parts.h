#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/base/own_thread.h"
#include "lib/env/registry.h"
#include "lib/learner/learner.h"
#include "lib/learner/trainer.h"
#include "lib/policy/policy_table.h"
#include "lib/rollout/rollout_config.h"
#include "lib/rpc/control/control_server.h"
#include "lib/rpc/learner/learner_binding.h"
#include "lib/rpc/learner/learner_server.h"
#include "lib/run/episode_door.h"
#include "lib/run/hosted_query_threads.h"
#include "lib/run/learner/callback_host.h"
#include "lib/run/learner/checkpoint_loop.h"
#include "lib/run/learner/control_handler.h"
#include "lib/run/learner/degradations.h"
#include "lib/run/learner/film_loop.h"
#include "lib/run/learner/local_sampler.h"
#include "lib/run/learner/policy_desk.h"
#include "lib/run/learner/policy_map_cache.h"
#include "lib/run/learner/policy_sources.h"
#include "lib/run/learner/publisher_fan.h"
#include "lib/run/learner/query_publisher.h"
#include "lib/run/learner/run_evaluator.h"
#include "lib/run/learner/run_reporter.h"
#include "lib/run/learner/run_setup.h"
#include "lib/run/learner/train_function.h"
#include "lib/run/learner/update_loop.h"
#include "lib/serving/query_engine.h"
#include "lib/storage/run_folder.h"
#include "lib/tensor/buffer.h"

namespace troupe::run {

/// A trainer, and the memory that it wants batches in, which outlives it. Plain value.
struct MadeTrainer {
  std::unique_ptr<learner::Trainer> trainer;
  tensor::TensorAllocator* allocator = nullptr;
};

/// The parts that a learner's program brings along. Plain value.
struct LearnerWiring {
  std::vector<std::string> listen;  ///< addresses to serve on
  bool insecure_plaintext_network = false;
  const env::EnvRegistry* registry = nullptr;  ///< outlives the parts
  /// Makes the trainer of the policies that the run begins with. `cache` outlives it.
  std::function<absl::StatusOr<MadeTrainer>(const RunSetup& setup, const policy::PolicyTable& policies,
                                            PolicyMapCache& cache)>
      make_trainer;
  DrawState draw;
  std::function<bool()> interrupted;  ///< whether a signal asks for the end; any thread
};

/// Code of users in processes of their own, each with a thread that calls it.
struct UserCode {
  CallbackHost* callback_host() const { return callbacks == nullptr ? nullptr : callbacks->get(); }
  /// The callbacks that are called for episodes, too.
  std::vector<std::string> EpisodeCallbacks() const {
    return callbacks == nullptr ? std::vector<std::string>() : callbacks->get()->episode_callbacks();
  }

  std::unique_ptr<base::OwnThread<CallbackHost>> callbacks;
  std::unique_ptr<base::OwnThread<TrainFunction>> train_function;
};

/// The parts that answer policy queries: all are there, or none.
struct QueryParts {
  std::unique_ptr<serving::QueryEngine> engine;
  std::unique_ptr<HostedQueryThreads> threads;
  std::unique_ptr<QueryPublisher> publisher;
};

/// The doors for workers, clients and commands, and those who answer there.
struct DoorParts {
  std::vector<std::string> addresses() const {
    return server == nullptr ? std::vector<std::string>() : server->addresses();
  }
  /// No command comes any more, and none finds us in `folder`. Idempotent.
  void CloseControl(const storage::RunFolder& folder);

  std::unique_ptr<rpc::LearnerBinding> binding;
  std::unique_ptr<ControlHandler> control;
  std::unique_ptr<PolicyDesk> policy_desk;
  std::unique_ptr<rpc::LearnerServer> server;  ///< null: the run has no address
  std::unique_ptr<rpc::ControlServer> control_server;
};

/// The parts that the update thread works with.
struct UpdateParts {
  std::optional<config::ResolvedRun> evaluation_run;  ///< where evaluations have an environment of their own
  std::unique_ptr<RunEvaluator> evaluator;
  std::unique_ptr<UpdateLoop> loop;
};

/// The sampling of this process, with num_workers: 0.
struct SamplingParts {
  std::unique_ptr<EpisodeDoor> door;  ///< of a world outside; outlives the sampler
  std::shared_ptr<LocalSampler> sampler;
  /// Keeps the Python processes of environments and functions: they are dismissed when everything has been told. Also
  /// there where others sample.
  std::optional<rollout::RolloutConfig> config;
};

/// The parts of a learner, in groups; destroyed in reverse, so that nothing is called after its death. Once Make has
/// succeeded, only those are null that the run does not need. Made and taken down by the learner's process, which also
/// has the threads. It cannot be moved: parts point at each other.
struct LearnerParts {
  LearnerParts(RunSetup run_setup, LearnerWiring program);
  LearnerParts(const LearnerParts&) = delete;
  LearnerParts& operator=(const LearnerParts&) = delete;

  /// Makes all that follows `policy_map_cache`, opens the addresses, and tells callbacks that the run starts. Once, on
  /// the update thread. Blocks as long as Python takes to start. After an error the parts that were made are there, to
  /// be taken down. Errors are for the person at the command line.
  absl::Status Make();

  const config::ResolvedRun& run() const { return setup.run; }
  int64_t resumed_env_steps() const { return setup.resumed ? setup.resumed->env_steps : 0; }
  /// Of a run in which nothing is left to do, nothing starts that would change what is there.
  bool trains() const { return setup.nothing_left.empty(); }

  RunSetup setup;
  const LearnerWiring wiring;
  Degradations degradations;
  rpc::DoorCounts door_counts;  ///< of the addresses
  CheckpointLoop checkpoints;
  PolicyMapCache policy_map_cache;
  policy::PolicyTablePtr policies;  ///< that this process begins with
  UserCode code;
  std::unique_ptr<base::OwnThread<FilmLoop>> films;
  MadeTrainer trainer;
  std::unique_ptr<RunReporter> reporter;
  QueryParts queries;
  PublisherFan publishers;
  std::unique_ptr<learner::Learner> learner;
  DoorParts doors;
  UpdateParts updates;
  SamplingParts sampling;
};

}  // namespace troupe::run
