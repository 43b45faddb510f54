#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lib/run/learner/run_setup.h"

namespace troupe::services {

/// The command line of troupe-learner. Plain value.
struct LearnerFlags {
  run::RunRequest run;
  std::vector<std::string> listen;  ///< addresses to serve on
  bool insecure_plaintext_network = false;
  double linger_s = 0;         ///< after the run has ended: goes on telling workers that come late
  std::optional<int> line_fd;  ///< a pipe with lines of other processes that have this one's terminal
  std::string log_level = "info";
};

/// Parses argv. OUT_OF_RANGE carries the text of --help or --version, to be printed with exit code 0; INVALID_ARGUMENT
/// says what is wrong.
absl::StatusOr<LearnerFlags> ParseLearnerFlags(int argc, const char* const* argv);

}  // namespace troupe::services
