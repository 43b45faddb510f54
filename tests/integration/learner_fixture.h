#pragma once

#include <unistd.h>

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/base/check.h"
#include "lib/base/clock.h"
#include "lib/learner/learner.h"
#include "lib/learner/testing/fake_trainer.h"
#include "lib/rpc/learner/learner_binding.h"
#include "lib/rpc/learner/learner_server.h"
#include "lib/sample/batch_schema.h"

namespace troupe::integration {

/// A learner with a fake trainer behind a real server on a socket of its own. Stepped by the test's thread.
class ServedLearner final : private rpc::MonitorHandler, private learner::WeightPublisher {
 public:
  ServedLearner(learner::LearnerConfig config, std::string address)
      : address_(std::move(address)), trainer_(config.schema.policies) {
    learner::LearnerDeps deps;
    deps.trainer = &trainer_;
    deps.publisher = this;
    rpc::LearnerServerOptions options;
    options.addresses = {address_};
    options.schema = config.schema;
    auto learner = learner::Learner::Create(std::move(config), deps);
    TROUPE_CHECK(learner.ok());
    learner_ = *std::move(learner);
    binding_ = std::make_unique<rpc::LearnerBinding>(learner_.get());
    auto server = rpc::LearnerServer::Start(std::move(options), binding_.get(), this, &base::Clock::Real());
    TROUPE_CHECK(server.ok());
    server_ = *std::move(server);
  }
  ~ServedLearner() override { server_->Shutdown(absl::Seconds(1)); }

  /// Steps until `updates` updates were made; false when that takes more than a minute or the run ends before.
  bool StepTo(int64_t updates) {
    const absl::Time deadline = absl::Now() + absl::Seconds(60);
    while (trainer_.updates() < updates && absl::Now() < deadline) {
      const learner::StepOutcome outcome = learner_->Step(absl::Milliseconds(20));
      if (outcome.kind != learner::StepOutcome::Kind::kUpdated && outcome.kind != learner::StepOutcome::Kind::kWaiting)
        break;
    }
    return trainer_.updates() >= updates;
  }

  learner::Learner& learner() { return *learner_; }
  learner::FakeTrainer& trainer() { return trainer_; }
  const std::string& address() const { return address_; }

 private:
  rpc::RunStatus GetStatus(const base::Caller&) override { return binding_->Status(); }
  policy::PolicyTablePtr Policies(const base::Caller&) override { return learner_->Policies(); }
  void Publish(policy::PolicySlot slot, policy::WeightSnapshotPtr snapshot) override {
    server_->weights().Publish(slot, std::move(snapshot));
  }
  void AnnounceVersion(policy::WeightVersion version) override { server_->weights().AnnounceVersion(version); }

  const std::string address_;
  learner::FakeTrainer trainer_;
  std::unique_ptr<learner::Learner> learner_;
  std::unique_ptr<rpc::LearnerBinding> binding_;
  std::unique_ptr<rpc::LearnerServer> server_;
};

inline std::string SocketFor(const std::string& test_name) {
  return absl::StrCat("unix-abstract:troupe-integration-", getpid(), "-", test_name);
}

}  // namespace troupe::integration
