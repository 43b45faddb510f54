#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "lib/tensor/dtype.h"

namespace troupe::storage {

/// One named array to be written; borrows its bytes.
struct TensorToWrite {
  std::string name;
  tensor::DType dtype = tensor::DType::kFloat32;
  std::vector<int64_t> shape;
  absl::Span<const std::byte> bytes;  ///< row-major, little-endian, exactly as many as dtype and shape say
};

/// One named array of a parsed file; borrows from the text it was parsed from.
struct TensorRead {
  tensor::DType dtype = tensor::DType::kFloat32;
  std::vector<int64_t> shape;
  absl::Span<const std::byte> bytes;

  /// The elements as T. INVALID_ARGUMENT unless the dtype is T's and the count is `expected`.
  absl::StatusOr<std::vector<float>> ToFloats(int64_t expected) const;
  absl::StatusOr<std::vector<double>> ToDoubles(int64_t expected) const;
};

/// The header of a safetensors file (8 bytes of length, JSON, padded to 8 bytes); the tensors' bytes follow it in the
/// given order.
std::string SafetensorsHeader(absl::Span<const TensorToWrite> tensors,
                              const std::map<std::string, std::string>& metadata);

/// What the header of a safetensors file says: where each array is among the bytes behind it. Every offset is checked:
/// arrays lie inside the file, without holes or overlaps, and have the bytes that their shape asks for.
struct SafetensorsIndex {
  struct Entry {
    tensor::DType dtype = tensor::DType::kFloat32;
    std::vector<int64_t> shape;
    uint64_t begin = 0;  ///< of its bytes, from the end of the header
    uint64_t end = 0;
  };
  /// Where an array is; they are ordered by that.
  struct Place {
    uint64_t begin = 0;
    uint64_t end = 0;
    std::string name;
    bool operator<(const Place& other) const {
      return std::tie(begin, end, name) < std::tie(other.begin, other.end, other.name);
    }
  };
  std::map<std::string, Entry> tensors;
  std::vector<Place> by_place;  ///< of all tensors, ascending
  std::map<std::string, std::string> metadata;
};

/// A file begins with its header's length, a little-endian number of so many bytes.
inline constexpr int64_t kSafetensorsLengthBytes = 8;

/// Bytes of a file's header, those of its length included, from the first kSafetensorsLengthBytes of a file of
/// `file_bytes`. INVALID_ARGUMENT when that cannot be.
absl::StatusOr<uint64_t> SafetensorsHeaderBytes(std::string_view first_bytes, uint64_t file_bytes);
/// `header`: that many first bytes of a file of `file_bytes`. INVALID_ARGUMENT says what is wrong.
absl::StatusOr<SafetensorsIndex> ParseSafetensorsHeader(std::string_view header, uint64_t file_bytes);

/// A parsed safetensors file. Every offset is checked: tensors lie inside the file, without holes or overlaps, and have
/// the bytes that their shape asks for. INVALID_ARGUMENT says what is wrong. At most 32 MiB of
/// header and 2^19 values in it. Errors hold nothing of the file.
class SafetensorsFile {
 public:
  /// `text` must outlive the result.
  static absl::StatusOr<SafetensorsFile> Parse(const std::string& text);
  /// The arrays of `index` that lie within `bytes`, which begin `begin` behind the header; no other. `bytes` must
  /// outlive the result.
  static SafetensorsFile Part(const SafetensorsIndex& index, uint64_t begin, const std::string& bytes);

  const std::map<std::string, TensorRead>& tensors() const { return tensors_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  /// NOT_FOUND with the name.
  absl::StatusOr<const TensorRead*> Find(const std::string& name) const;

 private:
  std::map<std::string, TensorRead> tensors_;
  std::map<std::string, std::string> metadata_;
};

}  // namespace troupe::storage
