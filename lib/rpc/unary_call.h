#pragma once

#include <chrono>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "lib/rpc/transport.h"
#include <grpcpp/client_context.h>

namespace troupe::rpc {

/// Asks a learner once; blocks up to `timeout`. `learner` says in errors which one: "learner at ADDRESS".
template <typename Stub, typename Request, typename Reply>
absl::StatusOr<Reply> CallUnary(grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Reply*), Stub& stub,
                                const Request& request, absl::Duration timeout, const std::string& learner) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + absl::ToChronoMilliseconds(timeout));
  Reply reply;
  const absl::Status status = FromGrpc((stub.*method)(&context, request, &reply));
  if (!status.ok()) return absl::Status(status.code(), absl::StrCat(learner, ": ", status.message()));
  return reply;
}

}  // namespace troupe::rpc
