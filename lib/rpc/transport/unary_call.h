#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "lib/base/status_macros.h"
#include "lib/rpc/transport/convert.h"
#include "lib/rpc/transport/limits.h"
#include "lib/rpc/transport/parsed_size.h"
#include <google/protobuf/message.h>
#include <grpcpp/channel.h>
#include <grpcpp/support/byte_buffer.h>

namespace troupe::rpc {

/// One call of `method` ("/package.Service/Method") with the bytes of its request; blocks up to `timeout`.
absl::StatusOr<grpc::ByteBuffer> CallBytes(const std::shared_ptr<grpc::Channel>& channel, const std::string& method,
                                           const grpc::ByteBuffer& request, absl::Duration timeout);

/// Asks a learner once; blocks up to `timeout`. `learner` says in errors which one: "learner at ADDRESS". An answer
/// that is beyond kAnswerLimit is RESOURCE_EXHAUSTED: whoever is at the address may have sent it.
template <typename Service, typename Reply>
absl::StatusOr<Reply> CallUnary(const std::shared_ptr<grpc::Channel>& channel, const char* method,
                                const google::protobuf::Message& request, absl::Duration timeout,
                                const std::string& learner) {
  Reply reply;
  const auto ask = [&]() -> absl::Status {
    TROUPE_ASSIGN_OR_RETURN(
        const grpc::ByteBuffer answer,
        CallBytes(channel, absl::StrCat("/", Service::service_full_name(), "/", method), Serialize(request), timeout));
    return ParseBounded(answer, kAnswerLimit, &reply);
  };
  const absl::Status status = ask();
  if (!status.ok()) return absl::Status(status.code(), absl::StrCat(learner, ": ", status.message()));
  return reply;
}

}  // namespace troupe::rpc
