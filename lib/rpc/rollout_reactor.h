#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "lib/base/caller.h"
#include "lib/base/clock.h"
#include "lib/base/mutex.h"
#include "lib/learner/ports.h"
#include "lib/rpc/fragment_codec.h"
#include "lib/rpc/learner_endpoint.h"
#include "lib/rpc/outbox.h"
#include "lib/rpc/stream_registry.h"
#include "lib/rpc/table_codec.h"
#include "proto/troupe/v1/rollout.pb.h"
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

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
/// Made per call, owned by itself until gRPC is done with it, then by whoever still holds the port (which is deaf by
/// then). Reads are decoded in gRPC's thread, one at a time; one write is in flight. Sends are thread-safe and never
/// block. Invariants: 1. Welcome or Refusal is the first message down. 2. Finish is called once, with no write in
/// flight. 3. After OnDone no gRPC operation starts. States: hello awaited -> joined -> ending -> done. Capacity:
/// 65,536 messages down; a peer that lets more pile up is ended with RESOURCE_EXHAUSTED.
class RolloutReactor final : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>,
                             public learner::WorkerPort,
                             public ServedStream,
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
  void End(const absl::Status& status) override;
  void CheckProgress(absl::Duration now) override;

  // grpc::ServerBidiReactor
  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  RolloutReactor(const RolloutContext* context, base::Caller caller, std::string connection)
      : context_(context),
        caller_(std::move(caller)),
        connection_(std::move(connection)),
        started_at_(context->clock->SteadyNow()) {}

  /// The status that ends the stream, or OK to read on.
  absl::Status HandleMessage(const grpc::ByteBuffer& bytes);
  absl::Status HandleHello(const v1::Hello& hello);
  absl::Status HandleFragment(const v1::Fragment& header, const SplitMessage& split, const SliceList& list);
  absl::Status Refuse(v1::RefusalReason reason, const absl::Status& why);

  void Send(const v1::LearnerMessage& message, bool opening = false);
  void QueueLocked(grpc::ByteBuffer bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Pump();
  bool ending();

  const RolloutContext* const context_;
  const base::Caller caller_;
  const std::string connection_;
  const absl::Duration started_at_;
  std::shared_ptr<RolloutReactor> self_;  ///< until OnDone

  // Confined to the read reaction.
  grpc::ByteBuffer incoming_;
  bool said_goodbye_ = false;
  std::string goodbye_;

  base::Mutex mutex_;
  bool joined_ ABSL_GUARDED_BY(mutex_) = false;
  learner::WorkerTicket ticket_ ABSL_GUARDED_BY(mutex_);
  int64_t sent_revision_ ABSL_GUARDED_BY(mutex_) = 0;  ///< of the newest policy table that was queued
  bool opened_ ABSL_GUARDED_BY(mutex_) = false;        ///< Welcome or Refusal is queued: others may follow
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool end_requested_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status end_status_ ABSL_GUARDED_BY(mutex_);
  Outbox outbox_ ABSL_GUARDED_BY(mutex_);
  /// In flight while writing_; changed only by who set writing_.
  grpc::ByteBuffer outgoing_;
};

}  // namespace troupe::rpc
