#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lib/policy/policy_table.h"
#include "lib/run/query_host.h"
#include "lib/serving/query_engine.h"

namespace troupe::run {

/// A checkpoint whose policies are asked. Plain value.
struct AskedCheckpoint {
  std::string run_folder;
  std::string checkpoint = "latest";  ///< latest, best or env steps
  /// Other checkpoints of the run, named likewise, by the label that they are asked under.
  std::map<std::string, std::string> labels;
  QueryPermits permits;
  int64_t policy_map_capacity = 0;  ///< actors in memory; 0: as many as the run's learner held
  std::optional<uint64_t> seed;     ///< of sampled actions; drawn when absent
};

/// Answers queries with a checkpoint's weights: read and verified now where all policies fit into memory, else when
/// they are asked. Made and owned by who serves or asks them. The engine is thread-safe; all else is for one thread.
/// The run is data: neither its configuration is read nor its environment made.
class CheckpointEngine {
 public:
  /// Errors of storage::CheckpointWeights and serving::QueryEngine::SetLabel; PERMISSION_DENIED for a run with Python,
  /// or with users' modules, that nothing of `asked.permits` names. A label "best" of a run without a best checkpoint
  /// has no weights yet.
  static absl::StatusOr<std::unique_ptr<CheckpointEngine>> Open(const AskedCheckpoint& asked);
  ~CheckpointEngine();

  /// Reads what the names of the asked checkpoints mean by now, and takes newer ones with their policies: queries are
  /// answered all the while. True: something has changed. Errors as Open; what was is served on then.
  absl::StatusOr<bool> Refresh();

  serving::QueryEngine* engine() const { return engine_.get(); }
  /// Its folder.
  const std::string& checkpoint() const { return checkpoint_; }
  size_t num_policies() const { return num_policies_; }
  int64_t capacity() const { return capacity_; }

 private:
  class Source;
  /// A checkpoint that was opened. Plain value.
  struct Opened {
    std::string folder;
    std::shared_ptr<Source> source;
    policy::PolicyTablePtr table;
  };

  explicit CheckpointEngine(const AskedCheckpoint& asked);
  absl::StatusOr<Opened> OpenFolder(const std::string& folder) const;
  /// Makes the engine of the first checkpoint that is asked.
  absl::Status MakeEngine(const Opened& opened);
  /// FAILED_PRECONDITION where its weights are older than what is served: versions never go back.
  absl::Status CheckIsNewer(const Opened& opened) const;
  /// From now on queries are answered with its weights, where they are newer.
  absl::Status Take(const Opened& opened);
  absl::StatusOr<bool> RefreshNewest();
  absl::StatusOr<bool> TakeNewer(const std::string& folder);
  absl::StatusOr<bool> RefreshLabel(const std::string& label, const std::string& which);
  /// From now on `label` stands for the checkpoint in `folder`; empty: for none.
  absl::StatusOr<bool> Offer(const std::string& label, const std::string& folder);

  const AskedCheckpoint asked_;
  std::string checkpoint_;
  policy::PolicyTablePtr table_;
  std::map<std::string, std::string> label_folders_;  ///< what stands under each label
  size_t num_policies_ = 0;
  int64_t capacity_ = 0;
  bool runs_python_ = false;  ///< policies in other processes may be asked
  std::unique_ptr<serving::QueryEngine> engine_;
};

}  // namespace troupe::run
