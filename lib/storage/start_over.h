#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/storage/file_system.h"

namespace troupe::storage {

/// Makes room for a run that begins anew: moves the one in `run` to `<run>.before-N`, the first free N from 1, durably
/// and in one step, while it holds the run's lock. Deletes nothing. The folder it was moved to, which becomes
/// RunFolder::Options::started_over; also when an earlier call moved it and nothing has begun in its place since.
///
/// Works once: a run that was begun in another's place is not moved. So whoever starts the same command again and
/// again, as a restart policy does, loses no training. Errors, all but the last with ExitCode::kRefused: NOT_FOUND
/// there is no run; ALREADY_EXISTS this run was begun by it; FAILED_PRECONDITION a learner trains it.
absl::StatusOr<std::string> MoveRunAside(FileSystem& fs, const std::string& run);

}  // namespace troupe::storage
