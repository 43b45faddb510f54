#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "lib/policy/policy_change.h"
#include "lib/policy/policy_table.h"
#include "lib/rpc/address.h"
#include "lib/rpc/transport.h"
#include "proto/troupe/v1/control.grpc.pb.h"

namespace troupe::rpc {

/// Asks a running learner, for `troupe status`, `policy`, `mapping` and scripts. Thread-safe; every call blocks up to
/// its deadline. UNAVAILABLE: nobody answers at the address.
class ControlClient {
 public:
  static absl::StatusOr<std::unique_ptr<ControlClient>> Create(const std::string& address,
                                                               const TransportSecurity& security);

  absl::StatusOr<v1::StatusReply> Status(absl::Duration timeout);
  /// The env steps that name the checkpoint, once it is durable.
  absl::StatusOr<int64_t> Checkpoint(absl::Duration timeout);
  /// The learner ends as after SIGTERM.
  absl::Status Drain(const std::string& reason, absl::Duration timeout);
  absl::StatusOr<policy::PolicyTablePtr> Policies(absl::Duration timeout);
  /// The revision of the table with the change, once it is done. Errors: Control.ChangePolicies'.
  absl::StatusOr<int64_t> ChangePolicies(const policy::PolicyChange& change, absl::Duration timeout);

 private:
  ControlClient(Address address, TransportSecurity security) : address_(std::move(address)), security_(security) {}

  absl::Status Named(const grpc::Status& status) const;

  absl::StatusOr<std::unique_ptr<v1::Control::Stub>> Connect() const;

  const Address address_;
  const TransportSecurity security_;
};

}  // namespace troupe::rpc
