#include "lib/storage/safetensors.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/check.h"
#include "lib/base/parse_json.h"
#include "lib/base/status_macros.h"
#include <nlohmann/json.hpp>

namespace troupe::storage {
namespace {

using Json = nlohmann::json;
using tensor::DType;

// Room for the arrays of 1024 policies, several times over.
constexpr uint64_t kMaxHeaderBytes = 32 << 20;
constexpr size_t kMaxHeaderValues = 1 << 19;
constexpr size_t kLengthBytes = size_t{kSafetensorsLengthBytes};

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

/// One entry of the header, checked against the bytes behind it.
absl::StatusOr<SafetensorsIndex::Entry> ParseEntry(const Json& entry, uint64_t data_bytes) {
  const auto bad = [](const std::string& what) { return Malformed(absl::StrCat("a tensor ", what)); };
  if (!entry.is_object() || !entry.contains("dtype") || !entry.contains("shape") || !entry.contains("data_offsets") ||
      !entry["dtype"].is_string() || !entry["shape"].is_array() || !entry["data_offsets"].is_array() ||
      entry["data_offsets"].size() != 2) {
    return bad("needs dtype, shape and two data_offsets");
  }
  SafetensorsIndex::Entry read;
  const std::optional<DType> dtype = DTypeFromName(entry["dtype"].get<std::string>());
  if (!dtype) return bad("has an unknown dtype");
  read.dtype = *dtype;
  for (const Json& extent : entry["shape"]) {
    if (!extent.is_number_unsigned()) return bad("has a shape that is not of whole numbers");
    read.shape.push_back(base::JsonInteger(extent));
  }
  for (const Json& offset : entry["data_offsets"]) {
    if (!offset.is_number_unsigned()) return bad("has data_offsets that are not whole numbers");
  }
  read.begin = static_cast<uint64_t>(base::JsonInteger(entry["data_offsets"][0]));
  read.end = static_cast<uint64_t>(base::JsonInteger(entry["data_offsets"][1]));
  if (read.begin > read.end || read.end > data_bytes) return bad("lies outside the file");
  const std::optional<uint64_t> bytes = ArrayBytes(read.dtype, read.shape);
  if (!bytes || *bytes != read.end - read.begin) return bad("has a shape that does not fit its bytes");
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

absl::StatusOr<uint64_t> SafetensorsHeaderBytes(std::string_view first_bytes, uint64_t file_bytes) {
  if (first_bytes.size() < kLengthBytes || file_bytes < kLengthBytes) {
    return Malformed(
        absl::StrCat("file has ", std::min<uint64_t>(first_bytes.size(), file_bytes), " bytes; expected at least 8"));
  }
  uint64_t length = 0;
  std::memcpy(&length, first_bytes.data(), kLengthBytes);
  if (length > kMaxHeaderBytes || length > file_bytes - kLengthBytes) {
    // Not what it says: the first bytes of whatever file this is.
    return Malformed(
        absl::StrCat("header is larger than the file of ", file_bytes, " bytes, or than ", kMaxHeaderBytes));
  }
  return kLengthBytes + length;
}

absl::StatusOr<SafetensorsIndex> ParseSafetensorsHeader(std::string_view header, uint64_t file_bytes) {
  if (header.size() < kLengthBytes || header.size() > file_bytes) {
    return Malformed(absl::StrCat("header of ", header.size(), " bytes in a file of ", file_bytes));
  }
  const std::string_view text = header.substr(kLengthBytes);
  const absl::StatusOr<Json> parsed =
      base::ParseJson(text, {.max_bytes = kMaxHeaderBytes, .max_values = kMaxHeaderValues});
  if (!parsed.ok()) return Malformed(absl::StrCat("header ", parsed.status().message()));
  const Json& json = *parsed;
  if (!json.is_object()) return Malformed("header is not a JSON object");
  const uint64_t data_bytes = file_bytes - header.size();
  SafetensorsIndex index;
  for (const auto& [name, entry] : json.items()) {
    if (name == "__metadata__") {
      if (!entry.is_object()) return Malformed("__metadata__ is not an object");
      for (const auto& [key, value] : entry.items()) {
        if (!value.is_string()) return Malformed("__metadata__ holds something that is not text");
        index.metadata[key] = value.get<std::string>();
      }
      continue;
    }
    TROUPE_ASSIGN_OR_RETURN(index.tensors[name], ParseEntry(entry, data_bytes));
  }

  // No byte unexplained and none claimed twice.
  for (const auto& [name, entry] : index.tensors) index.by_place.push_back({entry.begin, entry.end, name});
  std::sort(index.by_place.begin(), index.by_place.end());
  uint64_t expected = 0;
  for (const SafetensorsIndex::Place& place : index.by_place) {
    if (place.begin != expected) return Malformed("tensors leave a hole or overlap");
    expected = place.end;
  }
  if (expected != data_bytes) return Malformed("bytes behind the last tensor");
  return index;
}

absl::StatusOr<SafetensorsFile> SafetensorsFile::Parse(const std::string& text) {
  TROUPE_ASSIGN_OR_RETURN(const uint64_t header_bytes, SafetensorsHeaderBytes(text, text.size()));
  TROUPE_ASSIGN_OR_RETURN(SafetensorsIndex index,
                          ParseSafetensorsHeader(std::string_view(text).substr(0, header_bytes), text.size()));
  SafetensorsFile file;
  const auto* const data = reinterpret_cast<const std::byte*>(text.data()) + header_bytes;
  for (auto& [name, entry] : index.tensors) {
    file.tensors_[name] = TensorRead{entry.dtype, std::move(entry.shape),
                                     absl::MakeConstSpan(data + entry.begin, entry.end - entry.begin)};
  }
  file.metadata_ = std::move(index.metadata);
  return file;
}

SafetensorsFile SafetensorsFile::Part(const SafetensorsIndex& index, uint64_t begin, const std::string& bytes) {
  SafetensorsFile file;
  const auto* const data = reinterpret_cast<const std::byte*>(bytes.data());
  // One of a thousand policies looks at its own arrays alone.
  auto place = std::lower_bound(index.by_place.begin(), index.by_place.end(), begin,
                                [](const SafetensorsIndex::Place& a, uint64_t b) { return a.begin < b; });
  for (; place != index.by_place.end() && place->end <= begin + bytes.size(); ++place) {
    const SafetensorsIndex::Entry& entry = index.tensors.at(place->name);
    file.tensors_[place->name] = TensorRead{entry.dtype, entry.shape,
                                            absl::MakeConstSpan(data + (entry.begin - begin), entry.end - entry.begin)};
  }
  return file;
}

absl::StatusOr<const TensorRead*> SafetensorsFile::Find(const std::string& name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) return absl::NotFoundError(absl::StrCat("safetensors: no tensor \"", name, "\""));
  return &found->second;
}

}  // namespace troupe::storage
