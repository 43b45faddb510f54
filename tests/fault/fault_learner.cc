// A learner process for fault tests: everything of troupe-learner that can fail between processes (configuration, run
// folder, checkpoints, streams, drain), with a fake trainer, so that it also runs where there is no LibTorch and makes
// hundreds of updates a second.
//
//   fault_learner CONFIG RUN_FOLDER ADDRESS

#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "lib/base/clock.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/config/resolved_run.h"
#include "lib/config/run_config.h"
#include "lib/envs/register_all.h"
#include "lib/learner/learner.h"
#include "lib/learner/testing/fake_trainer.h"
#include "lib/policy/policy_spec.h"
#include "lib/rpc/learner/learner_binding.h"
#include "lib/rpc/learner/learner_server.h"
#include "lib/storage/run_folder.h"
#include "services/common/signals.h"

namespace troupe::fault {
namespace {

constexpr int64_t kUpdatesPerCheckpoint = 5;

class FaultLearner final : private rpc::MonitorHandler, private learner::WeightPublisher {
 public:
  absl::Status Run(const std::string& config_path, const std::string& directory, const std::string& address) {
    env::EnvRegistry registry;
    envs::RegisterAllEnvs(registry);
    TROUPE_ASSIGN_OR_RETURN(const config::RunConfig config, config::RunConfig::FromFile(config_path));
    TROUPE_ASSIGN_OR_RETURN(const config::ResolvedRun run, config::ResolveRun(config, registry));
    storage::RunFolder::Options folder_options;
    folder_options.directory = directory;
    folder_options.resume = std::filesystem::exists(directory + "/config.yaml");
    folder_options.checkpoint.spec_hash = run.schema.Hash();
    folder_options.checkpoint.config_yaml = config.ToYaml();
    folder_options.specs = run.policies;
    const bool resume = folder_options.resume;
    TROUPE_ASSIGN_OR_RETURN(folder_, storage::RunFolder::Open(std::move(folder_options)));

    trainer_ = std::make_unique<learner::FakeTrainer>(run.schema.policies);
    learner::LearnerConfig learner_config;
    learner_config.options = run.learner;
    learner_config.schema = run.schema;
    learner_config.limits = run.limits;
    learner_config.learner_epoch = folder_->learner_epoch();
    learner::LearnerDeps deps;
    deps.trainer = trainer_.get();
    deps.publisher = this;
    TROUPE_ASSIGN_OR_RETURN(learner_, learner::Learner::Create(std::move(learner_config), deps));
    if (resume) {
      std::vector<std::string> quarantined;
      const absl::StatusOr<learner::LearnerState> state = folder_->LoadLatest(&quarantined);
      if (state.ok()) {
        TROUPE_RETURN_IF_ERROR(learner_->Restore(*state));
      } else if (!absl::IsNotFound(state.status())) {
        return state.status();
      }
    }
    binding_ = std::make_unique<rpc::LearnerBinding>(learner_.get());
    rpc::LearnerServerOptions server_options;
    server_options.addresses = {address};
    server_options.schema = run.schema;
    server_options.config_yaml = config.ToYaml();
    TROUPE_ASSIGN_OR_RETURN(
        server_, rpc::LearnerServer::Start(std::move(server_options), binding_.get(), this, &base::Clock::Real()));
    TROUPE_RETURN_IF_ERROR(learner_->Start());
    return Train();
  }

 private:
  absl::Status Train() {
    while (true) {
      const learner::StepOutcome outcome = learner_->Step(absl::Milliseconds(20));
      learner_->Tick();
      server_->Tick();
      switch (outcome.kind) {
        case learner::StepOutcome::Kind::kUpdated:
          if (learner_->Status().progress.updates % kUpdatesPerCheckpoint == 0) TROUPE_RETURN_IF_ERROR(Save());
          break;
        case learner::StepOutcome::Kind::kWaiting:
          break;
        case learner::StepOutcome::Kind::kFailed:
          return outcome.status;
        case learner::StepOutcome::Kind::kEnvsFailed:
        case learner::StepOutcome::Kind::kNothingTrained:
          return absl::AbortedError(outcome.reason);
        case learner::StepOutcome::Kind::kStopped:
        case learner::StepOutcome::Kind::kDrained:
          TROUPE_RETURN_IF_ERROR(Save());
          for (int i = 0; i < 500 && server_->num_streams() > 0; ++i) absl::SleepFor(absl::Milliseconds(10));
          server_->Shutdown(absl::Seconds(1));
          return absl::OkStatus();
      }
      if (services::DrainSignals::Received()) learner_->RequestDrain("signal");
    }
  }
  absl::Status Save() {
    TROUPE_ASSIGN_OR_RETURN(const learner::LearnerSnapshot snapshot, learner_->SnapshotState());
    return folder_->Save(snapshot.state, snapshot.is_best);
  }

  rpc::RunStatus GetStatus(const base::Caller&) override { return binding_->Status(); }
  policy::PolicyTablePtr Policies(const base::Caller&) override { return learner_->Policies(); }
  void Publish(policy::PolicySlot slot, policy::WeightSnapshotPtr snapshot) override {
    server_->weights().Publish(slot, std::move(snapshot));
  }
  void AnnounceVersion(policy::WeightVersion version) override { server_->weights().AnnounceVersion(version); }

  std::unique_ptr<storage::RunFolder> folder_;
  std::unique_ptr<learner::FakeTrainer> trainer_;
  std::unique_ptr<learner::Learner> learner_;
  std::unique_ptr<rpc::LearnerBinding> binding_;
  std::unique_ptr<rpc::LearnerServer> server_;
};

}  // namespace
}  // namespace troupe::fault

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  troupe::base::InitLogging("fault_learner", "warn");
  troupe::services::DrainSignals::Install();
  const absl::Status status = troupe::fault::FaultLearner().Run(argv[1], argv[2], argv[3]);
  if (status.ok()) return 0;
  std::fprintf(stderr, "fault_learner: %s\n", status.ToString().c_str());
  return 1;
}
