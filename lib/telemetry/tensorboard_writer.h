#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "lib/base/clock.h"
#include "lib/base/metric_sink.h"

namespace troupe::telemetry {

/// Writes scalars as a TensorBoard event file (`events.out.tfevents.<seconds>.<host>`): TFRecord frames of Event
/// messages, encoded here by hand because that is three fields. Not thread-safe. Buffers up to 64 KiB; a write that
/// fails is logged once and then dropped: metrics never stop a run.
class TensorBoardWriter final : public base::MetricSink {
 public:
  /// PERMISSION_DENIED and the like when the file cannot be made in `directory`.
  static absl::StatusOr<std::unique_ptr<TensorBoardWriter>> Open(const std::string& directory,
                                                                 base::Clock& clock = base::Clock::Real());
  ~TensorBoardWriter() override;
  TensorBoardWriter(const TensorBoardWriter&) = delete;
  TensorBoardWriter& operator=(const TensorBoardWriter&) = delete;

  void Scalar(std::string_view tag, double value, int64_t env_steps) override;
  void Flush() override;

 private:
  TensorBoardWriter(int fd, base::Clock& clock) : fd_(fd), clock_(clock) {}
  void AppendRecord(const std::string& event);

  const int fd_;
  base::Clock& clock_;
  std::string buffer_;
  bool failed_ = false;
};

}  // namespace troupe::telemetry
