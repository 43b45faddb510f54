#include "lib/rpc/query_client.h"

#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"
#include "lib/rpc/address.h"
#include "lib/rpc/query_codec.h"
#include "lib/rpc/unary_call.h"

namespace troupe::rpc {

absl::StatusOr<std::unique_ptr<QueryClient>> QueryClient::Create(const std::string& address,
                                                                 const TransportSecurity& security) {
  TROUPE_ASSIGN_OR_RETURN(const Address parsed, ParseAddress(address));
  TROUPE_ASSIGN_OR_RETURN(const std::shared_ptr<grpc::Channel> channel, MakeChannel(parsed, security));
  return std::unique_ptr<QueryClient>(new QueryClient(parsed.text, channel));
}

absl::StatusOr<serving::ActionAnswer> QueryClient::ComputeActions(const serving::ActionQuery& query,
                                                                  absl::Duration timeout) {
  const std::string server = absl::StrCat("server at ", address_);
  TROUPE_ASSIGN_OR_RETURN(
      const v1::ComputeActionsReply reply,
      (CallUnary<v1::Query, v1::ComputeActionsReply>(channel_, "ComputeActions", ToProto(query), timeout, server)));
  absl::StatusOr<serving::ActionAnswer> answer = FromProto(reply, query);
  if (answer.ok()) return answer;
  return absl::InternalError(absl::StrCat(server, ": ", answer.status().message()));
}

absl::StatusOr<serving::PolicyDescriptions> QueryClient::DescribePolicies(const std::vector<policy::PolicyId>& ids,
                                                                          absl::Duration timeout) {
  const std::string server = absl::StrCat("server at ", address_);
  v1::DescribePoliciesRequest request;
  for (const policy::PolicyId& id : ids) request.add_policy_ids(id.value());
  TROUPE_ASSIGN_OR_RETURN(
      const v1::DescribePoliciesReply reply,
      (CallUnary<v1::Query, v1::DescribePoliciesReply>(channel_, "DescribePolicies", request, timeout, server)));
  absl::StatusOr<serving::PolicyDescriptions> descriptions = FromProto(reply);
  if (descriptions.ok()) return descriptions;
  return absl::InternalError(absl::StrCat(server, ": ", descriptions.status().message()));
}

}  // namespace troupe::rpc
