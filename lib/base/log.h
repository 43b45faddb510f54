#pragma once

#include <string>
#include <string_view>

#include <spdlog/spdlog.h>

namespace troupe::base {

/// Level from its name: trace, debug, info, warn, error, off; anything else is info.
void InitLogging(std::string_view process_name, std::string_view level);

/// `text` with control characters and non-ASCII bytes escaped and cut at `max_chars`: whatever came from outside passes
/// through here before it is logged.
std::string LogSafe(std::string_view text, size_t max_chars = 256);

}  // namespace troupe::base

// Log lines are a short sentence and key=value fields, printf'd by fmt: TROUPE_INFO("worker joined id={}", id).
#define TROUPE_DEBUG(...) SPDLOG_DEBUG(__VA_ARGS__)
#define TROUPE_INFO(...) ::spdlog::info(__VA_ARGS__)
#define TROUPE_WARN(...) ::spdlog::warn(__VA_ARGS__)
#define TROUPE_ERROR(...) ::spdlog::error(__VA_ARGS__)
