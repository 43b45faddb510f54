#include "services/learner/learner_process.h"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/base/clock.h"
#include "lib/base/exit_code.h"
#include "lib/base/log.h"
#include "lib/base/mutex.h"
#include "lib/base/process_memory.h"
#include "lib/base/status_macros.h"
#include "lib/config/frozen_weights.h"
#include "lib/config/make_env.h"
#include "lib/config/permits.h"
#include "lib/config/worker_yaml.h"
#include "lib/learner/learner.h"
#include "lib/rpc/control_server.h"
#include "lib/rpc/learner_binding.h"
#include "lib/rpc/learner_server.h"
#include "lib/serving/query_engine.h"
#include "lib/storage/file_system.h"
#include "lib/storage/run_address.h"
#include "lib/training/device.h"
#include "lib/training/make_ppo_trainer.h"
#include "services/common/evaluation.h"
#include "services/common/hosted_query_threads.h"
#include "services/common/memory_limit.h"
#include "services/common/rollout_setup.h"
#include "services/common/run_policies.h"
#include "services/common/signals.h"
#include "services/common/watchdog.h"
#include "services/learner/checkpoint_loop.h"
#include "services/learner/control_handler.h"
#include "services/learner/degradations.h"
#include "services/learner/local_sampler.h"
#include "services/learner/policy_changer.h"
#include "services/learner/policy_changes.h"
#include "services/learner/policy_map_cache.h"
#include "services/learner/publisher_fan.h"
#include "services/learner/query_publisher.h"
#include "services/learner/run_reporter.h"
#include "services/learner/run_setup.h"
#include "services/learner/run_summary.h"
#include "services/learner/wandb_process.h"

namespace troupe::services {
namespace {

/// How long a Step waits before the loop looks at signals and requests again.
constexpr absl::Duration kStepTimeout = absl::Milliseconds(100);
constexpr absl::Duration kTickInterval = absl::Seconds(1);
/// At the end workers get so long to say goodbye, then streams so long to close: within the 20 s of a drain.
constexpr absl::Duration kGoodbyeTimeout = absl::Seconds(5);
constexpr absl::Duration kShutdownTimeout = absl::Seconds(2);
/// How long the watchdog waits for an answer: three times that and it is 15 s since the first.
constexpr absl::Duration kDialTimeout = absl::Seconds(4);
/// Of why an evaluation failed, in the summary and the display.
constexpr size_t kMaxErrorChars = 1000;

/// Whether a multiple of `interval` lies in (before, now].
bool Crossed(int64_t interval, int64_t before, int64_t now) {
  return interval > 0 && now / interval > before / interval;
}

void SayNothingIsLeft(const RunSetup& setup) {
  const std::string text =
      absl::StrCat(setup.name, ": ", setup.nothing_left, "\nresults in ", setup.folder->directory(), "\n");
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

/// A thread that calls a function about once a second until it is destroyed.
class Ticker {
 public:
  explicit Ticker(std::function<void()> tick) : thread_([this, tick = std::move(tick)] { Loop(tick); }) {}
  ~Ticker() {
    {
      base::MutexLock lock(&mutex_);
      stopped_ = true;
      changed_.NotifyAll();
    }
    thread_.join();
  }
  Ticker(const Ticker&) = delete;
  Ticker& operator=(const Ticker&) = delete;

 private:
  void Loop(const std::function<void()>& tick) {
    while (true) {
      {
        base::MutexLock lock(&mutex_);
        if (!stopped_) changed_.WaitFor(&mutex_, kTickInterval);
        if (stopped_) return;
      }
      tick();
    }
  }

  base::Mutex mutex_;
  base::CondVar changed_;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: it uses the rest
};

/// The parts of a learner in the order they are made; destroyed in reverse, so that nothing is called after its death.
class Process {
 public:
  explicit Process(RunSetup setup)
      : setup_(std::move(setup)), checkpoints_(setup_.folder.get(), &degradations_), policy_map_cache_(&setup_) {}
  ~Process() { TakeDown(); }

  absl::Status Start(const LearnerFlags& flags, const env::EnvRegistry& registry);
  absl::Status TrainToTheEnd();
  /// After a Start that failed: a new run leaves no folder behind that would be in the way of the next try.
  void Abandon();
  /// The watchdog has heard no answer: the run ends in order if it still can, which saves it.
  bool deaf() const { return watchdog_ != nullptr && watchdog_->deaf(); }

 private:
  const config::ResolvedRun& run() const { return setup_.run; }

  absl::Status MakePolicies();
  /// Training options of the policies that this process begins with.
  std::vector<training::PpoOptions> PpoBySlot() const;
  absl::Status MakeTrainer();
  absl::Status MakeLearner();
  absl::Status Serve(const LearnerFlags& flags);
  absl::Status OpenAddresses(const LearnerFlags& flags);
  /// Makes what evaluates anew if the policies have changed.
  absl::Status MakeEvaluation();
  absl::StatusOr<rollout::EvaluationResult> Evaluate();
  /// What is due between two updates; `before`: env steps at the last call.
  absl::Status AfterUpdate(int64_t before);
  /// Does what was asked of the policies since the last call.
  void ChangePolicies();
  absl::StatusOr<int64_t> ChangePolicies(const policy::PolicyChange& change, const PolicySources& sources);
  /// FAILED_PRECONDITION names a connected worker that does not permit what `next` would have run, and `now` does not.
  absl::Status CheckPermitted(const policy::PolicyTable& next, const policy::PolicyTable& now) const;
  std::unique_ptr<PolicyChanger> MakeChanger();
  /// Whoever still asks for something, or asks later, is refused.
  void RefuseRequests();
  absl::Status SaveState(bool always, CheckpointLoop::Done done);
  absl::Status Finish(const learner::StepOutcome& outcome);
  /// Of a run that was finished when it was resumed: nothing that it has written changes.
  absl::Status EndAsItWas();
  /// Saves what is whole; why the run ends.
  absl::Status Fail(const learner::StepOutcome& outcome);
  /// Stays for workers that come late for up to `linger`; a signal ends that.
  void TakeDown(absl::Duration linger = absl::ZeroDuration());
  void CloseControlSocket();
  int64_t env_steps() const { return reporter_->last() ? reporter_->last()->env_steps : resumed_env_steps(); }
  int64_t resumed_env_steps() const { return setup_.resumed ? setup_.resumed->env_steps : 0; }

  /// First, so that it sees the rest go.
  std::unique_ptr<Watchdog> watchdog_;
  RunSetup setup_;
  Degradations degradations_;
  CheckpointLoop checkpoints_;
  PolicyMapCache policy_map_cache_;
  training::Device device_;
  policy::PolicyTablePtr policies_;  ///< that this process begins with
  std::unique_ptr<learner::Trainer> trainer_;
  std::unique_ptr<RunReporter> reporter_;
  std::unique_ptr<serving::QueryEngine> queries_;
  std::unique_ptr<HostedQueryThreads> query_threads_;
  std::unique_ptr<QueryPublisher> query_publisher_;
  PublisherFan publishers_;
  std::unique_ptr<learner::Learner> learner_;
  std::unique_ptr<rpc::LearnerBinding> binding_;
  std::unique_ptr<ControlHandler> control_;
  std::unique_ptr<PolicyChanger> changer_;
  std::unique_ptr<rpc::LearnerServer> server_;
  std::unique_ptr<rpc::ControlServer> control_server_;
  std::shared_ptr<LocalSampler> sampler_;
  const env::EnvRegistry* registry_ = nullptr;
  std::optional<rollout::RolloutConfig> rollout_config_;
  policy::PolicyTablePtr evaluated_;  ///< what evaluation_ was made for
  std::unique_ptr<EvaluationPool> evaluation_;
  base::HeapTrimmer heap_trimmer_;  ///< the ticker's
  std::unique_ptr<Ticker> ticker_;
  std::thread checkpoint_thread_;
  absl::Duration started_at_;
  absl::Duration linger_;
};

absl::Status Process::MakePolicies() {
  policies_ = setup_.resumed ? setup_.resumed->table : nullptr;
  if (policies_ == nullptr) {
    TROUPE_ASSIGN_OR_RETURN(policies_, policy::PolicyTable::Make(run().policies, run().learner.trains,
                                                                 run().mapping_rules, run().agent_ids()));
  }
  policy_map_cache_.SetPolicies(policies_);
  return policy::CheckSize(*policies_);
}

std::vector<training::PpoOptions> Process::PpoBySlot() const {
  // A policy that came while the run trained is trained as one of its configuration.
  std::vector<training::PpoOptions> options(policies_->num_slots(), run().ppo[0]);
  const std::vector<policy::PolicyId> configured = run().policy_ids();
  for (size_t slot = 0; slot < options.size(); ++slot) {
    const policy::PolicyEntry* const entry = policies_->Find(policy::PolicySlot(static_cast<int32_t>(slot)));
    if (entry == nullptr) continue;
    const bool noted = setup_.resumed && slot < setup_.resumed->trained_as.size();
    const policy::PolicyId& as = noted ? setup_.resumed->trained_as[slot] : entry->spec.id;
    const auto found = std::find(configured.begin(), configured.end(), as);
    if (found != configured.end()) options[slot] = run().ppo[static_cast<size_t>(found - configured.begin())];
  }
  return options;
}

absl::Status Process::MakeTrainer() {
  const absl::StatusOr<training::Device> device = training::ResolveDevice(run().device.device);
  if (!device.ok()) {
    return absl::Status(device.status().code(),
                        absl::StrCat(run().config.Where("device"), ": ", device.status().message()));
  }
  device_ = *device;
  training::DeviceOptions options = run().device;
  options.device = device_.ToString();
  TROUPE_RETURN_IF_ERROR(policy_map_cache_.Open());
  TROUPE_ASSIGN_OR_RETURN(
      trainer_, training::MakePpoTrainer(policies_->Specs(), PpoBySlot(), options, run().seed,
                                         training::CpuBackend::kAuto, run().policy_map, policy_map_cache_.Deps()));
  for (size_t slot = 0; slot < setup_.initial.size() && !setup_.resumed; ++slot) {
    if (!setup_.initial[slot]) continue;
    TROUPE_RETURN_IF_ERROR(
        trainer_->ImportState(*setup_.initial[slot], policy::PolicySlot(static_cast<int32_t>(slot))));
  }
  return absl::OkStatus();
}

absl::Status Process::MakeLearner() {
  learner::LearnerConfig config;
  config.options = run().learner;
  config.stop = run().stop;
  config.schema = run().schema;
  config.limits = run().limits;
  config.policies = policies_;
  config.learner_epoch = setup_.folder->learner_epoch();
  config.info_columns = run().env_spec.info_columns;
  config.best_by_evaluation = run().evaluation.interval_env_steps > 0;
  config.best_by = run().experiment.best_by;
  learner::LearnerDeps deps;
  deps.trainer = trainer_.get();
  deps.publisher = &publishers_;
  deps.metrics = reporter_.get();
  deps.progress = reporter_.get();
  deps.allocator = &training::BatchAllocator(device_);
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
  control_ = std::make_unique<ControlHandler>(learner_.get(), binding_.get(), &degradations_, setup_.name);
  changer_ = MakeChanger();
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
  options.config_yaml = config::WelcomeYaml(run().config);
  // Ordinals of queries grow with the learner's lives: a restarted one draws no random number again.
  TROUPE_ASSIGN_OR_RETURN(
      queries_, serving::QueryEngine::Create(run().policies, {.seed = run().seed,
                                                              .first_request = setup_.folder->learner_epoch() << 40,
                                                              .policy_map_capacity = run().policy_map.capacity,
                                                              .actor_host = config::MakeQueriedPolicyHost(run().env)}));
  query_threads_ = std::make_unique<HostedQueryThreads>(queries_.get());
  query_publisher_ = std::make_unique<QueryPublisher>(queries_.get());
  publishers_.Add(query_publisher_.get());
  options.queries = queries_.get();
  TROUPE_ASSIGN_OR_RETURN(
      server_, rpc::LearnerServer::Start(std::move(options), binding_.get(), control_.get(), &base::Clock::Real()));
  publishers_.Add(&server_->weights());
  return absl::OkStatus();
}

absl::Status Process::Start(const LearnerFlags& flags, const env::EnvRegistry& registry) {
  TROUPE_ASSIGN_OR_RETURN(rollout_config_, MakeRolloutConfig(run(), registry));
  registry_ = &registry;
  TROUPE_RETURN_IF_ERROR(MakePolicies());
  TROUPE_RETURN_IF_ERROR(MakeTrainer());
  TROUPE_ASSIGN_OR_RETURN(reporter_, RunReporter::Open(run(), setup_.name, setup_.folder->directory(),
                                                       resumed_env_steps(), &degradations_));
  TROUPE_RETURN_IF_ERROR(MakeLearner());
  TROUPE_RETURN_IF_ERROR(Serve(flags));
  if (run().num_workers == 0 && setup_.nothing_left.empty()) {
    sampler_ = std::make_shared<LocalSampler>(run().policies.size());
    publishers_.Add(sampler_.get());
  } else if (server_ == nullptr && run().num_workers > 0) {
    return absl::InvalidArgumentError("workers need an address to come to: give --listen, or --workers 0");
  }
  if (run().evaluation.interval_env_steps > 0 || run().evaluation.at_end) {
    TROUPE_RETURN_IF_ERROR(MakeEvaluation());
  }
  checkpoint_thread_ = std::thread([this] { checkpoints_.Run(); });
  started_at_ = base::Clock::Real().SteadyNow();
  TROUPE_RETURN_IF_ERROR(learner_->Start());
  if (sampler_ != nullptr) TROUPE_RETURN_IF_ERROR(sampler_->Start(*rollout_config_, learner_.get()));
  ticker_ = std::make_unique<Ticker>([this] {
    if (sampler_ != nullptr) sampler_->KeepAlive();
    learner_->Tick();
    heap_trimmer_.MaybeTrim(base::Clock::Real().SteadyNow());
    if (server_ != nullptr) server_->Tick();
  });
  if (server_ != nullptr) {
    Watchdog::Actions actions;
    actions.dial = [this] { return server_->DialSelf(kDialTimeout); };
    actions.on_deaf = [](const std::string&) {};  // TrainToTheEnd asks
    actions.end = &EndDeafProcess;
    watchdog_ = std::make_unique<Watchdog>(WatchdogOptions{}, std::move(actions));
  }
  if (run().experiment.wandb) {
    // Results elsewhere are a convenience; the run goes on without them.
    const absl::Status followed = StartWandbFollower(setup_.folder->directory(), run().experiment);
    if (!followed.ok()) TROUPE_WARN("{}", std::string(followed.message()));
  }
  TROUPE_INFO("learner ready run={} epoch={} env_steps={} listen=\"{}\"", setup_.name, setup_.folder->learner_epoch(),
              resumed_env_steps(), server_ == nullptr ? "" : absl::StrJoin(server_->addresses(), " "));
  return absl::OkStatus();
}

absl::Status Process::MakeEvaluation() {
  if (evaluated_ == learner_->Policies()) return absl::OkStatus();
  evaluated_ = learner_->Policies();
  config::ResolvedRun played = run();
  UsePolicies(*evaluated_, &played);
  TROUPE_ASSIGN_OR_RETURN(const rollout::RolloutConfig config, MakeRolloutConfig(played, *registry_));
  TROUPE_ASSIGN_OR_RETURN(evaluation_, EvaluationPool::Create(config, run().evaluation.num_workers));
  return absl::OkStatus();
}

absl::StatusOr<rollout::EvaluationResult> Process::Evaluate() {
  TROUPE_RETURN_IF_ERROR(MakeEvaluation());
  std::vector<policy::WeightSnapshotPtr> weights;
  for (size_t slot = 0; slot < evaluated_->num_slots(); ++slot) {
    const policy::PolicySlot its(static_cast<int32_t>(slot));
    const policy::PolicyEntry* const entry = evaluated_->Find(its);
    if (entry == nullptr || !entry->active()) continue;
    TROUPE_ASSIGN_OR_RETURN(policy::WeightSnapshotPtr snapshot, trainer_->Snapshot(its));
    weights.push_back(std::move(snapshot));
  }
  const config::EvaluationOptions& options = run().evaluation;
  rollout::EvaluationRequest request;
  request.episodes = options.episodes;
  request.deterministic = options.deterministic;
  request.seed = options.seed;
  TROUPE_ASSIGN_OR_RETURN(rollout::EvaluationResult result, evaluation_->Run(request, weights));
  reporter_->OnEvaluation(result, *evaluated_, env_steps());
  learner_->ReportEvaluation(StatsOf(result, evaluated_->num_slots()));
  return result;
}

std::unique_ptr<PolicyChanger> Process::MakeChanger() {
  const auto sources = [this](const policy::PolicyState* imported) {
    return PolicySources{&run(), trainer_.get(), imported};
  };
  PolicyChanger::Deps deps;
  deps.import_of = [this, sources](const policy::PolicyChange& change) {
    return ImportOf(change, *learner_->Policies(), sources(nullptr));
  };
  deps.load = [](const PolicyImport& import) {
    return config::LoadPolicy(import.path, import.source, import.spec, import.part);
  };
  deps.make = [this, sources](const policy::PolicyChange& change, const policy::PolicyState* imported) {
    return ChangePolicies(change, sources(imported));
  };
  deps.clock = &base::Clock::Real();
  return std::make_unique<PolicyChanger>(std::move(deps));
}

absl::Status Process::CheckPermitted(const policy::PolicyTable& next, const policy::PolicyTable& now) const {
  const std::set<config::Statement> before = config::StatementsOf(now);
  for (const config::Statement& asked : config::StatementsOf(next)) {
    if (before.count(asked) > 0) continue;
    if (const std::optional<std::string> worker = binding_->WorkerWithout(asked.Digest())) {
      return absl::FailedPreconditionError(
          absl::StrCat("worker ", *worker, " does not permit ", base::LogSafe(asked.name),
                       ", expected workers that were started with --allow-python ", base::LogSafe(asked.name),
                       " (troupe train hands it on), or whose --config names it"));
    }
  }
  return absl::OkStatus();
}

void Process::ChangePolicies() {
  if (changer_->idle()) changer_->Add(control_->TakeChanges());
  changer_->Step();
}

absl::StatusOr<int64_t> Process::ChangePolicies(const policy::PolicyChange& change, const PolicySources& sources) {
  const policy::PolicyTablePtr now = learner_->Policies();
  TROUPE_ASSIGN_OR_RETURN(ResolvedChange resolved, ResolvePolicyChange(change, *now, sources));
  TROUPE_RETURN_IF_ERROR(CheckPermitted(*resolved.table, *now));
  policy_map_cache_.SetPolicies(resolved.table);
  const absl::Status changed = learner_->ChangePolicies(resolved.table, std::move(resolved.added));
  if (!changed.ok()) {
    policy_map_cache_.SetPolicies(now);
    return changed;
  }
  TROUPE_INFO("policies changed revision={} slots={}", resolved.table->revision(), resolved.table->num_slots());
  return resolved.table->revision();
}

void Process::RefuseRequests() {
  control_->RefuseAll();
  changer_->RefuseAll(ControlHandler::PoliciesStay());
}

absl::Status Process::SaveState(bool always, CheckpointLoop::Done done) {
  TROUPE_ASSIGN_OR_RETURN(learner::LearnerSnapshot snapshot, learner_->SnapshotState());
  if (always || snapshot.is_best) checkpoints_.Save(std::move(snapshot.state), snapshot.is_best, std::move(done));
  return absl::OkStatus();
}

absl::Status Process::AfterUpdate(int64_t before) {
  bool evaluated = false;
  if (Crossed(run().evaluation.interval_env_steps, before, env_steps())) {
    // Training waits meanwhile: the episodes are of exactly these weights, and `best` is decided on the state that
    // played them.
    // One that fails costs no training. Everybody may see what is degraded, so the words of the error stay here.
    const absl::Status status = Evaluate().status();
    evaluated = status.ok();
    degradations_.Set("evaluation",
                      evaluated ? "" : absl::StrCat("the evaluation at ", env_steps(), " env steps failed"));
    if (!evaluated) {
      TROUPE_WARN("evaluation failed env_steps={} error=\"{}\"", env_steps(),
                  base::LogSafe(std::string(status.message()), kMaxErrorChars));
    }
  }
  const bool due = Crossed(run().experiment.checkpoint_interval_env_steps, before, env_steps());
  if (due || evaluated) TROUPE_RETURN_IF_ERROR(SaveState(due, nullptr));
  return absl::OkStatus();
}

absl::Status Process::TrainToTheEnd() {
  int64_t before = resumed_env_steps();
  while (true) {
    const learner::StepOutcome outcome = learner_->Step(kStepTimeout);
    if (outcome.kind == learner::StepOutcome::Kind::kFailed) return Fail(outcome);
    if (outcome.kind == learner::StepOutcome::Kind::kUpdated) {
      TROUPE_RETURN_IF_ERROR(AfterUpdate(before));
      before = env_steps();
    }
    ChangePolicies();
    for (CheckpointLoop::Done& done : control_->TakeCheckpointRequests()) {
      TROUPE_RETURN_IF_ERROR(SaveState(true, std::move(done)));
    }
    if (DrainSignals::Received()) learner_->RequestDrain("signal");
    if (deaf()) learner_->RequestDrain("the learner is deaf");
    if (outcome.kind == learner::StepOutcome::Kind::kStopped || outcome.kind == learner::StepOutcome::Kind::kDrained ||
        outcome.kind == learner::StepOutcome::Kind::kEnvsFailed) {
      return Finish(outcome);
    }
  }
}

absl::Status Process::EndAsItWas() {
  RefuseRequests();
  TakeDown(linger_);
  SayNothingIsLeft(setup_);
  return absl::OkStatus();
}

absl::Status Process::Finish(const learner::StepOutcome& outcome) {
  if (!setup_.nothing_left.empty()) return EndAsItWas();
  RunSummary summary;
  summary.run_name = setup_.name;
  summary.directory = setup_.folder->directory();
  summary.reason = outcome.reason;
  RefuseRequests();
  const bool stopped = outcome.kind == learner::StepOutcome::Kind::kStopped;
  const absl::Duration trained_for = base::Clock::Real().SteadyNow() - started_at_;
  if (stopped && run().evaluation.at_end) {
    absl::StatusOr<rollout::EvaluationResult> evaluation = Evaluate();
    // What was trained is there all the same.
    if (evaluation.ok()) {
      summary.evaluation = *std::move(evaluation);
    } else {
      summary.evaluation_error = base::LogSafe(std::string(evaluation.status().message()), kMaxErrorChars);
    }
  }
  TROUPE_RETURN_IF_ERROR(SaveState(true, nullptr));
  const double wall_clock_s = learner_->Status().progress.wall_clock_s;
  TakeDown(stopped ? linger_ : absl::ZeroDuration());
  reporter_->Finish();
  // The last streams may still have been counted; waiting for them is no part of the run.
  summary.progress = learner_->Status().progress;
  summary.progress.wall_clock_s = wall_clock_s;
  if (summary.progress.table != nullptr) {
    summary.returns = Told(reporter_->names(), summary.progress.window, *summary.progress.table);
  }
  if (summary.evaluation) {
    summary.evaluation_returns =
        Told(reporter_->names(), StatsOf(*summary.evaluation, evaluated_->num_slots()), *evaluated_);
  }
  summary.process_env_steps_per_s =
      static_cast<double>(summary.progress.env_steps - resumed_env_steps()) / absl::ToDoubleSeconds(trained_for);
  summary.degraded = degradations_.List();
  const absl::Status told = storage::ReplaceFile(storage::FileSystem::Posix(), setup_.folder->Path("summary.json"),
                                                 SummaryJson(summary) + "\n");
  const std::string text = SummaryText(summary);
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
  const std::string unsaved = checkpoints_.last_error();
  if (!unsaved.empty()) return absl::DataLossError(absl::StrCat("the last checkpoint was not written: ", unsaved));
  TROUPE_RETURN_IF_ERROR(told);
  if (outcome.kind == learner::StepOutcome::Kind::kEnvsFailed) {
    return absl::AbortedError(absl::StrCat(outcome.reason, "; --resume ", setup_.folder->directory(), " goes on from ",
                                           env_steps(), " env steps"));
  }
  if (sampler_ != nullptr) return sampler_->status();
  return absl::OkStatus();
}

absl::Status Process::Fail(const learner::StepOutcome& outcome) {
  if (!outcome.state_is_whole) return outcome.status;
  RefuseRequests();
  const absl::Status snapshot = SaveState(true, nullptr);
  TakeDown();
  const std::string unsaved = snapshot.ok() ? checkpoints_.last_error() : std::string(snapshot.message());
  const std::string rest =
      unsaved.empty() ? absl::StrCat("; the policies are as they were before this update, saved at ", env_steps(),
                                     " env steps: --resume ", setup_.folder->directory(), " goes on from there")
                      : absl::StrCat("; and the last checkpoint was not written: ", unsaved);
  return absl::Status(outcome.status.code(), absl::StrCat("an update failed: ", outcome.status.message(), rest));
}

void Process::Abandon() {
  TakeDown();
  const absl::Status discarded = setup_.folder->DiscardIfNew();
  if (!discarded.ok()) TROUPE_WARN("run folder not removed error=\"{}\"", std::string(discarded.message()));
}

void Process::TakeDown(absl::Duration linger) {
  if (watchdog_ != nullptr) watchdog_->StopDialing();
  if (learner_ != nullptr) learner_->RequestDrain("the run has ended");
  if (sampler_ != nullptr) sampler_->Stop();
  if (server_ != nullptr) {
    // Workers hand in and leave by themselves; who does not is cut off.
    base::Clock& clock = base::Clock::Real();
    base::Mutex mutex;
    base::CondVar never;
    const absl::Duration now = clock.SteadyNow();
    const absl::Duration deadline = now + kGoodbyeTimeout;
    const absl::Duration linger_until = now + linger;
    const auto lingers = [&] { return clock.SteadyNow() < linger_until && !DrainSignals::Received(); };
    if (lingers()) TROUPE_INFO("the run has ended, late workers are told so seconds={}", absl::ToDoubleSeconds(linger));
    while (lingers() || (server_->num_streams() > 0 && clock.SteadyNow() < deadline)) {
      base::MutexLock lock(&mutex);
      never.WaitFor(&mutex, absl::Milliseconds(10));
    }
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
  absl::StatusOr<RunSetup> made = SetUpRun(flags, registry, base::Clock::Real());
  if (!made.ok()) return base::RefusedIfFinal(made.status());
  RunSetup setup = *std::move(made);
  if (!setup.moved_to.empty()) TROUPE_WARN("the run that was here lies in \"{}\" now", setup.moved_to);
  for (const std::string& damage : setup.quarantined) {
    TROUPE_ERROR("a damaged checkpoint was set aside, an older one is used: {}", base::LogSafe(damage));
  }
  if (!setup.nothing_left.empty()) {
    if (flags.linger_s == 0) {
      SayNothingIsLeft(setup);
      return absl::OkStatus();
    }
    // It is served for workers that come late, and leaves what is there as it is.
    setup.run.experiment.write_interval_env_steps = 0;
    setup.run.experiment.wandb = false;
    setup.run.evaluation.at_end = false;
    setup.run.evaluation.interval_env_steps = 0;
  }
  Process process(std::move(setup));
  const absl::Status started = CatchOutOfMemory([&] { return process.Start(flags, registry); });
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
