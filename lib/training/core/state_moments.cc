#include "lib/training/core/state_moments.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/policy/policy_spec.h"
#include "lib/policy/weight_snapshot.h"

namespace troupe::training {
namespace {

constexpr float kStateClip = 10.0f;  // as observations are clipped

constexpr char kMean[] = ".mean";
constexpr char kVariance[] = ".variance";
constexpr char kCount[] = ".count";

std::string BlockName(const char* part) { return absl::StrCat(policy::kStateMoments, part); }

}  // namespace

ColumnMoments InitialColumnMoments(int64_t columns) {
  const auto size = static_cast<size_t>(columns);
  return {std::vector<double>(size, 0.0), std::vector<double>(size, 0.0), std::vector<double>(size, 1.0)};
}

ColumnMoments Merge(ColumnMoments old, const ColumnMoments& batch, double max_count) {
  for (size_t c = 0; c < old.mean.size(); ++c) {
    if (batch.count[c] <= 0) continue;
    const double kept = std::min(old.count[c], max_count);
    const double total = kept + batch.count[c];
    const double delta = batch.mean[c] - old.mean[c];
    const double variance =
        (old.variance[c] * kept + batch.variance[c] * batch.count[c] + delta * delta * kept * batch.count[c] / total) /
        total;
    const double mean = old.mean[c] + delta * batch.count[c] / total;
    if (!std::isfinite(variance) || !std::isfinite(mean)) continue;
    old.variance[c] = variance;
    old.mean[c] = mean;
    old.count[c] = total;
  }
  return old;
}

ColumnMoments StateMomentsOf(const policy::PolicyState& state) {
  return {state.Doubles(BlockName(kCount)), state.Doubles(BlockName(kMean)), state.Doubles(BlockName(kVariance))};
}

void SetStateMoments(const ColumnMoments& moments, policy::PolicyState* state) {
  if (moments.mean.empty()) {
    for (const char* part : {kMean, kVariance, kCount}) state->Remove(BlockName(part));
    return;
  }
  state->Set(BlockName(kMean), moments.mean);
  state->Set(BlockName(kVariance), moments.variance);
  state->Set(BlockName(kCount), moments.count);
}

void AddStateMomentSpecs(const policy::PolicySpec& spec, std::vector<policy::BlockSpec>* known) {
  if (!spec.normalize_state) return;
  for (const char* part : {kMean, kVariance, kCount}) {
    known->push_back({BlockName(part), policy::BlockType::kF64, {spec.critic_state_size()}, true});
  }
}

StateNormalizer::StateNormalizer(const ColumnMoments& moments, absl::Span<const int64_t> joint_sizes, int64_t columns,
                                 absl::Span<const int64_t> agents)
    : columns_(columns), counted_in_(static_cast<size_t>(columns)) {
  std::iota(counted_in_.begin(), counted_in_.end(), size_t{0});
  if (joint_sizes.empty()) {
    parts_.push_back({0, columns, -1});
  } else {
    int64_t first = 0;
    int64_t presence = columns - static_cast<int64_t>(joint_sizes.size());
    for (const int64_t size : joint_sizes) {
      parts_.push_back({first, size, presence++});
      first += size;
    }
  }
  for (size_t slot = 0; slot < agents.size(); ++slot) {
    const auto same = static_cast<size_t>(std::find(agents.begin(), agents.end(), agents[slot]) - agents.begin());
    for (int64_t c = 0; c < parts_[slot].size; ++c) {
      counted_in_[static_cast<size_t>(parts_[slot].first + c)] = static_cast<size_t>(parts_[same].first + c);
    }
  }
  mean_.assign(moments.mean.begin(), moments.mean.end());
  for (const double variance : moments.variance) {
    inverse_std_.push_back(static_cast<float>(1.0 / policy::StandardDeviation(variance)));
  }
}

void StateNormalizer::Normalize(float* row) const {
  for (const Part& part : parts_) {
    if (!IsThere(part, row)) {
      std::fill_n(row + part.first, part.size, 0.0f);
      continue;
    }
    for (int64_t c = part.first; c < part.first + part.size; ++c) {
      row[c] = std::clamp((row[c] - mean_[c]) * inverse_std_[c], -kStateClip, kStateClip);
    }
  }
}

template <typename Add>
void StateNormalizer::ForValues(const float* row, Add&& add) const {
  for (const Part& part : parts_) {
    if (!IsThere(part, row)) continue;
    for (int64_t c = part.first; c < part.first + part.size; ++c) {
      add(counted_in_[static_cast<size_t>(c)], double{row[c]});
    }
  }
}

ColumnMoments StateNormalizer::MomentsOf(const learner::RowMatrix& states, absl::Span<const int32_t> index,
                                         absl::Span<const int32_t> active) const {
  std::vector<uint8_t> is_read(static_cast<size_t>(states.rows), 0);
  for (const int32_t row : active) is_read[static_cast<size_t>(index[static_cast<size_t>(row)])] = 1;
  const auto size = static_cast<size_t>(columns_);
  ColumnMoments moments{std::vector<double>(size, 0.0), std::vector<double>(size, 0.0), std::vector<double>(size, 0.0)};
  const auto for_all = [&](auto&& add) {
    for (int64_t r = 0; r < states.rows; ++r) {
      if (is_read[static_cast<size_t>(r)] != 0) ForValues(states.row(r), add);
    }
  };
  for_all([&](size_t c, double value) {
    moments.mean[c] += value;
    moments.count[c] += 1;
  });
  for (size_t c = 0; c < size; ++c) moments.mean[c] /= std::max(moments.count[c], 1.0);
  for_all([&](size_t c, double value) {
    const double delta = value - moments.mean[c];
    moments.variance[c] += delta * delta;
  });
  for (size_t c = 0; c < size; ++c) moments.variance[c] /= std::max(moments.count[c], 1.0);
  for (std::vector<double>* const numbers : {&moments.count, &moments.mean, &moments.variance}) {
    for (size_t c = 0; c < size; ++c) (*numbers)[c] = (*numbers)[counted_in_[c]];
  }
  return moments;
}

}  // namespace troupe::training
