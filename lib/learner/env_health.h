#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "lib/sample/env_report.h"

namespace troupe::learner {

/// How environments do at the workers, as they say it themselves, and what follows: who gets no more work, and whether
/// the run ends. Decides nothing of grants; has no clock. Not thread-safe.
///
/// A worker is *beyond* once more than max_failed_share of its last episodes failed (RecentEpisodes::Beyond); so it
/// stays, also when it comes back under its id. A new process under a new id is judged anew. What a worker says counts
/// against itself; against the run only where no other worker shows that its environments run.
///
/// The run ends when every worker that is here is beyond, when more than the share of the episodes of all others
/// together failed (at least RecentEpisodes::kFewest for each of them), and when the first worker that says so fails
/// from the start: at once if all do, else kGrace later unless another worker shows that environments run. With a share
/// of 1 it never ends for them. Where all who say that environments fail came over TCP, as any stranger may, that has
/// to hold for kStrangersGrace: honest workers that are still on their way have so long to show otherwise.
///
/// Remembers kMaxDeparted beyond workers that left.
class EnvHealth {
 public:
  static constexpr absl::Duration kGrace = absl::Seconds(4);
  static constexpr absl::Duration kStrangersGrace = absl::Seconds(30);
  /// Kinds of incidents that are told of in all.
  static constexpr size_t kMostKinds = 64;
  static constexpr size_t kMaxDeparted = 4096;
  static constexpr size_t kMaxNameChars = 128;
  static constexpr size_t kMaxCauseChars = 600;

  explicit EnvHealth(double max_failed_share) : max_failed_share_(max_failed_share) {}

  /// `name`: for people. `own`: it came by a door of this user's processes. Whether the worker is beyond.
  bool Join(uint64_t worker, const std::string& name, bool own);
  void Leave(uint64_t worker);

  /// What follows from a report.
  struct News {
    std::vector<sample::EnvIncident> first_of_their_kind;
    bool beyond = false;  ///< the worker is, from now on
  };
  News Report(uint64_t worker, const sample::EnvReport& report, absl::Duration now);
  /// A fragment was accepted in which so many episodes ended well.
  void Delivered(uint64_t worker, int64_t episodes);

  /// Why the run is to end, in words, with the cause that a worker named.
  std::optional<std::string> End(absl::Duration now);

  bool beyond(uint64_t worker) const;
  /// Of a worker that is here.
  const std::string& name(uint64_t worker) const { return workers_.at(worker).name; }
  /// "worker 1.2 (host:123), 20 of its last 20 episodes failed, the first: ...".
  std::string Words(uint64_t worker) const;

 private:
  struct Worker {
    std::string name;
    sample::RecentEpisodes recent;
    std::string cause;  ///< the first failure that it told of
    bool own = true;
    bool beyond = false;
    bool here = true;
    bool fails_from_the_start = false;
    bool runs = false;  ///< handed in steps without a failure before, or an episode that ended well
  };

  bool AnOwnOneFails() const;
  std::optional<std::string> EndOfShare() const;
  std::optional<std::string> EndFromTheStart(absl::Duration now) const;

  const double max_failed_share_;
  std::map<uint64_t, Worker> workers_;  ///< that are here, and those beyond that left
  std::set<std::pair<sample::EnvIncident::What, std::string>> kinds_;
  /// Of the first worker that failed from the start: when, and its words.
  std::optional<std::pair<absl::Duration, std::string>> failed_from_the_start_;
  std::optional<absl::Duration> reason_since_;  ///< since when there has been a reason to end
  bool own_failed_from_the_start_ = false;
  bool ended_well_ = false;  ///< an episode, anywhere
  bool any_failed_ = false;
};

}  // namespace troupe::learner
