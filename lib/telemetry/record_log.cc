#include "lib/telemetry/record_log.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/log.h"

namespace troupe::telemetry {
namespace {

// One write takes about so much; whoever buffers more than this has it written.
constexpr size_t kWriteBytes = 64 << 10;
// Memory that stays for the next records when none waits.
constexpr size_t kKeptBytes = 1 << 20;

}  // namespace

RecordLog::RecordLog(std::string name, std::string noun, std::unique_ptr<AppendFile> file, Limits limits)
    : name_(std::move(name)),
      noun_(std::move(noun)),
      file_(std::move(file)),
      limits_(limits),
      whole_bytes_(file_->bytes()) {}

void RecordLog::Append(std::string_view record) {
  text_.append(record);
  waiting_.push_back(record.size());
  if (failing_.ok() && waiting_bytes() >= kWriteBytes) Flush();
  while (waiting_.size() > limits_.max_records || waiting_bytes() > limits_.max_bytes) {
    Pop();
    ++dropped_;
  }
}

void RecordLog::Pop() {
  first_ += waiting_.front();
  waiting_.pop_front();
  if (waiting_.empty() && text_.capacity() > kKeptBytes) text_ = std::string();
  if (first_ * 2 < text_.size()) return;
  text_.erase(0, first_);
  first_ = 0;
}

void RecordLog::Flush() {
  while (!waiting_.empty()) {
    if (!WriteSome()) return;
  }
  if (!failing_.ok()) Ended();
}

bool RecordLog::WriteSome() {
  if (torn_) {
    const absl::Status cut = file_->Truncate(whole_bytes_);
    torn_ = !cut.ok();
    if (torn_) {
      Began(cut);
      return false;
    }
  }
  size_t bytes = 0;
  for (const size_t size : waiting_) {
    bytes += size;
    if (bytes >= kWriteBytes) break;
  }
  const AppendFile::Appended appended = file_->Append(std::string_view(text_).substr(first_, bytes));
  size_t left = appended.bytes;
  while (!waiting_.empty() && left >= waiting_.front()) {
    left -= waiting_.front();
    whole_bytes_ += static_cast<int64_t>(waiting_.front());
    Pop();
    if (left == 0) break;
  }
  if (appended.status.ok()) return true;
  torn_ = left > 0 && !file_->Truncate(whole_bytes_).ok();
  Began(appended.status);
  return false;
}

void RecordLog::Began(const absl::Status& why) {
  if (failing_.ok()) {
    dropped_before_ = dropped_;
    TROUPE_WARN("{} cannot be written, {} are kept until it can error=\"{}\"", name_, noun_,
                std::string(why.message()));
  }
  failing_ = why;
}

void RecordLog::Ended() {
  failing_ = absl::OkStatus();
  TROUPE_INFO("{} is written again dropped={}", name_, dropped_ - dropped_before_);
}

std::string RecordLog::Degraded() const {
  if (failing_.ok()) return "";
  std::string words =
      absl::StrCat(name_, " cannot be written: ", failing_.message(), "; ", waiting_.size(), " ", noun_, " wait");
  if (dropped_ > dropped_before_) absl::StrAppend(&words, ", ", dropped_ - dropped_before_, " older ones are lost");
  return words;
}

}  // namespace troupe::telemetry
