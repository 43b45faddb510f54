#include "lib/run/learner/learner_parts.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/config/make_env.h"
#include "lib/config/sampling_ahead.h"
#include "lib/config/worker_yaml.h"
#include "lib/policy/policy_entry.h"
#include "lib/policy/policy_spec.h"
#include "lib/policy/python_callable.h"
#include "lib/policy/scaling_text.h"
#include "lib/run/changed_run.h"
#include "lib/run/learner/callback_facts.h"
#include "lib/run/learner/run_start.h"
#include "lib/run/rollout_setup.h"
#include "lib/storage/file_system.h"
#include "lib/storage/run_address.h"

namespace troupe::run {
namespace {

absl::Status StartCallbacks(LearnerParts& parts) {
  const config::ResolvedRun& run = parts.run();
  if (run.callbacks.empty() || !parts.trains()) return absl::OkStatus();
  CallbackHost::Options options;
  options.callbacks = run.callbacks;
  options.python = run.env.python;
  options.run_directory = parts.setup.folder->directory();
  options.stop = [&parts](const std::string& reason) {
    parts.learner->RequestDrain(absl::StrCat("a callback: ", reason));
  };
  options.degradations = &parts.degradations;
  absl::StatusOr<std::unique_ptr<CallbackHost>> started = CallbackHost::Start(std::move(options));
  if (!started.ok()) {
    return absl::Status(
        started.status().code(),
        absl::StrCat(run.config.Where("callbacks"), ": callbacks: ", std::string(started.status().message())));
  }
  if (!policy::IsPythonName(run.env.name)) {
    for (const char* const hook : {"on_episode_start", "on_episode_step"}) {
      if ((*started)->episode_hooks().count(hook) == 0) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          run.config.Where("callbacks"), ": callbacks: one overrides ", hook, ", which is called in the process of an ",
          "environment in Python, and ", base::LogSafe(run.env.name), " is none; expected on_episode_end alone"));
    }
  }
  parts.code.callbacks = std::make_unique<base::OwnThread<CallbackHost>>(*std::move(started));
  // The thread that writes checkpoints does not wait: a callback may wait for it.
  parts.checkpoints.SetListener(
      [host = parts.code.callback_host()](const absl::Status& saved, int64_t env_steps, bool is_best) {
        if (!host->Wants(Hook::kCheckpointEnd)) return;
        host->Tell(Hook::kCheckpointEnd, CheckpointFacts(saved, env_steps, is_best));
      });
  return absl::OkStatus();
}

absl::Status StartTrainFunction(LearnerParts& parts) {
  const config::ResolvedRun& run = parts.run();
  if (run.train_function.empty() || !parts.trains()) return absl::OkStatus();
  auto started = TrainFunction::Start(run.train_function, run.env.python, &parts.degradations,
                                      [&parts] { return parts.wiring.interrupted() || parts.learner->ends(); });
  if (!started.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat(run.config.Where("multi_agent.policies_to_train"),
                     ": multi_agent.policies_to_train: ", std::string(started.status().message())));
  }
  parts.code.train_function = std::make_unique<base::OwnThread<TrainFunction>>(*std::move(started));
  return absl::OkStatus();
}

absl::Status MakeTrainer(LearnerParts& parts) {
  TROUPE_ASSIGN_OR_RETURN(parts.policies, FirstPolicies(parts.setup));
  parts.policy_map_cache.SetPolicies(parts.policies);
  TROUPE_RETURN_IF_ERROR(parts.policy_map_cache.Open());
  TROUPE_ASSIGN_OR_RETURN(parts.trainer,
                          parts.wiring.make_trainer(parts.setup, *parts.policies, parts.policy_map_cache));
  const std::vector<std::optional<policy::PolicyState>>& initial = parts.setup.initial;
  for (size_t slot = 0; slot < initial.size() && !parts.setup.resumed; ++slot) {
    if (!initial[slot]) continue;
    TROUPE_RETURN_IF_ERROR(
        parts.trainer.trainer->ImportState(*initial[slot], policy::PolicySlot(static_cast<int32_t>(slot))));
  }
  return absl::OkStatus();
}

RunReporter::Deps ReporterDeps(LearnerParts& parts) {
  RunReporter::Deps deps;
  deps.degradations = &parts.degradations;
  deps.door = &parts.door_counts;
  deps.interrupted = parts.wiring.interrupted;
  if (!parts.run().callbacks.empty()) {
    deps.tracked = [&parts] {
      CallbackHost* const host = parts.code.callback_host();
      if (host == nullptr) return std::vector<learner::NamedValue>();
      if (parts.learner != nullptr) host->AddTracked(parts.learner->TakeTracked());
      return host->TakeValues();
    };
  }
  if (parts.run().evaluation.video_interval > 0) {
    deps.films = [&parts] { return parts.films == nullptr ? std::vector<Film>() : parts.films->get()->TakeFilms(); };
  }
  return deps;
}

absl::Status MakeLearner(LearnerParts& parts) {
  learner::LearnerDeps deps;
  deps.trainer = parts.trainer.trainer.get();
  deps.publisher = &parts.publishers;
  deps.metrics = parts.reporter.get();
  deps.progress = parts.reporter.get();
  deps.chooser = parts.code.train_function == nullptr ? nullptr : parts.code.train_function->get();
  deps.allocator = parts.trainer.allocator;
  learner::LearnerConfig config = LearnerConfigOf(parts.setup, parts.policies);
  config.episode_callbacks = !parts.code.EpisodeCallbacks().empty();
  TROUPE_ASSIGN_OR_RETURN(parts.learner, learner::Learner::Create(std::move(config), deps));
  if (parts.setup.resumed) {
    TROUPE_RETURN_IF_ERROR(parts.learner->Restore(*parts.setup.resumed));
    parts.setup.resumed->policies = {};  // the trainer has them: in memory only as far as it holds them there
  }
  return absl::OkStatus();
}

absl::Status OpenAddresses(LearnerParts& parts) {
  const config::ResolvedRun& run = parts.run();
  rpc::LearnerServerOptions options;
  options.addresses = parts.wiring.listen;
  options.security.insecure_plaintext_network = parts.wiring.insecure_plaintext_network;
  options.schema = run.schema;
  options.config_yaml = config::WelcomeYaml(run.config, parts.code.EpisodeCallbacks());
  // Ordinals of queries grow with the learner's lives: a restarted one draws no random number again.
  TROUPE_ASSIGN_OR_RETURN(
      parts.queries.engine,
      serving::QueryEngine::Create(run.policies, {.seed = run.seed,
                                                  .first_request = parts.setup.folder->learner_epoch() << 40,
                                                  .policy_map_capacity = run.policy_map.capacity,
                                                  .actor_host = config::MakeQueriedPolicyHost(run.env)}));
  parts.queries.threads = std::make_unique<HostedQueryThreads>(parts.queries.engine.get());
  parts.queries.publisher = std::make_unique<QueryPublisher>(parts.queries.engine.get());
  parts.publishers.Add(parts.queries.publisher.get());
  options.queries = parts.queries.engine.get();
  options.counts = &parts.door_counts;
  TROUPE_ASSIGN_OR_RETURN(parts.doors.server,
                          rpc::LearnerServer::Start(std::move(options), parts.doors.binding.get(),
                                                    parts.doors.control.get(), &base::Clock::Real()));
  parts.publishers.Add(&parts.doors.server->weights());
  return absl::OkStatus();
}

absl::Status Serve(LearnerParts& parts) {
  const storage::RunFolder& folder = *parts.setup.folder;
  parts.doors.binding = std::make_unique<rpc::LearnerBinding>(parts.learner.get());
  parts.doors.control = std::make_unique<ControlHandler>(parts.learner.get(), parts.doors.binding.get(),
                                                         &parts.degradations, &parts.door_counts, parts.setup.name);
  if (!parts.wiring.listen.empty()) TROUPE_RETURN_IF_ERROR(OpenAddresses(parts));
  TROUPE_ASSIGN_OR_RETURN(
      parts.doors.control_server,
      rpc::ControlServer::Start(folder.directory(), parts.doors.control.get(), parts.doors.control.get()));
  // `troupe status RUN` and `troupe policy … RUN` find us by it.
  const storage::RunAddress address = {parts.doors.addresses(), parts.doors.control_server->place(),
                                       storage::HostName()};
  return storage::ReplaceFile(storage::FileSystem::Posix(), folder.Path(storage::kAddressFile),
                              storage::ToText(address));
}

/// The parts that the update thread works with.
absl::Status MakeUpdates(LearnerParts& parts) {
  const config::ResolvedRun& run = parts.run();
  learner::Trainer* const trainer = parts.trainer.trainer.get();
  parts.doors.policy_desk = std::make_unique<PolicyDesk>(PolicyDesk::Deps{.run = &run,
                                                                          .registry = parts.wiring.registry,
                                                                          .learner = parts.learner.get(),
                                                                          .trainer = trainer,
                                                                          .workers = parts.doors.binding.get(),
                                                                          .control = parts.doors.control.get(),
                                                                          .cache = &parts.policy_map_cache,
                                                                          .reporter = parts.reporter.get(),
                                                                          .draw = parts.wiring.draw});
  if (run.evaluation.video_interval > 0 && parts.trains()) {
    parts.films = std::make_unique<base::OwnThread<FilmLoop>>(std::make_unique<FilmLoop>(
        parts.setup.folder->Path("videos"), ShootWith(parts.wiring.registry), &parts.degradations));
  }
  const bool evaluates = run.evaluation.interval_env_steps > 0 || run.evaluation.at_end;
  if (evaluates) {
    TROUPE_ASSIGN_OR_RETURN(parts.updates.evaluation_run, ResolveEvaluation(run, *parts.wiring.registry));
  }
  parts.updates.evaluator = std::make_unique<RunEvaluator>(RunEvaluator::Deps{
      .run = parts.updates.evaluation_run.has_value() ? &*parts.updates.evaluation_run : &run,
      .registry = parts.wiring.registry,
      .learner = parts.learner.get(),
      .trainer = trainer,
      .reporter = parts.reporter.get(),
      .degradations = &parts.degradations,
      .films = parts.films ? parts.films->get() : nullptr,
      .callbacks = parts.code.EpisodeCallbacks(),
      .interrupted = [&parts] { return parts.wiring.interrupted() || parts.doors.control->drain_asked(); }});
  parts.updates.loop = std::make_unique<UpdateLoop>(UpdateLoop::Deps{.run = &run,
                                                                     .learner = parts.learner.get(),
                                                                     .reporter = parts.reporter.get(),
                                                                     .evaluator = parts.updates.evaluator.get(),
                                                                     .checkpoints = &parts.checkpoints,
                                                                     .control = parts.doors.control.get(),
                                                                     .policies = parts.doors.policy_desk.get(),
                                                                     .degradations = &parts.degradations,
                                                                     .callbacks = parts.code.callback_host()},
                                                    parts.resumed_env_steps());
  return evaluates ? parts.updates.evaluator->Prepare() : absl::OkStatus();
}

}  // namespace

void DoorParts::CloseControl(const storage::RunFolder& folder) {
  if (control_server == nullptr) return;
  control->RefuseAll();  // or a call that waits for the update thread would hold it up for ever
  control_server.reset();
  const absl::Status removed = storage::FileSystem::Posix().RemoveTree(folder.Path(storage::kAddressFile));
  if (!removed.ok()) TROUPE_WARN("file not removed error=\"{}\"", std::string(removed.message()));
}

LearnerParts::LearnerParts(RunSetup run_setup, LearnerWiring program)
    : setup(std::move(run_setup)),
      wiring(std::move(program)),
      checkpoints(setup.folder.get(), &degradations),
      policy_map_cache(&setup, wiring.draw) {}

absl::Status LearnerParts::Make() {
  if (!run().recognized_as.empty()) {
    TROUPE_INFO("environment name={} recognized_as=\"{}\"", base::LogSafe(run().env.name), run().recognized_as);
  }
  TROUPE_INFO("scaling {}", policy::ScalingText(run().policies));
  TROUPE_INFO("sampling {}", config::SamplingText(run()));
  TROUPE_RETURN_IF_ERROR(StartCallbacks(*this));
  TROUPE_RETURN_IF_ERROR(StartTrainFunction(*this));
  const bool samples = run().num_workers == 0 && trains();
  if (run().env.external != nullptr && samples) {
    const std::string address = "unix:" + setup.folder->Path(EpisodeDoor::kPlace);
    TROUPE_ASSIGN_OR_RETURN(sampling.door, EpisodeDoor::Open(run(), address, {wiring.insecure_plaintext_network}));
  }
  TROUPE_ASSIGN_OR_RETURN(sampling.config,
                          MakeRolloutConfig(run(), *wiring.registry, code.EpisodeCallbacks(),
                                            sampling.door == nullptr ? nullptr : sampling.door->book()));
  TROUPE_RETURN_IF_ERROR(MakeTrainer(*this));
  TROUPE_ASSIGN_OR_RETURN(reporter, RunReporter::Open(run(), setup.name, setup.folder->directory(), resumed_env_steps(),
                                                      ReporterDeps(*this)));
  TROUPE_RETURN_IF_ERROR(MakeLearner(*this));
  TROUPE_RETURN_IF_ERROR(Serve(*this));
  if (samples) {
    sampling.sampler = std::make_shared<LocalSampler>(run().policies.size());
    publishers.Add(sampling.sampler.get());
  } else if (doors.server == nullptr && run().num_workers > 0) {
    return absl::InvalidArgumentError("workers need an address to come to: give --listen, or --workers 0");
  }
  TROUPE_RETURN_IF_ERROR(MakeUpdates(*this));
  return updates.loop->Tell(Hook::kRunStart,
                            [this] { return RunStartFacts(resumed_env_steps(), setup.resumed.has_value()); });
}

}  // namespace troupe::run
