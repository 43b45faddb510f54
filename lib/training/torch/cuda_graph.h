#pragma once

#include <functional>
#include <memory>

#include <c10/core/Device.h>
#include <c10/core/Stream.h>
#include <c10/core/StreamGuard.h>

namespace troupe::training {

/// The stream on which all updates of a CUDA device run. LibTorch's default one cannot be captured.
c10::Stream UpdateStream(c10::Device device);

/// Work of a CUDA device beside that of UpdateStream, the current one: what is handed over while it is entered. It
/// waits for what UpdateStream was handed before the branch was made, and UpdateStream waits for it from End on. A loss
/// that is computed there is differentiated there. On the CPU nothing. Its functions raise what LibTorch raises.
class SideBranch {
 public:
  explicit SideBranch(c10::Device device);

  /// Entered as long as what is returned lives.
  std::unique_ptr<c10::StreamGuard> Enter() const;
  void End() const;

 private:
  const c10::Device device_;
};

/// Returns when the device has done all that its updates handed over. Raises what LibTorch raises.
void AwaitUpdates(c10::Device device);

/// Work of a CUDA device, handed over once and done again with one call.
class CudaGraph {
 public:
  /// Captures what `work` hands over on UpdateStream, the current one: nothing of it is computed yet. The tensors that
  /// it reads and writes must stay where they are. Memory that it takes is the graphs' own, and all graphs of a device
  /// share it: they are replayed one after another. Raises what `work` raises, what LibTorch raises where the device
  /// had to be waited for, and std::runtime_error for a LibTorch that cannot capture.
  static std::unique_ptr<CudaGraph> Capture(c10::Device device, const std::function<void()>& work);

  virtual ~CudaGraph() = default;
  /// Hands the work over to UpdateStream. Raises what LibTorch raises.
  virtual void Replay() = 0;
};

}  // namespace troupe::training
