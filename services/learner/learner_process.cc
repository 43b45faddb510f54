#include "services/learner/learner_process.h"

#include <unistd.h>

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
#include "lib/base/process_memory.h"
#include "lib/base/status_macros.h"
#include "lib/learner/learner.h"
#include "lib/policy/policy_spec.h"
#include "lib/run/learner/callback_facts.h"
#include "lib/run/learner/learner_parts.h"
#include "lib/run/learner/line_relay.h"
#include "lib/run/learner/run_end.h"
#include "lib/run/learner/run_start.h"
#include "lib/run/learner/start_watch.h"
#include "lib/run/learner/wandb_follower.h"
#include "lib/run/memory_limit.h"
#include "lib/run/watchdog.h"
#include "lib/training/core/policy_store.h"
#include "lib/training/make_trainer.h"
#include "lib/training/registry.h"
#include "lib/training/torch/device.h"
#include "services/common/signals.h"

namespace troupe::services {
namespace {

/// How long a Step waits before the loop looks at signals and requests again.
constexpr absl::Duration kStepTimeout = absl::Milliseconds(100);
constexpr absl::Duration kTickInterval = absl::Seconds(1);
/// How long callbacks may take at the end before the state is saved without waiting for them.
constexpr absl::Duration kCallbackGrace = absl::Milliseconds(500);
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

/// Makes the trainer of the policies that a run begins with, on the device that it asks for.
absl::StatusOr<run::MadeTrainer> MakeTrainer(const run::RunSetup& setup, const policy::PolicyTable& policies,
                                             run::PolicyMapCache& cache) {
  const config::ResolvedRun& run = setup.run;
  const absl::StatusOr<training::Device> device = training::ResolveDevice(run.device.device);
  if (!device.ok()) {
    return absl::Status(device.status().code(),
                        absl::StrCat(run.config.Where("device"), ": ", std::string(device.status().message())));
  }
  training::DeviceOptions options = run.device;
  options.device = device->ToString();
  TROUPE_ASSIGN_OR_RETURN(std::vector<policy::AlgorithmSpec> algorithms, run::FirstAlgorithms(setup, policies));
  const training::PolicyStore::Deps store = {cache.blobs(),
                                             [&cache](policy::PolicySlot slot) { return cache.Fallback(slot); }};
  run::MadeTrainer made;
  TROUPE_ASSIGN_OR_RETURN(made.trainer,
                          training::MakeTrainer(policies.Specs().values(), std::move(algorithms), options, run.seed,
                                                training::CpuBackend::kAuto, run.policy_map, store));
  made.allocator = &training::BatchAllocator(*device);
  return made;
}

run::LearnerWiring WiringOf(const LearnerFlags& flags, const env::EnvRegistry& registry) {
  run::LearnerWiring wiring;
  wiring.listen = flags.listen;
  wiring.insecure_plaintext_network = flags.insecure_plaintext_network;
  wiring.registry = &registry;
  wiring.make_trainer = &MakeTrainer;
  wiring.draw = [](const policy::PolicySpec& spec, const policy::AlgorithmSpec& algorithm, uint64_t seed) {
    return training::InitialState(spec, algorithm, seed);
  };
  wiring.interrupted = &DrainSignals::Received;
  return wiring;
}

/// A learner with its threads, from its start to its end.
class Process {
 public:
  /// `linger`: how long it stays at the end, for workers that come late.
  Process(run::RunSetup setup, run::LearnerWiring wiring, absl::Duration linger)
      : linger_(linger), parts_(std::move(setup), std::move(wiring)) {}
  ~Process() {
    TakeDown();
    parts_.code.callbacks.reset();  // they may still have the learner drain
  }

  absl::Status Start();
  absl::Status TrainToTheEnd();
  /// After a Start that failed: a new run leaves no folder behind that would be in the way of the next try.
  void Abandon();
  /// The watchdog has heard no answer: the run ends in order if it still can, which saves it.
  bool deaf() const { return watchdog_ != nullptr && watchdog_->deaf(); }

 private:
  absl::Status StartThreads();
  absl::Status Finish(const learner::StepOutcome& outcome);
  /// Of a run that was finished when it was resumed: nothing that it has written changes.
  absl::Status EndAsItWas();
  /// Saves what is whole; why the run ends.
  absl::Status Fail(const learner::StepOutcome& outcome);
  /// Stays for workers that come late for up to `linger`; a signal ends that.
  void TakeDown(absl::Duration linger = absl::ZeroDuration());
  /// The last call of callbacks. `reason`: why the run ends. Errors are UpdateLoop::Tell's.
  absl::Status EndCallbacks(const std::string& reason);

  const absl::Duration linger_;
  /// First, so that it sees the rest go.
  std::unique_ptr<run::Watchdog> watchdog_;
  std::unique_ptr<base::NamedLoop> watchdog_loop_;
  run::LearnerParts parts_;
  std::thread sampler_thread_;
  base::HeapTrimmer heap_trimmer_;  ///< the ticker's
  std::unique_ptr<base::NamedLoop> ticker_;
  std::thread checkpoint_thread_;
};

absl::Status Process::EndCallbacks(const std::string& reason) {
  TROUPE_RETURN_IF_ERROR(parts_.updates.loop->Tell(
      run::Hook::kRunEnd, [&] { return run::RunEndFacts(parts_.updates.loop->env_steps(), reason); }));
  return parts_.updates.loop->AwaitCallbacks();
}

absl::Status Process::Start() {
  TROUPE_RETURN_IF_ERROR(parts_.Make());
  TROUPE_RETURN_IF_ERROR(StartThreads());
  const storage::RunFolder& folder = *parts_.setup.folder;
  if (parts_.run().experiment.wandb) {
    // Results elsewhere are a convenience; the run goes on without them.
    const absl::Status followed = run::StartWandbFollower(folder.directory(), parts_.run().experiment);
    if (!followed.ok()) TROUPE_WARN("{}", std::string(followed.message()));
  }
  TROUPE_INFO("learner ready run={} epoch={} env_steps={} listen=\"{}\"", parts_.setup.name, folder.learner_epoch(),
              parts_.resumed_env_steps(), absl::StrJoin(parts_.doors.addresses(), " "));
  return absl::OkStatus();
}

absl::Status Process::StartThreads() {
  checkpoint_thread_ = std::thread([this] { parts_.checkpoints.Run(); });
  TROUPE_RETURN_IF_ERROR(parts_.learner->Start());
  if (parts_.sampling.sampler != nullptr) {
    TROUPE_RETURN_IF_ERROR(parts_.sampling.sampler->Join(*parts_.sampling.config, parts_.learner.get()));
    sampler_thread_ = std::thread([this] { parts_.sampling.sampler->Run(); });
  }
  const auto tick = [this] {
    if (parts_.sampling.sampler != nullptr) parts_.sampling.sampler->KeepAlive();
    if (parts_.sampling.door != nullptr) parts_.sampling.door->Tick();
    parts_.learner->Tick();
    heap_trimmer_.MaybeTrim(base::Clock::Real().SteadyNow());
    if (parts_.doors.server != nullptr) parts_.doors.server->Tick();
    return kTickInterval;
  };
  ticker_ = std::make_unique<base::NamedLoop>("tick", tick, kTickInterval);
  if (parts_.doors.server == nullptr) return absl::OkStatus();
  run::Watchdog::Actions actions;
  actions.dial = [this] { return parts_.doors.server->DialSelf(kDialTimeout); };
  actions.on_deaf = [](const std::string&) {};  // TrainToTheEnd asks
  actions.end = &run::EndDeafProcess;
  watchdog_ = std::make_unique<run::Watchdog>(run::WatchdogOptions{}, std::move(actions));
  watchdog_loop_ = std::make_unique<base::NamedLoop>(
      "watchdog", [watchdog = watchdog_.get()] { return watchdog->Step(); }, watchdog_->interval());
  return absl::OkStatus();
}

absl::Status Process::TrainToTheEnd() {
  while (true) {
    TROUPE_ASSIGN_OR_RETURN(const learner::StepOutcome outcome, parts_.updates.loop->Step(kStepTimeout));
    if (outcome.kind == learner::StepOutcome::Kind::kFailed) return Fail(outcome);
    if (DrainSignals::Received()) parts_.learner->RequestDrain("signal");
    if (deaf()) parts_.learner->RequestDrain("the learner is deaf");
    if (outcome.kind == learner::StepOutcome::Kind::kStopped || outcome.kind == learner::StepOutcome::Kind::kDrained ||
        outcome.kind == learner::StepOutcome::Kind::kEnvsFailed ||
        outcome.kind == learner::StepOutcome::Kind::kNothingTrained) {
      return parts_.trains() ? Finish(outcome) : EndAsItWas();
    }
  }
}

absl::Status Process::EndAsItWas() {
  parts_.doors.policy_desk->RefuseAll();
  TakeDown(linger_);
  SayNothingIsLeft(parts_.setup);
  return absl::OkStatus();
}

absl::Status Process::Finish(const learner::StepOutcome& outcome) {
  // Callbacks get a moment to track numbers for the last line.
  if (parts_.code.callbacks != nullptr) parts_.code.callback_host()->AwaitIdle(kCallbackGrace);
  if (outcome.kind != learner::StepOutcome::Kind::kStopped) parts_.reporter->Settle();  // no evaluation belongs to it
  TROUPE_RETURN_IF_ERROR(parts_.updates.loop->EndUpdates());  // callbacks may save until they have heard of all updates
  parts_.doors.policy_desk->RefuseAll();
  run::RunEnd end({.learner = parts_.learner.get(),
                   .reporter = parts_.reporter.get(),
                   .evaluator = parts_.updates.evaluator.get(),
                   .updates = parts_.updates.loop.get(),
                   .checkpoints = &parts_.checkpoints,
                   .degradations = &parts_.degradations},
                  parts_.setup.name, parts_.setup.folder->directory());
  const bool stopped = outcome.kind == learner::StepOutcome::Kind::kStopped;
  TROUPE_RETURN_IF_ERROR(end.Conclude(outcome, /*evaluate=*/stopped && parts_.run().evaluation.at_end));
  TakeDown(stopped ? linger_ : absl::ZeroDuration());
  TROUPE_RETURN_IF_ERROR(EndCallbacks(outcome.reason));
  if (parts_.films != nullptr && stopped) parts_.films->get()->AwaitIdle(run::FilmLoop::kPatience);
  TROUPE_RETURN_IF_ERROR(end.Tell());
  return parts_.sampling.sampler == nullptr ? absl::OkStatus() : parts_.sampling.sampler->status();
}

absl::Status Process::Fail(const learner::StepOutcome& outcome) {
  if (!outcome.state_is_whole) return outcome.status;
  parts_.doors.policy_desk->RefuseAll();
  const absl::Status saved = parts_.updates.loop->SaveState(true, nullptr);
  TakeDown();
  const absl::Status told = EndCallbacks(absl::StrCat("an update failed: ", std::string(outcome.status.message())));
  if (!told.ok()) TROUPE_WARN("callbacks not told of the end error=\"{}\"", std::string(told.message()));
  return run::UpdateFailed(outcome.status, saved.ok() ? parts_.checkpoints.last_error() : std::string(saved.message()),
                           parts_.updates.loop->env_steps(), parts_.setup.folder->directory());
}

void Process::Abandon() {
  TakeDown();
  const absl::Status discarded = parts_.setup.folder->DiscardIfNew();
  if (!discarded.ok()) TROUPE_WARN("run folder not removed error=\"{}\"", std::string(discarded.message()));
}

void Process::TakeDown(absl::Duration linger) {
  if (watchdog_ != nullptr) watchdog_->StopDialing();
  if (parts_.learner != nullptr) parts_.learner->RequestDrain("the run has ended");
  if (parts_.sampling.door != nullptr) parts_.sampling.door->Close(outside::Closing::kRunEnded);
  if (parts_.sampling.sampler != nullptr) parts_.sampling.sampler->Stop();
  if (sampler_thread_.joinable()) sampler_thread_.join();
  if (parts_.doors.server != nullptr) {
    // Workers hand in and leave by themselves; who does not is cut off.
    const base::Deadline goodbye = base::Deadline::After(kGoodbyeTimeout);
    if (linger > absl::ZeroDuration() && !DrainSignals::Received()) {
      TROUPE_INFO("the run has ended, late workers are told so seconds={}", absl::ToDoubleSeconds(linger));
      AwaitDrainSignal(base::Deadline::After(linger));
    }
    base::AwaitPolling(kGoodbyeInterval, goodbye, [this] { return parts_.doors.server->num_rollout_streams() == 0; });
    parts_.doors.server->Shutdown(kShutdownTimeout);
  }
  parts_.doors.CloseControl(*parts_.setup.folder);
  ticker_.reset();
  parts_.doors.server.reset();
  parts_.checkpoints.Stop();
  if (checkpoint_thread_.joinable()) checkpoint_thread_.join();
  parts_.policy_map_cache.Remove();
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
  run::StartWatch start_watch(&DrainSignals::Received, [] { ::_exit(DrainSignals::ShellCode()); });
  std::optional<base::NamedLoop> watching(std::in_place, "start", [&start_watch] { return start_watch.Step(); });
  absl::StatusOr<run::RunSetup> made = run::SetUpRun(flags.run, registry, base::Clock::Real(), &start_watch);
  if (absl::IsCancelled(made.status()) && DrainSignals::Received()) return absl::OkStatus();  // the run is as it was
  if (!made.ok()) return base::RefusedIfFinal(made.status());
  run::RunSetup setup = *std::move(made);
  start_watch.SetFolder(setup.folder.get());
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
  Process process(std::move(setup), WiringOf(flags, registry), absl::Seconds(flags.linger_s));
  const absl::Status started = run::CatchOutOfMemory([&] { return process.Start(); });
  watching.reset();
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
