#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "lib/learner/checked_fragment.h"
#include "lib/learner/checkpoint.h"
#include "lib/sample/grant.h"
#include "lib/sample/ids.h"

namespace troupe::learner {

/// A grant and whom it is for.
struct GrantOrder {
  sample::WorkerId worker;
  sample::Grant grant;
};

/// A grant that was out for too long.
struct ExpiredGrant {
  sample::WorkerId worker;
  sample::GrantId grant;
  absl::Duration age;
  absl::Duration limit;
  int64_t missing_steps = 0;  ///< granted, not delivered: they go to others
  int32_t misses = 0;         ///< of the worker in a row; with WorkerStandings::kMisses it is given nothing for now
};

/// What a fragment's arrival means.
struct Verdict {
  sample::Disposition disposition = sample::Disposition::kAccepted;
  std::string reason;
};

/// Who samples what: events (workers come and go, fragments are accepted, weights are published) in, grants out. One
/// per run, whatever is trained on what is sampled: that is BatchSource's. Made and owned by RunState; GrantScheduler
/// is the one there is. Has no clock, no thread and no connection: what `now` says is its caller's, only differences
/// count.
///
/// Not thread-safe: called under RunState's mutex, so nothing of it may block or call out.
///
/// Invariants of every plan: 1. No episode ordinal of an environment is granted to two workers, or twice. 2. A fragment
/// is accepted only for a live grant of its worker, with weights at least as new as the grant asked for. 3. What a
/// grant leaves undone (its worker left, it expired, a fragment was refused) is not counted as sampled. 4. After Close
/// nothing is granted; what is granted may still arrive.
///
/// Iterations are the plan's own count: each is a batch's worth of data. In rounds an iteration is what was granted for
/// it; in a free-running plan it is what arrived next.
class SamplingPlan {
 public:
  virtual ~SamplingPlan() = default;

  // Events.
  virtual void AddWorker(sample::WorkerId worker, absl::Duration now) = 0;
  /// What it has unfinished goes to others. Nothing for one that is not there.
  virtual void RemoveWorker(sample::WorkerId worker) = 0;
  /// It gets no more work; what it has unfinished goes to others. As long as it is the only one, nothing is granted.
  virtual void ExcludeWorker(sample::WorkerId worker) = 0;
  /// Version `n` is out, after the updates from all iterations below `done`.
  virtual void SetPublished(int64_t done, int64_t n) = 0;
  /// Version `n` is on its way out: a worker that was waiting may sample with it, and its fragment may
  /// be here, before SetPublished.
  virtual void SetPublishing(int64_t n) = 0;
  /// Grants from now on carry the policies of this revision, or newer ones.
  virtual void SetRevision(int64_t revision) = 0;
  /// It is `now`: what has been out for too long expires.
  virtual void Advance(absl::Duration now) = 0;
  /// Nothing is granted any more; what is granted may still arrive.
  virtual void Close() = 0;

  /// Whether a valid fragment fits a live grant of `worker`: accepted; STALE when its grant is over or its weights are
  /// too old; INVALID when it is not what was granted.
  virtual Verdict Judge(sample::WorkerId worker, const CheckedFragment& fragment) const = 0;
  /// Books a fragment that Judge accepts. `watermark` is the worker's after it. Returns the iteration that it is of.
  virtual int64_t Accept(sample::WorkerId worker, uint64_t sequence, uint64_t watermark,
                         const CheckedFragment& fragment) = 0;
  /// A fragment was refused, so its grant will stay short: the rest of it is granted again. `grant` that is not the
  /// worker's, or nullopt where nobody could read it: all grants of the worker.
  virtual void Expire(sample::WorkerId worker, std::optional<sample::GrantId> grant) = 0;
  /// The same, but nothing happens unless `grant` is a live one of the worker.
  virtual void ExpireIfLive(sample::WorkerId worker, sample::GrantId grant) = 0;
  /// A valid fragment came for a grant that is over: a worker whose grants expired shows that it lives.
  virtual void NoteLate(sample::WorkerId worker, sample::GrantId grant) = 0;

  /// Advances, and gives the grants to send now. Call after every event, when NextDeadline has come, and every second.
  virtual std::vector<GrantOrder> Schedule(absl::Duration now) = 0;
  /// What has expired since the last call: nobody waits for these any more.
  virtual std::vector<ExpiredGrant> TakeExpired() = 0;
  /// When Schedule has something to do without an event; InfiniteDuration: never.
  virtual absl::Duration NextDeadline() const = 0;

  /// All data of the iterations below it has arrived.
  virtual int64_t first_incomplete() const = 0;
  /// Accepted env steps of the whole run in iterations below `iteration`, at most first_incomplete; at least those that
  /// were done at the last SetPublished.
  virtual int64_t EnvStepsBelow(int64_t iteration) const = 0;
  /// Whether anything was granted yet.
  virtual bool started() const = 0;
  /// Ordinals above everything that was granted, for a checkpoint; ascending env id.
  virtual std::vector<LaneState> Lanes() const = 0;
  /// Workers that may be in an episode of theirs that was mapped by policies older than `revision`, as far as their
  /// grants and fragments tell; ascending. What a worker holds of lanes that are another's by now counts for nothing.
  virtual std::vector<sample::WorkerId> OwnersOfOlderEpisodes(int64_t revision) const = 0;

  // For Monitor.Status.
  virtual int32_t num_lanes_of(sample::WorkerId worker) const = 0;
  /// Steps granted to it that have not arrived.
  virtual int64_t outstanding_steps_of(sample::WorkerId worker) const = 0;
  /// Grants that were out for too long: the worker's, and of all there ever were.
  virtual int64_t expired_grants_of(sample::WorkerId worker) const = 0;
  virtual int64_t expired_grants() const = 0;
};

}  // namespace troupe::learner
