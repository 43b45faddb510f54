#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "lib/base/caller.h"
#include "lib/base/clock.h"
#include "lib/base/mutex.h"
#include "lib/rpc/stream_registry.h"
#include "lib/rpc/weight_bus.h"
#include "proto/troupe/v1/weights.pb.h"
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

namespace troupe::rpc {

/// What all Weights streams of a server share. Outlives them.
struct WeightContext {
  WeightBus* bus = nullptr;
  StreamRegistry* registry = nullptr;
  base::Clock* clock = nullptr;
  uint64_t spec_hash = 0;
  /// Called with gRPC's name for the connection of an accepted subscription.
  std::function<void(const std::string&)> on_worker;
};

/// One subscriber's Weights stream, as the server sees it. Holds at most the version being written and one newer a
/// policy: latest wins. One read and one write are in flight. Made per call; belongs to itself until gRPC is done with
/// it. Thread-safe; never blocks.
/// Invariant: an announcement of version v is written when every weight that was published up to v, and every one that
/// the requests it counts have asked for, has been written.
class WeightReactor final : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>,
                            public WeightListener,
                            public ServedStream,
                            public std::enable_shared_from_this<WeightReactor> {
 public:
  static WeightReactor* Start(const WeightContext* context, base::Caller caller, std::string connection);

  void OnWeights(const PublishedWeightsPtr& weights) override;
  void OnVersion(policy::WeightVersion version) override;
  void End(const absl::Status& status) override;
  void CheckProgress(absl::Duration now) override;

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  WeightReactor(const WeightContext* context, base::Caller caller, std::string connection)
      : context_(context),
        caller_(std::move(caller)),
        connection_(std::move(connection)),
        started_at_(context->clock->SteadyNow()) {}
  absl::Status HandleRequest(const grpc::ByteBuffer& bytes);
  absl::StatusOr<WeightBus::Known> Subscribe(const v1::SubscribeRequest& request);
  void TakeLocked(const PublishedWeightsPtr& weights) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AnnounceLocked(policy::WeightVersion version) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Pump();

  const WeightContext* const context_;
  const base::Caller caller_;
  const std::string connection_;
  const absl::Duration started_at_;
  std::shared_ptr<WeightReactor> self_;  ///< until OnDone

  // Confined to the read reaction.
  grpc::ByteBuffer incoming_;
  std::optional<uint64_t> last_number_;  ///< of the requests

  base::Mutex mutex_;
  bool subscribed_ ABSL_GUARDED_BY(mutex_) = false;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool end_requested_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status end_status_ ABSL_GUARDED_BY(mutex_);
  PublishedWeightsPtr current_ ABSL_GUARDED_BY(mutex_);  ///< whose chunks are being written
  size_t next_chunk_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<policy::PolicySlot, PublishedWeightsPtr> pending_ ABSL_GUARDED_BY(mutex_);
  uint64_t number_ ABSL_GUARDED_BY(mutex_) = 0;  ///< of the newest request whose weights are pending or written
  policy::WeightVersion version_ ABSL_GUARDED_BY(mutex_);  ///< announced by the bus last
  bool announce_ ABSL_GUARDED_BY(mutex_) = false;          ///< (version_, number_) has not been written
  /// In flight while writing_; changed only by who set writing_.
  grpc::ByteBuffer outgoing_;
};

}  // namespace troupe::rpc
