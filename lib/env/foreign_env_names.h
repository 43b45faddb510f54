#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace troupe::env {

/// What an environment that Gymnasium, PettingZoo or their kin know as `name` is called here: "write
/// python:gymnasium:CartPole-v1 (Gymnasium's)", "write mpe/simple_spread (native) or python:mpe2.simple_spread_v3
/// (mpe2's)". Natives are offered where `known` has them. Empty: the name has none of their forms.
std::string ForeignEnvName(std::string_view name, const std::vector<std::string>& known);

}  // namespace troupe::env
