#include "lib/training/torch/captured_steps.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <utility>

#include "lib/base/log.h"
#include "lib/training/torch/torch_status.h"

namespace troupe::training {
namespace {

using torch::Tensor;

constexpr Tensor Minibatch::*kNumbers[] = {&Minibatch::rows,      &Minibatch::run,    &Minibatch::kept,
                                           &Minibatch::sequences, &Minibatch::inputs, &Minibatch::places};

/// Calls `use` with each of a minibatch's tensors that is defined.
template <typename Some, typename Use>
void ForNumbers(Some& minibatches, Use&& use) {
  for (auto* const minibatch : {&minibatches.actor, &minibatches.critic}) {
    for (const auto number : kNumbers) {
      if ((minibatch->*number).defined()) use(minibatch->*number);
    }
  }
}

/// Where `tensor` stands among them, behind the last one if it is none of them.
size_t PlaceOf(const Tensor& tensor, const std::vector<Tensor>& tensors) {
  const auto same = [&](const Tensor& other) { return other.is_same(tensor); };
  return static_cast<size_t>(std::find_if(tensors.begin(), tensors.end(), same) - tensors.begin());
}

/// Each tensor once, in the order of ForNumbers.
std::vector<Tensor> NumbersOf(const Minibatches& minibatches) {
  std::vector<Tensor> numbers;
  ForNumbers(minibatches, [&](const Tensor& tensor) {
    if (PlaceOf(tensor, numbers) == numbers.size()) numbers.push_back(tensor);
  });
  return numbers;
}

}  // namespace

void CapturedSteps::Run(const Minibatches& minibatches, const StepSettings& settings, const Work& work) {
  if (fails_) return work(minibatches);
  Captured* const step = Find(ShapeOf(minibatches, settings));
  if (step == nullptr) return work(minibatches);  // also what libraries do at their first call is not captured
  if (step->numbers.empty() && !Capture(minibatches, work, step)) return work(minibatches);
  const std::vector<Tensor> numbers = NumbersOf(minibatches);
  for (size_t i = 0; i < numbers.size(); ++i) step->numbers[i].copy_(numbers[i], /*non_blocking=*/true);
  if (step->graph == nullptr) {
    work(step->inputs);
  } else {
    step->graph->Replay();
  }
  ++replays_;
}

CapturedSteps::Shape CapturedSteps::ShapeOf(const Minibatches& minibatches, const StepSettings& settings) {
  Shape shape{.settings = settings, .frozen = {settings.frozen.begin(), settings.frozen.end()}};
  shape.settings.frozen = {};  // the caller's
  const std::vector<Tensor> numbers = NumbersOf(minibatches);
  for (const Minibatch* const minibatch : {&minibatches.actor, &minibatches.critic}) {
    for (const auto number : kNumbers) {
      const Tensor& tensor = minibatch->*number;
      shape.sizes.push_back(tensor.defined() ? tensor.size(0) : -1);
      shape.sizes.push_back(tensor.defined() ? static_cast<int64_t>(PlaceOf(tensor, numbers)) : -1);
    }
    shape.sizes.push_back(minibatch->width);
    if (minibatch->batch_sizes.defined()) {
      const int64_t* const lengths = minibatch->batch_sizes.data_ptr<int64_t>();
      shape.sizes.insert(shape.sizes.end(), lengths, lengths + minibatch->batch_sizes.size(0));
    }
  }
  return shape;
}

CapturedSteps::Captured* CapturedSteps::Find(Shape shape) {
  const auto same = [&](const Captured& step) { return step.shape == shape; };
  const auto found = std::find_if(captured_.begin(), captured_.end(), same);
  if (found != captured_.end()) {
    std::rotate(found, found + 1, captured_.end());
    return &captured_.back();
  }
  // The one that was used the longest ago goes. The device may be at it still: CUDA keeps a graph until it has run.
  if (captured_.size() == kMostShapes) captured_.erase(captured_.begin());
  captured_.push_back({.shape = std::move(shape)});
  return nullptr;
}

bool CapturedSteps::Capture(const Minibatches& minibatches, const Work& work, Captured* step) {
  const std::vector<Tensor> numbers = NumbersOf(minibatches);
  for (const Tensor& number : numbers) step->numbers.push_back(number.clone());
  step->inputs = minibatches;
  ForNumbers(step->inputs, [&](Tensor& tensor) { tensor = step->numbers[PlaceOf(tensor, numbers)]; });
  if (!device_.is_cuda()) return true;
  try {
    step->graph = CudaGraph::Capture(device_, [&] { work(step->inputs); });
    return true;
  } catch (const std::exception& error) {
    static std::atomic<bool> told = false;  // a thousand policies have one reason
    if (!told.exchange(true)) {
      TROUPE_WARN("minibatch steps are not captured, and take longer reason=\"{}\"", base::LogSafe(FirstWords(error)));
    }
    fails_ = true;
    captured_.clear();
    return false;
  }
}

}  // namespace troupe::training
