#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "lib/base/clock.h"
#include "lib/base/named_loop.h"
#include "lib/config/resolved_run.h"
#include "lib/outside/episode_book.h"
#include "lib/rpc/episode/episode_server.h"
#include "lib/rpc/transport/transport.h"

namespace troupe::run {

/// Where clients of a run's world outside come, in a process that samples: the book of their episodes, and the server.
/// Made by services/, before the collector whose lanes play what is in the book, and outlives it. Starts gRPC's
/// threads, none of its own. Thread-safe but for Close.
class EpisodeDoor {
 public:
  /// In a run's folder: a folder of the user's own, and the socket in it.
  static constexpr char kPlace[] = "external/episodes.sock";

  /// Opens env.external.address, or `address` where that is empty; serving when it returns. Of a Unix socket that
  /// another worker listens at, "-2", "-3" and so on follow its name; the folder that it lies in is made where it is
  /// not there. Errors as rpc::StartListening, with the key.
  static absl::StatusOr<std::unique_ptr<EpisodeDoor>> Open(const config::ResolvedRun& run, const std::string& address,
                                                           const rpc::TransportSecurity& security);
  ~EpisodeDoor() { Close(outside::Closing::kWorkerEnds); }

  outside::EpisodeBook* book() { return &book_; }
  const std::string& address() const { return server_->address(); }
  /// Silent clients lose their episodes, and answers that they do not read. Now and then; never blocks.
  void Tick() {
    book_.Tick();
    server_->Tick(base::Clock::Real().SteadyNow());
  }
  /// Clients get UNAVAILABLE, which tells whether the run has ended; grants that wait for them end. Where it has ended,
  /// waits up to kTellTime for clients that are in an episode to be told. Idempotent; one thread at a time.
  void Close(outside::Closing why);
  static constexpr absl::Duration kTellTime = absl::Seconds(1);

 private:
  explicit EpisodeDoor(const config::ResolvedRun& run);
  absl::Status Listen(const std::string& address, const rpc::TransportSecurity& security);

  outside::EpisodeBook book_;
  std::unique_ptr<rpc::EpisodeServer> server_;  ///< after the book, which it calls
};

/// The door of a worker, where its run has one, and a loop that looks after its clients. Not thread-safe.
class TendedDoor {
 public:
  ~TendedDoor() { Close(); }

  /// Once. `is_over`: whether nobody wants what is played any more, and why, from any thread until Close; episodes are
  /// lost then, since a grant would wait for clients however long that takes. Errors are EpisodeDoor::Open's, with the
  /// exit code of what a restart cannot mend.
  absl::Status Open(const config::ResolvedRun& run, const rpc::TransportSecurity& security,
                    std::function<std::optional<outside::Closing>()> is_over);
  /// nullptr: the run's world is not outside.
  outside::EpisodeBook* book() { return door_ == nullptr ? nullptr : door_->book(); }
  /// Idempotent.
  void Close();

 private:
  std::unique_ptr<EpisodeDoor> door_;
  std::function<std::optional<outside::Closing>()> is_over_;
  std::optional<base::NamedLoop> loop_;  ///< last: it uses the door
};

}  // namespace troupe::run
