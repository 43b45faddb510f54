#pragma once

#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/base/mutex.h"
#include "lib/rpc/transport/transport.h"
#include "lib/serving/weight_sink.h"
#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>

namespace troupe::rpc {

/// A subscription to all policies of a learner and their newest weights, as a worker's (Weights.Subscribe), but of one
/// that plays nothing. Made and owned by services/policy_server, which calls Follow in a thread of its own, again and
/// again. Thread-safe. States: idle -> following (Follow) -> idle; stopped (Stop) for good.
class WeightFollower {
 public:
  /// Errors as QueryClient::Create.
  static absl::StatusOr<std::unique_ptr<WeightFollower>> Create(const std::string& address,
                                                                const TransportSecurity& security);

  /// Blocks while the stream stands; why it ended: what `sink` said; UNAVAILABLE: the learner is gone, or not there;
  /// FAILED_PRECONDITION: another protocol; INVALID_ARGUMENT, DATA_LOSS: its words are none; CANCELLED: stopped.
  /// Messages begin with the learner's address. One thread at a time.
  absl::Status Follow(serving::WeightSink* sink);
  /// Ends Follow, now and later. Never blocks.
  void Stop();

 private:
  WeightFollower(std::string address, std::shared_ptr<grpc::Channel> channel)
      : address_(std::move(address)), channel_(std::move(channel)) {}
  absl::Status FollowStream(grpc::ClientContext* context, serving::WeightSink* sink);

  const std::string address_;
  const std::shared_ptr<grpc::Channel> channel_;
  base::Mutex mutex_;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  grpc::ClientContext* context_ ABSL_GUARDED_BY(mutex_) = nullptr;  ///< of the stream that stands
};

}  // namespace troupe::rpc
