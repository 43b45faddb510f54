#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace troupe::rpc {

/// Whether the learner is there, since when not and why not, and what a person is told of that: once that it is away,
/// when it has been for a while, and then once that it is back. A passive part of WorkerClient.
///
/// Not thread-safe: WorkerClient holds its mutex. Never blocks; times are of the steady clock. States: away -> there ->
/// away -> ...; away at first.
class LearnerPresence {
 public:
  struct Options {
    std::string address;
    /// From the start, or its loss, until it is taken to be gone for good.
    absl::Duration reconnect_timeout;
    /// Away for so long, it is told of.
    absl::Duration tell_after;
  };

  /// Away since `now`.
  LearnerPresence(Options options, absl::Duration now);

  void OnThere();
  /// Away since `now`, if it was there.
  void OnAway(absl::Duration now);
  /// Why it is away, as far as is known: the last error counts.
  void NoteError(const absl::Status& error) { last_error_ = error; }

  bool there() const { return !away_since_.has_value(); }
  /// When it is taken to be gone for good; InfiniteDuration() while it is there.
  absl::Duration gone_at() const;
  /// UNAVAILABLE, with the address and the last error: "learner at ADDRESS `what`: why".
  absl::Status Unavailable(const std::string& what) const;

  /// What is to be told of a learner that is away, as a log line; nullopt: nothing yet, or no more.
  std::optional<std::string> TakeAway(absl::Duration now);
  /// How long until TakeAway has something; InfiniteDuration() when it will not.
  absl::Duration UntilAway(absl::Duration now) const;
  /// Whether it is to be told that the learner is back. Once.
  bool TakeBack();

 private:
  std::string why() const;

  const Options options_;
  std::optional<absl::Duration> away_since_;
  absl::Status last_error_;
  bool was_there_ = false;   ///< ever
  bool told_away_ = false;   ///< and not back since
  bool tell_there_ = false;  ///< it is back, and was said to be away
};

}  // namespace troupe::rpc
