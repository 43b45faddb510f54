#pragma once

#include "absl/time/time.h"
#include <grpc/support/time.h>

namespace troupe::rpc {

/// `timeout` from now as gRPC takes deadlines, on the steady clock: one told by the wall clock would move with it.
gpr_timespec GrpcDeadline(absl::Duration timeout);

}  // namespace troupe::rpc
