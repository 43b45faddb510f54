#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "lib/rpc/control/policy_listing.h"
#include "lib/rpc/transport/transport.h"
#include "lib/rpc/worker/run_status.h"

namespace troupe::rpc {

/// Looks at a running learner, for `troupe status`, `policy ls`, `mapping show` and scripts. Thread-safe; every call
/// makes a connection and blocks up to its deadline. UNAVAILABLE: nobody answers there.
class MonitorClient {
 public:
  /// At an address that it listens at: what everybody may see.
  static absl::StatusOr<std::unique_ptr<MonitorClient>> Create(const std::string& address,
                                                               const TransportSecurity& security);
  /// At the control socket at `path`: everything. Calls have DialControl's errors, too.
  static std::unique_ptr<MonitorClient> AtControlSocket(const std::string& path);

  absl::StatusOr<RunStatus> Status(absl::Duration timeout);
  absl::StatusOr<PoliciesAnswer> Policies(absl::Duration timeout);

 private:
  using Connect = std::function<absl::StatusOr<std::shared_ptr<grpc::Channel>>()>;
  MonitorClient(std::string learner, Connect connect) : learner_(std::move(learner)), connect_(std::move(connect)) {}

  const std::string learner_;  ///< in errors
  const Connect connect_;
};

}  // namespace troupe::rpc
