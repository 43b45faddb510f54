#include "lib/training/device.h"

#include <dlfcn.h>

#include <map>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lib/base/check.h"
#include "lib/base/log.h"
#include "lib/base/mutex.h"
#include "lib/base/status_macros.h"
#include "lib/training/torch_status.h"
#include <torch/torch.h>

namespace troupe::training {
namespace {

std::string LoaderError() {
  const char* error = dlerror();
  return error == nullptr ? "unknown error of the dynamic loader" : error;
}

/// Asks the driver itself, which is quick; LibTorch's CUDA part takes seconds to load.
absl::Status CheckDriver() {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (driver == nullptr) return absl::UnavailableError(absl::StrCat("no CUDA driver: ", LoaderError()));
  using Init = int (*)(unsigned int);
  using DeviceCount = int (*)(int*);
  const auto init = reinterpret_cast<Init>(dlsym(driver, "cuInit"));
  const auto device_count = reinterpret_cast<DeviceCount>(dlsym(driver, "cuDeviceGetCount"));
  if (init == nullptr || device_count == nullptr)
    return absl::UnavailableError("libcuda.so.1 has no cuInit or cuDeviceGetCount");
  if (const int code = init(0); code != 0)
    return absl::UnavailableError(absl::StrCat("cuInit failed with code ", code));
  int count = 0;
  if (const int code = device_count(&count); code != 0) {
    return absl::UnavailableError(absl::StrCat("cuDeviceGetCount failed with code ", code));
  }
  if (count == 0) return absl::UnavailableError("the CUDA driver sees no device");
  return absl::OkStatus();
}

absl::Status OpenCuda() {
  TROUPE_RETURN_IF_ERROR(CheckDriver());
  // Only torch_cpu is linked. Loading the library registers its kernels and hooks; it must stay, so it is never closed.
  // This has to come before anything asks LibTorch about CUDA, because LibTorch remembers the answer.
  if (dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_GLOBAL) == nullptr) {
    return absl::UnavailableError(absl::StrCat("cannot load LibTorch's CUDA part: ", LoaderError()));
  }
  return CatchTorch("probing CUDA", [] {
    if (!torch::cuda::is_available()) return absl::UnavailableError("LibTorch finds no usable CUDA device");
    // A device that is there but cannot run our LibTorch (too old, wrong driver) shows itself here, not in
    // mid-training.
    const torch::Tensor probe = torch::ones({2}, torch::Device(torch::kCUDA, 0)).sum();
    if (probe.item<float>() != 2.0f) return absl::UnavailableError("the CUDA device computes 1 + 1 wrongly");
    return absl::OkStatus();
  });
}

/// Page-locked memory out of LibTorch's caching allocator.
class PinnedAllocator final : public tensor::TensorAllocator {
 public:
  void* Allocate(size_t bytes) override {
    torch::Tensor memory;
    const absl::Status status = CatchTorch("allocating pinned memory", [&] {
      const auto pinned = torch::TensorOptions().dtype(torch::kUInt8).pinned_memory(true);
      memory = torch::empty({static_cast<int64_t>(bytes)}, pinned);  // whole pages, so aligned to more than 64 bytes
      return absl::OkStatus();
    });
    if (!status.ok()) TROUPE_ERROR("{} bytes={}", std::string(status.message()), bytes);
    TROUPE_CHECK(status.ok());
    void* data = memory.data_ptr();
    base::MutexLock lock(&mutex_);
    memory_.emplace(data, std::move(memory));
    return data;
  }

  void Deallocate(void* memory, size_t /*bytes*/) override {
    std::map<void*, torch::Tensor>::node_type released;  // destroyed after the lock is
    base::MutexLock lock(&mutex_);
    released = memory_.extract(memory);
  }

 private:
  base::Mutex mutex_;
  std::map<void*, torch::Tensor> memory_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

std::string_view DeviceName(DeviceKind device) { return device == DeviceKind::kCuda ? "cuda" : "cpu"; }

absl::StatusOr<DeviceKind> ResolveDevice(std::string_view name) {
  if (name == "cpu") return DeviceKind::kCpu;
  if (name != "auto" && name != "cuda") {
    return absl::InvalidArgumentError(
        absl::StrCat("device is \"", std::string(name), "\"; expected auto, cpu or cuda"));
  }
  const absl::Status status = OpenCuda();
  if (status.ok()) return DeviceKind::kCuda;
  if (name == "auto") {
    TROUPE_INFO("training on the CPU reason=\"{}\"", base::LogSafe(std::string(status.message())));
    return DeviceKind::kCpu;
  }
  return absl::UnavailableError(
      absl::StrCat("device is cuda, but ", status.message(), "; expected a CUDA device, or device: cpu or auto"));
}

tensor::TensorAllocator& BatchAllocator(DeviceKind device) {
  if (device != DeviceKind::kCuda) return tensor::TensorAllocator::Pageable();
  static PinnedAllocator* const pinned = new PinnedAllocator();
  return *pinned;
}

}  // namespace troupe::training
