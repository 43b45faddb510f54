#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace troupe::cli {

/// The folder of the run that a person names: the folder itself, or a run's name inside `directory` ("runs"). NOT_FOUND
/// when neither holds a run (a config.yaml), INVALID_ARGUMENT for a URL.
absl::StatusOr<std::string> FindRunFolder(const std::string& run, const std::string& directory = "runs");

/// Whether `path` is a run folder.
bool IsRunFolder(const std::string& path);

/// The last line of a run's progress.jsonl that is whole; NOT_FOUND when there is none yet. FAILED_PRECONDITION where
/// the file cannot be opened, or is no regular one; DATA_LOSS where its last 64 KiB end no line.
absl::StatusOr<std::string> LastProgressLine(const std::string& folder);

/// A small text file; NOT_FOUND when it cannot be read.
absl::StatusOr<std::string> ReadTextFile(const std::string& path);

}  // namespace troupe::cli
