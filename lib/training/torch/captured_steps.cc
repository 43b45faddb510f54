#include "lib/training/torch/captured_steps.h"

#include <atomic>
#include <exception>

#include "lib/base/log.h"
#include "lib/training/torch/torch_status.h"

namespace troupe::training {

std::unique_ptr<CudaGraph> TryToCapture(c10::Device device, const std::function<void()>& work) {
  try {
    return CudaGraph::Capture(device, work);
  } catch (const std::exception& error) {
    static std::atomic<bool> told = false;  // a thousand policies have one reason
    if (!told.exchange(true)) {
      TROUPE_WARN("minibatch steps are not captured, and take longer reason=\"{}\"", base::LogSafe(FirstWords(error)));
    }
    return nullptr;
  }
}

}  // namespace troupe::training
