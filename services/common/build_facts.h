#pragma once

#include <string>

namespace troupe::services {

/// Where this program comes from. Plain value.
struct BuildFacts {
  std::string version;     ///< "0.1.0"
  std::string commit;      ///< "1ac991967d0a", " with changes" behind it when files differ from it; empty: not known
  std::string build_type;  ///< "Release"
  std::string compiler;    ///< "GNU 12.2.0"

  /// "troupe 0.1.0 (commit 1ac991967d0a, Release build, GNU 12.2.0)".
  std::string ToString() const;
};

/// Those of this program.
BuildFacts OwnBuildFacts();

}  // namespace troupe::services
