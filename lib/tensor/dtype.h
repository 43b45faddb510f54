#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace troupe::tensor {

/// Element types that cross Troupe's interfaces. Values are on the wire and in files: never renumber.
enum class DType : uint8_t {
  kUnspecified = 0,
  kFloat32 = 1,
  kInt32 = 2,
  kUint8 = 3,  ///< also booleans, one byte each
  kUint32 = 4,
  kFloat64 = 5,
  kInt64 = 6,
  kUint16 = 7,
};

/// Size of one element; 0 for kUnspecified.
size_t ElementBytes(DType dtype);
/// "float32", "int32", ...; "unspecified" for anything else.
std::string_view DTypeName(DType dtype);

}  // namespace troupe::tensor
