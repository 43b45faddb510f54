#include "lib/storage/safetensors.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/check.h"
#include "lib/base/status_macros.h"
#include <nlohmann/json.hpp>

namespace troupe::storage {
namespace {

using Json = nlohmann::json;
using tensor::DType;

constexpr uint64_t kMaxHeaderBytes = 100'000'000;
constexpr size_t kLengthBytes = 8;

constexpr std::pair<DType, const char*> kDTypes[] = {
    {DType::kFloat32, "F32"}, {DType::kFloat64, "F64"}, {DType::kInt32, "I32"},
    {DType::kInt64, "I64"},   {DType::kUint8, "U8"},    {DType::kUint32, "U32"},
};

const char* DTypeToName(DType dtype) {
  for (const auto& [value, name] : kDTypes) {
    if (value == dtype) return name;
  }
  return nullptr;
}

std::optional<DType> DTypeFromName(const std::string& name) {
  for (const auto& [value, known] : kDTypes) {
    if (name == known) return value;
  }
  return std::nullopt;
}

/// Bytes of an array, or nullopt when the product overflows or an extent is negative.
std::optional<uint64_t> ArrayBytes(DType dtype, const std::vector<int64_t>& shape) {
  uint64_t bytes = tensor::ElementBytes(dtype);
  for (const int64_t extent : shape) {
    if (extent < 0 || __builtin_mul_overflow(bytes, static_cast<uint64_t>(extent), &bytes)) return std::nullopt;
  }
  return bytes;
}

template <typename T>
absl::StatusOr<std::vector<T>> Elements(const TensorRead& read, DType dtype, int64_t expected) {
  const int64_t count = static_cast<int64_t>(read.bytes.size() / sizeof(T));
  if (read.dtype != dtype || count != expected) {
    return absl::InvalidArgumentError(absl::StrCat("tensor has ", count, " elements of ",
                                                   std::string(tensor::DTypeName(read.dtype)), "; expected ", expected,
                                                   " of ", std::string(tensor::DTypeName(dtype))));
  }
  std::vector<T> values(static_cast<size_t>(count));
  if (count > 0) std::memcpy(values.data(), read.bytes.data(), read.bytes.size());
  return values;
}

absl::Status Malformed(const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("safetensors: ", what));
}

/// One entry of the header, checked against the `data` section.
absl::StatusOr<TensorRead> ParseEntry(const std::string& name, const Json& entry, absl::Span<const std::byte> data) {
  const auto bad = [&name](const std::string& what) {
    return Malformed(absl::StrCat("tensor \"", name, "\": ", what));
  };
  if (!entry.is_object() || !entry.contains("dtype") || !entry.contains("shape") || !entry.contains("data_offsets") ||
      !entry["dtype"].is_string() || !entry["shape"].is_array() || !entry["data_offsets"].is_array() ||
      entry["data_offsets"].size() != 2) {
    return bad("needs dtype, shape and two data_offsets");
  }
  TensorRead read;
  const std::optional<DType> dtype = DTypeFromName(entry["dtype"].get<std::string>());
  if (!dtype) return bad("has an unknown dtype");
  read.dtype = *dtype;
  for (const Json& extent : entry["shape"]) {
    if (!extent.is_number_unsigned()) return bad("has a shape that is not of whole numbers");
    read.shape.push_back(extent.get<int64_t>());
  }
  for (const Json& offset : entry["data_offsets"]) {
    if (!offset.is_number_unsigned()) return bad("has data_offsets that are not whole numbers");
  }
  const uint64_t begin = entry["data_offsets"][0].get<uint64_t>();
  const uint64_t end = entry["data_offsets"][1].get<uint64_t>();
  if (begin > end || end > data.size()) return bad("lies outside the file");
  const std::optional<uint64_t> bytes = ArrayBytes(read.dtype, read.shape);
  if (!bytes || *bytes != end - begin) return bad("has a shape that does not fit its bytes");
  read.bytes = data.subspan(begin, end - begin);
  return read;
}

}  // namespace

absl::StatusOr<std::vector<float>> TensorRead::ToFloats(int64_t expected) const {
  return Elements<float>(*this, DType::kFloat32, expected);
}

absl::StatusOr<std::vector<double>> TensorRead::ToDoubles(int64_t expected) const {
  return Elements<double>(*this, DType::kFloat64, expected);
}

std::string SafetensorsHeader(absl::Span<const TensorToWrite> tensors,
                              const std::map<std::string, std::string>& metadata) {
  Json header = Json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  uint64_t offset = 0;
  for (const TensorToWrite& tensor : tensors) {
    const std::optional<uint64_t> bytes = ArrayBytes(tensor.dtype, tensor.shape);
    TROUPE_CHECK(DTypeToName(tensor.dtype) != nullptr && bytes && *bytes == tensor.bytes.size());
    header[tensor.name] = {
        {"dtype", DTypeToName(tensor.dtype)}, {"shape", tensor.shape}, {"data_offsets", {offset, offset + *bytes}}};
    offset += *bytes;
  }
  std::string json = header.dump();
  json.append((8 - json.size() % 8) % 8, ' ');
  std::string out(kLengthBytes, '\0');
  const uint64_t length = json.size();
  std::memcpy(out.data(), &length, kLengthBytes);
  return out + json;
}

absl::StatusOr<SafetensorsFile> SafetensorsFile::Parse(const std::string& text) {
  if (text.size() < kLengthBytes)
    return Malformed(absl::StrCat("file has ", text.size(), " bytes; expected at least 8"));
  uint64_t length = 0;
  std::memcpy(&length, text.data(), kLengthBytes);
  if (length > kMaxHeaderBytes || length > text.size() - kLengthBytes) {
    return Malformed(absl::StrCat("header of ", length, " bytes in a file of ", text.size()));
  }
  const auto begin = text.begin() + kLengthBytes;
  const Json header = Json::parse(begin, begin + static_cast<int64_t>(length), nullptr, /*allow_exceptions=*/false);
  if (!header.is_object()) return Malformed("header is not a JSON object");

  const absl::Span<const std::byte> data(reinterpret_cast<const std::byte*>(text.data()) + kLengthBytes + length,
                                         text.size() - kLengthBytes - length);
  SafetensorsFile file;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") {
      if (!entry.is_object()) return Malformed("__metadata__ is not an object");
      for (const auto& [key, value] : entry.items()) {
        if (!value.is_string()) return Malformed("__metadata__ holds something that is not text");
        file.metadata_[key] = value.get<std::string>();
      }
      continue;
    }
    TROUPE_ASSIGN_OR_RETURN(file.tensors_[name], ParseEntry(name, entry, data));
  }

  // No byte unexplained and none claimed twice.
  std::vector<std::pair<const std::byte*, const std::byte*>> ranges;
  for (const auto& [name, read] : file.tensors_) ranges.emplace_back(read.bytes.begin(), read.bytes.end());
  std::sort(ranges.begin(), ranges.end());
  const std::byte* expected = data.begin();
  for (const auto& [first, last] : ranges) {
    if (first != expected) return Malformed("tensors leave a hole or overlap");
    expected = last;
  }
  if (expected != data.end()) return Malformed("bytes behind the last tensor");
  return file;
}

absl::StatusOr<const TensorRead*> SafetensorsFile::Find(const std::string& name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) return absl::NotFoundError(absl::StrCat("safetensors: no tensor \"", name, "\""));
  return &found->second;
}

}  // namespace troupe::storage
