#include "lib/training/torch/torch_log_probabilities.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "lib/policy/policy_spec.h"
#include "lib/training/torch/torch_distributions.h"
#include "lib/training/torch/torch_inputs.h"
#include "lib/training/torch/torch_networks.h"
#include "lib/training/torch/torch_precision.h"
#include <torch/torch.h>

namespace troupe::training {

using torch::Tensor;

std::vector<float> LogProbabilitiesOf(const policy::PolicySpec& spec, const ActionHead& head, const Modules& modules,
                                      const PreparedBatch& batch, const TorchBatch& loaded, const DeviceMemory& memory,
                                      bool bfloat16, int64_t most_rows) {
  const torch::NoGradGuard no_grad;
  std::vector<float> logp(static_cast<size_t>(batch.rows()));
  std::vector<std::pair<std::vector<int64_t>, Tensor>> parts;
  const auto add = [&](std::vector<int64_t> rows, const Tensor& index, const Tensor& outputs) {
    const Tensor mask = loaded.mask.defined() ? loaded.mask.index_select(0, index) : Tensor();
    const Tensor of_rows = TermsOf(head, outputs, modules.log_std, loaded.actions.index_select(0, index), mask).logp;
    parts.emplace_back(std::move(rows), memory.ToHost(of_rows));
  };
  const int64_t most = RowsOfPass(spec, spec.actor, most_rows);
  if (spec.actor.remembers()) {
    const absl::Span<const learner::TrainSequence> sequences = batch.sequences();
    for (size_t first = 0; first < sequences.size();) {
      std::vector<std::pair<int64_t, int64_t>> pieces;
      const auto begin = static_cast<int64_t>(first);
      for (int64_t taken = 0; first < sequences.size() && (taken == 0 || taken < most); ++first) {
        pieces.emplace_back(sequences[first].first_row, sequences[first].rows);
        taken += sequences[first].rows;
      }
      Packed packed = Pack(pieces);
      for (int64_t& sequence : packed.sequences) sequence += begin;
      const Tensor index = memory.LoadIndex(packed.rows);
      const Tensor states = loaded.actor_memory.index_select(0, memory.LoadIndex(packed.sequences));
      const Tensor outputs = RunSequences(spec.actor, modules.actor, loaded.actor.Take(index), packed.batch_sizes,
                                          states, /*kept=*/Tensor())
                                 .first;
      add(std::move(packed.rows), index, outputs);
    }
  } else {
    for (int64_t first = 0; first < batch.rows(); first += most) {
      std::vector<int64_t> rows(static_cast<size_t>(std::min(most, batch.rows() - first)));
      for (size_t i = 0; i < rows.size(); ++i) rows[i] = first + static_cast<int64_t>(i);
      const Tensor inputs = loaded.actor.Range(first, static_cast<int64_t>(rows.size()));
      const auto run = [&] { return RunNetwork(spec.actor.activation, modules.actor, inputs); };
      Tensor outputs;
      if (bfloat16) {
        const Bfloat16Products products(memory.device().type());
        outputs = run().to(torch::kFloat32);
      } else {
        outputs = run();
      }
      const Tensor index = memory.LoadIndex(rows);
      add(std::move(rows), index, outputs);
    }
  }
  memory.Await();
  for (const auto& [rows, values] : parts) {
    const float* const from = values.data_ptr<float>();
    for (size_t i = 0; i < rows.size(); ++i) logp[static_cast<size_t>(rows[i])] = from[i];
  }
  return logp;
}

}  // namespace troupe::training
