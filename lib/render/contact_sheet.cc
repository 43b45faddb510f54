#include "lib/render/contact_sheet.h"

#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"

namespace troupe::render {
namespace {

void AppendBigEndian(uint32_t value, std::string* out) {
  for (int shift = 24; shift >= 0; shift -= 8) out->push_back(static_cast<char>(value >> shift));
}

/// Length, type, data, checksum of type and data.
void AppendChunk(const std::string& type, const std::string& data, std::string* out) {
  AppendBigEndian(static_cast<uint32_t>(data.size()), out);
  const std::string body = type + data;
  *out += body;
  AppendBigEndian(
      static_cast<uint32_t>(crc32(0, reinterpret_cast<const Bytef*>(body.data()), static_cast<uInt>(body.size()))),
      out);
}

}  // namespace

absl::StatusOr<std::string> EncodePng(int width, int height, absl::Span<const uint8_t> rgb) {
  const size_t row = 3 * static_cast<size_t>(width);
  std::string rows;  // each with the number of its filter before it: 0, none
  rows.reserve((row + 1) * static_cast<size_t>(height));
  for (int y = 0; y < height; ++y) {
    rows.push_back(0);
    rows.append(reinterpret_cast<const char*>(rgb.data()) + static_cast<size_t>(y) * row, row);
  }
  std::string packed(compressBound(static_cast<uLong>(rows.size())), '\0');
  uLongf size = static_cast<uLongf>(packed.size());
  const int done = compress2(reinterpret_cast<Bytef*>(packed.data()), &size,
                             reinterpret_cast<const Bytef*>(rows.data()), static_cast<uLong>(rows.size()), 6);
  if (done != Z_OK) return absl::InternalError(absl::StrCat("PNG: zlib answers ", done));
  packed.resize(size);
  std::string header;
  AppendBigEndian(static_cast<uint32_t>(width), &header);
  AppendBigEndian(static_cast<uint32_t>(height), &header);
  header += std::string("\x08\x02\x00\x00\x00", 5);  // 8 bits of red, green and blue; the only methods; not interlaced
  std::string file = "\x89PNG\r\n\x1a\n";
  AppendChunk("IHDR", header, &file);
  AppendChunk("IDAT", packed, &file);
  AppendChunk("IEND", "", &file);
  return file;
}

absl::Status ContactSheet::Add(const Picture& picture, int /*times*/) {
  TROUPE_RETURN_IF_ERROR(CheckSize(picture, width_, height_));
  last_.assign(picture.rgb.begin(), picture.rgb.end());
  if (count_++ % stride_ != 0) return absl::OkStatus();
  kept_.push_back(last_);
  if (kept_.size() <= 2 * kMostPictures) return absl::OkStatus();
  for (size_t i = 1; 2 * i < kept_.size(); ++i) kept_[i] = std::move(kept_[2 * i]);
  kept_.resize((kept_.size() + 1) / 2);
  stride_ *= 2;
  return absl::OkStatus();
}

absl::StatusOr<std::string> ContactSheet::Finish() {
  if (count_ == 0) return absl::FailedPreconditionError("no picture came, expected one at least");
  std::vector<const Pixels*> shown;
  const size_t pictures = std::min(count_, kMostPictures);
  for (size_t i = 0; i + 1 < pictures; ++i) {
    const size_t number = i * (count_ - 1) / (pictures - 1);
    shown.push_back(&kept_[std::min((number + stride_ / 2) / stride_, kept_.size() - 1)]);
  }
  shown.push_back(&last_);
  const size_t columns = std::min(pictures, kColumns), rows = (pictures + kColumns - 1) / kColumns;
  const size_t line = 3 * static_cast<size_t>(width_), height = static_cast<size_t>(height_);
  Pixels sheet(columns * line * rows * height, 255);
  for (size_t i = 0; i < shown.size(); ++i) {
    uint8_t* const to = sheet.data() + (i / kColumns * height * columns + i % kColumns) * line;
    for (size_t y = 0; y < height; ++y) std::memcpy(to + y * columns * line, shown[i]->data() + y * line, line);
  }
  return EncodePng(static_cast<int>(columns) * width_, static_cast<int>(rows * height), sheet);
}

}  // namespace troupe::render
