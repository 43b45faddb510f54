#include "lib/telemetry/tensorboard_writer.h"

#include <unistd.h>

#include <cstring>

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

std::string EventStart(double wall_time) {
  std::string event;
  AppendKey(kEventWallTime, kFixed64, &event);
  AppendRaw(wall_time, &event);
  return event;
}

/// TFRecord's masked CRC.
uint32_t MaskedCrc(const std::string& bytes) {
  const uint32_t crc = base::Crc32c(bytes.data(), bytes.size());
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
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
  std::string event = EventStart(absl::ToDoubleSeconds(clock.WallNow() - absl::UnixEpoch()));
  AppendBytes(kEventFileVersion, "brain.Event:2", &event);
  writer->AppendRecord(event);
  writer->Flush();
  return writer;
}

TensorBoardWriter::~TensorBoardWriter() { Flush(); }

void TensorBoardWriter::Scalar(std::string_view tag, double value, int64_t env_steps) {
  std::string entry;
  AppendBytes(kValueTag, tag, &entry);
  AppendKey(kValueSimpleValue, kFixed32, &entry);
  AppendRaw(static_cast<float>(value), &entry);
  std::string summary;
  AppendBytes(kSummaryValue, entry, &summary);
  std::string event = EventStart(absl::ToDoubleSeconds(clock_.WallNow() - absl::UnixEpoch()));
  AppendKey(kEventStep, kVarint, &event);
  AppendVarint(static_cast<uint64_t>(env_steps), &event);
  AppendBytes(kEventSummary, summary, &event);
  AppendRecord(event);
}

void TensorBoardWriter::AppendRecord(const std::string& event) {
  std::string record;
  AppendRaw(static_cast<uint64_t>(event.size()), &record);
  AppendRaw(MaskedCrc(record), &record);
  record += event;
  AppendRaw(MaskedCrc(event), &record);
  log_.Append(std::move(record));
}

}  // namespace troupe::telemetry
