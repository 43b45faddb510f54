#pragma once

#include <memory>

#include "absl/time/time.h"
#include "lib/base/backoff.h"
#include "lib/rpc/transport/client_link.h"
#include <grpcpp/channel.h>

namespace troupe::rpc {

/// One of a client's streams to its server, tried again and again: the link of the try that is going on, or when the
/// next one is due. Makes no call itself. A passive part of WorkerClient, which has one for each stream.
///
/// Not thread-safe: WorkerClient holds its mutex. Never blocks; times are of the steady clock. States: closed (until
/// the next try is due) -> open (a ClientLink) -> closed -> ...; ends with its owner.
class ReconnectingLink {
 public:
  /// A try that begins. Plain value.
  struct Try {
    std::shared_ptr<ClientLink> link;  ///< nullptr: none
    std::shared_ptr<grpc::Channel> channel;
    const char* method = nullptr;
    bool wait_for_ready = false;

    /// Begins the call, if there is one. Outside the lock; once.
    void Start() const {
      if (link != nullptr) link->Start(channel, method, wait_for_ready);
    }
  };

  /// `method`: "/package.Service/Method", a literal.
  ReconnectingLink(std::shared_ptr<grpc::Channel> channel, const char* method, const base::Backoff::Options& backoff,
                   uint64_t seed);

  bool open() const { return link_ != nullptr; }
  bool Is(const ClientLink* link) const { return link == link_.get(); }
  /// nullptr while closed.
  const std::shared_ptr<ClientLink>& link() const { return link_; }

  /// How long until the next try is due, 0: it is. While closed.
  absl::Duration UntilTry(absl::Duration now) const;
  /// Begins a try with `link`, while closed. At `give_up_at` it has taken too long, unless it Succeeded.
  Try Open(std::shared_ptr<ClientLink> link, absl::Duration give_up_at = absl::InfiniteDuration());
  /// How long until the try has taken too long, 0: it has; InfiniteDuration(): it may take any time.
  absl::Duration UntilGivenUp(absl::Duration now) const;
  /// The link of a try that has taken too long, to be cancelled outside the lock. Once a try.
  std::shared_ptr<ClientLink> GiveUp();
  /// The server is there: the next try is due at once, the delays after it begin small again.
  void Succeeded();
  /// The link is done. Gives it back, to be destroyed outside the lock.
  std::shared_ptr<ClientLink> Close(absl::Duration now);

 private:
  const std::shared_ptr<grpc::Channel> channel_;
  const char* const method_;
  const absl::Duration max_delay_;
  base::Backoff backoff_;
  std::shared_ptr<ClientLink> link_;
  absl::Duration retry_at_ = absl::ZeroDuration();
  absl::Duration give_up_at_ = absl::InfiniteDuration();
  int tries_ = 0;  ///< since it Succeeded
};

}  // namespace troupe::rpc
