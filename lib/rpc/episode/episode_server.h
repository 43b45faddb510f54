#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "lib/outside/episode_book.h"
#include "lib/rpc/episode/episode_service.h"
#include "lib/rpc/transport/listen.h"
#include "lib/rpc/transport/transport.h"

namespace troupe::rpc {

/// The door for clients whose worlds are outside: the service ExternalEpisodes alone, on gRPC's callback API. Unix
/// sockets are the user's own (and root's). Made and owned by a process that samples, after the book, which it borrows.
/// Starts gRPC's threads, none of its own. Thread-safe. States: serving -> shut down (Shutdown, or the destructor).
class EpisodeServer {
 public:
  /// Serving when it returns. Errors as StartListening.
  static absl::StatusOr<std::unique_ptr<EpisodeServer>> Start(const std::string& address,
                                                              const TransportSecurity& security,
                                                              outside::EpisodeBook* book);
  ~EpisodeServer() { Shutdown(absl::ZeroDuration()); }

  /// As given, with the port that port 0 became.
  const std::string& address() const { return listening_.addresses().front(); }
  /// Cancels answers that nobody reads; `now`: steady clock. Now and then; never blocks.
  void Tick(absl::Duration now) { service_.CheckProgress(now); }
  /// Closes the book, and takes no new calls; cancels after `timeout` who has not read its answer. Blocks until then.
  /// Idempotent; one thread at a time.
  void Shutdown(absl::Duration timeout);

 private:
  explicit EpisodeServer(outside::EpisodeBook* book) : book_(book), service_(book, &peers_) {}

  outside::EpisodeBook* const book_;
  PeerBook peers_;
  EpisodeService service_;
  ListeningServer listening_;  ///< last, so that it is gone before what it calls
};

}  // namespace troupe::rpc
