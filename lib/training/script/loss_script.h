#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/policy/module_files.h"
#include "lib/training/torch/loss_rows.h"
#include <torch/script.h>

namespace troupe::training {

/// The loss of a minibatch, as a user's module gives it. Plain value.
struct ModuleLoss {
  torch::Tensor loss;  ///< scalar, with a graph to what networks give
  /// Scalars without one: kOwnMetric, which is the loss, then the module's, in its order.
  std::vector<std::pair<std::string, torch::Tensor>> metrics;
};
inline constexpr char kOwnMetric[] = "Loss";
inline constexpr size_t kMaxLossMetrics = 30;  ///< of a module

/// A user's TorchScript module as the loss of a minibatch:
///   forward(outputs: Dict[str, Tensor], columns: Dict[str, Tensor]) -> (loss, metrics: Dict[str, Tensor])
/// `outputs` is what LossOutputs says, `columns` has those that the module's attribute `columns`, a List[str], names.
/// Runs without the optimizing executor, as ScriptNetwork. Owned by a back end, or by who tries it; used by one thread
/// at a time. What a module changes of itself stays in this object: it is in no checkpoint.
class LossScript {
 public:
  /// INVALID_ARGUMENT, naming the file: no TorchScript, another signature, no `columns`, a column that there is not, a
  /// parameter.
  static absl::StatusOr<std::unique_ptr<LossScript>> Load(const policy::ModuleFile& file, const torch::Device& device);
  /// That of policy::ModuleFiles. NOT_FOUND: there is none of that hash.
  static absl::StatusOr<std::unique_ptr<LossScript>> Find(const std::string& sha256, const torch::Device& device);

  const std::vector<std::string>& columns() const { return columns_; }
  /// Raises where forward does, and where it gives a loss that is no scalar or needs no gradient, or metrics that are
  /// more than kMaxLossMetrics, no scalars, or of other names than 1 to 64 printable characters; kOwnMetric is taken.
  ModuleLoss Run(const NamedTensors& outputs, const NamedTensors& columns) const;

 private:
  LossScript(torch::jit::Module module, std::vector<std::string> columns);

  torch::jit::Module module_;
  torch::jit::Method forward_;
  const std::vector<std::string> columns_;
};

}  // namespace troupe::training
