#pragma once

#include "proto/troupe/v1/monitor.pb.h"

namespace troupe::rpc {

/// `status` as it may be told to anybody: texts are dropped unless a list in the source names them, so a text field
/// that is new stays here until somebody decides about it; of numbers, those that are configuration are dropped.
void WithholdFromAnybody(v1::StatusReply* status);

}  // namespace troupe::rpc
