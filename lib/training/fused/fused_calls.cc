#include "lib/training/fused/fused_calls.h"

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"

namespace troupe::training::fused {

absl::StatusOr<NetworkInUse> FindNetworkInUse(const Workspace& space, const NetworkCall& call) {
  NetworkInUse used;
  if (call.network == "actor") {
    used = {&space.actor, &Worker::actor};
  } else if (call.network == "critic") {
    used = {&space.critic, &Worker::critic};
  } else {
    return absl::InvalidArgumentError(
        absl::StrCat("the policy has no network \"", std::string(call.network), "\"; expected actor or critic"));
  }
  if (used.network->remembers()) {
    return absl::UnimplementedError(absl::StrCat("rows alone do not say what the ", std::string(call.network),
                                                 ", a network with a core, remembers"));
  }
  if (call.inputs.columns != used.network->inputs()) {
    return absl::InvalidArgumentError(absl::StrCat("inputs of the ", std::string(call.network), " have ",
                                                   call.inputs.columns, " columns; expected ", used.network->inputs()));
  }
  if (static_cast<int64_t>(call.parameters.size()) != space.parameters) {
    return absl::InvalidArgumentError(
        absl::StrCat("a block of ", call.parameters.size(), " parameters; expected ", space.parameters));
  }
  used.first = used.network->layers.front().weight;
  used.end = used.network->layers.back().bias + used.network->outputs();
  return used;
}

}  // namespace troupe::training::fused
