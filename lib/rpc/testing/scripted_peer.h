#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "lib/base/await.h"
#include "lib/base/mutex.h"
#include "lib/rpc/transport/client_link.h"
#include "lib/rpc/transport/convert.h"
#include "lib/rpc/transport/slices.h"
#include "proto/troupe/v1/rollout.pb.h"
#include <grpcpp/create_channel.h>
#include <grpcpp/support/channel_arguments.h>

namespace troupe::rpc {

/// A worker that says exactly what a test tells it to, true or not. One stream. Thread-safe.
class ScriptedPeer final : private LinkOwner {
 public:
  explicit ScriptedPeer(const std::string& address, const std::string& method = "/troupe.v1.Rollout/Stream") {
    // Not MakeChannel: a hostile peer keeps to no limits.
    grpc::ChannelArguments arguments;
    arguments.SetMaxSendMessageSize(-1);
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    channel_ = grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
    link_ = MakeLink();
    link_->Start(channel_, method, /*wait_for_ready=*/false);
  }
  ~ScriptedPeer() override {
    link_->Cancel();
    link_.reset();
    AwaitLinksGone();
  }

  /// `last`: half-close after it.
  void Send(const std::string& bytes, bool last = false) {
    const grpc::Slice slice(bytes);
    Send(grpc::ByteBuffer(&slice, 1), last);
  }
  void Send(grpc::ByteBuffer message, bool last = false) {
    {
      base::MutexLock lock(&mutex_);
      outbox_.push_back({std::move(message), last});
    }
    link_->Kick();
  }
  void Send(const v1::WorkerMessage& message) { Send(message.SerializeAsString()); }
  /// A Hello that any learner accepts.
  static v1::WorkerMessage Hello() {
    v1::WorkerMessage message;
    *message.mutable_hello()->mutable_protocol() = OurProtocol();
    message.mutable_hello()->set_incarnation(81);
    message.mutable_hello()->set_next_sequence(1);
    message.mutable_hello()->set_first_unacked(1);
    return message;
  }
  void Cancel() { link_->Cancel(); }

  /// The next message down; DEADLINE_EXCEEDED after ten seconds, UNAVAILABLE when the stream has ended without one.
  absl::StatusOr<v1::LearnerMessage> Receive() {
    base::MutexLock lock(&mutex_);
    const auto there = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !inbox_.empty() || end_.has_value(); };
    if (!base::Await(changed_, &mutex_, base::Deadline::After(absl::Seconds(10)), there)) {
      return absl::DeadlineExceededError("nothing came");
    }
    if (inbox_.empty()) return absl::UnavailableError("the stream has ended");
    v1::LearnerMessage message = std::move(inbox_.front());
    inbox_.pop_front();
    return message;
  }
  /// The stream's status; DEADLINE_EXCEEDED when it does not end within `timeout`.
  absl::Status AwaitEnd(absl::Duration timeout = absl::Seconds(10)) {
    base::MutexLock lock(&mutex_);
    const auto there = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return end_.has_value(); };
    if (!base::Await(changed_, &mutex_, base::Deadline::After(timeout), there)) {
      return absl::DeadlineExceededError("the stream did not end");
    }
    return *end_;
  }

 private:
  std::optional<Outgoing> NextMessage(const ClientLink*) override {
    base::MutexLock lock(&mutex_);
    if (outbox_.empty()) return std::nullopt;
    std::optional<Outgoing> next(std::move(outbox_.front()));
    outbox_.pop_front();
    return next;
  }
  void OnMessage(const ClientLink*, const grpc::ByteBuffer& message) override {
    const auto list = SliceList::From(message);
    SliceInputStream stream(*list);
    v1::LearnerMessage parsed;
    parsed.ParseFromZeroCopyStream(&stream);
    base::MutexLock lock(&mutex_);
    inbox_.push_back(std::move(parsed));
    changed_.NotifyAll();
  }
  void OnLinkDone(const ClientLink*, const absl::Status& status) override {
    base::MutexLock lock(&mutex_);
    end_ = status;
    changed_.NotifyAll();
  }

  std::shared_ptr<grpc::Channel> channel_;
  std::shared_ptr<ClientLink> link_;
  base::Mutex mutex_;
  base::CondVar changed_;
  std::deque<Outgoing> outbox_ ABSL_GUARDED_BY(mutex_);
  std::deque<v1::LearnerMessage> inbox_ ABSL_GUARDED_BY(mutex_);
  std::optional<absl::Status> end_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace troupe::rpc
