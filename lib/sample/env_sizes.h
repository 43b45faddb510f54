#pragma once

#include <cstdint>

namespace troupe::sample {

/// The sizes that the forms of columns follow from, beside a policy's spec. Plain value.
struct EnvSizes {
  int64_t env_state_size = 0;    ///< elements of a per-env state that is sent; 0: none
  int64_t agent_state_size = 0;  ///< elements of a per-agent state; 0: none
  bool has_agent_mask = false;
  bool send_agent_state = false;  ///< also of policies whose critics do not read it
};

}  // namespace troupe::sample
