#pragma once

#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "lib/base/mutex.h"
#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/client_callback.h>

namespace troupe::rpc {

class ClientLink;

/// Whose streams they are. Called by gRPC's threads, without locks; must not block.
///
/// Outlives its links: calls AwaitLinksGone before it (or a channel of theirs) goes. That waits until they are
/// destroyed, not only done: a link's context holds its channel, and gRPC 1.51 breaks when a thread of its own drops
/// the last channel of the process.
class LinkOwner {
 public:
  LinkOwner();
  virtual ~LinkOwner() = default;

  struct Outgoing {
    grpc::ByteBuffer message;
    bool last = false;  ///< half-close after it
  };
  /// What to write next, or nullopt: then Kick when there is something.
  virtual std::optional<Outgoing> NextMessage(const ClientLink* link) = 0;
  virtual void OnMessage(const ClientLink* link, const grpc::ByteBuffer& message) = 0;
  /// The last call for this link.
  virtual void OnLinkDone(const ClientLink* link, const absl::Status& status) = 0;

 protected:
  /// A link that is not started yet.
  std::shared_ptr<ClientLink> MakeLink();
  /// Blocks until every link has been destroyed. Cancel them first; call without locks and without holding one.
  void AwaitLinksGone();

 private:
  /// How many links there are. Shared with them, as the last may go when its owner is gone.
  class Gauge {
   public:
    void Add();
    void Remove();
    void AwaitZero();

   private:
    base::Mutex mutex_;
    base::CondVar changed_;
    int links_ ABSL_GUARDED_BY(mutex_) = 0;
  };
  const std::shared_ptr<Gauge> gauge_;
};

/// One try of one stream, as the client sees it: a shell. One read and one write in flight. Also serves
/// server-streaming methods, whose bytes are those of a stream with one message up.
///
/// Belongs to itself until OnLinkDone. Thread-safe; never blocks. Invariant: no operation starts after the hold is
/// released, and it is released once, when reads have ended and nobody is writing.
class ClientLink final : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>,
                         public std::enable_shared_from_this<ClientLink> {
 public:
  explicit ClientLink(LinkOwner* owner) : owner_(owner) {}
  /// Begins the call; `this` must be held by a shared_ptr. Once. `wait_for_ready`: stay while the channel connects
  /// again and again, until Cancel; otherwise its first failure ends the call.
  void Start(const std::shared_ptr<grpc::Channel>& channel, const std::string& method, bool wait_for_ready);
  /// There may be something to write.
  void Kick();
  /// Ends the call from this side; OnLinkDone follows.
  void Cancel() { context_.TryCancel(); }

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;

 private:
  void WriteWhatThereIs();
  void MaybeReleaseHold();

  LinkOwner* const owner_;
  grpc::ClientContext context_;
  std::shared_ptr<ClientLink> self_;
  grpc::ByteBuffer incoming_;  ///< confined to the read reaction
  grpc::ByteBuffer outgoing_;  ///< of whoever set busy_

  base::Mutex mutex_;
  /// A write is in flight or being chosen, or the call has not begun: a Kick may come before Start.
  bool busy_ ABSL_GUARDED_BY(mutex_) = true;
  bool kicked_ ABSL_GUARDED_BY(mutex_) = false;  ///< while busy_
  bool last_written_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  bool hold_released_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace troupe::rpc
