#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "lib/rpc/transport.h"
#include "lib/serving/action_query.h"
#include "proto/troupe/v1/query.grpc.pb.h"

namespace troupe::rpc {

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

 private:
  QueryClient(std::string address, const std::shared_ptr<grpc::Channel>& channel)
      : address_(std::move(address)), channel_(channel) {}

  const std::string address_;
  const std::shared_ptr<grpc::Channel> channel_;
};

}  // namespace troupe::rpc
