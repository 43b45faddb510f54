#pragma once

#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "lib/base/metric_sink.h"

namespace troupe::telemetry {

/// Gives every metric to several sinks, in order. Not thread-safe.
class FanOutSink final : public base::MetricSink {
 public:
  void Add(std::unique_ptr<base::MetricSink> sink) { sinks_.push_back(std::move(sink)); }

  void Scalar(std::string_view tag, double value, int64_t env_steps) override {
    for (const auto& sink : sinks_) sink->Scalar(tag, value, env_steps);
  }
  void Flush() override {
    for (const auto& sink : sinks_) sink->Flush();
  }

 private:
  std::vector<std::unique_ptr<base::MetricSink>> sinks_;
};

}  // namespace troupe::telemetry
