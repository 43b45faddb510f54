#include "lib/telemetry/tensorboard_writer.h"

#include <unistd.h>

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/crc32c.h"
#include "lib/base/log.h"

namespace troupe::telemetry {
namespace {

// Field numbers of tensorflow/core/util/event.proto and framework/summary.proto.
constexpr int kEventWallTime = 1;
constexpr int kEventStep = 2;
constexpr int kEventFileVersion = 3;
constexpr int kEventSummary = 5;
constexpr int kSummaryValue = 1;
constexpr int kValueTag = 1;
constexpr int kValueSimpleValue = 2;
constexpr int kValueImage = 4;
constexpr int kImageHeight = 1;
constexpr int kImageWidth = 2;
constexpr int kImageColorspace = 3;
constexpr int kImageEncoded = 4;
constexpr int kRgb = 3;

constexpr std::string_view kVersion = "brain.Event:2";

enum WireType { kVarint = 0, kFixed64 = 1, kLengthDelimited = 2, kFixed32 = 5 };

template <typename T>
void AppendRaw(T value, std::string* out) {
  char bytes[sizeof(T)];
  std::memcpy(bytes, &value, sizeof(T));  // little-endian, as the rest of Troupe
  out->append(bytes, sizeof(T));
}

void AppendVarint(uint64_t value, std::string* out) {
  for (; value >= 0x80; value >>= 7) out->push_back(static_cast<char>(value | 0x80));
  out->push_back(static_cast<char>(value));
}

void AppendKey(int field, WireType type, std::string* out) {
  AppendVarint(static_cast<uint64_t>(field) << 3 | static_cast<uint64_t>(type), out);
}

void AppendBytes(int field, std::string_view bytes, std::string* out) {
  AppendKey(field, kLengthDelimited, out);
  AppendVarint(bytes.size(), out);
  out->append(bytes);
}

/// Bytes of AppendVarint.
size_t VarintBytes(uint64_t value) {
  size_t bytes = 1;
  for (; value >= 0x80; value >>= 7) ++bytes;
  return bytes;
}

/// Bytes of AppendBytes with a field number below 16.
size_t FieldBytes(size_t bytes) { return 1 + VarintBytes(bytes) + bytes; }

/// TFRecord's masked CRC.
uint32_t MaskedCrc(std::string_view bytes) {
  const uint32_t crc = base::Crc32c(bytes.data(), bytes.size());
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

// A record: length of the event and the length's CRC, the event, its CRC.
constexpr size_t kHeadBytes = sizeof(uint64_t) + sizeof(uint32_t);

/// A record up to its event's wall time, in the place of what stood there.
void BeginRecord(double wall_time, std::string* record) {
  record->assign(kHeadBytes, '\0');
  AppendKey(kEventWallTime, kFixed64, record);
  AppendRaw(wall_time, record);
}

/// Writes what stands around the event.
void FinishRecord(std::string* record) {
  const std::string_view event = std::string_view(*record).substr(kHeadBytes);
  const uint32_t event_crc = MaskedCrc(event);
  const auto size = static_cast<uint64_t>(event.size());
  std::memcpy(record->data(), &size, sizeof(size));
  const uint32_t size_crc = MaskedCrc(std::string_view(*record).substr(0, sizeof(size)));
  std::memcpy(record->data() + sizeof(size), &size_crc, sizeof(size_crc));
  AppendRaw(event_crc, record);
}

}  // namespace

absl::StatusOr<std::unique_ptr<TensorBoardWriter>> TensorBoardWriter::Open(const std::string& directory,
                                                                           base::Clock& clock) {
  char host[256] = "host";
  ::gethostname(host, sizeof(host) - 1);
  // The process id keeps two learners of the same second apart.
  const std::string path = absl::StrCat(directory, "/events.out.tfevents.", absl::ToUnixSeconds(clock.WallNow()), ".",
                                        base::LogSafe(host, 64), ".", ::getpid());
  absl::StatusOr<std::unique_ptr<AppendFile>> file = AppendFile::Open(path);
  if (!file.ok()) {
    return absl::Status(file.status().code(),
                        absl::StrCat("cannot write TensorBoard events: ", file.status().message()));
  }
  auto writer = std::unique_ptr<TensorBoardWriter>(new TensorBoardWriter(*std::move(file), clock));
  BeginRecord(writer->WallTime(), &writer->record_);
  AppendBytes(kEventFileVersion, kVersion, &writer->record_);
  FinishRecord(&writer->record_);
  writer->log_.Append(writer->record_);
  writer->Flush();
  return writer;
}

TensorBoardWriter::~TensorBoardWriter() { Flush(); }

void TensorBoardWriter::Scalar(std::string_view tag, double value, int64_t env_steps) {
  const size_t value_bytes = FieldBytes(tag.size()) + 1 + sizeof(float);
  const size_t summary_bytes = FieldBytes(value_bytes);
  BeginRecord(WallTime(), &record_);
  AppendKey(kEventStep, kVarint, &record_);
  AppendVarint(static_cast<uint64_t>(env_steps), &record_);
  AppendKey(kEventSummary, kLengthDelimited, &record_);
  AppendVarint(summary_bytes, &record_);
  AppendKey(kSummaryValue, kLengthDelimited, &record_);
  AppendVarint(value_bytes, &record_);
  AppendBytes(kValueTag, tag, &record_);
  AppendKey(kValueSimpleValue, kFixed32, &record_);
  AppendRaw(static_cast<float>(value), &record_);
  FinishRecord(&record_);
  log_.Append(record_);
}

void TensorBoardWriter::Image(std::string_view tag, int width, int height, std::string_view encoded,
                              int64_t env_steps) {
  std::string image;
  for (const auto& [field, value] :
       {std::pair(kImageHeight, height), std::pair(kImageWidth, width), std::pair(kImageColorspace, kRgb)}) {
    AppendKey(field, kVarint, &image);
    AppendVarint(static_cast<uint64_t>(value), &image);
  }
  AppendBytes(kImageEncoded, encoded, &image);
  std::string named, summary;
  AppendBytes(kValueTag, tag, &named);
  AppendBytes(kValueImage, image, &named);
  AppendBytes(kSummaryValue, named, &summary);
  BeginRecord(WallTime(), &record_);
  AppendKey(kEventStep, kVarint, &record_);
  AppendVarint(static_cast<uint64_t>(env_steps), &record_);
  AppendBytes(kEventSummary, summary, &record_);
  FinishRecord(&record_);
  log_.Append(record_);
  record_ = {};  // it may be large
}

double TensorBoardWriter::WallTime() const { return absl::ToDoubleSeconds(clock_.WallNow() - absl::UnixEpoch()); }

}  // namespace troupe::telemetry
