#include "lib/training/core/prepared_batch.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <optional>

#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"
#include "lib/policy/policy_spec.h"
#include "lib/training/core/action_head.h"
#include "lib/training/core/moments.h"

namespace troupe::training {
namespace {

constexpr float kObservationClip = 10.0f;

/// Writes rows as networks read them: [observation, one-hot of the slot, zeros].
struct RowWriter {
  int64_t size = 0;     ///< of what is taken from the given row
  int64_t one_hot = 0;  ///< columns; 0: none, or in the given row already
  int64_t stride = 0;
  std::vector<float> mean = {};  ///< empty: not normalized
  std::vector<float> inverse_std = {};

  void Normalize(const float* from, float* to) const {
    for (size_t c = 0; c < mean.size(); ++c) {
      to[c] = std::clamp((from[c] - mean[c]) * inverse_std[c], -kObservationClip, kObservationClip);
    }
  }
  void Write(const float* from, const int32_t* slot, float* to) const {
    if (size > 0) std::memcpy(to, from, static_cast<size_t>(size) * sizeof(float));
    Normalize(from, to);
    std::memset(to + size, 0, static_cast<size_t>(stride - size) * sizeof(float));
    if (one_hot > 0) to[size + *slot] = 1.0f;
  }
};

/// Calls `rows(first, end)` for parts of `count` rows, on all threads of the team where there is one.
template <typename Rows>
void ForRows(ThreadTeam* team, int64_t count, Rows&& rows) {
  if (team == nullptr || team->size() < 2) return rows(0, count);
  team->Run([&](int part) { rows(count * part / team->size(), count * (part + 1) / team->size()); });
}

bool SameNumbers(const policy::RunningMoments& a, const policy::RunningMoments& b) {
  return a.count == b.count && a.mean == b.mean && a.variance == b.variance;
}

/// Columns of a network's row that are floats of the batch: all, or those beside images of bytes; no actions.
int64_t FloatColumns(const policy::PolicySpec& spec, const policy::NetworkSpec& network) {
  return spec.InputSize(network) - spec.ByteElements(network) - spec.ActionInputSize(network);
}

/// Columns of critic_state.
int64_t StateColumns(const policy::PolicySpec& spec) {
  const bool joint = spec.critic_input() == policy::NetworkInput::kJointObservation;
  return spec.critic_state_size() - (joint ? spec.ByteElements(spec.critic()) : 0);
}

/// Whether networks can read the batch's observations, of which the critic reads `finals` final ones, where they lie.
bool CanStay(const policy::PolicySpec& spec, const learner::PolicyTrainBatch& batch, int64_t finals) {
  const bool together = finals == 0 || batch.final_obs.data == batch.obs.row(batch.rows);
  return together && batch.obs.padded() && batch.obs.columns == FloatColumns(spec, spec.actor) &&
         (!spec.normalize_observations || batch.in_place != nullptr);
}

absl::Status CheckSize(const policy::PolicySpec& spec, const char* column, size_t got, int64_t expected) {
  if (static_cast<int64_t>(got) == expected) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("train batch of policy \"", spec.id.value(), "\": ", column, " has ",
                                                 got, " elements; expected ", expected));
}

/// [rows, columns], or [rows, more_columns].
absl::Status CheckMatrix(const policy::PolicySpec& spec, const char* column, const learner::RowMatrix& got,
                         int64_t rows, int64_t columns, int64_t more_columns) {
  const bool fits = got.columns == columns || got.columns == more_columns;
  // Nothing is asked of a matrix without elements.
  if (got.rows == rows && (rows == 0 || columns == 0 || (fits && got.stride >= got.columns))) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("train batch of policy \"", spec.id.value(), "\": ", column, " is [", got.rows, ", ", got.columns,
                   "], rows ", got.stride, " apart; expected [", rows, ", ", columns, "]",
                   more_columns == columns ? "" : absl::StrCat(" or [", rows, ", ", more_columns, "]")));
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

/// Discrete actions inside their space: a device would index with them. Those of a Beta, where it has a density.
absl::Status CheckActions(const policy::PolicySpec& spec, const learner::PolicyTrainBatch& batch) {
  const int64_t words = spec.action_words();
  const ActionHead head = ActionHead::For(spec);
  for (const ContinuousPart& part : head.continuous) {
    if (head.distribution != policy::ContinuousDistribution::kBeta) break;
    for (int64_t i = 0; i < batch.rows * part.words; ++i) {
      const int64_t row = i / part.words;
      const int64_t word = part.word + i % part.words;
      const float action = batch.actions[row * words + word].f32;
      if (std::abs(action) <= policy::kMaxBetaAction) continue;
      return absl::InvalidArgumentError(absl::StrCat("train batch of policy \"", spec.id.value(), "\": action word ",
                                                     word, " of row ", row, " is ", action,
                                                     "; expected a number between -1 and 1"));
    }
  }
  for (const CategoricalPart& part : head.categorical) {
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

absl::Status CheckDeathMasking(const policy::PolicySpec& spec) {
  if (spec.shares_encoder()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "algorithm.death_masking is true; expected no death masking: the critic of policy \"", spec.id.value(),
        "\" shares the actor's encoder (model.critic_encoder), which sees the dead, too"));
  }
  if (spec.critic_input() != policy::NetworkInput::kObservation || !spec.image_bytes()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("algorithm.death_masking is true; expected no death masking: the critic of policy \"",
                   spec.id.value(), "\" reads images of bytes, of which none is a dead agent's"));
}

absl::Status CheckMinibatchBy(const policy::PolicySpec& spec, MinibatchBy minibatch_by) {
  if (minibatch_by == MinibatchBy::kRows || !spec.remembers()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "algorithm.minibatch_by is env_steps; expected rows: policy \"", spec.id.value(),
      "\" remembers (model.actor_core, critic_core, a TorchScript module's state_size), and its minibatches are "
      "made of whole sequences"));
}

absl::Status PreparedBatch::CheckSizes(const policy::PolicySpec& spec, const learner::PolicyTrainBatch& batch,
                                       const PrepareOptions& options) const {
  const int64_t rows = batch.rows;
  const int64_t final_rows = batch.final_rows;
  const bool uses_slots = spec.agent_id_size > 0;
  const bool uses_state = spec.critic_input() != policy::NetworkInput::kObservation;
  const auto check_obs = [&](const char* column, const learner::RowMatrix& obs, int64_t obs_rows) {
    const int64_t columns = FloatColumns(spec, spec.actor);
    return CheckMatrix(spec, column, obs, obs_rows, columns - spec.agent_id_size, columns);
  };
  TROUPE_RETURN_IF_ERROR(check_obs("obs", batch.obs, rows));
  TROUPE_RETURN_IF_ERROR(CheckImages(spec, batch, options));
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
        CheckMatrix(spec, "critic_state", batch.critic_state, batch.critic_rows, StateColumns(spec),
                    spec.critic_reads_agent_state() ? StateColumns(spec) : FloatColumns(spec, spec.critic())));
    TROUPE_RETURN_IF_ERROR(CheckSize(spec, "critic_row", batch.critic_row.size(), rows));
    TROUPE_RETURN_IF_ERROR(CheckSize(spec, "final_critic_row", batch.final_critic_row.size(), final_rows));
    TROUPE_RETURN_IF_ERROR(CheckRange(spec, "critic_row", batch.critic_row, batch.critic_rows));
    TROUPE_RETURN_IF_ERROR(CheckRange(spec, "final_critic_row", batch.final_critic_row, batch.critic_rows));
  }
  if (spec.critic().Reads(policy::NetworkInput::kObservation) || options.final_observations) {
    TROUPE_RETURN_IF_ERROR(check_obs("final_obs", batch.final_obs, final_rows));
  }
  if (options.final_observations) {
    TROUPE_RETURN_IF_ERROR(
        CheckSize(spec, "final_action_mask", batch.final_action_mask.size(), final_rows * spec.mask_size()));
  }
  TROUPE_RETURN_IF_ERROR(CheckJointSizes(spec, batch));
  TROUPE_RETURN_IF_ERROR(CheckSegments(spec, batch));
  return CheckSequences(spec, batch);
}

absl::Status PreparedBatch::CheckImages(const policy::PolicySpec& spec, const learner::PolicyTrainBatch& batch,
                                        const PrepareOptions& options) {
  const bool has_images = spec.image_bytes();
  const bool has_finals =
      has_images && (spec.critic_input() == policy::NetworkInput::kObservation || options.final_observations);
  const auto check = [&](const char* column, const learner::ByteMatrix& got, int64_t rows, int64_t columns) {
    if (rows == 0) columns = got.columns;
    if (got.rows == rows && got.columns == columns) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("train batch of policy \"", spec.id.value(), "\": ", column, " is [",
                                                   got.rows, ", ", got.columns, "] bytes; expected [", rows, ", ",
                                                   columns, "]"));
  };
  const int64_t size = spec.observation_size();
  TROUPE_RETURN_IF_ERROR(check("images", batch.images, has_images ? batch.rows : 0, size));
  if (has_finals) TROUPE_RETURN_IF_ERROR(check("final_images", batch.final_images, batch.final_rows, size));
  const int64_t joint = spec.critic_state_size() - StateColumns(spec);
  return check("critic_images", batch.critic_images, joint > 0 ? batch.critic_rows : 0, joint);
}

absl::Status PreparedBatch::CheckJointSizes(const policy::PolicySpec& spec, const learner::PolicyTrainBatch& batch) {
  if (spec.critic_input() != policy::NetworkInput::kJointObservation) return absl::OkStatus();
  const policy::AttentionSpec& attention = spec.critic().attention;
  if (!spec.normalize_state && attention.agents.empty()) return absl::OkStatus();
  for (size_t slot = 0; slot < std::min(batch.joint_sizes.size(), attention.agents.size()); ++slot) {
    const int64_t expected = attention.observation_sizes[static_cast<size_t>(attention.agents[slot])];
    if (batch.joint_sizes[slot] == expected) continue;
    return absl::InvalidArgumentError(absl::StrCat("train batch of policy \"", spec.id.value(), "\": joint_sizes[",
                                                   slot, "] is ", batch.joint_sizes[slot], "; expected ", expected));
  }
  const int64_t got = std::accumulate(batch.joint_sizes.begin(), batch.joint_sizes.end(),
                                      static_cast<int64_t>(batch.joint_sizes.size()));
  if (got == spec.critic_state_size()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("train batch of policy \"", spec.id.value(), "\": joint_sizes are of ", batch.joint_sizes.size(),
                   " agents, ", got, " elements with their presence bits; expected ", spec.critic_state_size()));
}

absl::Status PreparedBatch::CheckSegments(const policy::PolicySpec& spec, const learner::PolicyTrainBatch& batch) {
  for (const learner::TrainSegment& segment : batch.segments) {
    if (segment.first_row < 0 || segment.rows < 0 || segment.first_row + segment.rows > batch.rows ||
        segment.final_row >= batch.final_rows) {
      return absl::InvalidArgumentError(absl::StrCat("train batch of policy \"", spec.id.value(), "\": segment of ",
                                                     segment.rows, " rows from ", segment.first_row, ", final row ",
                                                     segment.final_row, ", lies outside of ", batch.rows, " rows and ",
                                                     batch.final_rows, " final rows"));
    }
  }
  return absl::OkStatus();
}

absl::Status PreparedBatch::CheckSequences(const policy::PolicySpec& spec, const learner::PolicyTrainBatch& batch) {
  const auto count = static_cast<int64_t>(batch.sequences.size());
  const int64_t state_size = spec.actor_state_size();
  if (!spec.remembers()) return CheckSize(spec, "sequences", batch.sequences.size(), 0);
  TROUPE_RETURN_IF_ERROR(
      CheckMatrix(spec, "memory", batch.memory, state_size > 0 ? count : batch.memory.rows, state_size, state_size));
  size_t next = 0;
  for (const learner::TrainSegment& segment : batch.segments) {
    int64_t row = segment.first_row;
    const int64_t end = segment.first_row + segment.rows;
    for (; row < end && next < batch.sequences.size(); ++next) {
      const learner::TrainSequence& sequence = batch.sequences[next];
      if (sequence.first_row != row || sequence.rows < 1 || row + sequence.rows > end || sequence.decision < 0) break;
      // Back ends have room for no more.
      if (sequence.rows > spec.sequence_length) {
        return absl::InvalidArgumentError(absl::StrCat("train batch of policy \"", spec.id.value(), "\": sequence ",
                                                       next, " has ", sequence.rows, " rows; expected at most ",
                                                       spec.sequence_length));
      }
      row += sequence.rows;
    }
    if (row == end) continue;
    return absl::InvalidArgumentError(absl::StrCat("train batch of policy \"", spec.id.value(), "\": sequence ", next,
                                                   " of ", count, " does not go on at row ", row, " of the segment of ",
                                                   segment.rows, " rows from ", segment.first_row,
                                                   "; expected sequences that cover each segment"));
  }
  return CheckSize(spec, "sequences", batch.sequences.size(), static_cast<int64_t>(next));
}

float* PreparedBatch::Resize(tensor::Buffer* buffer, int64_t rows, int64_t columns, MatrixView* view) {
  const int64_t stride = learner::RowMatrix::PaddedStride(columns);
  buffer->EnsureCapacity(static_cast<size_t>(std::max<int64_t>(rows * stride, 1)) * sizeof(float));
  auto* const data = reinterpret_cast<float*>(buffer->data());
  *view = MatrixView{data, rows, columns, stride};
  return data;
}

absl::Status PreparedBatch::TakeObservations(const policy::PolicySpec& spec, const policy::RunningMoments& moments,
                                             const learner::PolicyTrainBatch& batch, int64_t finals, ThreadTeam* team) {
  const int64_t all_rows = batch.rows + finals;
  const bool stays = CanStay(spec, batch, finals);
  learner::InPlaceObservations* const in_place = stays && spec.normalize_observations ? batch.in_place : nullptr;
  observed_ = {};
  if (in_place != nullptr && in_place->normalized) {
    // By an update that failed afterwards: it is tried again.
    if (!SameNumbers(in_place->with, moments)) {
      return absl::FailedPreconditionError(absl::StrCat("train batch of policy \"", spec.id.value(),
                                                        "\": its observations were normalized in place with other "
                                                        "moments than the policy has"));
    }
    observed_ = in_place->observed;
  } else if (spec.normalize_observations) {
    observed_ = MomentsOf(batch.obs.data, spec.observation_size(), batch.obs.stride, active());
  }
  RowWriter writer;
  if (spec.normalize_observations) {
    writer.mean = Mean(moments);
    writer.inverse_std = InverseStd(moments);
  }
  if (stays) {
    observations_ = {batch.obs.data, all_rows, batch.obs.columns, batch.obs.stride};
    if (in_place == nullptr || in_place->normalized) return absl::OkStatus();
    ForRows(team, all_rows, [&](int64_t first, int64_t end) {
      float* row = in_place->data + first * batch.obs.stride;
      for (int64_t r = first; r < end; ++r, row += batch.obs.stride) writer.Normalize(row, row);
    });
    in_place->normalized = true;
    in_place->with = moments;
    in_place->observed = observed_;
    return absl::OkStatus();
  }
  float* const to = Resize(&actor_buffer_, all_rows, FloatColumns(spec, spec.actor), &observations_);
  writer.size = observations_.columns - spec.agent_id_size;
  writer.one_hot = spec.agent_id_size;
  writer.stride = observations_.stride;
  ForRows(team, all_rows, [&](int64_t first, int64_t end) {
    for (int64_t r = first; r < end; ++r) {
      const bool is_final = r >= batch.rows;
      const int64_t row = is_final ? r - batch.rows : r;
      const absl::Span<const int32_t> slots = is_final ? batch.final_slot : batch.slot;
      writer.Write((is_final ? batch.final_obs : batch.obs).row(row), slots.data() + row, to + r * writer.stride);
    }
  });
  return absl::OkStatus();
}

void PreparedBatch::TakeImages(const learner::PolicyTrainBatch& batch, int64_t finals, ThreadTeam* team) {
  images_ = {batch.images.data, batch.images.rows + (batch.images.rows > 0 ? finals : 0), batch.images.columns};
  if (images_.rows == 0 || finals == 0 || batch.final_images.data == batch.images.row(batch.rows)) return;
  const int64_t size = images_.columns;
  image_buffer_.EnsureCapacity(static_cast<size_t>(images_.rows * size));
  const absl::Span<uint8_t> to = image_buffer_.As<uint8_t>(0, static_cast<size_t>(images_.rows * size));
  ForRows(team, images_.rows, [&](int64_t first, int64_t end) {
    for (int64_t r = first; r < end; ++r) {
      const uint8_t* const from = r < batch.rows ? batch.images.row(r) : batch.final_images.row(r - batch.rows);
      std::memcpy(to.data() + r * size, from, static_cast<size_t>(size));
    }
  });
  images_.data = to.data();
}

void PreparedBatch::TakeStates(const policy::PolicySpec& spec, const learner::PolicyTrainBatch& batch,
                               const PrepareOptions& options, ThreadTeam* team) {
  const learner::RowMatrix& state = batch.critic_state;
  const int64_t columns = FloatColumns(spec, spec.critic());
  std::optional<StateNormalizer> normalizer;
  if (spec.normalize_state) {
    const int64_t size = spec.critic_state_size();
    normalizer.emplace(options.state_moments != nullptr ? *options.state_moments : InitialColumnMoments(size),
                       batch.joint_sizes, size, spec.critic().attention.agents);
    observed_states_ = normalizer->MomentsOf(state, batch.critic_row, active());
  }
  critic_images_ = batch.critic_images;
  if (state.columns != columns && batch.critic_rows > 0) {
    return TakeOwnStates(spec, batch, normalizer.has_value() ? &*normalizer : nullptr, team);
  }
  critic_index_ = batch.critic_row;
  final_critic_index_ = batch.final_critic_row;
  critic_image_index_.resize(static_cast<size_t>(critic_images_.rows));
  std::iota(critic_image_index_.begin(), critic_image_index_.end(), 0);
  if (state.padded() && !normalizer.has_value()) {
    critic_input_ = {state.data, state.rows, columns, state.stride};
    return;
  }
  float* const to = Resize(&critic_buffer_, batch.critic_rows, columns, &critic_input_);
  RowWriter writer;
  writer.size = columns;
  writer.stride = critic_input_.stride;
  ForRows(team, batch.critic_rows, [&](int64_t first, int64_t end) {
    for (int64_t r = first; r < end; ++r) {
      writer.Write(state.row(r), nullptr, to + r * writer.stride);
      if (normalizer.has_value()) normalizer->Normalize(to + r * writer.stride);
    }
  });
}

void PreparedBatch::TakeOwnStates(const policy::PolicySpec& spec, const learner::PolicyTrainBatch& batch,
                                  const StateNormalizer* normalizer, ThreadTeam* team) {
  const int64_t all_rows = batch.rows + batch.final_rows;
  IndexByRow(batch);
  float* const to = Resize(&critic_buffer_, all_rows, FloatColumns(spec, spec.critic()), &critic_input_);
  if (critic_images_.rows > 0) {
    critic_image_index_.assign(batch.critic_row.begin(), batch.critic_row.end());
    critic_image_index_.insert(critic_image_index_.end(), batch.final_critic_row.begin(), batch.final_critic_row.end());
  }
  RowWriter writer;
  writer.size = StateColumns(spec);
  writer.stride = critic_input_.stride;
  const int64_t observed = spec.critic_reads_agent_state() ? spec.observation_size() : 0;
  ForRows(team, all_rows, [&](int64_t first, int64_t end) {
    for (int64_t r = first; r < end; ++r) {
      const bool is_final = r >= batch.rows;
      const auto row = static_cast<size_t>(is_final ? r - batch.rows : r);
      float* const out = to + r * writer.stride;
      writer.Write(batch.critic_state.row((is_final ? batch.final_critic_row : batch.critic_row)[row]), nullptr, out);
      if (normalizer != nullptr) normalizer->Normalize(out);
      if (observed > 0) {
        std::memcpy(out + writer.size, observations_.data + r * observations_.stride,
                    static_cast<size_t>(observed) * sizeof(float));
      }
      if (spec.critic_agent_id()) out[writer.size + observed + (is_final ? batch.final_slot : batch.slot)[row]] = 1.0f;
    }
  });
}

void PreparedBatch::MaskTheDead(const policy::PolicySpec& spec, const learner::PolicyTrainBatch& batch) {
  if (active().size() == static_cast<size_t>(batch.rows)) return;
  // The inputs as they are, then one of zeros for each slot, or for all.
  const MatrixView live = critic_input_;
  const int64_t one_hot = spec.critic_agent_id() ? spec.agent_id_size : 0;
  const int64_t masked = std::max<int64_t>(one_hot, 1);
  if (critic_images_.rows > 0) critic_image_index_.resize(static_cast<size_t>(live.rows + masked), 0);
  float* to = Resize(&masked_buffer_, live.rows + masked, live.columns, &critic_input_);
  RowWriter writer;
  writer.size = live.columns;
  writer.stride = critic_input_.stride;
  for (int64_t r = 0; r < live.rows; ++r) writer.Write(live.data + r * live.stride, nullptr, to + r * writer.stride);
  to += live.rows * writer.stride;
  std::memset(to, 0, static_cast<size_t>(masked * writer.stride) * sizeof(float));
  for (int64_t s = 0; s < one_hot; ++s) to[s * writer.stride + live.columns - one_hot + s] = 1.0f;

  masked_index_.assign(critic_index_.begin(), critic_index_.end());
  masked_final_index_.assign(final_critic_index_.begin(), final_critic_index_.end());
  const auto place = [&](absl::Span<const int32_t> slots, int64_t row) {
    return static_cast<int32_t>(live.rows + (one_hot > 0 ? slots[static_cast<size_t>(row)] : 0));
  };
  for (const learner::TrainSegment& segment : batch.segments) {
    const int64_t end = segment.first_row + segment.rows;
    for (int64_t row = segment.first_row; row < end && segment.trains; ++row) {
      if (!uses_.IsActive(row)) masked_index_[static_cast<size_t>(row)] = place(batch.slot, row);
    }
    if (segment.final_row >= 0 && segment.trains && segment.rows > 0 && !uses_.IsActive(end - 1)) {
      masked_final_index_[static_cast<size_t>(segment.final_row)] = place(batch.final_slot, segment.final_row);
    }
  }
  critic_index_ = masked_index_;
  final_critic_index_ = masked_final_index_;
}

void PreparedBatch::IndexByRow(const learner::PolicyTrainBatch& batch) {
  const auto all = static_cast<size_t>(batch.rows + batch.final_rows);
  const size_t known = ascending_.size();
  if (known < all) {
    ascending_.resize(all);
    std::iota(ascending_.begin() + static_cast<ptrdiff_t>(known), ascending_.end(), static_cast<int32_t>(known));
  }
  const absl::Span<const int32_t> index(ascending_);
  critic_index_ = index.subspan(0, static_cast<size_t>(batch.rows));
  final_critic_index_ = index.subspan(static_cast<size_t>(batch.rows), static_cast<size_t>(batch.final_rows));
}

absl::Status PreparedBatch::Prepare(const policy::PolicySpec& spec, const policy::RunningMoments& observation_moments,
                                    const learner::PolicyTrainBatch& batch, ThreadTeam* team,
                                    const PrepareOptions& options) {
  if (options.death_masking) TROUPE_RETURN_IF_ERROR(CheckDeathMasking(spec));
  TROUPE_RETURN_IF_ERROR(CheckMinibatchBy(spec, options.minibatch_by));
  TROUPE_RETURN_IF_ERROR(CheckSizes(spec, batch, options));
  TROUPE_RETURN_IF_ERROR(CheckActions(spec, batch));
  uses_.Take(batch, options.use_policy_active_masks, options.use_value_active_masks);
  sequences_ = batch.sequences;
  actor_memory_ = {batch.memory.data, batch.memory.rows, spec.actor_state_size(), batch.memory.stride};
  const bool own_observation = spec.critic_input() == policy::NetworkInput::kObservation;
  const bool reads_observations = own_observation || spec.critic_reads_agent_state() || options.final_observations;
  TROUPE_RETURN_IF_ERROR(
      TakeObservations(spec, observation_moments, batch, reads_observations ? batch.final_rows : 0, team));
  TakeImages(batch, own_observation || options.final_observations ? batch.final_rows : 0, team);
  critic_images_ = {};
  critic_image_index_.clear();
  actor_input_ = observations_;
  actor_input_.rows = batch.rows;
  if (own_observation) {
    // The same rows; where the critic does not see the one-hot, it stops before it.
    critic_input_ = observations_;
    critic_input_.columns = FloatColumns(spec, spec.critic());
    IndexByRow(batch);
  } else {
    TakeStates(spec, batch, options, team);
  }
  units_.Clear();
  if (options.minibatch_by == MinibatchBy::kEnvSteps) {
    units_.Take(uses_.counted(), critic_index_, critic_input_.rows);
  }
  if (options.death_masking) MaskTheDead(spec, batch);
  actions = batch.actions;
  old_logp = batch.action_logp;
  action_mask = batch.action_mask;
  return absl::OkStatus();
}

}  // namespace troupe::training
