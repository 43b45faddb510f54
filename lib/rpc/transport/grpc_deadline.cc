#include "lib/rpc/transport/grpc_deadline.h"

#include <algorithm>
#include <cstdint>

namespace troupe::rpc {

gpr_timespec GrpcDeadline(absl::Duration timeout) {
  const int64_t left_ns = std::max<int64_t>(absl::ToInt64Nanoseconds(timeout), 0);
  return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_nanos(left_ns, GPR_TIMESPAN));
}

}  // namespace troupe::rpc
