#include "lib/training/testing/full_memory.h"

#include <atomic>
#include <new>

#include "lib/training/torch/cuda_graph.h"
#include "lib/training/torch/torch_device.h"
#include <c10/core/CPUAllocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <torch/torch.h>

namespace troupe::training {
namespace {

constexpr int64_t kLargest = int64_t{8} << 30;
constexpr int64_t kSmallest = 512;

/// Counts down, then throws.
class EndingAllocator final : public c10::Allocator {
 public:
  EndingAllocator(c10::Allocator* behind, int allocations) : behind_(behind), left_(allocations) {}
  c10::DataPtr allocate(size_t bytes) override {
    // Requests of nothing are not memory.
    if (bytes > 0 && left_.fetch_sub(1) <= 0) {
      TORCH_CHECK_WITH(OutOfMemoryError, false, "CPU out of memory. Tried to allocate ", bytes, " bytes.");
    }
    return behind_->allocate(bytes);
  }
  c10::DeleterFnPtr raw_deleter() const override { return behind_->raw_deleter(); }
  void copy_data(void* to, const void* from, size_t bytes) const override { behind_->copy_data(to, from, bytes); }

 private:
  c10::Allocator* const behind_;
  std::atomic<int> left_;
};

}  // namespace

struct FullMemory::Taken {
  std::vector<torch::Tensor> blocks;
  c10::Allocator* usual = nullptr;
  std::unique_ptr<EndingAllocator> ending;
};

FullMemory::FullMemory(const Device& device, int allocations) : taken_(std::make_unique<Taken>()) {
  if (!device.is_cuda()) {
    taken_->usual = c10::GetCPUAllocator();
    taken_->ending = std::make_unique<EndingAllocator>(taken_->usual, allocations);
    c10::SetCPUAllocator(taken_->ending.get());
    return;
  }
  const c10::StreamGuard guard(UpdateStream(ToTorch(device)));  // what was freed there is taken, too
  const auto bytes_on_it = torch::TensorOptions().dtype(torch::kUInt8).device(ToTorch(device));
  for (int64_t bytes = kLargest; bytes >= kSmallest;) {
    try {
      taken_->blocks.push_back(torch::empty({bytes}, bytes_on_it));
    } catch (const c10::OutOfMemoryError&) {
      bytes /= 2;
    }
  }
}

FullMemory::~FullMemory() {
  if (taken_->usual != nullptr) {
    c10::SetCPUAllocator(taken_->usual);
    return;
  }
  // Back to the driver: what CUDA itself takes at the first use of a kernel does not come from LibTorch's cache.
  taken_->blocks.clear();
  c10::getDeviceAllocator(c10::DeviceType::CUDA)->emptyCache();
}

}  // namespace troupe::training
