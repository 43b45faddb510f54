#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "lib/base/caller.h"
#include "lib/base/clock.h"
#include "lib/learner/ports.h"
#include "lib/rpc/codec/fragment_codec.h"
#include "lib/rpc/codec/table_codec.h"
#include "lib/rpc/transport/outbox.h"
#include "lib/rpc/transport/stream_pump.h"
#include "lib/rpc/transport/stream_registry.h"
#include "lib/rpc/worker/learner_endpoint.h"
#include "proto/troupe/v1/rollout.pb.h"
#include <grpcpp/support/byte_buffer.h>

namespace troupe::rpc {

/// What all Rollout streams of a server share. Outlives them.
struct RolloutContext {
  LearnerEndpoint* endpoint = nullptr;
  const FragmentDecoder* decoder = nullptr;
  TableEncoder* tables = nullptr;
  StreamRegistry* registry = nullptr;
  base::Clock* clock = nullptr;
  uint64_t spec_hash = 0;
  std::string config_yaml;
  uint64_t credit_bytes = 0;
  /// Called when a worker has registered: ends its older stream, if there is one.
  std::function<void(sample::WorkerId, std::shared_ptr<ServedStream>)> on_joined;
  /// Called with gRPC's name for the connection that a worker has registered over.
  std::function<void(const std::string&)> on_worker;
};

/// One worker's Rollout stream, as the server sees it: a shell around LearnerEndpoint, and the learner's port to the
/// worker.
///
/// Made per call, owned as a StreamPump: the port is deaf once gRPC is done with it. Reads are decoded in gRPC's
/// thread, one at a time; one write is in flight. Sends are thread-safe and never block. Invariants, besides
/// StreamPump's: Welcome or Refusal is the first message down; what is queued is sent before the stream finishes,
/// unless the worker is gone. States: hello awaited -> joined -> ending -> done. Capacity: Outbox's; a peer that lets
/// more pile up is ended with RESOURCE_EXHAUSTED.
class RolloutReactor final : public StreamPump,
                             public learner::WorkerPort,
                             public std::enable_shared_from_this<RolloutReactor> {
 public:
  /// Starts reading. The result belongs to gRPC. `connection`: gRPC's name for it.
  static RolloutReactor* Start(const RolloutContext* context, base::Caller caller, std::string connection);

  // learner::WorkerPort
  void SendGrant(const sample::Grant& grant) override;
  void SendGrantOver(sample::GrantId grant) override;
  void SendAck(const sample::FragmentAck& ack) override;
  void SendDrain(const std::string& reason) override;

  // ServedStream
  void CheckProgress(absl::Duration now) override;

 private:
  RolloutReactor(const RolloutContext* context, base::Caller caller, std::string connection)
      : StreamPump({"rollout", "worker"}, std::move(caller), context->registry),
        context_(context),
        connection_(std::move(connection)),
        started_at_(context->clock->SteadyNow()) {}

  // StreamPump
  std::optional<Message> NextLocked() override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status HandleMessage(const grpc::ByteBuffer& bytes) override;
  void OnReadsOver() override;
  void OnOver() override;

  // The status that ends the stream, or OK to read on.
  absl::Status HandleHello(const v1::Hello& hello);
  absl::Status HandleFragment(const v1::Fragment& header, const SplitMessage& split, const SliceList& list);
  absl::Status Refuse(v1::RefusalReason reason, const absl::Status& why);

  void Send(const v1::LearnerMessage& message, bool opening = false);
  void QueueLocked(grpc::ByteBuffer bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const RolloutContext* const context_;
  const std::string connection_;
  const absl::Duration started_at_;

  // Confined to the read reaction.
  bool said_goodbye_ = false;
  std::string goodbye_;

  bool joined_ ABSL_GUARDED_BY(mutex_) = false;
  learner::WorkerTicket ticket_ ABSL_GUARDED_BY(mutex_);
  int64_t sent_revision_ ABSL_GUARDED_BY(mutex_) = 0;  ///< of the newest policy table that was queued
  bool opened_ ABSL_GUARDED_BY(mutex_) = false;        ///< Welcome or Refusal is queued: others may follow
  Outbox outbox_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace troupe::rpc
