#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace troupe::cli {

/// Path of the running program.
std::string OwnPath();

/// troupe-learner beside this program (installed, or in a bundle, where it is the launcher that looks for LibTorch), in
/// the build tree's services/learner, or on the PATH. NOT_FOUND where the build has no LibTorch.
absl::StatusOr<std::string> FindLearnerProgram();

/// What a learner takes at least, the program and LibTorch included: with less it dies in its libraries, before it
/// could say why.
constexpr int64_t kLearnerBytes = int64_t{640} << 20;

/// Becomes troupe-learner; returns only when that fails. RESOURCE_EXHAUSTED when a limit on memory leaves it too
/// little.
absl::Status ExecLearner(std::vector<std::string> arguments);

/// The benchmarks of this build or bundle, by name, sorted; NOT_FOUND when there is none.
absl::StatusOr<std::vector<std::string>> FindBenchmarks();

/// `word` as a shell takes it.
std::string ShellQuoted(const std::string& word);

}  // namespace troupe::cli
