#include "lib/training/script/loss_probe.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/log.h"
#include "lib/base/philox.h"
#include "lib/policy/policy_spec.h"
#include "lib/training/core/action_head.h"
#include "lib/training/script/script_file.h"
#include "lib/training/torch/torch_distributions.h"
#include "lib/training/torch/torch_status.h"
#include <torch/csrc/autograd/autograd.h>

namespace troupe::training {
namespace {

using torch::Tensor;

constexpr int64_t kRows = 8;

/// Numbers of a few rows, the same in every process.
class MadeUp {
 public:
  explicit MadeUp(const policy::PolicySpec& spec)
      : spec_(spec), head_(ActionHead::For(spec)), random_(base::PhiloxKey::Make(0, base::RandomStream::kInit), {}) {}

  const ActionHead& head() const { return head_; }
  Tensor Normal(torch::IntArrayRef sizes) {
    Tensor numbers = torch::empty(sizes);
    for (int64_t i = 0; i < numbers.numel(); ++i) numbers.data_ptr<float>()[i] = static_cast<float>(random_.Normal());
    return numbers;
  }
  TorchBatch Batch() {
    TorchBatch batch;
    batch.actions = torch::zeros({kRows, spec_.action_words()}, torch::kInt32);
    if (spec_.has_action_mask) batch.mask = torch::ones({kRows, spec_.mask_size()}, torch::kUInt8);
    for (int64_t r = 0; r < kRows; ++r) Act(r, &batch);
    batch.advantages = Normal({kRows});
    batch.value_targets = Normal({kRows});
    batch.old_values = Normal({kRows});
    // One row counts in the critic's loss alone, one in the policy's.
    batch.policy_weights = torch::ones({kRows});
    batch.value_weights = torch::ones({kRows});
    batch.policy_weights[0] = 0;
    batch.value_weights[1] = 0;
    return batch;
  }

 private:
  /// Every second category but that of the action is forbidden.
  void Act(int64_t row, TorchBatch* batch) {
    int32_t* const words = batch->actions[row].data_ptr<int32_t>();
    for (const CategoricalPart& part : head_.categorical) {
      const int64_t category = random_.Below(static_cast<uint32_t>(part.categories));
      words[part.word] = part.start + static_cast<int32_t>(category);
      for (int64_t i = 0; batch->mask.defined() && i < part.categories; ++i) {
        batch->mask[row][part.mask_offset + i] = i == category || i % 2 == 0 ? 1 : 0;
      }
    }
    for (const ContinuousPart& part : head_.continuous) {
      for (int64_t w = 0; w < part.words; ++w) {
        reinterpret_cast<float*>(words)[part.word + w] = static_cast<float>(random_.Uniform(-0.9, 0.9));
      }
    }
  }

  const policy::PolicySpec& spec_;
  const ActionHead head_;
  base::PhiloxSequence random_;
};

/// Outputs of networks, as leaves, to see which gradients arrive.
struct Leaves {
  Tensor actor, critic, log_std;

  std::vector<Tensor> All() const {
    return log_std.defined() ? std::vector<Tensor>{actor, critic, log_std} : std::vector<Tensor>{actor, critic};
  }
};

/// Loss, metrics and the gradients that there are, side by side.
Tensor NumbersOf(const LossScript& script, const Leaves& leaves, const NamedTensors& outputs,
                 const NamedTensors& columns) {
  const ModuleLoss made = script.Run(outputs, columns);
  std::vector<Tensor> numbers;
  for (const auto& [name, value] : made.metrics) numbers.push_back(value.reshape({1}));
  for (const Tensor& gradient :
       torch::autograd::grad({made.loss}, leaves.All(), {}, /*retain_graph=*/true, /*create_graph=*/false,
                             /*allow_unused=*/true)) {
    if (gradient.defined()) numbers.push_back(gradient.flatten());
  }
  return torch::cat(numbers);
}

/// Other numbers of the same kind.
Tensor OtherThan(const std::string& name, const Tensor& column, MadeUp* made_up) {
  if (column.scalar_type() == torch::kBool) return column.logical_not();
  if (column.scalar_type() == torch::kInt64) return column.flip(0) + (column.flip(0) == column).to(torch::kInt64);
  if (name == "policy_weights" || name == "value_weights") return 1.0 - column;
  return column + 1.0 + made_up->Normal(column.sizes()).abs();
}

absl::StatusOr<std::vector<std::string>> Try(const policy::PolicySpec& spec, const LossScript& script) {
  MadeUp made_up(spec);
  TorchBatch batch = made_up.Batch();
  Leaves leaves;
  leaves.actor = made_up.Normal({kRows, spec.OutputSize(spec.actor)}).requires_grad_(true);
  leaves.critic = made_up.Normal({kRows, 1}).requires_grad_(true);
  if (const int64_t size = spec.log_std_size(); size > 0) leaves.log_std = torch::zeros({size}).requires_grad_(true);
  const ActionTerms terms = TermsOf(made_up.head(), leaves.actor, leaves.log_std, batch.actions, batch.mask);
  batch.old_logp = terms.logp.detach() + 0.1 * made_up.Normal({kRows});
  const NamedTensors outputs = LossOutputs(leaves.actor, leaves.log_std, leaves.critic, terms);
  const NamedTensors columns = LossColumns(script.columns(), made_up.head(), batch, torch::arange(kRows));
  const Tensor numbers = NumbersOf(script, leaves, outputs, columns);
  if (!torch::isfinite(numbers).all().item<bool>()) {
    return absl::InvalidArgumentError("gives a loss, a gradient or a metric that is NaN or infinity, expected numbers");
  }
  std::vector<std::string> unused;
  for (const auto& [name, column] : columns) {
    if (column.numel() == 0) continue;
    NamedTensors other = columns;
    other[name] = OtherThan(name, column, &made_up);
    // A module that refuses the numbers has looked at them.
    const absl::Status tried = CatchTorch("trying a column", [&] {
      if (torch::equal(NumbersOf(script, leaves, outputs, other), numbers)) unused.push_back(name);
      return absl::OkStatus();
    });
    if (absl::IsResourceExhausted(tried)) return tried;
  }
  return unused;
}

}  // namespace

absl::StatusOr<std::vector<std::string>> TryLoss(const policy::PolicySpec& spec, const LossScript& script) {
  absl::StatusOr<std::vector<std::string>> tried;
  const absl::Status ran = CatchTorch("trying it", [&] {
    tried = Try(spec, script);
    return absl::OkStatus();
  });
  if (ran.ok()) return tried;
  return absl::InvalidArgumentError(absl::StrCat("fails on ", kRows, " rows of policy \"", spec.id.value(),
                                                 "\": ", base::LogSafe(std::string(ran.message()), kMaxScriptWords)));
}

}  // namespace troupe::training
