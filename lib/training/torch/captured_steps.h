#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "lib/training/torch/cuda_graph.h"
#include <torch/torch.h>

namespace troupe::training {

/// CudaGraph::Capture; nullptr where it fails, of which the process logs the first.
std::unique_ptr<CudaGraph> TryToCapture(c10::Device device, const std::function<void()>& work);

/// Steps on a device, which are the same work on other numbers: a step whose key and shapes are those of one before it
/// is captured, and from then on handed over with one call (ADR 43). On the CPU, which has nothing to capture, the work
/// is done anew on the same tensors that a graph would read. Used by one thread. `Key` says what has to be the same for
/// two steps to be the same work, beside the shapes of their inputs; it is compared with ==.
template <typename Key>
class CapturedSteps {
 public:
  using Inputs = std::vector<torch::Tensor>;
  /// One step: reads the inputs and whatever stays where it is until Release, writes the latter.
  using Work = std::function<void(const Inputs&)>;

  explicit CapturedSteps(c10::Device device) : device_(device) {}

  /// Does `work` of these inputs, all of them defined. After an error while capturing all steps are done as they are
  /// from then on. Raises what `work` raises.
  void Run(const Inputs& inputs, Key key, const Work& work) {
    if (fails_) return work(inputs);
    Captured* const step = Find(std::move(key), inputs);
    if (step == nullptr) return work(inputs);  // also what libraries do at their first call is not captured
    if (step->inputs.empty() && !Capture(inputs, work, step)) return work(inputs);
    for (size_t i = 0; i < inputs.size(); ++i) step->inputs[i].copy_(inputs[i], /*non_blocking=*/true);
    if (step->graph == nullptr) {
      work(step->inputs);
    } else {
      step->graph->Replay();
    }
    ++replays_;
  }
  /// All that is captured is forgotten.
  void Release() { captured_.clear(); }

  /// Steps since the beginning that were done on kept tensors.
  int64_t replays_for_testing() const { return replays_; }

  /// Shapes that are kept, those used last: an epoch's minibatches, its last one, and as many more.
  static constexpr size_t kMostShapes = 4;

 private:
  struct Captured {
    Key key;
    std::vector<std::vector<int64_t>> shapes;
    Inputs inputs = {};                          ///< what the work reads, in memory of its own; from the second step on
    std::unique_ptr<CudaGraph> graph = nullptr;  ///< nullptr on the CPU
  };

  /// The step's entry; nullptr for one that is seen the first time.
  Captured* Find(Key key, const Inputs& inputs) {
    std::vector<std::vector<int64_t>> shapes;
    for (const torch::Tensor& input : inputs) shapes.push_back(input.sizes().vec());
    const auto same = [&](const Captured& step) { return step.shapes == shapes && step.key == key; };
    const auto found = std::find_if(captured_.begin(), captured_.end(), same);
    if (found != captured_.end()) {
      std::rotate(found, found + 1, captured_.end());
      return &captured_.back();
    }
    // The one that was used the longest ago goes. The device may be at it still: CUDA keeps a graph until it has run.
    if (captured_.size() == kMostShapes) captured_.erase(captured_.begin());
    captured_.push_back({std::move(key), std::move(shapes)});
    return nullptr;
  }
  /// False: it could not be captured.
  bool Capture(const Inputs& inputs, const Work& work, Captured* step) {
    for (const torch::Tensor& input : inputs) step->inputs.push_back(input.clone());
    if (!device_.is_cuda()) return true;
    step->graph = TryToCapture(device_, [&] { work(step->inputs); });
    if (step->graph != nullptr) return true;
    fails_ = true;
    captured_.clear();
    return false;
  }

  const c10::Device device_;
  std::vector<Captured> captured_;
  int64_t replays_ = 0;
  bool fails_ = false;
};

}  // namespace troupe::training
