#include "services/learner/control_handler.h"

#include "lib/rpc/convert.h"
#include "troupe_version.h"

namespace troupe::services {
namespace {

absl::Status Ending() {
  return absl::UnavailableError("the learner is ending and writes its last checkpoint by itself");
}

}  // namespace

v1::StatusReply ControlHandler::GetStatus() {
  v1::StatusReply reply = binding_->Status();
  reply.set_build_version(TROUPE_VERSION);
  reply.set_run_name(run_name_);
  for (size_t slot = 0; slot < run_->policies.size(); ++slot) {
    v1::PolicyStatus* policy = reply.add_policies();
    policy->set_policy_id(run_->policies[slot].id.value());
    // Every policy's version counts updates.
    *policy->mutable_version() = rpc::ToProto(policy::WeightVersion{reply.learner_epoch(), reply.updates()});
    policy->set_trains(run_->learner.trains[slot]);
  }
  return reply;
}

void ControlHandler::RequestCheckpoint(std::function<void(absl::StatusOr<int64_t>)> done) {
  {
    base::MutexLock lock(&mutex_);
    if (!refuses_) {
      requests_.push_back(std::move(done));
      return;
    }
  }
  done(Ending());
}

std::vector<CheckpointLoop::Done> ControlHandler::TakeCheckpointRequests() {
  base::MutexLock lock(&mutex_);
  return std::exchange(requests_, {});
}

void ControlHandler::RefuseCheckpoints() {
  std::vector<CheckpointLoop::Done> refused;
  {
    base::MutexLock lock(&mutex_);
    refuses_ = true;
    refused.swap(requests_);
  }
  for (const CheckpointLoop::Done& done : refused) done(Ending());
}

}  // namespace troupe::services
