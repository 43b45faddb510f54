#pragma once

#include <cstdint>
#include <functional>

#include "absl/status/status.h"

namespace troupe::run {

/// Fits this process to a limit on its memory (`ulimit -v`), before it starts anything; does nothing where there is
/// none. malloc takes an arena for each thread, 64 MiB of the limit each, and a thread a stack of 8 MiB, unless told
/// otherwise. RESOURCE_EXHAUSTED
/// when fewer than `needed_bytes` are left: what runs out of memory inside gRPC or LibTorch aborts or hangs there, so
/// that nobody could say why.
absl::Status FitIntoMemoryLimit(int64_t needed_bytes);

/// Calls `body`; memory that is not to be had, or a thread that cannot be started, becomes RESOURCE_EXHAUSTED.
absl::Status CatchOutOfMemory(const std::function<absl::Status()>& body);

/// The same for what nobody catches, in any thread: one line on stderr as `program`'s error and exit code 1 instead of
/// an abort. Other exceptions abort as before. What it cannot reach: abort() in a library, the loader (127), and the
/// kernel's SIGKILL.
void EndInWordsWhenOutOfMemory(const char* program);

}  // namespace troupe::run
