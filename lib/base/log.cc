#include "lib/base/log.h"

#include <memory>

#include "lib/base/terminal_block.h"
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_color_sinks.h>

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

}  // namespace troupe::base
