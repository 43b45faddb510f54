#pragma once

#include <cstdint>

namespace troupe::training {

/// The parameters that a network is run with.
enum class Net : uint8_t {
  kOnline = 1,
  kTarget = 2,  ///< NetworkSpec::has_target; nothing is differentiated through them
};

}  // namespace troupe::training
