#include "lib/training/fused/fused_critic_runs.h"

#include <algorithm>

namespace troupe::training::fused {

void CriticRuns::Clear() {
  rows_ = {};
  heads_.clear();
  first_.clear();
}

void CriticRuns::Take(absl::Span<const int32_t> rows, absl::Span<const int32_t> input_of) {
  Clear();
  rows_ = rows;
  int32_t input = -1;
  for (size_t i = 0; i < rows.size(); ++i) {
    const int32_t reads = input_of[static_cast<size_t>(rows[i])];
    if (reads == input) continue;
    input = reads;
    heads_.push_back(rows[i]);
    first_.push_back(static_cast<int32_t>(i));
  }
  first_.push_back(static_cast<int32_t>(rows.size()));
}

void CriticRuns::Differentiate(const LossOfRows& loss, int64_t first_run, int runs, float* values,
                               Worker* worker) const {
  const auto padded = [&loss](int count) { return (count + loss.lanes - 1) / loss.lanes * loss.lanes; };
  float* const spoken = worker->spoken.data();
  float* const slopes = worker->slopes.data();
  std::copy_n(values, runs, spoken);
  std::fill_n(values, padded(runs), 0.0f);
  CriticPanel columns = {{}, worker->weight.data()};
  worker->PointAtColumns(columns.columns);
  const auto panel_rows = static_cast<int>(worker->weight.size());
  const absl::Span<const int32_t> rows = RowsOf(first_run, runs);
  const int32_t begin = first_[static_cast<size_t>(first_run)];
  int run = 0;
  for (int row = 0; row < static_cast<int>(rows.size()); row += panel_rows) {
    const int count = std::min(panel_rows, static_cast<int>(rows.size()) - row);
    const int first_of_panel = run;
    const auto next_row = [&](int r) {
      if (begin + row + r == first_[static_cast<size_t>(first_run + run + 1)]) ++run;
      return run;
    };
    worker->GatherColumns(loss.columns, rows.data() + row, count);
    for (int r = 0; r < count; ++r) slopes[r] = spoken[next_row(r)];
    worker->SetWeights(count, padded(count));
    loss.kernels.critic(loss.numbers, columns, padded(count) / loss.lanes, slopes, &worker->sums);
    run = first_of_panel;
    for (int r = 0; r < count; ++r) values[next_row(r)] += slopes[r];
  }
}

}  // namespace troupe::training::fused
