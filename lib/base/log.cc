#include "lib/base/log.h"

#include <memory>

#include "lib/base/terminal_block.h"
#include <fmt/format.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

namespace troupe::base {
namespace {

/// The line's text, of which no part can be taken for a terminal's command.
class SafeText : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& message, const std::tm& /*time*/, spdlog::memory_buf_t& to) override {
    const std::string text =
        TerminalSafe({message.payload.data(), message.payload.size()}, kMaxLogLineBytes, /*keep_lines=*/true);
    to.append(text.data(), text.data() + text.size());
  }
  std::unique_ptr<custom_flag_formatter> clone() const override { return std::make_unique<SafeText>(); }
};

/// stderr, where a line that comes while a progress block is shown stands above it.
class AboveTheBlock : public spdlog::sinks::stderr_color_sink_mt {
 public:
  void log(const spdlog::details::log_msg& message) override {
    TerminalBlock::OfProcess().WriteAbove([&] { spdlog::sinks::stderr_color_sink_mt::log(message); });
  }
};

spdlog::level::level_enum LevelOf(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarn:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
  }
  return spdlog::level::err;
}

}  // namespace

void InitLogging(std::string_view process_name, std::string_view level) {
  auto logger = std::make_shared<spdlog::logger>(std::string(process_name), std::make_shared<AboveTheBlock>());
  auto formatter = std::make_unique<spdlog::pattern_formatter>(spdlog::pattern_time_type::utc);
  formatter->add_flag<SafeText>('*').set_pattern("%Y-%m-%dT%H:%M:%S.%eZ %^%l%$ %n %*");
  logger->set_formatter(std::move(formatter));
  const std::string name(level);
  const bool known = name == "trace" || name == "debug" || name == "warn" || name == "error" || name == "off";
  logger->set_level(known ? spdlog::level::from_str(name) : spdlog::level::info);
  logger->flush_on(spdlog::level::warn);
  spdlog::set_default_logger(std::move(logger));
}

bool LogsAt(LogLevel level) { return spdlog::should_log(LevelOf(level)); }

void WriteLog(LogLevel level, fmt::string_view format, fmt::format_args arguments) {
  if (!LogsAt(level)) return;
  fmt::memory_buffer text;
  fmt::vformat_to(fmt::appender(text), format, arguments);
  spdlog::log(LevelOf(level), spdlog::string_view_t(text.data(), text.size()));
}

}  // namespace troupe::base
