#include "lib/training/prepared_batch.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"
#include "lib/training/action_head.h"
#include "lib/training/moments.h"

namespace troupe::training {
namespace {

constexpr float kObservationClip = 10.0f;
// Rows start on a cache line, and vector kernels may read them in whole vectors.
constexpr int64_t kStrideElements = 16;

int64_t StrideFor(int64_t columns) { return (columns + kStrideElements - 1) / kStrideElements * kStrideElements; }

/// Grows `buffer` for a matrix and returns its writable rows.
float* Resize(tensor::Buffer* buffer, int64_t rows, int64_t columns, MatrixView* view) {
  const int64_t stride = StrideFor(columns);
  buffer->EnsureCapacity(static_cast<size_t>(std::max<int64_t>(rows * stride, 1)) * sizeof(float));
  float* data = reinterpret_cast<float*>(buffer->data());
  *view = MatrixView{data, rows, columns, stride};
  return data;
}

/// Writes rows of [normalized observation, one-hot of the slot, zeros].
class ObservationWriter {
 public:
  ObservationWriter(int64_t observation_size, int64_t one_hot_size, int64_t stride, bool normalize,
                    const policy::RunningMoments& moments)
      : observation_size_(observation_size), one_hot_size_(one_hot_size), stride_(stride), normalize_(normalize) {
    if (normalize) {
      mean_ = Mean(moments);
      inverse_std_ = InverseStd(moments);
    }
  }

  void Write(absl::Span<const float> obs, absl::Span<const int32_t> slots, int64_t rows, float* out) const {
    for (int64_t row = 0; row < rows; ++row, out += stride_) {
      const float* from = obs.data() + row * observation_size_;
      if (normalize_) {
        for (int64_t c = 0; c < observation_size_; ++c) {
          out[c] = std::clamp((from[c] - mean_[c]) * inverse_std_[c], -kObservationClip, kObservationClip);
        }
      } else {
        std::memcpy(out, from, static_cast<size_t>(observation_size_) * sizeof(float));
      }
      std::memset(out + observation_size_, 0, static_cast<size_t>(stride_ - observation_size_) * sizeof(float));
      if (one_hot_size_ > 0) out[observation_size_ + slots[row]] = 1.0f;
    }
  }

 private:
  const int64_t observation_size_;
  const int64_t one_hot_size_;
  const int64_t stride_;
  const bool normalize_;
  std::vector<float> mean_;
  std::vector<float> inverse_std_;
};

absl::Status CheckSize(const policy::PolicySpec& spec, const char* column, size_t got, int64_t expected) {
  if (static_cast<int64_t>(got) == expected) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("train batch of policy \"", spec.id.value(), "\": ", column, " has ",
                                                 got, " elements; expected ", expected));
}

absl::Status CheckRange(const policy::PolicySpec& spec, const char* column, absl::Span<const int32_t> values,
                        int64_t limit) {
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i] < 0 || values[i] >= limit) {
      return absl::InvalidArgumentError(absl::StrCat("train batch of policy \"", spec.id.value(), "\": ", column, "[",
                                                     i, "] is ", values[i], "; expected 0 to ", limit - 1));
    }
  }
  return absl::OkStatus();
}

/// Discrete actions inside their space: a device would index with them.
absl::Status CheckActions(const policy::PolicySpec& spec, const learner::PolicyTrainBatch& batch) {
  const int64_t words = spec.action_words();
  for (const CategoricalPart& part : ActionHead::For(spec).categorical) {
    for (int64_t row = 0; row < batch.rows; ++row) {
      const int64_t category = int64_t{batch.actions[row * words + part.word].i32} - part.start;
      if (category < 0 || category >= part.categories) {
        return absl::InvalidArgumentError(absl::StrCat("train batch of policy \"", spec.id.value(), "\": action word ",
                                                       part.word, " of row ", row, " is category ", category,
                                                       "; expected 0 to ", part.categories - 1));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<float> InverseStd(const policy::RunningMoments& moments) {
  std::vector<float> result(moments.variance.size());
  for (size_t c = 0; c < result.size(); ++c)
    result[c] = static_cast<float>(1.0 / StandardDeviation(moments.variance[c]));
  return result;
}

std::vector<float> Mean(const policy::RunningMoments& moments) {
  return std::vector<float>(moments.mean.begin(), moments.mean.end());
}

absl::Status PreparedBatch::CheckSizes(const policy::PolicySpec& spec, const learner::PolicyTrainBatch& batch) const {
  const int64_t rows = batch.rows;
  const int64_t final_rows = batch.final_rows;
  const bool uses_slots = spec.agent_id_size > 0;
  const bool uses_state = spec.critic_input != policy::CriticInput::kObservation;
  TROUPE_RETURN_IF_ERROR(CheckSize(spec, "obs", batch.obs.size(), rows * spec.observation_size()));
  TROUPE_RETURN_IF_ERROR(CheckSize(spec, "actions", batch.actions.size(), rows * spec.action_words()));
  TROUPE_RETURN_IF_ERROR(CheckSize(spec, "action_logp", batch.action_logp.size(), rows));
  TROUPE_RETURN_IF_ERROR(CheckSize(spec, "rewards", batch.rewards.size(), rows));
  TROUPE_RETURN_IF_ERROR(CheckSize(spec, "action_mask", batch.action_mask.size(), rows * spec.mask_size()));
  if (!batch.agent_mask.empty()) TROUPE_RETURN_IF_ERROR(CheckSize(spec, "agent_mask", batch.agent_mask.size(), rows));
  if (uses_slots) {
    TROUPE_RETURN_IF_ERROR(CheckSize(spec, "slot", batch.slot.size(), rows));
    TROUPE_RETURN_IF_ERROR(CheckSize(spec, "final_slot", batch.final_slot.size(), final_rows));
    TROUPE_RETURN_IF_ERROR(CheckRange(spec, "slot", batch.slot, spec.agent_id_size));
    TROUPE_RETURN_IF_ERROR(CheckRange(spec, "final_slot", batch.final_slot, spec.agent_id_size));
  }
  if (uses_state) {
    TROUPE_RETURN_IF_ERROR(
        CheckSize(spec, "critic_state", batch.critic_state.size(), batch.critic_rows * spec.critic_state_size));
    TROUPE_RETURN_IF_ERROR(CheckSize(spec, "critic_row", batch.critic_row.size(), rows));
    TROUPE_RETURN_IF_ERROR(CheckSize(spec, "final_critic_row", batch.final_critic_row.size(), final_rows));
    TROUPE_RETURN_IF_ERROR(CheckRange(spec, "critic_row", batch.critic_row, batch.critic_rows));
    TROUPE_RETURN_IF_ERROR(CheckRange(spec, "final_critic_row", batch.final_critic_row, batch.critic_rows));
  } else {
    TROUPE_RETURN_IF_ERROR(CheckSize(spec, "final_obs", batch.final_obs.size(), final_rows * spec.observation_size()));
  }
  for (const learner::TrainSegment& segment : batch.segments) {
    if (segment.first_row < 0 || segment.rows < 0 || segment.first_row + segment.rows > rows ||
        segment.final_row >= final_rows) {
      return absl::InvalidArgumentError(absl::StrCat("train batch of policy \"", spec.id.value(), "\": segment of ",
                                                     segment.rows, " rows from ", segment.first_row, ", final row ",
                                                     segment.final_row, ", lies outside of ", rows, " rows and ",
                                                     final_rows, " final rows"));
    }
  }
  return absl::OkStatus();
}

void PreparedBatch::FillActorInput(const policy::PolicySpec& spec, const policy::RunningMoments& moments,
                                   const learner::PolicyTrainBatch& batch) {
  float* out = Resize(&actor_buffer_, batch.rows, spec.actor_input_size(), &actor_input_);
  const ObservationWriter writer(spec.observation_size(), spec.agent_id_size, actor_input_.stride,
                                 spec.normalize_observations, moments);
  writer.Write(batch.obs, batch.slot, batch.rows, out);
}

void PreparedBatch::FillCriticInput(const policy::PolicySpec& spec, const policy::RunningMoments& moments,
                                    const learner::PolicyTrainBatch& batch) {
  critic_index_.resize(static_cast<size_t>(batch.rows));
  final_critic_index_.resize(static_cast<size_t>(batch.final_rows));
  const int64_t columns = spec.critic_input_size();
  const bool own_observation = spec.critic_input == policy::CriticInput::kObservation;
  if (!own_observation && !spec.critic_agent_id) {
    float* out = Resize(&critic_buffer_, batch.critic_rows, columns, &critic_input_);
    const ObservationWriter writer(columns, 0, critic_input_.stride, false, moments);
    writer.Write(batch.critic_state, {}, batch.critic_rows, out);
    std::copy(batch.critic_row.begin(), batch.critic_row.end(), critic_index_.begin());
    std::copy(batch.final_critic_row.begin(), batch.final_critic_row.end(), final_critic_index_.begin());
    return;
  }
  // An input per row, the final rows after the others.
  std::iota(critic_index_.begin(), critic_index_.end(), 0);
  std::iota(final_critic_index_.begin(), final_critic_index_.end(), static_cast<int32_t>(batch.rows));
  float* out = Resize(&critic_buffer_, batch.rows + batch.final_rows, columns, &critic_input_);
  float* final_out = out + batch.rows * critic_input_.stride;
  const int64_t one_hot = spec.critic_agent_id ? spec.agent_id_size : 0;
  const ObservationWriter writer(columns - one_hot, one_hot, critic_input_.stride,
                                 own_observation && spec.normalize_observations, moments);
  if (own_observation) {
    writer.Write(batch.obs, batch.slot, batch.rows, out);
    writer.Write(batch.final_obs, batch.final_slot, batch.final_rows, final_out);
    return;
  }
  const auto write_state = [&](absl::Span<const int32_t> state_rows, absl::Span<const int32_t> slots, float* to) {
    for (size_t row = 0; row < state_rows.size(); ++row) {
      writer.Write(batch.critic_state.subspan(static_cast<size_t>(state_rows[row] * spec.critic_state_size),
                                              static_cast<size_t>(spec.critic_state_size)),
                   slots.subspan(row, 1), 1, to + static_cast<int64_t>(row) * critic_input_.stride);
    }
  };
  write_state(batch.critic_row, batch.slot, out);
  write_state(batch.final_critic_row, batch.final_slot, final_out);
}

absl::Status PreparedBatch::Prepare(const policy::PolicySpec& spec, const policy::RunningMoments& observation_moments,
                                    const learner::PolicyTrainBatch& batch, ThreadTeam* team) {
  TROUPE_RETURN_IF_ERROR(CheckSizes(spec, batch));
  const auto actor = [&] { FillActorInput(spec, observation_moments, batch); };
  absl::Status checked;
  const auto critic = [&] {
    checked = CheckActions(spec, batch);
    if (checked.ok()) FillCriticInput(spec, observation_moments, batch);
  };
  if (team != nullptr && team->size() > 1) {
    team->Run([&](int part) {
      if (part == 0) actor();
      if (part == 1) critic();
    });
  } else {
    actor();
    critic();
  }
  TROUPE_RETURN_IF_ERROR(checked);
  active_.clear();
  for (int64_t row = 0; row < batch.rows; ++row) {
    if (batch.agent_mask.empty() || batch.agent_mask[row] != 0) active_.push_back(static_cast<int32_t>(row));
  }
  actions = batch.actions;
  old_logp = batch.action_logp;
  action_mask = batch.action_mask;
  return absl::OkStatus();
}

}  // namespace troupe::training
