#include "lib/training/torch/loss_rows.h"

#include <algorithm>
#include <array>

namespace troupe::training {
namespace {

using torch::Tensor;

Tensor ActionsOf(const ActionHead& head, const TorchBatch& batch, const Tensor& rows) {
  const Tensor words = batch.actions.index_select(0, rows);
  if (head.continuous.empty()) return words.to(torch::kInt64);
  const Tensor actions = words.view(torch::kFloat32).clone();
  for (const CategoricalPart& part : head.categorical) actions.select(1, part.word).copy_(words.select(1, part.word));
  return actions;
}

Tensor MaskOf(const ActionHead& /*head*/, const TorchBatch& batch, const Tensor& rows) {
  if (batch.mask.defined()) return batch.mask.index_select(0, rows).to(torch::kBool);
  return torch::empty({rows.size(0), 0}, rows.options().dtype(torch::kBool));
}

template <Tensor TorchBatch::*kColumn>
Tensor NumbersOf(const ActionHead& /*head*/, const TorchBatch& batch, const Tensor& rows) {
  return (batch.*kColumn).index_select(0, rows);
}

struct Column {
  const char* name;
  Tensor (*of)(const ActionHead& head, const TorchBatch& batch, const Tensor& rows);
};
constexpr std::array<Column, 8> kColumns = {{{"actions", &ActionsOf},
                                             {"action_mask", &MaskOf},
                                             {"old_logp", &NumbersOf<&TorchBatch::old_logp>},
                                             {"advantages", &NumbersOf<&TorchBatch::advantages>},
                                             {"value_targets", &NumbersOf<&TorchBatch::value_targets>},
                                             {"old_values", &NumbersOf<&TorchBatch::old_values>},
                                             {"policy_weights", &NumbersOf<&TorchBatch::policy_weights>},
                                             {"value_weights", &NumbersOf<&TorchBatch::value_weights>}}};

}  // namespace

const std::vector<std::string>& LossColumnNames() {
  static const auto* const kNames = [] {
    auto* const names = new std::vector<std::string>;
    for (const Column& column : kColumns) names->emplace_back(column.name);
    return names;
  }();
  return *kNames;
}

NamedTensors LossColumns(const std::vector<std::string>& names, const ActionHead& head, const TorchBatch& batch,
                         const Tensor& rows) {
  NamedTensors columns;
  for (const Column& column : kColumns) {
    if (std::find(names.begin(), names.end(), column.name) == names.end()) continue;
    columns.emplace(column.name, column.of(head, batch, rows));
  }
  return columns;
}

NamedTensors LossOutputs(const Tensor& actor, const Tensor& log_std, const Tensor& critic, const ActionTerms& terms) {
  NamedTensors outputs = {{"actor", actor}, {"critic", critic}, {"logp", terms.logp}, {"entropy", terms.entropy}};
  if (log_std.defined()) outputs.emplace("log_std", log_std);
  return outputs;
}

}  // namespace troupe::training
