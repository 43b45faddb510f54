#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "lib/base/clock.h"
#include "lib/base/metric_sink.h"
#include "lib/telemetry/record_log.h"

namespace troupe::telemetry {

/// Writes scalars and pictures as a TensorBoard event file (`events.out.tfevents.<seconds>.<host>`): TFRecord frames of
/// Event messages, encoded here by hand because that is a few fields. A record is there whole or not at all; one that
/// cannot be written waits for room (RecordLog) and never stops a run. Buffers up to 64 KiB. Not thread-safe.
class TensorBoardWriter final : public base::MetricSink {
 public:
  /// PERMISSION_DENIED and the like when the file cannot be made in `directory`.
  static absl::StatusOr<std::unique_ptr<TensorBoardWriter>> Open(const std::string& directory,
                                                                 base::Clock& clock = base::Clock::Real());
  ~TensorBoardWriter() override;
  TensorBoardWriter(const TensorBoardWriter&) = delete;
  TensorBoardWriter& operator=(const TensorBoardWriter&) = delete;

  void Scalar(std::string_view tag, double value, int64_t env_steps) override;
  /// A picture that is encoded already, as a GIF or PNG of that many pixels: TensorBoard shows a GIF as it moves.
  void Image(std::string_view tag, int width, int height, std::string_view encoded, int64_t env_steps);
  void Flush() override { log_.Flush(); }
  /// RecordLog's.
  std::string Degraded() const { return log_.Degraded(); }

 private:
  TensorBoardWriter(std::unique_ptr<AppendFile> file, base::Clock& clock)
      : log_("TensorBoard's event file", "records", std::move(file)), clock_(clock) {}
  /// Seconds since 1970.
  double WallTime() const;

  RecordLog log_;
  base::Clock& clock_;
  std::string record_;  ///< memory of the last one
};

}  // namespace troupe::telemetry
