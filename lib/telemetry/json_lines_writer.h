#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "lib/telemetry/record_log.h"

namespace troupe::telemetry {

/// A field of a JSON object. NaN and infinities become null: JSON has no others.
using JsonField = std::pair<std::string, std::variant<int64_t, double, bool, std::string>>;

/// One JSON object on one line, fields in the given order; no two have one name.
std::string ToJsonLine(absl::Span<const JsonField> fields);

/// Appends one JSON object a line to a file (`progress.jsonl`). A line is there whole or not at all; one that cannot be
/// written waits for room (RecordLog) and never stops a run. On a resumed run lines of env steps that were rolled back
/// are cut first. Not thread-safe.
class JsonLinesWriter {
 public:
  /// Opens or makes `path`; keeps the existing lines whose "env_steps" is at most `keep_env_steps`.
  static absl::StatusOr<std::unique_ptr<JsonLinesWriter>> Open(const std::string& path, int64_t keep_env_steps);

  void Write(absl::Span<const JsonField> fields);
  /// Tries again to write the lines that wait.
  void Flush() { log_.Flush(); }
  /// RecordLog's.
  std::string Degraded() const { return log_.Degraded(); }

 private:
  explicit JsonLinesWriter(std::unique_ptr<AppendFile> file) : log_("progress.jsonl", "lines", std::move(file)) {}
  RecordLog log_;
};

}  // namespace troupe::telemetry
