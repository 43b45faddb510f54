#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "lib/learner/ports.h"
#include "lib/learner/sequence_tracker.h"
#include "lib/learner/tracked_book.h"
#include "lib/sample/env_report.h"
#include "lib/sample/ids.h"

namespace troupe::learner {

/// Proof of a registration: what a stream shows with everything it brings. Superseded by the worker's next one.
struct WorkerTicket {
  sample::WorkerId worker_id;
  sample::WorkerEpoch worker_epoch;
  uint64_t learner_epoch = 0;
};

/// What a worker says of itself when it joins.
struct WorkerHello {
  sample::WorkerId worker_id;  ///< 0: a new worker; else the id it got before, also from an earlier learner epoch
  /// The lowest sequence number for which it has no acknowledgement: it may still send this one and all above. 1 for a
  /// new worker; 0 is read as 1.
  uint64_t next_sequence = 1;
  std::string name = "";  ///< for people
  bool own = true;        ///< came by a door of this user's processes, not by one of anybody's
};

/// The workers that are and were here: ids, epochs (fencing), sequence numbers, signs of life. Not thread-safe; never
/// destroys a port itself, but hands it back, so that the caller can let go of it without its lock.
///
/// Remembers at most kMaxDeparted workers that left; one forgotten rejoins as one of unknown past.
class WorkerRegistry {
 public:
  static constexpr size_t kMaxDeparted = 4096;

  struct Worker {
    sample::WorkerId id;
    sample::WorkerEpoch epoch;  ///< of the newest registration
    SequenceTracker sequences;
    bool connected = false;
    bool own = true;                   ///< WorkerHello::own, of the newest registration
    std::shared_ptr<WorkerPort> port;  ///< while connected
    absl::Duration last_seen = absl::ZeroDuration();
    int64_t accepted_rows = 0;  ///< in this learner epoch
    /// No episode in progress that its rows may be accepted of was mapped by an older PolicyTable.
    int64_t oldest_revision = 0;
    int64_t last_version_n = -1;             ///< of the newest accepted fragment; -1: none yet
    sample::EnvCounters env_counters;        ///< as it said last
    sample::EnvCounters counted;             ///< of it, in this learner epoch
    sample::RecentEpisodes recent_episodes;  ///< as it said last
    absl::Duration first_joined = absl::ZeroDuration();
    TrackedBook::Said tracked;
    bool counted_before = false;  ///< it may have counted before this learner epoch
  };
  /// A worker's environments fail at most so often at once, and in a second more: a call takes a microsecond or more.
  static constexpr int64_t kMostErrorsPerSecond = 1'000'000;
  /// ... and so often before this learner epoch.
  static constexpr int64_t kMostErrorsBefore = 1'000'000'000;
  /// A worker of an earlier learner epoch has the acknowledgement of at most so many fragments that the checkpoint
  /// knows nothing of: two days without a checkpoint, at a hundred a second.
  static constexpr uint64_t kMostRolledBack = uint64_t{1} << 24;
  struct Joined {
    WorkerTicket ticket;
    uint64_t gap = 0;  ///< sequences below next_sequence without a disposition here
    bool restarted =
        false;  ///< the gap was acknowledged by an earlier learner epoch (or the worker's past is unknown here)
    bool was_connected = false;  ///< it fenced off a registration that was still live
    std::shared_ptr<WorkerPort> old_port;
  };

  explicit WorkerRegistry(uint64_t learner_epoch);
  /// Takes over the watermarks of a saved run, by worker id. Before anybody joins.
  void Restore(const std::map<uint64_t, uint64_t>& watermarks);

  /// INVALID_ARGUMENT when the worker says that it has acknowledgements that nobody can have given.
  absl::Status Check(const WorkerHello& hello) const;
  /// `hello` has passed Check. A worker whose id no learner of this run can have given gets one of its own.
  Joined Join(const WorkerHello& hello, std::shared_ptr<WorkerPort> port, absl::Duration now);
  /// The worker behind a ticket. FAILED_PRECONDITION when it was superseded, its worker timed out or left, or the
  /// learner has restarted since.
  absl::StatusOr<Worker*> Find(const WorkerTicket& ticket);
  /// Ends the registration; gives the port back. `worker` may be forgotten by it.
  std::shared_ptr<WorkerPort> Leave(Worker& worker);
  /// Connected workers without a sign of life since `before`.
  std::vector<Worker*> SilentSince(absl::Duration before);

  /// Takes over what the worker has counted since it began. A count below its last one is of a process that began anew.
  /// INVALID_ARGUMENT for more than it can have counted by now: nothing is taken over.
  absl::Status Count(Worker& worker, const sample::EnvCounters& counters, absl::Duration now);
  /// Summed over all workers that this registry has heard of, also those that left. Never goes down.
  const sample::EnvCounters& env_counters() const { return env_counters_; }

  std::map<uint64_t, uint64_t> Watermarks() const;
  const std::map<uint64_t, Worker>& workers() const { return workers_; }
  int32_t num_connected() const;

 private:
  void ForgetSurplus();
  /// Whether a learner of this run may have given the id.
  bool MayBeOurs(uint64_t id) const;

  const uint64_t learner_epoch_;
  std::map<uint64_t, Worker> workers_;  ///< by worker id
  uint64_t next_id_;
  uint64_t next_epoch_ = 1;
  sample::EnvCounters env_counters_;
};

}  // namespace troupe::learner
