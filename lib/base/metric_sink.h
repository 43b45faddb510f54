#pragma once

#include <cstdint>
#include <string_view>

namespace troupe::base {

/// Where scalar metrics go (TensorBoard, JSON lines, a progress display). Implementations live in lib/telemetry.
/// Thread-safety: called from one thread. Calls may buffer; Flush makes what was given visible to readers.
class MetricSink {
 public:
  virtual ~MetricSink() = default;

  /// One value of the metric `tag` (docs/metrics.md lists the tags) at `env_steps` environment steps of the run.
  virtual void Scalar(std::string_view tag, double value, int64_t env_steps) = 0;
  virtual void Flush() = 0;
};

}  // namespace troupe::base
