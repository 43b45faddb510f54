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

namespace troupe::telemetry {

/// A field of a JSON object. NaN and infinities become null: JSON has no others.
using JsonField = std::pair<std::string, std::variant<int64_t, double, bool, std::string>>;

/// One JSON object on one line, fields in the given order.
std::string ToJsonLine(absl::Span<const JsonField> fields);

/// Appends one JSON object a line to a file (`progress.jsonl`). Each line is one write, so that a reader never sees
/// half of one from us. On a resumed run lines of env steps that were rolled back are cut first. Not thread-safe.
class JsonLinesWriter {
 public:
  /// Opens or makes `path`; keeps the existing lines whose "env_steps" is at most `keep_env_steps`.
  static absl::StatusOr<std::unique_ptr<JsonLinesWriter>> Open(const std::string& path, int64_t keep_env_steps);
  ~JsonLinesWriter();
  JsonLinesWriter(const JsonLinesWriter&) = delete;
  JsonLinesWriter& operator=(const JsonLinesWriter&) = delete;

  /// A write that fails is logged once and then dropped: progress lines never stop a run.
  void Write(absl::Span<const JsonField> fields);

 private:
  explicit JsonLinesWriter(int fd) : fd_(fd) {}
  const int fd_;
  bool failed_ = false;
};

}  // namespace troupe::telemetry
