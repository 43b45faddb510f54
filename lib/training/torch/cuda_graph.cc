#include "lib/training/torch/cuda_graph.h"

#include <dlfcn.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>

#include "lib/base/mutex.h"
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/torch.h>
#include <torch/version.h>

namespace troupe::training {
namespace {

/// The memory that graphs share, as LibTorch numbers it.
using Pool = std::pair<unsigned long long, unsigned long long>;  // NOLINT(google-runtime-int): c10::MempoolId_t

/// at::cuda::CUDAGraph, by the names of its functions. Its header wants CUDA's own headers, which no package of
/// LibTorch brings, and libtorch_cuda.so is loaded, not linked (device.cc). LibTorch's version is pinned.
struct GraphCalls {
  void (*construct)(void* graph, bool keep_graph) = nullptr;
  void (*destroy)(void* graph) = nullptr;
  void (*begin)(void* graph, Pool pool, int mode) = nullptr;
  void (*end)(void* graph) = nullptr;
  void (*replay)(void* graph) = nullptr;
  Pool (*new_pool)() = nullptr;
};
constexpr size_t kGraphBytes = 256;  // its size in LibTorch 2.11 is 104
static_assert(TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR == 11, "look at at::cuda::CUDAGraph again");
/// cudaStreamCaptureModeThreadLocal: other threads may ask CUDA for anything meanwhile, pinned memory for instance.
constexpr int kThreadLocal = 1;

template <typename Function>
void Find(const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, name));
  if (*function == nullptr) throw std::runtime_error(std::string("this LibTorch has no ") + name);
}

const GraphCalls& Calls() {
  static const GraphCalls calls = [] {
    GraphCalls found;
    Find("_ZN2at4cuda9CUDAGraphC1Eb", &found.construct);
    Find("_ZN2at4cuda9CUDAGraphD1Ev", &found.destroy);
    Find("_ZN2at4cuda9CUDAGraph13capture_beginESt4pairIyyE21cudaStreamCaptureMode", &found.begin);
    Find("_ZN2at4cuda9CUDAGraph11capture_endEv", &found.end);
    Find("_ZN2at4cuda9CUDAGraph6replayEv", &found.replay);
    Find("_ZN2at4cuda17graph_pool_handleEv", &found.new_pool);
    return found;
  }();
  return calls;
}

class LibTorchGraph final : public CudaGraph {
 public:
  LibTorchGraph(Pool pool, const std::function<void()>& work) : calls_(Calls()) {
    calls_.construct(memory_.data(), /*keep_graph=*/false);
    try {
      calls_.begin(memory_.data(), pool, kThreadLocal);
      CaptureAndEnd(work);
    } catch (...) {
      calls_.destroy(memory_.data());
      throw;
    }
  }
  ~LibTorchGraph() override { calls_.destroy(memory_.data()); }
  LibTorchGraph(const LibTorchGraph&) = delete;
  LibTorchGraph& operator=(const LibTorchGraph&) = delete;

  void Replay() override { calls_.replay(memory_.data()); }

 private:
  /// The stream captures no more afterwards, whatever happens.
  void CaptureAndEnd(const std::function<void()>& work) {
    try {
      work();
    } catch (...) {
      try {
        calls_.end(memory_.data());
      } catch (const std::exception&) {  // says only that the work was not captured: what `work` raised says why
      }
      throw;
    }
    calls_.end(memory_.data());
  }

  const GraphCalls& calls_;
  alignas(std::max_align_t) std::array<std::byte, kGraphBytes> memory_ = {};
};

/// LibTorch forgets a pool with its last graph. One graph of each device stays, so that the next one finds its memory
/// there and does not ask CUDA for it.
struct SharedPool {
  /// After a capture that failed LibTorch takes the pool for one that is captured into.
  void Abandon() {
    ++failures;
    // Its graph stays: LibTorch may not be asked to forget what it takes for busy.
    [[maybe_unused]] const CudaGraph* const kept = keeper.release();
  }

  Pool pool;
  torch::Tensor number;
  std::unique_ptr<CudaGraph> keeper;
  int failures = 0;
};
/// Each failure costs a pool, which LibTorch asks at every allocation.
constexpr int kMostFailures = 8;

/// One capture at a time, since all are into one pool: what is captured may not capture.
base::Mutex* GraphMutex() {
  static base::Mutex* const mutex = new base::Mutex();
  return mutex;
}

/// With the mutex held.
SharedPool& PoolOf(c10::Device device) {
  static auto* const pools = new std::map<int, SharedPool>();
  SharedPool& shared = (*pools)[device.index()];
  if (shared.failures >= kMostFailures) {
    throw std::runtime_error(std::to_string(kMostFailures) + " captures failed before");
  }
  if (shared.keeper == nullptr) {
    shared.pool = Calls().new_pool();
    shared.number = torch::zeros({1}, torch::TensorOptions().device(device));
    try {
      shared.keeper = std::make_unique<LibTorchGraph>(shared.pool, [&] { shared.number.add_(1); });
    } catch (...) {
      shared.Abandon();
      throw;
    }
  }
  return shared;
}

/// The streams of a device's updates.
struct Streams {
  explicit Streams(c10::Device device)
      : update(c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device)),
        side(c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device)) {}

  void SideAfterUpdate() const { After(update, side); }
  void UpdateAfterSide() const { After(side, update); }

  const c10::Stream update, side;

 private:
  static void After(const c10::Stream& first, const c10::Stream& then) {
    c10::Event event(first.device_type());
    event.record(first);
    event.block(then);
  }
};

const Streams& StreamsOf(c10::Device device) {
  static base::Mutex* const mutex = new base::Mutex();
  static auto* const streams = new std::map<int, Streams>();
  base::MutexLock lock(mutex);
  return streams->try_emplace(device.index(), device).first->second;
}

}  // namespace

c10::Stream UpdateStream(c10::Device device) { return StreamsOf(device).update; }

SideBranch::SideBranch(c10::Device device) : device_(device) {
  if (device_.is_cuda()) StreamsOf(device_).SideAfterUpdate();
}

void SideBranch::End() const {
  if (device_.is_cuda()) StreamsOf(device_).UpdateAfterSide();
}

std::unique_ptr<c10::StreamGuard> SideBranch::Enter() const {
  return device_.is_cuda() ? std::make_unique<c10::StreamGuard>(StreamsOf(device_).side) : nullptr;
}

void AwaitUpdates(c10::Device device) {
  StreamsOf(device).side.synchronize();
  StreamsOf(device).update.synchronize();
}

std::unique_ptr<CudaGraph> CudaGraph::Capture(c10::Device device, const std::function<void()>& work) {
  base::MutexLock lock(GraphMutex());
  SharedPool& pool = PoolOf(device);
  try {
    return std::make_unique<LibTorchGraph>(pool.pool, work);
  } catch (...) {
    pool.Abandon();
    throw;
  }
}

}  // namespace troupe::training
