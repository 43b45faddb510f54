#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "lib/base/await.h"
#include "lib/rpc/transport/transport.h"
#include "lib/serving/action_query.h"
#include "proto/troupe/v1/query.grpc.pb.h"
#include <grpcpp/client_context.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/generic/generic_stub.h>

namespace troupe::rpc {

/// A stream of queries: one after the other, for who asks again and again. Used by one thread; made by QueryClient,
/// which need not outlive it. After UNAVAILABLE, DEADLINE_EXCEEDED, CANCELLED and INTERNAL it is over; another one is
/// to be opened.
class QueryStreamClient {
 public:
  QueryStreamClient(std::string server, std::shared_ptr<grpc::Channel> channel);
  /// Cancels the stream, and waits until it is over.
  ~QueryStreamClient();
  QueryStreamClient(const QueryStreamClient&) = delete;
  QueryStreamClient& operator=(const QueryStreamClient&) = delete;

  /// As QueryClient's. What the server refuses ends nothing.
  absl::StatusOr<serving::ActionAnswer> ComputeActions(const serving::ActionQuery& query, absl::Duration timeout);
  bool over() const { return over_; }

 private:
  /// Waits for the one operation in flight.
  absl::Status AwaitOperation(const base::Deadline& deadline);
  /// Why an operation failed.
  absl::Status Close();

  const std::string server_;
  const std::shared_ptr<grpc::Channel> channel_;
  grpc::GenericStub stub_;
  grpc::ClientContext context_;
  grpc::CompletionQueue queue_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;
  bool started_ = false, over_ = false;
};

/// Asks a learner or a policy server for actions, over one connection that is kept. Thread-safe; a call blocks up to
/// its deadline. UNAVAILABLE: nobody answers at the address, or the connection broke; try again.
class QueryClient {
 public:
  /// Connects with the first call. FAILED_PRECONDITION: plain text on the network without its flag.
  static absl::StatusOr<std::unique_ptr<QueryClient>> Create(const std::string& address,
                                                             const TransportSecurity& security);

  /// Status codes as the proto says, INTERNAL for an answer that makes no sense; messages begin with the server's
  /// address.
  absl::StatusOr<serving::ActionAnswer> ComputeActions(const serving::ActionQuery& query, absl::Duration timeout);

  /// The policies `ids`, or all. Errors as above.
  absl::StatusOr<serving::PolicyDescriptions> DescribePolicies(const std::vector<policy::PolicyId>& ids,
                                                               absl::Duration timeout);

  /// All policies: of each id and versions alone. Errors as above.
  absl::StatusOr<serving::PolicyDescriptions> ListPolicies(absl::Duration timeout);
  /// Connects with its first query.
  std::unique_ptr<QueryStreamClient> OpenStream() const;

 private:
  QueryClient(std::string address, const std::shared_ptr<grpc::Channel>& channel)
      : address_(std::move(address)), channel_(channel) {}

  const std::string address_;
  const std::shared_ptr<grpc::Channel> channel_;
};

}  // namespace troupe::rpc
