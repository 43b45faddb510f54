#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace troupe::services {

/// The command line of troupe-learner. Plain value.
struct LearnerFlags {
  std::string config_path;             ///< empty only with `resume`
  std::vector<std::string> overrides;  ///< "a.b=c"
  int num_workers = -1;                ///< --workers; -1: as configured
  std::string name;                    ///< experiment_name; empty: as configured
  std::string directory;               ///< experiment.directory; empty: as configured
  std::string python;                  ///< env.python.interpreter; empty: as configured
  std::string resume;                  ///< a run folder, or a run's name inside experiment.directory
  bool resume_or_start = false;        ///< go on with the run of that name when it is there
  std::string start_over;              ///< the run of that name is moved away and begins anew
  std::string warm_start;              ///< a checkpoint directory or a run folder: weights alone
  std::vector<std::string> listen;     ///< addresses to serve on
  bool insecure_plaintext_network = false;
  double linger_s = 0;  ///< after the run has ended: goes on telling workers that come late
  std::string log_level = "info";
};

/// Parses argv. OUT_OF_RANGE carries the text of --help or --version, to be printed with exit code 0; INVALID_ARGUMENT
/// says what is wrong.
absl::StatusOr<LearnerFlags> ParseLearnerFlags(int argc, const char* const* argv);

}  // namespace troupe::services
