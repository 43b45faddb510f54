#include "services/learner/learner_process.h"

#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/base/await.h"
#include "lib/base/clock.h"
#include "lib/base/exit_code.h"
#include "lib/base/log.h"
#include "lib/base/named_loop.h"
#include "lib/base/own_thread.h"
#include "lib/base/process_memory.h"
#include "lib/base/status_macros.h"
#include "lib/config/make_env.h"
#include "lib/config/worker_yaml.h"
#include "lib/learner/learner.h"
#include "lib/policy/python_callable.h"
#include "lib/rpc/control_server.h"
#include "lib/rpc/learner_binding.h"
#include "lib/rpc/learner_server.h"
#include "lib/run/episode_door.h"
#include "lib/run/learner/callback_facts.h"
#include "lib/run/learner/callback_host.h"
#include "lib/run/learner/checkpoint_loop.h"
#include "lib/run/learner/control_handler.h"
#include "lib/run/learner/degradations.h"
#include "lib/run/learner/line_relay.h"
#include "lib/run/learner/local_sampler.h"
#include "lib/run/learner/policy_desk.h"
#include "lib/run/learner/policy_map_cache.h"
#include "lib/run/learner/publisher_fan.h"
#include "lib/run/learner/query_publisher.h"
#include "lib/run/learner/run_end.h"
#include "lib/run/learner/run_evaluator.h"
#include "lib/run/learner/run_reporter.h"
#include "lib/run/learner/run_setup.h"
#include "lib/run/learner/run_start.h"
#include "lib/run/learner/train_function.h"
#include "lib/run/learner/update_loop.h"
#include "lib/run/learner/wandb_follower.h"
#include "lib/run/memory_limit.h"
#include "lib/run/rollout_setup.h"
#include "lib/run/watchdog.h"
#include "lib/serving/query_engine.h"
#include "lib/storage/file_system.h"
#include "lib/storage/run_address.h"
#include "lib/training/core/device.h"
#include "lib/training/core/policy_store.h"
#include "lib/training/make_trainer.h"
#include "lib/training/registry.h"
#include "services/common/hosted_query_threads.h"
#include "services/common/signals.h"

namespace troupe::services {
namespace {

/// How long a Step waits before the loop looks at signals and requests again.
constexpr absl::Duration kStepTimeout = absl::Milliseconds(100);
constexpr absl::Duration kTickInterval = absl::Seconds(1);
/// At the end workers get so long to say goodbye, then streams so long to close: within the 20 s of a drain.
constexpr absl::Duration kGoodbyeTimeout = absl::Seconds(5);
constexpr absl::Duration kShutdownTimeout = absl::Seconds(2);
/// How often is looked whether they have said it.
constexpr absl::Duration kGoodbyeInterval = absl::Milliseconds(10);
/// How long the watchdog waits for an answer: three times that and it is 15 s since the first.
constexpr absl::Duration kDialTimeout = absl::Seconds(4);

void SayNothingIsLeft(const run::RunSetup& setup) {
  const std::string text = run::NothingLeftText(setup);
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

absl::StatusOr<policy::PolicyState> FirstState(const policy::PolicySpec& spec, const policy::AlgorithmSpec& algorithm,
                                               uint64_t seed) {
  return training::InitialState(spec, algorithm, seed);
}

/// What a run calls in Python beside the learner; null: nothing of that kind. What waits for callbacks at the end is
/// still called.
struct CalledInPython {
  std::unique_ptr<base::OwnThread<run::CallbackHost>> callbacks;
  std::unique_ptr<base::OwnThread<run::TrainFunction>> trains;
};

/// The parts of a learner in the order they are made; destroyed in reverse, so that nothing is called after its death.
class Process {
 public:
  explicit Process(run::RunSetup setup)
      : setup_(std::move(setup)),
        checkpoints_(setup_.folder.get(), &degradations_),
        policy_map_cache_(&setup_, &FirstState) {}
  ~Process() {
    TakeDown();
    python_.callbacks.reset();  // they may still have the learner drain
  }

  absl::Status Start(const LearnerFlags& flags, const env::EnvRegistry& registry);
  absl::Status TrainToTheEnd();
  /// After a Start that failed: a new run leaves no folder behind that would be in the way of the next try.
  void Abandon();
  /// The watchdog has heard no answer: the run ends in order if it still can, which saves it.
  bool deaf() const { return watchdog_ != nullptr && watchdog_->deaf(); }

 private:
  const config::ResolvedRun& run() const { return setup_.run; }

  absl::Status MakeTrainer();
  absl::Status MakeLearner();
  absl::Status Serve(const LearnerFlags& flags);
  absl::Status OpenAddresses(const LearnerFlags& flags);
  run::RunReporter::Deps ReporterDeps();
  /// What the update thread works with.
  absl::Status MakeUpdates(const env::EnvRegistry& registry);
  absl::Status StartThreads(const rollout::RolloutConfig& config);
  absl::Status Finish(const learner::StepOutcome& outcome);
  /// Of a run that was finished when it was resumed: nothing that it has written changes.
  absl::Status EndAsItWas();
  /// Saves what is whole; why the run ends.
  absl::Status Fail(const learner::StepOutcome& outcome);
  /// Stays for workers that come late for up to `linger`; a signal ends that.
  void TakeDown(absl::Duration linger = absl::ZeroDuration());
  void CloseControlSocket();
  absl::Status StartCallbacks();
  /// Those that are called for episodes, too.
  std::vector<std::string> episode_callbacks() const {
    return python_.callbacks == nullptr ? std::vector<std::string>() : python_.callbacks->get()->episode_callbacks();
  }
  absl::Status StartTrainFunction();
  /// The last call of callbacks. `reason`: why the run ends. Errors are UpdateLoop::Tell's.
  absl::Status EndCallbacks(const std::string& reason);
  int64_t resumed_env_steps() const { return setup_.resumed ? setup_.resumed->env_steps : 0; }

  /// First, so that it sees the rest go.
  std::unique_ptr<run::Watchdog> watchdog_;
  std::unique_ptr<base::NamedLoop> watchdog_loop_;
  run::RunSetup setup_;
  run::Degradations degradations_;
  run::CheckpointLoop checkpoints_;
  run::PolicyMapCache policy_map_cache_;
  training::Device device_;
  policy::PolicyTablePtr policies_;  ///< that this process begins with
  CalledInPython python_;
  std::unique_ptr<base::OwnThread<run::FilmLoop>> films_;
  std::unique_ptr<learner::Trainer> trainer_;
  std::unique_ptr<run::RunReporter> reporter_;
  std::unique_ptr<serving::QueryEngine> queries_;
  std::unique_ptr<HostedQueryThreads> query_threads_;
  std::unique_ptr<run::QueryPublisher> query_publisher_;
  run::PublisherFan publishers_;
  std::unique_ptr<learner::Learner> learner_;
  std::unique_ptr<rpc::LearnerBinding> binding_;
  std::unique_ptr<run::ControlHandler> control_;
  std::unique_ptr<run::PolicyDesk> policy_desk_;
  std::unique_ptr<rpc::LearnerServer> server_;
  std::unique_ptr<rpc::ControlServer> control_server_;
  std::unique_ptr<run::RunEvaluator> evaluator_;
  std::unique_ptr<run::UpdateLoop> updates_;
  /// With num_workers: 0 it samples itself.
  struct Sampling {
    std::unique_ptr<run::EpisodeDoor> door;  ///< of a world outside; outlives the sampler
    std::shared_ptr<run::LocalSampler> sampler;
    std::thread thread;
  };
  Sampling own_;
  /// Keeps the Python processes of environments and functions: they are dismissed when everything has been told.
  std::optional<rollout::RolloutConfig> rollout_config_;
  base::HeapTrimmer heap_trimmer_;  ///< the ticker's
  std::unique_ptr<base::NamedLoop> ticker_;
  std::thread checkpoint_thread_;
  absl::Duration linger_;
};

absl::Status Process::MakeTrainer() {
  TROUPE_ASSIGN_OR_RETURN(policies_, run::FirstPolicies(setup_));
  policy_map_cache_.SetPolicies(policies_);
  const absl::StatusOr<training::Device> device = training::ResolveDevice(run().device.device);
  if (!device.ok()) {
    return absl::Status(device.status().code(),
                        absl::StrCat(run().config.Where("device"), ": ", std::string(device.status().message())));
  }
  device_ = *device;
  training::DeviceOptions options = run().device;
  options.device = device_.ToString();
  TROUPE_RETURN_IF_ERROR(policy_map_cache_.Open());
  std::vector<policy::AlgorithmSpec> algorithms;
  for (const size_t configured : run::TrainedAs(setup_, *policies_)) algorithms.push_back(run().algorithms[configured]);
  const training::PolicyStore::Deps store = {
      policy_map_cache_.blobs(), [this](policy::PolicySlot slot) { return policy_map_cache_.Fallback(slot); }};
  TROUPE_ASSIGN_OR_RETURN(trainer_,
                          training::MakeTrainer(policies_->Specs().values(), std::move(algorithms), options, run().seed,
                                                training::CpuBackend::kAuto, run().policy_map, store));
  for (size_t slot = 0; slot < setup_.initial.size() && !setup_.resumed; ++slot) {
    if (!setup_.initial[slot]) continue;
    TROUPE_RETURN_IF_ERROR(
        trainer_->ImportState(*setup_.initial[slot], policy::PolicySlot(static_cast<int32_t>(slot))));
  }
  return absl::OkStatus();
}

absl::Status Process::MakeLearner() {
  learner::LearnerDeps deps;
  deps.trainer = trainer_.get();
  deps.publisher = &publishers_;
  deps.metrics = reporter_.get();
  deps.progress = reporter_.get();
  deps.chooser = python_.trains == nullptr ? nullptr : python_.trains->get();
  deps.allocator = &training::BatchAllocator(device_);
  learner::LearnerConfig config = run::LearnerConfigOf(setup_, policies_);
  config.episode_callbacks = !episode_callbacks().empty();
  TROUPE_ASSIGN_OR_RETURN(learner_, learner::Learner::Create(std::move(config), deps));
  if (setup_.resumed) {
    TROUPE_RETURN_IF_ERROR(learner_->Restore(*setup_.resumed));
    setup_.resumed->policies = {};  // the trainer has them: in memory only as far as it holds them there
  }
  return absl::OkStatus();
}

absl::Status Process::Serve(const LearnerFlags& flags) {
  linger_ = absl::Seconds(flags.linger_s);
  binding_ = std::make_unique<rpc::LearnerBinding>(learner_.get());
  control_ = std::make_unique<run::ControlHandler>(learner_.get(), binding_.get(), &degradations_, setup_.name);
  if (!flags.listen.empty()) TROUPE_RETURN_IF_ERROR(OpenAddresses(flags));
  TROUPE_ASSIGN_OR_RETURN(control_server_,
                          rpc::ControlServer::Start(setup_.folder->directory(), control_.get(), control_.get()));
  // `troupe status RUN` and `troupe policy … RUN` find us by it.
  const storage::RunAddress address = {server_ == nullptr ? std::vector<std::string>() : server_->addresses(),
                                       control_server_->place(), storage::HostName()};
  return storage::ReplaceFile(storage::FileSystem::Posix(), setup_.folder->Path(storage::kAddressFile),
                              storage::ToText(address));
}

absl::Status Process::OpenAddresses(const LearnerFlags& flags) {
  rpc::LearnerServerOptions options;
  options.addresses = flags.listen;
  options.security.insecure_plaintext_network = flags.insecure_plaintext_network;
  options.schema = run().schema;
  options.config_yaml = config::WelcomeYaml(run().config, episode_callbacks());
  // Ordinals of queries grow with the learner's lives: a restarted one draws no random number again.
  TROUPE_ASSIGN_OR_RETURN(
      queries_, serving::QueryEngine::Create(run().policies, {.seed = run().seed,
                                                              .first_request = setup_.folder->learner_epoch() << 40,
                                                              .policy_map_capacity = run().policy_map.capacity,
                                                              .actor_host = config::MakeQueriedPolicyHost(run().env)}));
  query_threads_ = std::make_unique<HostedQueryThreads>(queries_.get());
  query_publisher_ = std::make_unique<run::QueryPublisher>(queries_.get());
  publishers_.Add(query_publisher_.get());
  options.queries = queries_.get();
  TROUPE_ASSIGN_OR_RETURN(
      server_, rpc::LearnerServer::Start(std::move(options), binding_.get(), control_.get(), &base::Clock::Real()));
  publishers_.Add(&server_->weights());
  return absl::OkStatus();
}

run::RunReporter::Deps Process::ReporterDeps() {
  run::RunReporter::Deps deps;
  deps.degradations = &degradations_;
  deps.interrupted = &DrainSignals::Received;
  if (!run().callbacks.empty()) {
    deps.tracked = [this] {
      if (python_.callbacks == nullptr) return std::vector<learner::NamedValue>();
      if (learner_ != nullptr) python_.callbacks->get()->AddTracked(learner_->TakeTracked());
      return python_.callbacks->get()->TakeValues();
    };
  }
  if (run().evaluation.video_interval > 0) {
    deps.films = [this] { return films_ == nullptr ? std::vector<run::Film>() : films_->get()->TakeFilms(); };
  }
  return deps;
}

absl::Status Process::StartCallbacks() {
  if (run().callbacks.empty() || !setup_.nothing_left.empty()) return absl::OkStatus();
  run::CallbackHost::Options options;
  options.callbacks = run().callbacks;
  options.python = run().env.python;
  options.run_directory = setup_.folder->directory();
  options.stop = [this](const std::string& reason) { learner_->RequestDrain(absl::StrCat("a callback: ", reason)); };
  options.degradations = &degradations_;
  absl::StatusOr<std::unique_ptr<run::CallbackHost>> started = run::CallbackHost::Start(std::move(options));
  if (!started.ok()) {
    return absl::Status(
        started.status().code(),
        absl::StrCat(run().config.Where("callbacks"), ": callbacks: ", std::string(started.status().message())));
  }
  if (!policy::IsPythonName(run().env.name)) {
    for (const char* const hook : {"on_episode_start", "on_episode_step"}) {
      if ((*started)->episode_hooks().count(hook) == 0) continue;
      return absl::InvalidArgumentError(absl::StrCat(run().config.Where("callbacks"), ": callbacks: one overrides ",
                                                     hook, ", which is called in the process of an ",
                                                     "environment in Python, and ", base::LogSafe(run().env.name),
                                                     " is none; expected on_episode_end alone"));
    }
  }
  python_.callbacks = std::make_unique<base::OwnThread<run::CallbackHost>>(*std::move(started));
  // The thread that writes checkpoints does not wait: a callback may wait for it.
  checkpoints_.SetListener(
      [host = python_.callbacks->get()](const absl::Status& saved, int64_t env_steps, bool is_best) {
        if (!host->Wants(run::Hook::kCheckpointEnd)) return;
        host->Tell(run::Hook::kCheckpointEnd, run::CheckpointFacts(saved, env_steps, is_best));
      });
  return absl::OkStatus();
}

absl::Status Process::StartTrainFunction() {
  if (run().train_function.empty() || !setup_.nothing_left.empty()) return absl::OkStatus();
  auto started = run::TrainFunction::Start(run().train_function, run().env.python, &degradations_,
                                           [this] { return DrainSignals::Received() || learner_->ends(); });
  if (!started.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat(run().config.Where("multi_agent.policies_to_train"),
                     ": multi_agent.policies_to_train: ", std::string(started.status().message())));
  }
  python_.trains = std::make_unique<base::OwnThread<run::TrainFunction>>(*std::move(started));
  return absl::OkStatus();
}

absl::Status Process::EndCallbacks(const std::string& reason) {
  TROUPE_RETURN_IF_ERROR(
      updates_->Tell(run::Hook::kRunEnd, [&] { return run::RunEndFacts(updates_->env_steps(), reason); }));
  return updates_->AwaitCallbacks();
}

absl::Status Process::MakeUpdates(const env::EnvRegistry& registry) {
  policy_desk_ = std::make_unique<run::PolicyDesk>(run::PolicyDesk::Deps{.run = &run(),
                                                                         .learner = learner_.get(),
                                                                         .trainer = trainer_.get(),
                                                                         .workers = binding_.get(),
                                                                         .control = control_.get(),
                                                                         .cache = &policy_map_cache_,
                                                                         .draw = &FirstState});
  if (run().evaluation.video_interval > 0 && setup_.nothing_left.empty()) {
    films_ = std::make_unique<base::OwnThread<run::FilmLoop>>(
        std::make_unique<run::FilmLoop>(setup_.folder->Path("videos"), run::ShootWith(&registry), &degradations_));
  }
  evaluator_ = std::make_unique<run::RunEvaluator>(run::RunEvaluator::Deps{.run = &run(),
                                                                           .registry = &registry,
                                                                           .learner = learner_.get(),
                                                                           .trainer = trainer_.get(),
                                                                           .reporter = reporter_.get(),
                                                                           .films = films_ ? films_->get() : nullptr});
  updates_ = std::make_unique<run::UpdateLoop>(
      run::UpdateLoop::Deps{.run = &run(),
                            .learner = learner_.get(),
                            .reporter = reporter_.get(),
                            .evaluator = evaluator_.get(),
                            .checkpoints = &checkpoints_,
                            .control = control_.get(),
                            .policies = policy_desk_.get(),
                            .degradations = &degradations_,
                            .callbacks = python_.callbacks == nullptr ? nullptr : python_.callbacks->get()},
      resumed_env_steps());
  const bool evaluates = run().evaluation.interval_env_steps > 0 || run().evaluation.at_end;
  return evaluates ? evaluator_->Prepare() : absl::OkStatus();
}

absl::Status Process::Start(const LearnerFlags& flags, const env::EnvRegistry& registry) {
  TROUPE_RETURN_IF_ERROR(StartCallbacks());
  TROUPE_RETURN_IF_ERROR(StartTrainFunction());
  if (run().env.external != nullptr && run().num_workers == 0 && setup_.nothing_left.empty()) {
    const std::string address = "unix:" + setup_.folder->Path(run::EpisodeDoor::kPlace);
    TROUPE_ASSIGN_OR_RETURN(own_.door, run::EpisodeDoor::Open(run(), address, {flags.insecure_plaintext_network}));
  }
  TROUPE_ASSIGN_OR_RETURN(rollout_config_, run::MakeRolloutConfig(run(), registry, episode_callbacks(),
                                                                  own_.door == nullptr ? nullptr : own_.door->book()));
  TROUPE_RETURN_IF_ERROR(MakeTrainer());
  TROUPE_ASSIGN_OR_RETURN(reporter_, run::RunReporter::Open(run(), setup_.name, setup_.folder->directory(),
                                                            resumed_env_steps(), ReporterDeps()));
  TROUPE_RETURN_IF_ERROR(MakeLearner());
  TROUPE_RETURN_IF_ERROR(Serve(flags));
  if (run().num_workers == 0 && setup_.nothing_left.empty()) {
    own_.sampler = std::make_shared<run::LocalSampler>(run().policies.size());
    publishers_.Add(own_.sampler.get());
  } else if (server_ == nullptr && run().num_workers > 0) {
    return absl::InvalidArgumentError("workers need an address to come to: give --listen, or --workers 0");
  }
  TROUPE_RETURN_IF_ERROR(MakeUpdates(registry));
  TROUPE_RETURN_IF_ERROR(updates_->Tell(
      run::Hook::kRunStart, [this] { return run::RunStartFacts(resumed_env_steps(), setup_.resumed.has_value()); }));
  TROUPE_RETURN_IF_ERROR(StartThreads(*rollout_config_));
  if (run().experiment.wandb) {
    // Results elsewhere are a convenience; the run goes on without them.
    const absl::Status followed = run::StartWandbFollower(setup_.folder->directory(), run().experiment);
    if (!followed.ok()) TROUPE_WARN("{}", std::string(followed.message()));
  }
  TROUPE_INFO("learner ready run={} epoch={} env_steps={} listen=\"{}\"", setup_.name, setup_.folder->learner_epoch(),
              resumed_env_steps(), server_ == nullptr ? "" : absl::StrJoin(server_->addresses(), " "));
  return absl::OkStatus();
}

absl::Status Process::StartThreads(const rollout::RolloutConfig& config) {
  checkpoint_thread_ = std::thread([this] { checkpoints_.Run(); });
  TROUPE_RETURN_IF_ERROR(learner_->Start());
  if (own_.sampler != nullptr) {
    TROUPE_RETURN_IF_ERROR(own_.sampler->Join(config, learner_.get()));
    own_.thread = std::thread([this] { own_.sampler->Run(); });
  }
  const auto tick = [this] {
    if (own_.sampler != nullptr) own_.sampler->KeepAlive();
    if (own_.door != nullptr) own_.door->Tick();
    learner_->Tick();
    heap_trimmer_.MaybeTrim(base::Clock::Real().SteadyNow());
    if (server_ != nullptr) server_->Tick();
    return kTickInterval;
  };
  ticker_ = std::make_unique<base::NamedLoop>("tick", tick, kTickInterval);
  if (server_ == nullptr) return absl::OkStatus();
  run::Watchdog::Actions actions;
  actions.dial = [this] { return server_->DialSelf(kDialTimeout); };
  actions.on_deaf = [](const std::string&) {};  // TrainToTheEnd asks
  actions.end = &run::EndDeafProcess;
  watchdog_ = std::make_unique<run::Watchdog>(run::WatchdogOptions{}, std::move(actions));
  watchdog_loop_ = std::make_unique<base::NamedLoop>(
      "watchdog", [watchdog = watchdog_.get()] { return watchdog->Step(); }, watchdog_->interval());
  return absl::OkStatus();
}

absl::Status Process::TrainToTheEnd() {
  while (true) {
    TROUPE_ASSIGN_OR_RETURN(const learner::StepOutcome outcome, updates_->Step(kStepTimeout));
    if (outcome.kind == learner::StepOutcome::Kind::kFailed) return Fail(outcome);
    if (DrainSignals::Received()) learner_->RequestDrain("signal");
    if (deaf()) learner_->RequestDrain("the learner is deaf");
    if (outcome.kind == learner::StepOutcome::Kind::kStopped || outcome.kind == learner::StepOutcome::Kind::kDrained ||
        outcome.kind == learner::StepOutcome::Kind::kEnvsFailed) {
      return setup_.nothing_left.empty() ? Finish(outcome) : EndAsItWas();
    }
  }
}

absl::Status Process::EndAsItWas() {
  policy_desk_->RefuseAll();
  TakeDown(linger_);
  SayNothingIsLeft(setup_);
  return absl::OkStatus();
}

absl::Status Process::Finish(const learner::StepOutcome& outcome) {
  // Who waits for callbacks may be killed meanwhile, by a container's stop time.
  if (python_.callbacks != nullptr && !python_.callbacks->get()->AwaitIdle(absl::ZeroDuration())) {
    TROUPE_RETURN_IF_ERROR(updates_->SaveState(true, nullptr));
  }
  TROUPE_RETURN_IF_ERROR(updates_->AwaitCallbacks());  // they may save until they have heard of all updates
  policy_desk_->RefuseAll();
  run::RunEnd end({.learner = learner_.get(),
                   .reporter = reporter_.get(),
                   .evaluator = evaluator_.get(),
                   .updates = updates_.get(),
                   .checkpoints = &checkpoints_,
                   .degradations = &degradations_},
                  setup_.name, setup_.folder->directory());
  const bool stopped = outcome.kind == learner::StepOutcome::Kind::kStopped;
  TROUPE_RETURN_IF_ERROR(end.Conclude(outcome, /*evaluate=*/stopped && run().evaluation.at_end));
  TakeDown(stopped ? linger_ : absl::ZeroDuration());
  TROUPE_RETURN_IF_ERROR(EndCallbacks(outcome.reason));
  if (films_ != nullptr && stopped) films_->get()->AwaitIdle(run::FilmLoop::kPatience);
  TROUPE_RETURN_IF_ERROR(end.Tell());
  return own_.sampler == nullptr ? absl::OkStatus() : own_.sampler->status();
}

absl::Status Process::Fail(const learner::StepOutcome& outcome) {
  if (!outcome.state_is_whole) return outcome.status;
  policy_desk_->RefuseAll();
  const absl::Status saved = updates_->SaveState(true, nullptr);
  TakeDown();
  const absl::Status told = EndCallbacks(absl::StrCat("an update failed: ", std::string(outcome.status.message())));
  if (!told.ok()) TROUPE_WARN("callbacks not told of the end error=\"{}\"", std::string(told.message()));
  return run::UpdateFailed(outcome.status, saved.ok() ? checkpoints_.last_error() : std::string(saved.message()),
                           updates_->env_steps(), setup_.folder->directory());
}

void Process::Abandon() {
  TakeDown();
  const absl::Status discarded = setup_.folder->DiscardIfNew();
  if (!discarded.ok()) TROUPE_WARN("run folder not removed error=\"{}\"", std::string(discarded.message()));
}

void Process::TakeDown(absl::Duration linger) {
  if (watchdog_ != nullptr) watchdog_->StopDialing();
  if (learner_ != nullptr) learner_->RequestDrain("the run has ended");
  if (own_.door != nullptr) own_.door->Close();
  if (own_.sampler != nullptr) own_.sampler->Stop();
  if (own_.thread.joinable()) own_.thread.join();
  if (server_ != nullptr) {
    // Workers hand in and leave by themselves; who does not is cut off.
    const base::Deadline goodbye = base::Deadline::After(kGoodbyeTimeout);
    if (linger > absl::ZeroDuration() && !DrainSignals::Received()) {
      TROUPE_INFO("the run has ended, late workers are told so seconds={}", absl::ToDoubleSeconds(linger));
      AwaitDrainSignal(base::Deadline::After(linger));
    }
    base::AwaitPolling(kGoodbyeInterval, goodbye, [this] { return server_->num_streams() == 0; });
    server_->Shutdown(kShutdownTimeout);
  }
  CloseControlSocket();
  ticker_.reset();
  server_.reset();
  checkpoints_.Stop();
  if (checkpoint_thread_.joinable()) checkpoint_thread_.join();
  policy_map_cache_.Remove();
}

void Process::CloseControlSocket() {
  if (control_server_ == nullptr) return;
  control_->RefuseAll();  // or a call that waits for the update thread would hold it up for ever
  control_server_.reset();
  const absl::Status removed = storage::FileSystem::Posix().RemoveTree(setup_.folder->Path(storage::kAddressFile));
  if (!removed.ok()) TROUPE_WARN("file not removed error=\"{}\"", std::string(removed.message()));
}

}  // namespace

absl::Status RunLearner(const LearnerFlags& flags, const env::EnvRegistry& registry) {
  base::LimitHeapArenas(2);
  std::unique_ptr<run::LineRelay> relay;  // until everything has been told
  std::optional<base::NamedLoop> relay_loop;
  if (flags.line_fd) {
    TROUPE_ASSIGN_OR_RETURN(relay, run::LineRelay::Adopt(*flags.line_fd));
    relay_loop.emplace("lines", [&relay] { return relay->Step(); });
  }
  absl::StatusOr<run::RunSetup> made = run::SetUpRun(flags.run, registry, base::Clock::Real());
  if (!made.ok()) return base::RefusedIfFinal(made.status());
  run::RunSetup setup = *std::move(made);
  if (!setup.moved_to.empty()) TROUPE_WARN("the run that was here lies in \"{}\" now", setup.moved_to);
  for (const std::string& damage : setup.quarantined) {
    TROUPE_ERROR("a damaged checkpoint was set aside, an older one is used: {}", base::LogSafe(damage));
  }
  if (!setup.nothing_left.empty()) {
    if (flags.linger_s == 0) {
      SayNothingIsLeft(setup);
      return absl::OkStatus();
    }
    run::LeaveAsItIs(&setup.run);
  }
  Process process(std::move(setup));
  const absl::Status started = run::CatchOutOfMemory([&] { return process.Start(flags, registry); });
  if (!started.ok()) {
    process.Abandon();
    return base::RefusedIfFinal(started);
  }
  const absl::Status ended = process.TrainToTheEnd();
  if (!process.deaf()) return ended;
  return base::WithExitCode(absl::UnavailableError("the learner did not answer at its own port any more; it has saved "
                                                   "its state as far as it could, and ends to be started again"),
                            base::ExitCode::kDeaf);
}

}  // namespace troupe::services
