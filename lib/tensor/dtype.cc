#include "lib/tensor/dtype.h"

namespace troupe::tensor {

size_t ElementBytes(DType dtype) {
  switch (dtype) {
    case DType::kUint8:
      return 1;
    case DType::kUint16:
      return 2;
    case DType::kFloat32:
    case DType::kInt32:
    case DType::kUint32:
      return 4;
    case DType::kFloat64:
    case DType::kInt64:
      return 8;
    case DType::kUnspecified:
      return 0;
  }
  return 0;
}

std::string_view DTypeName(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return "float32";
    case DType::kInt32:
      return "int32";
    case DType::kUint8:
      return "uint8";
    case DType::kUint32:
      return "uint32";
    case DType::kFloat64:
      return "float64";
    case DType::kInt64:
      return "int64";
    case DType::kUint16:
      return "uint16";
    case DType::kUnspecified:
      break;
  }
  return "unspecified";
}

}  // namespace troupe::tensor
