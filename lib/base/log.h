#pragma once

#include <string>
#include <string_view>

#include <fmt/core.h>

namespace troupe::base {

/// A log line has at most so many bytes; what is beyond is left out, and the line says so.
inline constexpr size_t kMaxLogLineBytes = 32768;

/// Control characters in a line are escaped, whatever the caller did; line feeds stay. Level from its name: trace,
/// debug, info, warn, error, off; anything else is info.
void InitLogging(std::string_view process_name, std::string_view level);

enum class LogLevel {
  kDebug,  ///< for whoever looks for a cause
  kInfo,   ///< what happens in a run's life
  kWarn,   ///< degraded, but handled
  kError,  ///< a person is needed
};

/// True if lines of the level are written.
bool LogsAt(LogLevel level);
/// Writes a line. The text is made in log.cc: spdlog's templates in every file that logs took a tenth of the build.
void WriteLog(LogLevel level, fmt::string_view format, fmt::format_args arguments);

template <typename... Args>
void Log(LogLevel level, fmt::format_string<Args...> format, Args&&... arguments) {
  WriteLog(level, format, fmt::make_format_args(arguments...));
}

/// `text` with control characters and non-ASCII bytes escaped and cut at `max_chars`: whatever came from outside passes
/// through here before it is logged.
std::string LogSafe(std::string_view text, size_t max_chars = 256);
/// The same for a text of several lines, whose line feeds stay. Each line after the first is indented, so that none
/// looks like a log line of its own.
std::string LogSafeLines(std::string_view text, size_t max_chars, std::string_view indent = "  ");
/// `text` for a terminal: control characters are escaped (\x1b), also those that UTF-8 writes with two bytes; letters
/// of any language stay, and so do line feeds and tabs where `keep_lines`. Cut at `max_bytes`, between two characters.
std::string TerminalSafe(std::string_view text, size_t max_bytes = 4096, bool keep_lines = false);

}  // namespace troupe::base

// Log lines are a short sentence and key=value fields, printf'd by fmt: TROUPE_INFO("worker joined id={}", id).
// In release builds, too. The arguments of a debug line are evaluated only where somebody wants it: a look at the
// logger's level is all that it costs elsewhere.
#define TROUPE_DEBUG(...)                                                 \
  do {                                                                    \
    if (::troupe::base::LogsAt(::troupe::base::LogLevel::kDebug))         \
      ::troupe::base::Log(::troupe::base::LogLevel::kDebug, __VA_ARGS__); \
  } while (false)
#define TROUPE_INFO(...) ::troupe::base::Log(::troupe::base::LogLevel::kInfo, __VA_ARGS__)
#define TROUPE_WARN(...) ::troupe::base::Log(::troupe::base::LogLevel::kWarn, __VA_ARGS__)
#define TROUPE_ERROR(...) ::troupe::base::Log(::troupe::base::LogLevel::kError, __VA_ARGS__)
