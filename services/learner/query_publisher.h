#pragma once

#include <string>
#include <utility>

#include "lib/base/log.h"
#include "lib/learner/ports.h"
#include "lib/serving/query_engine.h"

namespace troupe::services {

/// Hands a learner's new weights to the engine that answers queries, which it borrows. Thread-safe.
class QueryPublisher final : public learner::WeightPublisher {
 public:
  explicit QueryPublisher(serving::QueryEngine* engine) : engine_(engine) {}

  void Publish(policy::PolicySlot /*slot*/, policy::WeightSnapshotPtr snapshot) override {
    const absl::Status taken = engine_->SetWeights(std::move(snapshot));
    // Training goes on; queries are answered with the weights before.
    if (!taken.ok()) TROUPE_WARN("queries keep older weights error=\"{}\"", std::string(taken.message()));
  }
  /// Answers name the version that made the weights.
  void AnnounceVersion(policy::WeightVersion /*version*/) override {}

 private:
  serving::QueryEngine* const engine_;
};

}  // namespace troupe::services
