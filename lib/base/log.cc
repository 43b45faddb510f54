#include "lib/base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>

namespace troupe::base {

void InitLogging(std::string_view process_name, std::string_view level) {
  auto logger = std::make_shared<spdlog::logger>(std::string(process_name),
                                                 std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
  logger->set_pattern("%Y-%m-%dT%H:%M:%S.%eZ %^%l%$ %n %v", spdlog::pattern_time_type::utc);
  const std::string name(level);
  const bool known = name == "trace" || name == "debug" || name == "warn" || name == "error" || name == "off";
  logger->set_level(known ? spdlog::level::from_str(name) : spdlog::level::info);
  logger->flush_on(spdlog::level::warn);
  spdlog::set_default_logger(std::move(logger));
}

}  // namespace troupe::base
