#pragma once

#include <map>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "lib/base/mutex.h"
#include "lib/rpc/stream_registry.h"
#include "lib/rpc/weight_bus.h"
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

namespace troupe::rpc {

/// What all Weights streams of a server share. Outlives them.
struct WeightContext {
  WeightBus* bus = nullptr;
  StreamRegistry* registry = nullptr;
  uint64_t spec_hash = 0;
};

/// One subscriber's Weights stream, as the server sees it. Holds at most the version being written and one newer a
/// policy: latest wins. One write is in flight. Made per call; belongs to itself until gRPC is done with it.
/// Thread-safe; never blocks.
class WeightReactor final : public grpc::ServerWriteReactor<grpc::ByteBuffer>,
                            public WeightListener,
                            public ServedStream,
                            public std::enable_shared_from_this<WeightReactor> {
 public:
  static WeightReactor* Start(const WeightContext* context, const grpc::ByteBuffer& request);

  void OnWeights(policy::PolicySlot slot, const EncodedWeightsPtr& weights) override;
  void End(const absl::Status& status) override;
  void CheckProgress(absl::Duration) override {}

  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  explicit WeightReactor(const WeightContext* context) : context_(context) {}
  absl::Status Subscribe(const grpc::ByteBuffer& request);
  void Pump();

  const WeightContext* const context_;
  std::shared_ptr<WeightReactor> self_;  ///< until OnDone

  base::Mutex mutex_;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool end_requested_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status end_status_ ABSL_GUARDED_BY(mutex_);
  EncodedWeightsPtr current_ ABSL_GUARDED_BY(mutex_);  ///< whose chunks are being written
  size_t next_chunk_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<policy::PolicySlot, EncodedWeightsPtr> pending_ ABSL_GUARDED_BY(mutex_);
  /// In flight while writing_; changed only by who set writing_.
  grpc::ByteBuffer outgoing_;
};

}  // namespace troupe::rpc
