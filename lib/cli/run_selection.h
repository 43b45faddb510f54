#pragma once

#include <string>
#include <vector>

#include "absl/types/span.h"
#include "lib/cli/run_curves.h"
#include "lib/cli/run_record.h"

namespace troupe::cli {

/// What a command that reads runs does not take, and why.
struct LeftOut {
  std::string name;
  std::string why;
};

/// Runs that are compared or drawn.
struct RunSelection {
  std::vector<RunRecord> runs;  ///< by name
  std::vector<LeftOut> left_out;
};

/// `runs` without evaluations, and each folder once: where several names lead to one (a link "latest"), its own name
/// stays. Looks at the folders.
RunSelection SelectRuns(std::vector<RunRecord> runs);

/// What of the folder `directory` its listing does not have.
std::vector<LeftOut> NotListed(const RunListing& listing, const std::string& directory);

/// A sentence for each seed that several runs of the group have, whose mean takes them for independent.
std::vector<std::string> SharedSeeds(const RunGroup& group, absl::Span<const RunRecord> runs);

}  // namespace troupe::cli
