#include "lib/rpc/transport/client_link.h"

#include <utility>

#include "lib/base/hidden_order.h"
#include "lib/rpc/transport/transport.h"
#include <grpcpp/generic/generic_stub.h>

namespace troupe::rpc {

LinkOwner::LinkOwner() : gauge_(std::make_shared<Gauge>()) {}

std::shared_ptr<ClientLink> LinkOwner::MakeLink() {
  gauge_->Add();
  return std::shared_ptr<ClientLink>(new ClientLink(this), [gauge = gauge_](ClientLink* link) {
    delete link;
    gauge->Remove();
  });
}

void LinkOwner::AwaitLinksGone() { gauge_->AwaitZero(); }

void LinkOwner::Gauge::Add() {
  base::MutexLock lock(&mutex_);
  ++links_;
}

void LinkOwner::Gauge::Remove() {
  base::MutexLock lock(&mutex_);
  --links_;
  changed_.NotifyAll();
}

void LinkOwner::Gauge::AwaitZero() {
  base::MutexLock lock(&mutex_);
  while (links_ > 0) changed_.Wait(&mutex_);
}

void ClientLink::Start(const std::shared_ptr<grpc::Channel>& channel, const std::string& method, bool wait_for_ready) {
  self_ = shared_from_this();
  context_.set_wait_for_ready(wait_for_ready);
  grpc::GenericStub stub(channel);
  stub.PrepareBidiStreamingCall(&context_, method, grpc::StubOptions(), this);
  // Writes start outside reactions, too: the hold keeps the call open for them.
  AddHold();
  base::HandOver(this);
  StartRead(&incoming_);
  base::HandOver(this);
  StartCall();
  {
    base::MutexLock lock(&mutex_);
    busy_ = false;
  }
  Kick();
  MaybeReleaseHold();  // it may have ended before it was kicked
}

void ClientLink::Kick() {
  {
    base::MutexLock lock(&mutex_);
    kicked_ = true;
    if (busy_ || ended_ || last_written_) return;
    busy_ = true;
  }
  WriteWhatThereIs();
}

// Runs with busy_ set, by one thread at a time.
void ClientLink::WriteWhatThereIs() {
  while (true) {
    {
      base::MutexLock lock(&mutex_);
      kicked_ = false;
    }
    std::optional<LinkOwner::Outgoing> next = owner_->NextMessage(this);
    if (next.has_value()) {
      outgoing_ = std::move(next->message);
      if (next->last) {
        {
          base::MutexLock lock(&mutex_);
          last_written_ = true;
        }
        base::HandOver(this);
        StartWriteLast(&outgoing_, grpc::WriteOptions());
      } else {
        base::HandOver(this);
        StartWrite(&outgoing_);
      }
      return;
    }
    base::MutexLock lock(&mutex_);
    if (kicked_ && !ended_) continue;
    busy_ = false;
    break;
  }
  MaybeReleaseHold();
}

void ClientLink::OnWriteDone(bool ok) {
  const base::Reaction reaction(this);
  outgoing_.Clear();
  bool go_on;
  {
    base::MutexLock lock(&mutex_);
    // A failed write means that the call is ending; the read that is in flight will say so.
    go_on = ok && !ended_ && !last_written_;
    busy_ = go_on;
  }
  if (go_on) {
    WriteWhatThereIs();
  } else {
    MaybeReleaseHold();
  }
}

void ClientLink::OnReadDone(bool ok) {
  const base::Reaction reaction(this);
  if (ok) {
    owner_->OnMessage(this, incoming_);
    incoming_.Clear();
    base::HandOver(this);
    StartRead(&incoming_);
    return;
  }
  {
    base::MutexLock lock(&mutex_);
    ended_ = true;
  }
  MaybeReleaseHold();
}

void ClientLink::MaybeReleaseHold() {
  {
    base::MutexLock lock(&mutex_);
    if (!ended_ || busy_ || hold_released_) return;
    hold_released_ = true;
  }
  base::HandOver(this);
  RemoveHold();
}

void ClientLink::OnDone(const grpc::Status& status) {
  const base::Reaction reaction(this);
  owner_->OnLinkDone(this, FromGrpc(status));
  const std::shared_ptr<ClientLink> last = std::move(self_);  // may be the end of this
}

}  // namespace troupe::rpc
