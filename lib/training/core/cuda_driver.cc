#include "lib/training/core/cuda_driver.h"

#include <dlfcn.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lib/base/status_macros.h"

namespace troupe::training {
namespace {

// cuda.h: CUdevice_attribute and CUresult.
constexpr int kCapabilityMajor = 75;
constexpr int kCapabilityMinor = 76;
constexpr int kNoDevice = 100;

std::string CudaVersion(int version) { return absl::StrCat(version / 1000, ".", version % 1000 / 10); }

/// The driver's functions that are used here, as cuda.h declares them.
struct Driver {
  int (*init)(unsigned int) = nullptr;
  int (*version)(int*) = nullptr;
  int (*device_count)(int*) = nullptr;
  int (*device_get)(int*, int) = nullptr;
  int (*device_name)(char*, int, int) = nullptr;
  int (*device_attribute)(int*, int, int) = nullptr;
  int (*device_memory)(size_t*, int) = nullptr;
  int (*error_string)(int, const char**) = nullptr;

  /// OK, or what `function` failed with in the driver's words.
  absl::Status Check(const char* function, int code) const {
    if (code == 0) return absl::OkStatus();
    const char* words = nullptr;
    error_string(code, &words);
    return absl::UnavailableError(absl::StrCat("the NVIDIA driver's ", function, " failed with code ", code,
                                               words == nullptr ? "" : ": ", words == nullptr ? "" : words));
  }
};

template <typename Function>
absl::Status Find(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  if (*function != nullptr) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("the NVIDIA driver is too old: its library has no ", name));
}

absl::StatusOr<Driver> Load(const char* name) {
  // Never closed: LibTorch uses it for as long as the process lives.
  void* const library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* error = dlerror();
    return absl::NotFoundError(absl::StrCat("there is no NVIDIA driver (", error == nullptr ? name : error, ")"));
  }
  Driver driver;
  TROUPE_RETURN_IF_ERROR(Find(library, "cuInit", &driver.init));
  TROUPE_RETURN_IF_ERROR(Find(library, "cuDriverGetVersion", &driver.version));
  TROUPE_RETURN_IF_ERROR(Find(library, "cuDeviceGetCount", &driver.device_count));
  TROUPE_RETURN_IF_ERROR(Find(library, "cuDeviceGet", &driver.device_get));
  TROUPE_RETURN_IF_ERROR(Find(library, "cuDeviceGetName", &driver.device_name));
  TROUPE_RETURN_IF_ERROR(Find(library, "cuDeviceGetAttribute", &driver.device_attribute));
  TROUPE_RETURN_IF_ERROR(Find(library, "cuDeviceTotalMem_v2", &driver.device_memory));
  TROUPE_RETURN_IF_ERROR(Find(library, "cuGetErrorString", &driver.error_string));
  return driver;
}

}  // namespace

std::string CudaDevice::ToString() const {
  return absl::StrFormat("%s (compute capability %d.%d, %.1f GiB, driver for CUDA %s)", name, capability_major,
                         capability_minor, static_cast<double>(memory_bytes) / (1 << 30),
                         CudaVersion(driver_cuda_version));
}

absl::StatusOr<CudaDevice> AskCudaDriver(int index, const char* library) {
  TROUPE_ASSIGN_OR_RETURN(const Driver driver, Load(library));
  const int started = driver.init(0);
  int count = 0;
  if (started != kNoDevice) {
    TROUPE_RETURN_IF_ERROR(driver.Check("cuInit", started));
    TROUPE_RETURN_IF_ERROR(driver.Check("cuDeviceGetCount", driver.device_count(&count)));
  }
  if (count == 0) return absl::UnavailableError("the NVIDIA driver shows this process no device");
  if (index >= count) {
    return absl::UnavailableError(
        absl::StrCat("the NVIDIA driver shows this process ",
                     count == 1 ? "cuda:0 alone" : absl::StrCat("cuda:0 to cuda:", count - 1)));
  }
  CudaDevice device;
  int handle = 0;
  char name[256] = {};
  size_t memory_bytes = 0;
  TROUPE_RETURN_IF_ERROR(driver.Check("cuDriverGetVersion", driver.version(&device.driver_cuda_version)));
  TROUPE_RETURN_IF_ERROR(driver.Check("cuDeviceGet", driver.device_get(&handle, index)));
  TROUPE_RETURN_IF_ERROR(driver.Check("cuDeviceGetName", driver.device_name(name, sizeof(name) - 1, handle)));
  TROUPE_RETURN_IF_ERROR(driver.Check("cuDeviceGetAttribute",
                                      driver.device_attribute(&device.capability_major, kCapabilityMajor, handle)));
  TROUPE_RETURN_IF_ERROR(driver.Check("cuDeviceGetAttribute",
                                      driver.device_attribute(&device.capability_minor, kCapabilityMinor, handle)));
  TROUPE_RETURN_IF_ERROR(driver.Check("cuDeviceTotalMem", driver.device_memory(&memory_bytes, handle)));
  device.name = name;
  device.memory_bytes = memory_bytes;
  return device;
}

absl::Status ExplainFirstUse(const CudaDevice& device, const absl::Status& error) {
  const std::string words(error.message());
  if (absl::StrContains(words, "no kernel image") || absl::StrContains(words, "no longer supports")) {
    return absl::UnavailableError(
        absl::StrCat(device.ToString(), " is too old, or too new, for this LibTorch: ", words));
  }
  if (absl::StrContains(words, "driver version is insufficient") ||
      absl::StrContains(words, "driver on your system is too old")) {
    return absl::UnavailableError(absl::StrCat("the NVIDIA driver runs CUDA up to ",
                                               CudaVersion(device.driver_cuda_version),
                                               ", too old for this LibTorch: update it (", words, ")"));
  }
  return absl::UnavailableError(absl::StrCat(device.ToString(), " cannot be used: ", words));
}

}  // namespace troupe::training
