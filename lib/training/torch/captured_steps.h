#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "lib/training/core/network_backend.h"
#include "lib/training/torch/cuda_graph.h"
#include "lib/training/torch/torch_minibatches.h"
#include <torch/torch.h>

namespace troupe::training {

/// Minibatch steps on a device, which are the same work on other rows: a step whose minibatch has the shape of one
/// before it is captured, and from then on handed over with one call (ADR 43). On the CPU, which has nothing to
/// capture, the work is done anew on the same tensors that a graph would read. Used by one thread.
class CapturedSteps {
 public:
  /// One step: reads the minibatch and whatever stays where it is until Release, writes the latter.
  using Work = std::function<void(const Minibatches&)>;

  explicit CapturedSteps(c10::Device device) : device_(device) {}

  /// Does `work` of this minibatch. Sequences of other lengths are another shape. After an error while capturing, of
  /// which the process logs the first, all steps are done as they are from then on. Raises what `work` raises.
  void Run(const Minibatches& minibatches, const StepSettings& settings, const Work& work);
  /// All that is captured is forgotten.
  void Release() { captured_.clear(); }

  /// Steps since the beginning that were done on kept tensors.
  int64_t replays_for_testing() const { return replays_; }

  /// Shapes that are kept, those used last: an epoch's minibatches, its last one, and as many more.
  static constexpr size_t kMostShapes = 4;

 private:
  /// What has to be the same for two steps to be the same work.
  struct Shape {
    std::vector<int64_t> sizes;
    StepSettings settings;               ///< without `frozen`
    std::vector<ParameterRange> frozen;  ///< settings.frozen's

    bool operator==(const Shape& other) const = default;
  };
  struct Captured {
    Shape shape;
    Minibatches inputs;                  ///< what the work reads, in memory of its own; undefined until the second step
    std::vector<torch::Tensor> numbers;  ///< the same, each tensor once
    std::unique_ptr<CudaGraph> graph;    ///< nullptr on the CPU
  };

  static Shape ShapeOf(const Minibatches& minibatches, const StepSettings& settings);
  /// The step's entry; nullptr for a shape that is seen the first time.
  Captured* Find(Shape shape);
  /// False: it could not be captured.
  bool Capture(const Minibatches& minibatches, const Work& work, Captured* step);

  const c10::Device device_;
  std::vector<Captured> captured_;
  int64_t replays_ = 0;
  bool fails_ = false;
};

}  // namespace troupe::training
