#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace troupe::training {

enum class DeviceKind : uint8_t {
  kAuto = 1,  ///< the first CUDA device where there is one, else the CPU; only in what a user asks for
  kCpu = 2,
  kCuda = 3,
};

/// A device as a user names it, or (never kAuto) as training uses it. Plain value.
struct Device {
  DeviceKind kind = DeviceKind::kCpu;
  int index = 0;  ///< of the CUDA devices that this process sees

  bool is_cuda() const { return kind == DeviceKind::kCuda; }
  /// "auto", "cpu", "cuda:0".
  std::string ToString() const {
    if (is_cuda()) return absl::StrCat("cuda:", index);
    return kind == DeviceKind::kCpu ? "cpu" : "auto";
  }
  friend bool operator==(const Device& a, const Device& b) { return a.kind == b.kind && a.index == b.index; }
};

/// CUDA devices of one machine that can be named; LibTorch counts them in 8 bits.
constexpr int kMaxDeviceIndex = 127;

/// The device of "auto", "cpu", "cuda" (which is "cuda:0") or "cuda:N". INVALID_ARGUMENT, "got …, expected …", for
/// another name.
inline absl::StatusOr<Device> ParseDevice(std::string_view name) {
  constexpr std::string_view kPrefix = "cuda:";
  if (name == "auto") return Device{DeviceKind::kAuto};
  if (name == "cpu") return Device{DeviceKind::kCpu};
  if (name == "cuda") return Device{DeviceKind::kCuda};
  int index = -1;
  const std::string_view digits = name.substr(0, kPrefix.size()) == kPrefix ? name.substr(kPrefix.size()) : "";
  const bool plain = !digits.empty() && digits.find_first_not_of("0123456789") == std::string_view::npos;
  if (plain && absl::SimpleAtoi(std::string(digits), &index) && index <= kMaxDeviceIndex) {
    return Device{DeviceKind::kCuda, index};
  }
  return absl::InvalidArgumentError(absl::StrCat("got \"", std::string(name),
                                                 "\", expected auto, cpu, cuda or cuda:N (N from 0 to ",
                                                 kMaxDeviceIndex, "); auto takes a GPU where there is one"));
}

/// What matrix products of an update on a CUDA device are made of. Parameters, losses and the optimizer are float32.
enum class Precision : uint8_t {
  kFloat32 = 1,
  kTf32 = 2,  ///< float32 numbers, of which a product takes 10 bits of the fraction
  /// Autocast. Networks that remember, and both of a policy one of which is a user's module, stay float32.
  kBfloat16 = 3,
};

/// Where training runs, and how.
struct DeviceOptions {
  std::string device = "auto";  ///< as ParseDevice takes it
  Precision precision = Precision::kFloat32;
  int num_threads = 0;  ///< CPU threads of the update; 0: the cores there are
};

}  // namespace troupe::training
