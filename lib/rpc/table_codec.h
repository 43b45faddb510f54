#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "lib/base/mutex.h"
#include "lib/policy/policy_table.h"
#include "proto/troupe/v1/rollout.pb.h"
#include <grpcpp/support/byte_buffer.h>

namespace troupe::rpc {

/// A PolicyTable carries at most so much of the JSON.
inline constexpr size_t kTableChunkBytes = size_t{512} << 10;

/// Policy tables in their wire form, made once for all workers. Keeps the newest one. Thread-safe.
class TableEncoder {
 public:
  using Messages = std::shared_ptr<const std::vector<grpc::ByteBuffer>>;

  /// The LearnerMessages that carry `table`. RESOURCE_EXHAUSTED: more than kMaxPolicyTableBytes of JSON.
  absl::StatusOr<Messages> Encode(const policy::PolicyTablePtr& table);

 private:
  base::Mutex mutex_;
  policy::PolicyTablePtr newest_ ABSL_GUARDED_BY(mutex_);
  Messages messages_ ABSL_GUARDED_BY(mutex_);
};

/// Puts the chunks of one Rollout stream's tables together. Used by one thread.
class TableAssembler {
 public:
  /// The table that `chunk` completes, or nullptr. INVALID_ARGUMENT, before memory is taken, for a size or an order
  /// that is not the protocol's and a revision that is not above the one before; for JSON that is no table of that
  /// revision.
  absl::StatusOr<policy::PolicyTablePtr> Add(const v1::PolicyTable& chunk);

 private:
  int64_t revision_ = 0;  ///< of the last whole table, or the one that is being received
  size_t total_bytes_ = 0;
  bool receiving_ = false;
  std::string json_;
};

}  // namespace troupe::rpc
