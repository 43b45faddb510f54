#pragma once

#include <string>

#include <nlohmann/json.hpp>

namespace troupe::envhost {

/// The text of this name in a line of the control channel; empty where there is none.
inline std::string TextOf(const nlohmann::json& message, const char* name) {
  const auto found = message.find(name);
  return found != message.end() && found->is_string() ? found->get<std::string>() : "";
}

}  // namespace troupe::envhost
