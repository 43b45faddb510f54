#include "lib/training/core/epoch_rows.h"

#include <algorithm>

namespace troupe::training {

EpochRows RowsOfEpoch(const PreparedBatch& batch, absl::Span<const int32_t> order,
                      bool (RowUses::*counts)(int64_t row) const) {
  EpochRows epoch;
  std::vector<int32_t> place_in_run;
  for (const int32_t unit : order) {
    epoch.first_row.push_back(static_cast<int32_t>(epoch.rows.size()));
    epoch.first_input.push_back(static_cast<int32_t>(epoch.inputs.size()));
    int32_t last = -1;
    for (const int32_t row : batch.units().RowsOf(unit)) {
      if (!(batch.uses().*counts)(row)) continue;
      const int32_t input = batch.critic_index()[static_cast<size_t>(row)];
      if (input != last) epoch.inputs.push_back(input);
      place_in_run.push_back(input == last ? place_in_run.back() + 1 : 0);
      epoch.width = std::max<int64_t>(epoch.width, place_in_run.back() + 1);
      epoch.rows.push_back(row);
      epoch.places.push_back(static_cast<int32_t>(epoch.inputs.size()) - 1);
      last = input;
    }
  }
  epoch.first_row.push_back(static_cast<int32_t>(epoch.rows.size()));
  epoch.first_input.push_back(static_cast<int32_t>(epoch.inputs.size()));
  for (size_t i = 0; i < epoch.places.size(); ++i) {
    epoch.places[i] = epoch.places[i] * static_cast<int32_t>(epoch.width) + place_in_run[i];
  }
  return epoch;
}

}  // namespace troupe::training
