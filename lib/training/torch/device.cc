#include "lib/training/torch/device.h"

#include <dlfcn.h>

#include <filesystem>
#include <map>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lib/base/log.h"
#include "lib/base/mutex.h"
#include "lib/base/status_macros.h"
#include "lib/training/core/cuda_driver.h"
#include "lib/training/torch/torch_device.h"
#include "lib/training/torch/torch_status.h"
#include <torch/torch.h>

namespace troupe::training {
namespace {

constexpr char kCudaPart[] = "libtorch_cuda.so";

/// Loads LibTorch's CUDA part from where the part that is linked was found.
absl::Status LoadCudaPart() {
  Dl_info linked = {};
  std::filesystem::path path = kCudaPart;
  if (dladdr(reinterpret_cast<const void*>(&torch::cuda::is_available), &linked) != 0 && linked.dli_fname != nullptr) {
    const std::filesystem::path beside = std::filesystem::path(linked.dli_fname).parent_path() / kCudaPart;
    std::error_code error;
    if (std::filesystem::exists(beside, error)) path = beside;
  }
  // Only torch_cpu is linked. Loading the library registers its kernels and hooks; it must stay, so it is never closed.
  // This has to come before anything asks LibTorch about CUDA, a backward pass on the CPU included, because LibTorch
  // remembers the answer.
  if (dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL) != nullptr) return absl::OkStatus();
  const char* error = dlerror();
  return absl::UnavailableError(absl::StrCat("LibTorch's CUDA part cannot be loaded (",
                                             error == nullptr ? path.string() : error,
                                             "); install torch with the nvidia packages it depends on"));
}

/// Why LibTorch finds no device where the driver shows one, in the CUDA runtime's words.
std::string RuntimeWords() {
  const auto device_count = reinterpret_cast<int (*)(int*)>(dlsym(RTLD_DEFAULT, "cudaGetDeviceCount"));
  const auto error_string = reinterpret_cast<const char* (*)(int)>(dlsym(RTLD_DEFAULT, "cudaGetErrorString"));
  int count = 0;
  const int code = device_count == nullptr ? 0 : device_count(&count);
  if (code == 0 && count > 0) return "LibTorch was used on the CPU before its CUDA part was loaded";
  if (code == 0 || error_string == nullptr) return "LibTorch finds no usable CUDA device";
  return error_string(code);
}

absl::Status OpenCuda(const Device& device) {
  TROUPE_ASSIGN_OR_RETURN(const CudaDevice driver, AskCudaDriver(device.index));
  TROUPE_RETURN_IF_ERROR(LoadCudaPart());
  const absl::Status used = CatchTorch("using the device", [&] {
    if (!torch::cuda::is_available()) return absl::UnavailableError(RuntimeWords());
    // A device that is there but cannot run our LibTorch shows itself here, not in mid-training.
    const torch::Tensor probe = torch::ones({2}, ToTorch(device)).sum();
    if (probe.item<float>() != 2.0f) return absl::UnavailableError("it computes 1 + 1 wrongly");
    return absl::OkStatus();
  });
  if (!used.ok()) return ExplainFirstUse(driver, used);
  static bool told = false;
  if (!std::exchange(told, true)) {
    TROUPE_INFO("training on a GPU device={} name=\"{}\"", device.ToString(), base::LogSafe(driver.ToString()));
  }
  return absl::OkStatus();
}

/// Page-locked memory out of LibTorch's caching allocator.
class PinnedAllocator final : public tensor::TensorAllocator {
 public:
  explicit PinnedAllocator(const Device& device) : device_(device) {}

  void* Allocate(size_t bytes) override {
    torch::Tensor memory;
    const absl::Status status = CatchTorch("allocating pinned memory", [&] {
      const c10::DeviceGuard guard(ToTorch(device_));
      const auto pinned = torch::TensorOptions().dtype(torch::kUInt8).pinned_memory(true);
      memory = torch::empty({static_cast<int64_t>(bytes)}, pinned);  // whole pages, so aligned to more than 64 bytes
      return absl::OkStatus();
    });
    if (!status.ok()) {
      TROUPE_WARN("copies to the GPU will be slower bytes={} error=\"{}\"", bytes,
                  base::LogSafe(std::string(status.message())));
      return TensorAllocator::Pageable().Allocate(bytes);
    }
    void* data = memory.data_ptr();
    base::MutexLock lock(&mutex_);
    memory_.emplace(data, std::move(memory));
    return data;
  }

  void Deallocate(void* memory, size_t bytes) override {
    std::map<void*, torch::Tensor>::node_type released;  // destroyed after the lock is
    {
      base::MutexLock lock(&mutex_);
      released = memory_.extract(memory);
    }
    if (released.empty()) TensorAllocator::Pageable().Deallocate(memory, bytes);
  }

 private:
  const Device device_;
  base::Mutex mutex_;
  std::map<void*, torch::Tensor> memory_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

absl::StatusOr<Device> ResolveDevice(std::string_view name) {
  const absl::StatusOr<Device> asked = ParseDevice(name);
  if (!asked.ok()) return absl::InvalidArgumentError(absl::StrCat("device: ", asked.status().message()));
  if (asked->kind == DeviceKind::kCpu) return *asked;
  const Device device{DeviceKind::kCuda, asked->index};
  const absl::Status status = OpenCuda(device);
  if (status.ok()) return device;
  if (asked->kind == DeviceKind::kAuto) {
    // Without a driver nobody expects a GPU to be used; `troupe doctor` says it.
    if (!absl::IsNotFound(status))
      TROUPE_INFO("training on the CPU reason=\"{}\"", base::LogSafe(std::string(status.message())));
    return Device{DeviceKind::kCpu};
  }
  return absl::UnavailableError(absl::StrCat("device: got \"", std::string(name), "\", but ", status.message(),
                                             ", expected a CUDA device; write cpu, or auto to take one where it is"));
}

tensor::TensorAllocator& BatchAllocator(const Device& device) {
  if (!device.is_cuda()) return tensor::TensorAllocator::Pageable();
  static base::Mutex* const mutex = new base::Mutex();
  static auto* const allocators = new std::map<int, PinnedAllocator>();
  base::MutexLock lock(mutex);
  return allocators->try_emplace(device.index, device).first->second;
}

}  // namespace troupe::training
