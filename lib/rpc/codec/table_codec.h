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

/// The pieces of a table's JSON, in order. RESOURCE_EXHAUSTED: more than kMaxPolicyTableBytes of it.
absl::StatusOr<std::vector<v1::PolicyTable>> TableChunks(const policy::PolicyTable& table);

/// Puts the chunks of one stream's tables together. Used by one thread.
class TableAssembler {
 public:
  /// `above`: what the first revision has to be above; Rollout does not send the first table of a run, which is 0.
  explicit TableAssembler(int64_t above = 0) : revision_(above) {}
  /// The table that `chunk` completes, or nullptr. INVALID_ARGUMENT, before memory is taken, for a size or an order
  /// that is not the protocol's and a revision that is not above the one before; for JSON that is no table of that
  /// revision.
  absl::StatusOr<policy::PolicyTablePtr> Add(const v1::PolicyTable& chunk);

 private:
  int64_t revision_;  ///< of the last whole table, or the one that is being received
  size_t total_bytes_ = 0;
  bool receiving_ = false;
  std::string json_;
};

}  // namespace troupe::rpc
