#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace troupe::storage {

/// File of a run folder: where its learner is found. A learner that was killed leaves it behind.
inline constexpr char kAddressFile[] = "address";

/// What the file says. As text: an address that the learner listens at a line, then "control PATH", then "host NAME".
struct RunAddress {
  std::vector<std::string> listen;  ///< as the learner has them: "0.0.0.0:50051", "unix:/tmp/x.sock"; none: it has none
  std::string control;              ///< the control socket; relative to the run folder, or absolute
  std::string host;                 ///< the machine's or container's name for itself
};

std::string ToText(const RunAddress& address);
/// Takes any text: lines that say nothing are left out.
RunAddress ParseRunAddress(std::string_view text);

/// This machine's or container's name for itself.
std::string HostName();

}  // namespace troupe::storage
