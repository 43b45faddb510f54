#include "lib/env/slot_buffers.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "lib/base/check.h"

namespace troupe::env {
namespace {

constexpr double kNotGiven = std::numeric_limits<double>::quiet_NaN();

}  // namespace

class SlotBuffers::Writer final : public StepWriter {
 public:
  Writer(SlotBuffers& owner, int env)
      : owner_(owner),
        env_(static_cast<size_t>(env)),
        first_(env_ * owner.agents_),
        rows_(owner.rows_.data() + env_ * owner.row_offset_.back()) {}

  void* Observe(AgentSlot slot) override {
    const size_t s = static_cast<size_t>(slot.value());
    owner_.observed_[first_ + s] = 1;
    owner_.agent_mask_[first_ + s] = 1;
    return rows_ + owner_.row_offset_[s];
  }
  uint8_t* ActionMask(AgentSlot slot) override {
    return owner_.masks_.data() + env_ * owner_.mask_offset_.back() +
           owner_.mask_offset_[static_cast<size_t>(slot.value())];
  }
  float* State(AgentSlot slot) override {
    const bool per_agent = owner_.spec_.state_kind == StateKind::kPerAgent;
    return owner_.states_.data() + (per_agent ? first_ + static_cast<size_t>(slot.value()) : env_) * owner_.state_size_;
  }
  void AddReward(AgentSlot slot, float reward) override { owner_.rewards_[At(slot)] += reward; }
  void TerminateAgent(AgentSlot slot) override { owner_.terminated_[At(slot)] = 1; }
  void TruncateAgent(AgentSlot slot) override { owner_.truncated_[At(slot)] = 1; }
  void TerminateAll() override { owner_.all_terminated_[env_] = 1; }
  void TruncateAll() override { owner_.all_truncated_[env_] = 1; }
  void SetAgentMask(AgentSlot slot, bool active) override { owner_.agent_mask_[At(slot)] = active ? 1 : 0; }
  void SetInfo(AgentSlot slot, int column, double value) override {
    owner_.infos_[At(slot) * owner_.spec_.info_columns.size() + static_cast<size_t>(column)] = value;
  }

 private:
  size_t At(AgentSlot slot) const { return first_ + static_cast<size_t>(slot.value()); }

  SlotBuffers& owner_;
  const size_t env_;
  const size_t first_;  ///< index of slot 0 in arrays [K, agents]
  std::byte* const rows_;
};

SlotBuffers::SlotBuffers(const EnvSpec& spec, int num_envs)
    : spec_(spec),
      num_envs_(num_envs),
      agents_(spec.possible_agents.size()),
      state_size_(spec.state_kind == StateKind::kNone ? 0 : static_cast<size_t>(spec.state_space.flat_size())) {
  TROUPE_CHECK(num_envs > 0);
  const size_t envs = static_cast<size_t>(num_envs);
  row_offset_.push_back(0);
  mask_offset_.push_back(0);
  for (const AgentSpec& agent : spec.possible_agents) {
    // Float rows after a uint8 row must stay aligned.
    const size_t bytes = static_cast<size_t>(agent.observation_space.flat_size()) *
                         tensor::ElementBytes(agent.observation_space.flat_dtype());
    row_offset_.push_back(row_offset_.back() + (bytes + 3) / 4 * 4);
    mask_offset_.push_back(mask_offset_.back() +
                           (agent.has_action_mask ? static_cast<size_t>(agent.action_space.mask_size()) : 0));
  }
  rows_ = tensor::Buffer(std::max<size_t>(1, envs * row_offset_.back()));
  masks_.resize(envs * mask_offset_.back());
  states_.resize(envs * (spec.state_kind == StateKind::kPerAgent ? agents_ : 1) * state_size_);
  rewards_.resize(envs * agents_);
  infos_.resize(envs * agents_ * spec.info_columns.size(), kNotGiven);
  for (std::vector<uint8_t>* flags : {&observed_, &terminated_, &truncated_, &agent_mask_})
    flags->resize(envs * agents_);
  all_terminated_.resize(envs);
  all_truncated_.resize(envs);
  auto_reset_.resize(envs);
  for (int env = 0; env < num_envs; ++env) writers_.emplace_back(*this, env);
  Fill(0);
}

SlotBuffers::~SlotBuffers() = default;

StepWriter& SlotBuffers::BeginStep(int env) {
  const size_t first = Index(env, 0);
  std::memset(terminated_.data() + first, 0, agents_);
  std::memset(truncated_.data() + first, 0, agents_);
  std::fill_n(rewards_.begin() + static_cast<std::ptrdiff_t>(first), agents_, 0.0f);
  const size_t columns = spec_.info_columns.size();
  if (columns > 0)
    std::fill_n(infos_.begin() + static_cast<std::ptrdiff_t>(first * columns), agents_ * columns, kNotGiven);
  all_terminated_[static_cast<size_t>(env)] = 0;
  all_truncated_[static_cast<size_t>(env)] = 0;
  StepWriter& writer = BeginAutoReset(env);
  auto_reset_[static_cast<size_t>(env)] = 0;
  return writer;
}

StepWriter& SlotBuffers::BeginAutoReset(int env) {
  std::memset(observed_.data() + Index(env, 0), 0, agents_);
  auto_reset_[static_cast<size_t>(env)] = 1;
  return writers_[static_cast<size_t>(env)];
}

absl::Span<const std::byte> SlotBuffers::observation_bytes(int env, int32_t slot) const {
  const space::Space& observation_space = spec_.possible_agents[static_cast<size_t>(slot)].observation_space;
  const std::byte* row =
      rows_.data() + static_cast<size_t>(env) * row_offset_.back() + row_offset_[static_cast<size_t>(slot)];
  return absl::MakeConstSpan(
      row, static_cast<size_t>(observation_space.flat_size()) * tensor::ElementBytes(observation_space.flat_dtype()));
}

absl::Span<const float> SlotBuffers::observation(int env, int32_t slot) const {
  TROUPE_CHECK(spec_.possible_agents[static_cast<size_t>(slot)].observation_space.flat_dtype() ==
               tensor::DType::kFloat32);
  const absl::Span<const std::byte> bytes = observation_bytes(env, slot);
  return absl::MakeConstSpan(reinterpret_cast<const float*>(bytes.data()), bytes.size() / sizeof(float));
}

absl::Span<const uint8_t> SlotBuffers::observation_uint8(int env, int32_t slot) const {
  TROUPE_CHECK(spec_.possible_agents[static_cast<size_t>(slot)].observation_space.flat_dtype() ==
               tensor::DType::kUint8);
  const absl::Span<const std::byte> bytes = observation_bytes(env, slot);
  return absl::MakeConstSpan(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
}

absl::Span<const uint8_t> SlotBuffers::action_mask(int env, int32_t slot) const {
  const size_t begin = mask_offset_[static_cast<size_t>(slot)];
  const size_t size = mask_offset_[static_cast<size_t>(slot) + 1] - begin;
  return absl::MakeConstSpan(masks_).subspan(static_cast<size_t>(env) * mask_offset_.back() + begin, size);
}

absl::Span<const float> SlotBuffers::state(int env, int32_t slot) const {
  const size_t row = spec_.state_kind == StateKind::kPerAgent ? Index(env, slot) : static_cast<size_t>(env);
  return absl::MakeConstSpan(states_).subspan(row * state_size_, state_size_);
}

absl::Span<const double> SlotBuffers::infos(int env, int32_t slot) const {
  const size_t columns = spec_.info_columns.size();
  return absl::MakeConstSpan(infos_).subspan(Index(env, slot) * columns, columns);
}

absl::Span<const float> SlotBuffers::observations() const {
  for (const AgentSpec& agent : spec_.possible_agents)
    TROUPE_CHECK(agent.observation_space == spec_.possible_agents[0].observation_space);
  TROUPE_CHECK(spec_.possible_agents[0].observation_space.flat_dtype() == tensor::DType::kFloat32);
  const size_t count = static_cast<size_t>(num_envs_) * row_offset_.back() / sizeof(float);
  return absl::MakeConstSpan(reinterpret_cast<const float*>(rows_.data()), count);
}

void SlotBuffers::CopyFrom(const SlotBuffers& other, int env) {
  TROUPE_CHECK(other.num_envs_ == num_envs_ && other.row_offset_ == row_offset_ &&
               other.states_.size() == states_.size());
  const size_t e = static_cast<size_t>(env);
  const auto copy = [&](const auto& from, auto& to, size_t per_env) {
    std::copy_n(from.begin() + static_cast<std::ptrdiff_t>(e * per_env), per_env,
                to.begin() + static_cast<std::ptrdiff_t>(e * per_env));
  };
  std::memcpy(rows_.data() + e * row_offset_.back(), other.rows_.data() + e * row_offset_.back(), row_offset_.back());
  copy(other.masks_, masks_, mask_offset_.back());
  copy(other.states_, states_, states_.size() / static_cast<size_t>(num_envs_));
  copy(other.rewards_, rewards_, agents_);
  copy(other.infos_, infos_, agents_ * spec_.info_columns.size());
  copy(other.observed_, observed_, agents_);
  copy(other.terminated_, terminated_, agents_);
  copy(other.truncated_, truncated_, agents_);
  copy(other.agent_mask_, agent_mask_, agents_);
  copy(other.all_terminated_, all_terminated_, 1);
  copy(other.all_truncated_, all_truncated_, 1);
  copy(other.auto_reset_, auto_reset_, 1);
}

void SlotBuffers::Fill(uint8_t byte) {
  std::memset(rows_.data(), byte, rows_.size());
  std::fill(masks_.begin(), masks_.end(), byte);
  if (!states_.empty()) std::memset(states_.data(), byte, states_.size() * sizeof(float));
}

}  // namespace troupe::env
