#pragma once

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "lib/training/core/critic_values.h"
#include "lib/training/core/prepared_batch.h"
#include "lib/training/core/trainer_host.h"
#include "lib/training/testing/ppo_host.h"
#include "lib/training/testing/random_batch.h"
#include "tests/parity/parity_cases.h"
#include <gtest/gtest.h>

namespace troupe::training {

/// What a back end makes of one minibatch from fresh weights.
struct OneStep {
  std::vector<float> values;     ///< the critic's, of each row of its input; with a core of rows and final rows
  std::vector<float> gradients;  ///< flat, before clipping
  std::vector<std::pair<std::string, double>> metrics;
};

/// One step of all rows of a random batch without clipping: Adam's first moment is then a tenth of the gradient. Raises
/// what goes wrong, so that the other tests run.
inline OneStep TakeOneStep(const ParityCase& test, const TrainerHost::BackendFactory& make,
                           tensor::TensorAllocator& allocator = tensor::TensorAllocator::Pageable()) {
  constexpr uint64_t kSeed = 5;
  OneStep step;
  PpoOptions options = test.options;
  options.num_epochs = 1;
  options.minibatch_size = 1 << 20;
  options.max_grad_norm = 0;
  RandomBatch batch(test.spec, test.segments, 9, test.inactive_rows);

  FlatParameters parameters = InitialParameters(test.spec, kSeed);
  PreparedBatch prepared(allocator);
  EXPECT_TRUE(prepared.Prepare(test.spec, {}, batch.rows()).ok());
  const auto backend = *make(test.spec);
  EXPECT_TRUE(backend->Begin(prepared, &parameters, NetworkBackend::kWholeTeam).ok());
  if (test.spec.critic().core.remembers()) {
    CriticCarry carry;
    const auto values = ValuesOf(test.spec, batch.rows(), backend.get(), &prepared, &carry);
    if (!values.ok()) throw std::runtime_error(values.status().ToString());
    step.values = values->rows;
    step.values.insert(step.values.end(), values->finals.begin(), values->finals.end());
  } else {
    const absl::StatusOr<std::vector<float>> values = backend->Values();
    if (!values.ok()) throw std::runtime_error(values.status().ToString());
    step.values = *values;
  }
  EXPECT_TRUE(backend->End().ok());

  const auto trainer = *MakePpoHost({test.spec}, {options}, kSeed, make, nullptr, allocator);
  const auto reports = trainer->Update(batch.batch, {.seed = 1, .iteration = 0, .next_version = {1, 1}});
  if (!reports.ok()) throw std::runtime_error(reports.status().ToString());
  EXPECT_EQ(reports->at(0).minibatch_steps, 1);
  step.gradients = trainer->ExportState(policy::PolicySlot(0))->Floats("adam.exp_avg");
  for (float& value : step.gradients) value *= 10;
  step.metrics = reports->at(0).metrics;
  return step;
}

/// The largest difference of [first, first + count) against the largest number there, or `least`.
inline double RelativeDifference(const std::vector<float>& got, const std::vector<float>& expected, size_t first,
                                 size_t count, double least) {
  double largest = least;
  double difference = 0;
  for (size_t i = first; i < first + count; ++i) {
    largest = std::max(largest, std::abs(static_cast<double>(expected[i])));
    difference = std::max(difference, std::abs(static_cast<double>(got[i]) - expected[i]));
  }
  return difference / largest;
}

/// Losses, each tensor's gradients, and values equal to `tolerance`, relative to the largest number of a tensor; the
/// largest differences are noted in the test's record.
inline void ExpectSameStep(const policy::PolicySpec& spec, const OneStep& got, const OneStep& expected,
                           double tolerance) {
  double largest_loss = 0;
  double largest_gradient = 0;
  ASSERT_EQ(got.metrics.size(), expected.metrics.size());
  for (size_t i = 0; i < got.metrics.size(); ++i) {
    const double number = expected.metrics[i].second;
    const double difference = std::abs(got.metrics[i].second - number) / std::max(1.0, std::abs(number));
    EXPECT_LE(difference, tolerance) << got.metrics[i].first << " of " << number;
    largest_loss = std::max(largest_loss, difference);
  }
  const policy::ParameterLayout layout = policy::ParameterLayout::For(spec);
  for (const policy::ParameterEntry& entry : layout.entries()) {
    const double difference = RelativeDifference(got.gradients, expected.gradients, static_cast<size_t>(entry.offset),
                                                 static_cast<size_t>(entry.count), 1e-2);
    EXPECT_LE(difference, tolerance) << "gradient of " << entry.name;
    largest_gradient = std::max(largest_gradient, difference);
  }
  ASSERT_EQ(got.values.size(), expected.values.size());
  ASSERT_GT(got.values.size(), 0u);
  const double value = RelativeDifference(got.values, expected.values, 0, got.values.size(), 1e-2);
  EXPECT_LE(value, tolerance) << "values";
  testing::Test::RecordProperty("largest_loss_difference", absl::StrCat(largest_loss));
  testing::Test::RecordProperty("largest_gradient_difference", absl::StrCat(largest_gradient));
  testing::Test::RecordProperty("largest_value_difference", absl::StrCat(value));
}

}  // namespace troupe::training
