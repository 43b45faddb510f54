#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "lib/cli/child_process.h"

namespace troupe::cli {

/// What of the machine bears on a process that was killed. Plain value.
struct DeathContext {
  /// Processes that the kernel killed for lack of memory while it lived, in containers too; nullopt: not to be known.
  std::optional<int64_t> memory_kills;
  /// The limit on a process's memory (`ulimit -v`), bytes; nullopt: none.
  std::optional<int64_t> memory_limit_bytes;
};

/// How a process ended, with what may be the cause of a signal: "was killed by signal 9 (Killed), perhaps by the kernel
/// for lack of memory: …".
std::string DeathWords(const ChildExit& end, const DeathContext& context);

/// The kernel's count of processes that it killed for lack of memory, since the machine started.
std::optional<int64_t> KernelMemoryKills();

/// The context of a death now, of a process that was started when the count was `kills_before`.
DeathContext DeathContextSince(std::optional<int64_t> kills_before);

}  // namespace troupe::cli
