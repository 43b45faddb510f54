#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lib/serving/query_engine.h"

namespace troupe::run {

/// A checkpoint whose policies are asked. Plain value.
struct AskedCheckpoint {
  std::string run_folder;
  std::string checkpoint = "latest";  ///< latest, best or env steps; read once
  std::string config_path;            ///< the operator's own: what of the run's Python may be imported; empty: nothing
  std::vector<std::string> modules;   ///< TorchScript files, besides those of config_path, that may be run
  int64_t policy_map_capacity = 0;    ///< actors in memory; 0: as many as the run's learner held
  std::optional<uint64_t> seed;       ///< of sampled actions; drawn when absent
};

/// Answers queries with a checkpoint's weights: read and verified now where all policies fit into memory, else when
/// they are asked. Made and owned by who serves or asks them. Thread-safe as the engine is. The run is data: neither
/// its configuration is read nor its environment made.
class CheckpointEngine {
 public:
  /// Errors of storage::CheckpointWeights; PERMISSION_DENIED for a run with Python, or with users' modules,
  /// that neither config_path nor `modules` names.
  static absl::StatusOr<std::unique_ptr<CheckpointEngine>> Open(const AskedCheckpoint& asked);
  ~CheckpointEngine();

  serving::QueryEngine* engine() const { return engine_.get(); }
  /// Its folder.
  const std::string& checkpoint() const { return checkpoint_; }
  size_t num_policies() const { return num_policies_; }
  int64_t capacity() const { return capacity_; }

 private:
  class Source;

  CheckpointEngine();

  std::string checkpoint_;
  size_t num_policies_ = 0;
  int64_t capacity_ = 0;
  std::unique_ptr<Source> source_;
  std::unique_ptr<serving::QueryEngine> engine_;  ///< before what it reads from is gone
};

}  // namespace troupe::run
