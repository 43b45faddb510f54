#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "lib/telemetry/append_file.h"

namespace troupe::telemetry {

/// Records appended to a file, each whole or not at all: what a full disk left of one is cut off again. Records that
/// cannot be written wait, and are written in their order when there is room again. Made and owned by a writer of one
/// format. Not thread-safe; Append and Flush may block on the disk.
///
/// States: written <-> failing (a write failed; a warning at its begin, a line at its end). Capacity: Limits; the
/// oldest records make room and are counted; memory is at most four times of it. What still waits when it is destroyed
/// is lost.
class RecordLog {
 public:
  struct Limits {
    size_t max_records = 1 << 16;
    size_t max_bytes = 8 << 20;
  };

  /// `name` is what people read, `noun` what they call records: "progress.jsonl", "lines".
  RecordLog(std::string name, std::string noun, std::unique_ptr<AppendFile> file, Limits limits);
  RecordLog(std::string name, std::string noun, std::unique_ptr<AppendFile> file)
      : RecordLog(std::move(name), std::move(noun), std::move(file), Limits()) {}

  /// Takes a record, to be written by Flush at the latest.
  void Append(std::string_view record);
  /// Writes what waits, oldest first; while failing it tries again.
  void Flush();

  /// What is wrong, in words without paths; empty while everything is written.
  std::string Degraded() const;
  /// Records that made room, since it was opened.
  int64_t dropped() const { return dropped_; }

 private:
  /// One write of the oldest records; false when not all of them are in the file.
  bool WriteSome();
  size_t waiting_bytes() const { return text_.size() - first_; }
  /// Takes the oldest record out.
  void Pop();
  void Began(const absl::Status& why);
  void Ended();

  const std::string name_;
  const std::string noun_;
  const std::unique_ptr<AppendFile> file_;
  const Limits limits_;
  // What waits, one behind another: a line of a thousand policies is thousands of records.
  std::string text_;
  size_t first_ = 0;            ///< where the oldest begins in text_
  std::deque<size_t> waiting_;  ///< sizes of the records
  int64_t whole_bytes_;         ///< of the file: where its last whole record ends
  bool torn_ = false;           ///< a part of a record may lie behind that
  absl::Status failing_;
  int64_t dropped_ = 0;
  int64_t dropped_before_ = 0;  ///< when it began to fail
};

}  // namespace troupe::telemetry
