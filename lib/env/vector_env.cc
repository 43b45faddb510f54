#include "lib/env/vector_env.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/check.h"
#include "lib/base/status_macros.h"

namespace troupe::env {

absl::StatusOr<std::unique_ptr<VectorEnv>> VectorEnv::Make(std::vector<std::unique_ptr<MultiAgentEnv>> envs,
                                                           Options options) {
  if (envs.empty()) return absl::InvalidArgumentError("VectorEnv got no environments, expected at least one");
  if (!options.env_ids.empty() && options.env_ids.size() != envs.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("VectorEnv got ", options.env_ids.size(), " env ids for ", envs.size(), " environments"));
  }
  const std::string spec = envs[0]->spec().ToString();
  for (const auto& env : envs) {
    if (env->spec().ToString() != spec) {
      return absl::InvalidArgumentError(
          absl::StrCat("VectorEnv got environments of different specs:\n", spec, env->spec().ToString()));
    }
  }
  return std::unique_ptr<VectorEnv>(new VectorEnv(std::move(envs), std::move(options)));
}

VectorEnv::VectorEnv(std::vector<std::unique_ptr<MultiAgentEnv>> envs, Options options)
    : envs_(std::move(envs)), options_(std::move(options)) {
  const size_t agents = spec().possible_agents.size();
  for (const AgentSpec& agent : spec().possible_agents)
    action_stride_ = std::max(action_stride_, agent.action_space.action_words());
  buffers_ = std::make_unique<SlotBuffers>(spec(), num_envs());
  if (options_.keep_final) final_buffers_ = std::make_unique<SlotBuffers>(spec(), num_envs());
  for (size_t i = 0; i < envs_.size(); ++i) {
    const base::EnvId id = options_.env_ids.empty()
                               ? base::EnvId(options_.first_env_id.value() + static_cast<uint32_t>(i))
                               : options_.env_ids[i];
    lanes_.push_back(
        Lane{.seed = EpisodeSeed{options_.seed, id, options_.first_episode}, .returns = std::vector<double>(agents)});
  }
  action_rows_.resize(agents);
  finished_.resize(envs_.size());
  for (EpisodeEnd& end : finished_) end.returns.resize(agents);
}

absl::Status VectorEnv::Reset() {
  num_finished_ = 0;
  for (size_t i = 0; i < envs_.size(); ++i) {
    Lane& lane = lanes_[i];
    if (started_) ++lane.seed.episode;
    lane.length = 0;
    std::fill(lane.returns.begin(), lane.returns.end(), 0.0);
    TROUPE_RETURN_IF_ERROR(envs_[i]->Reset(lane.seed, buffers_->BeginStep(static_cast<int>(i))));
  }
  started_ = true;
  return absl::OkStatus();
}

absl::Status VectorEnv::Step(absl::Span<const space::ActionWord> actions) {
  if (!started_) return absl::FailedPreconditionError("VectorEnv: Step before Reset");
  if (actions.size() != action_size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("VectorEnv: got ", actions.size(), " action words, expected ", action_size()));
  }
  num_finished_ = 0;
  const size_t block = actions.size() / envs_.size();
  if (!envs_[0]->runs_elsewhere()) {
    for (size_t i = 0; i < envs_.size(); ++i) {
      const int env = static_cast<int>(i);
      FillActionRows(env, actions.subspan(i * block, block));
      TROUPE_RETURN_IF_ERROR(envs_[i]->Step(action_rows_, buffers_->BeginStep(env)));
      TROUPE_RETURN_IF_ERROR(CountStep(env));
    }
    return absl::OkStatus();
  }
  // All at the same time. What was started must be finished, whatever happens to another one.
  absl::Status first;
  size_t started = 0;
  for (; started < envs_.size() && first.ok(); ++started) {
    FillActionRows(static_cast<int>(started), actions.subspan(started * block, block));
    first = envs_[started]->StartStep(action_rows_);
    if (!first.ok()) break;
  }
  for (size_t i = 0; i < started; ++i) {
    const int env = static_cast<int>(i);
    first.Update(envs_[i]->Finish(buffers_->BeginStep(env)));
    if (first.ok()) first = CountStep(env);
  }
  return first;
}

void VectorEnv::FillActionRows(int env, absl::Span<const space::ActionWord> actions) {
  const int32_t agents = static_cast<int32_t>(action_rows_.size());
  for (int32_t slot = 0; slot < agents; ++slot) {
    const bool ready = buffers_->ready(env, slot);
    action_rows_[static_cast<size_t>(slot)] = ready ? actions.data() + slot * action_stride_ : nullptr;
    agent_steps_ += ready ? 1 : 0;
  }
}

absl::Status VectorEnv::CountStep(int env) {
  Lane& lane = lanes_[static_cast<size_t>(env)];
  const int32_t agents = static_cast<int32_t>(action_rows_.size());
  ++env_steps_;
  ++lane.length;
  for (int32_t slot = 0; slot < agents; ++slot) lane.returns[static_cast<size_t>(slot)] += buffers_->reward(env, slot);
  if (!buffers_->all_done(env)) return absl::OkStatus();

  EpisodeEnd& end = finished_[num_finished_++];
  end.env = env;
  end.seed = lane.seed;
  end.length = lane.length;
  end.truncated = buffers_->all_truncated(env);
  end.returns = lane.returns;
  if (final_buffers_ != nullptr) final_buffers_->CopyFrom(*buffers_, env);
  ++lane.seed.episode;
  lane.length = 0;
  std::fill(lane.returns.begin(), lane.returns.end(), 0.0);
  return envs_[static_cast<size_t>(env)]->Reset(lane.seed, buffers_->BeginAutoReset(env));
}

void VectorEnv::SampleActions(absl::Span<space::ActionWord> actions) const {
  TROUPE_CHECK(actions.size() == action_size());
  const int32_t agents = static_cast<int32_t>(action_rows_.size());
  const base::PhiloxKey key = base::PhiloxKey::Make(options_.seed, base::RandomStream::kTest);
  for (int env = 0; env < num_envs(); ++env) {
    const Lane& lane = lanes_[static_cast<size_t>(env)];
    // One sequence an environment step, shared by its agents; 2^12 blocks of four draws are more than an action row
    // takes.
    base::PhiloxSequence random(
        key, {lane.seed.env_id.value(), lane.seed.episode, 0, static_cast<uint32_t>(lane.length) << 12});
    for (int32_t slot = 0; slot < agents; ++slot) {
      if (!buffers_->ready(env, slot)) continue;
      const space::Space& action_space = spec().possible_agents[static_cast<size_t>(slot)].action_space;
      const size_t first = (static_cast<size_t>(env) * static_cast<size_t>(agents) + static_cast<size_t>(slot)) *
                           static_cast<size_t>(action_stride_);
      action_space.SampleAction(random, buffers_->action_mask(env, slot),
                                actions.subspan(first, static_cast<size_t>(action_space.action_words())));
    }
  }
}

}  // namespace troupe::env
