#pragma once

#include <vector>

#include "lib/learner/ports.h"

namespace troupe::run {

/// Gives new weights to several publishers: the streams and the sampler of this process. Filled before the learner
/// starts; then thread-safe.
class PublisherFan final : public learner::WeightPublisher {
 public:
  void Add(learner::WeightPublisher* publisher) { publishers_.push_back(publisher); }

  void Publish(policy::PolicySlot slot, policy::WeightSnapshotPtr snapshot) override {
    for (learner::WeightPublisher* publisher : publishers_) publisher->Publish(slot, snapshot);
  }
  void AnnounceVersion(policy::WeightVersion version) override {
    for (learner::WeightPublisher* publisher : publishers_) publisher->AnnounceVersion(version);
  }
  void SetPolicies(policy::PolicyTablePtr policies) override {
    for (learner::WeightPublisher* publisher : publishers_) publisher->SetPolicies(policies);
  }

 private:
  std::vector<learner::WeightPublisher*> publishers_;
};

}  // namespace troupe::run
