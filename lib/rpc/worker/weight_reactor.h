#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "lib/base/caller.h"
#include "lib/base/clock.h"
#include "lib/rpc/transport/stream_pump.h"
#include "lib/rpc/transport/stream_registry.h"
#include "lib/rpc/worker/weight_bus.h"
#include "proto/troupe/v1/weights.pb.h"
#include <grpcpp/support/byte_buffer.h>

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
/// policy: latest wins. Made per call, owned as a StreamPump. Thread-safe; never blocks.
/// Invariant, besides StreamPump's: an announcement of version v is written when every weight that was published up to
/// v, and every one that the requests it counts have asked for, has been written.
class WeightReactor final : public StreamPump,
                            public WeightListener,
                            public std::enable_shared_from_this<WeightReactor> {
 public:
  /// Starts reading. The result belongs to gRPC. `connection`: gRPC's name for it.
  static WeightReactor* Start(const WeightContext* context, base::Caller caller, std::string connection);

  // WeightListener
  void OnWeights(const PublishedWeightsPtr& weights) override;
  void OnVersion(policy::WeightVersion version) override;
  void OnPolicies(const policy::PolicyTablePtr& policies) override;

  // ServedStream
  void End(const absl::Status& status) override;
  void CheckProgress(absl::Duration now) override;

 private:
  WeightReactor(const WeightContext* context, base::Caller caller, std::string connection)
      : StreamPump({"weights", "subscriber"}, std::move(caller), context->registry),
        context_(context),
        connection_(std::move(connection)),
        started_at_(context->clock->SteadyNow()) {}

  // StreamPump
  std::optional<Message> NextLocked() override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status HandleMessage(const grpc::ByteBuffer& bytes) override;
  void OnReadsOver() override;
  void OnWriteFailed() override;
  void OnOver() override;

  absl::StatusOr<WeightBus::Known> Subscribe(const v1::SubscribeRequest& request);
  void TakePoliciesLocked(const policy::PolicyTablePtr& policies) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TakeLocked(const PublishedWeightsPtr& weights) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AnnounceLocked(policy::WeightVersion version) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const WeightContext* const context_;
  const std::string connection_;
  const absl::Duration started_at_;
  std::optional<uint64_t> last_number_;  ///< of the requests; confined to the read reaction

  bool subscribed_ ABSL_GUARDED_BY(mutex_) = false;
  bool wants_policies_ ABSL_GUARDED_BY(mutex_) = false;
  policy::PolicyTablePtr policies_ ABSL_GUARDED_BY(mutex_);             ///< the newest that were taken
  std::deque<grpc::ByteBuffer> policy_chunks_ ABSL_GUARDED_BY(mutex_);  ///< of at most two tables, to be written
  size_t chunks_of_begun_table_ ABSL_GUARDED_BY(mutex_) = 0;            ///< the first of them
  PublishedWeightsPtr current_ ABSL_GUARDED_BY(mutex_);                 ///< whose chunks are being written
  size_t next_chunk_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<policy::PolicySlot, PublishedWeightsPtr> pending_ ABSL_GUARDED_BY(mutex_);
  uint64_t number_ ABSL_GUARDED_BY(mutex_) = 0;  ///< of the newest request whose weights are pending or written
  policy::WeightVersion version_ ABSL_GUARDED_BY(mutex_);  ///< announced by the bus last
  bool announce_ ABSL_GUARDED_BY(mutex_) = false;          ///< (version_, number_) has not been written
};

}  // namespace troupe::rpc
