#include "lib/env/dict_env.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/env/slot_buffers.h"

namespace troupe::env {
namespace {

using SlotById = std::map<std::string, AgentSlot>;

SlotById MakeSlotById(const EnvSpec& spec) {
  SlotById slots;
  for (size_t i = 0; i < spec.possible_agents.size(); ++i) {
    slots.emplace(spec.possible_agents[i].id.value(), AgentSlot(static_cast<int32_t>(i)));
  }
  return slots;
}

bool ValueOr(const std::map<std::string, bool>& values, const std::string& key, bool fallback) {
  const auto found = values.find(key);
  return found == values.end() ? fallback : found->second;
}

class SlotsOverDict final : public MultiAgentEnv {
 public:
  explicit SlotsOverDict(std::unique_ptr<DictEnv> env)
      : env_(std::move(env)), slots_(MakeSlotById(env_->spec())), done_(env_->spec().possible_agents.size()) {}

  const EnvSpec& spec() const override { return env_->spec(); }

  absl::Status Reset(const EpisodeSeed& seed, StepWriter& out) override {
    std::fill(done_.begin(), done_.end(), uint8_t{0});
    TROUPE_ASSIGN_OR_RETURN(const DictStep step, env_->Reset(seed));
    return Write(step, out, /*reset=*/true);
  }

  absl::Status Step(ActionRows actions, StepWriter& out) override {
    std::map<std::string, std::vector<space::ActionWord>> by_id;
    for (size_t i = 0; i < actions.size(); ++i) {
      if (actions[i] == nullptr) continue;
      const AgentSpec& agent = spec().possible_agents[i];
      by_id.emplace(agent.id.value(),
                    std::vector<space::ActionWord>(actions[i], actions[i] + agent.action_space.action_words()));
    }
    TROUPE_ASSIGN_OR_RETURN(const DictStep step, env_->Step(by_id));
    return Write(step, out, /*reset=*/false);
  }

 private:
  absl::Status Write(const DictStep& step, StepWriter& out, bool reset) {
    TROUPE_RETURN_IF_ERROR(CheckIds(step.observations, "observations"));
    TROUPE_RETURN_IF_ERROR(CheckIds(step.rewards, "rewards"));
    TROUPE_RETURN_IF_ERROR(CheckIds(step.terminateds, "terminateds"));
    TROUPE_RETURN_IF_ERROR(CheckIds(step.truncateds, "truncateds"));
    TROUPE_RETURN_IF_ERROR(CheckIds(step.dones, "dones"));
    TROUPE_RETURN_IF_ERROR(CheckIds(step.infos, "infos"));
    if (!reset) {
      for (const auto& [id, reward] : step.rewards) {
        const AgentSlot slot = slots_.at(id);
        if (reward != 0.0 || done_[static_cast<size_t>(slot.value())] == 0)
          out.AddReward(slot, static_cast<float>(reward));
      }
    }
    for (const auto& [id, row] : step.observations) TROUPE_RETURN_IF_ERROR(WriteObservation(id, row, step, out));
    if (spec().state_kind == StateKind::kPerEnv)
      TROUPE_RETURN_IF_ERROR(WriteState(AgentSlot(0), DictStep::kAll, step, out));
    WriteInfos(step, out);
    if (!reset) WriteEnds(step, out);
    return absl::OkStatus();
  }

  void WriteEnds(const DictStep& step, StepWriter& out) {
    bool any_limit = false;
    bool all_limits = true;
    const bool all_old_style = ValueOr(step.dones, DictStep::kAll, false);
    for (const auto& [id, slot] : slots_) {
      uint8_t& done = done_[static_cast<size_t>(slot.value())];
      if (done != 0 && step.observations.count(id) == 0) continue;
      done = 0;
      const bool old_style = ValueOr(step.dones, id, false);
      const bool limit = (old_style || all_old_style) && IsTimeLimit(step, id);
      any_limit = any_limit || limit;
      all_limits = all_limits && (limit || !(old_style || all_old_style));
      if (ValueOr(step.terminateds, id, false)) {
        out.TerminateAgent(slot);
        done = 1;
      } else if (ValueOr(step.truncateds, id, false) || (old_style && limit)) {
        out.TruncateAgent(slot);
        done = 1;
      } else if (old_style) {
        out.TerminateAgent(slot);
        done = 1;
      }
    }
    const bool limit = all_old_style && any_limit && all_limits;
    if (ValueOr(step.terminateds, DictStep::kAll, false)) {
      out.TerminateAll();
    } else if (ValueOr(step.truncateds, DictStep::kAll, false) || limit) {
      out.TruncateAll();
    } else if (all_old_style) {
      out.TerminateAll();
    }
  }

  static bool IsTimeLimit(const DictStep& step, const std::string& id) {
    const auto infos = step.infos.find(id);
    if (infos == step.infos.end()) return false;
    const auto value = infos->second.find(DictStep::kTimeLimit);
    return value != infos->second.end() && value->second != 0;
  }

  absl::Status WriteObservation(const std::string& id, const std::vector<float>& row, const DictStep& step,
                                StepWriter& out) {
    const AgentSlot slot = slots_.at(id);
    const AgentSpec& agent = spec().possible_agents[static_cast<size_t>(slot.value())];
    if (static_cast<int64_t>(row.size()) != agent.observation_space.flat_size()) {
      return absl::InternalError(absl::StrCat("agent ", base::LogSafe(id), ": observation has ", row.size(),
                                              " elements, expected ", agent.observation_space.flat_size()));
    }
    void* to = out.Observe(slot);
    if (agent.observation_space.flat_dtype() == tensor::DType::kUint8) {
      for (size_t i = 0; i < row.size(); ++i) {
        if (!(row[i] >= 0.0f && row[i] <= 255.0f)) {
          return absl::InternalError(absl::StrCat("agent ", base::LogSafe(id), ": observation element ", i, " is ",
                                                  row[i], ", expected a whole number in [0, 255]"));
        }
        static_cast<uint8_t*>(to)[i] = static_cast<uint8_t>(row[i]);
      }
    } else {
      std::copy(row.begin(), row.end(), static_cast<float*>(to));
    }
    if (agent.has_action_mask) {
      const auto mask = step.action_masks.find(id);
      const size_t expected = static_cast<size_t>(agent.action_space.mask_size());
      if (mask == step.action_masks.end() || mask->second.size() != expected) {
        return absl::InternalError(absl::StrCat("agent ", base::LogSafe(id), ": action mask has ",
                                                mask == step.action_masks.end() ? 0 : mask->second.size(),
                                                " elements, expected ", expected));
      }
      std::copy(mask->second.begin(), mask->second.end(), out.ActionMask(slot));
    }
    const auto agent_mask = step.agent_masks.find(id);
    if (agent_mask != step.agent_masks.end()) out.SetAgentMask(slot, agent_mask->second);
    if (spec().state_kind == StateKind::kPerAgent) return WriteState(slot, id, step, out);
    return absl::OkStatus();
  }

  absl::Status WriteState(AgentSlot slot, const std::string& key, const DictStep& step, StepWriter& out) {
    const auto state = step.states.find(key);
    const size_t expected = static_cast<size_t>(spec().state_space.flat_size());
    if (state == step.states.end() || state->second.size() != expected) {
      return absl::InternalError(absl::StrCat("state of ", base::LogSafe(key), " has ",
                                              state == step.states.end() ? 0 : state->second.size(),
                                              " elements, expected ", expected));
    }
    std::copy(state->second.begin(), state->second.end(), out.State(slot));
    return absl::OkStatus();
  }

  void WriteInfos(const DictStep& step, StepWriter& out) {
    const std::vector<std::string>& columns = spec().info_columns;
    for (const auto& [id, values] : step.infos) {
      for (size_t column = 0; column < columns.size(); ++column) {
        const auto value = values.find(columns[column]);
        if (value != values.end()) out.SetInfo(slots_.at(id), static_cast<int>(column), value->second);
      }
    }
  }

  template <typename Map>
  absl::Status CheckIds(const Map& map, std::string_view what) const {
    for (const auto& [id, value] : map) {
      const bool flag = what == "terminateds" || what == "truncateds" || what == "dones";
      if (slots_.count(id) == 0 && !(flag && id == DictStep::kAll)) {
        return absl::InternalError(
            absl::StrCat(std::string(what), " hold the unknown agent '", base::LogSafe(id), "'"));
      }
    }
    return absl::OkStatus();
  }

  const std::unique_ptr<DictEnv> env_;
  const SlotById slots_;
  std::vector<uint8_t> done_;  ///< agents that are done in this episode
};

class DictOverSlots final : public DictEnv {
 public:
  explicit DictOverSlots(std::unique_ptr<MultiAgentEnv> env)
      : env_(std::move(env)), slots_(MakeSlotById(env_->spec())), buffers_(env_->spec(), 1), rows_(slots_.size()) {}

  const EnvSpec& spec() const override { return env_->spec(); }

  absl::StatusOr<DictStep> Reset(const EpisodeSeed& seed) override {
    TROUPE_RETURN_IF_ERROR(env_->Reset(seed, buffers_.BeginStep(0)));
    return Read(/*reset=*/true);
  }

  absl::StatusOr<DictStep> Step(const std::map<std::string, std::vector<space::ActionWord>>& actions) override {
    std::fill(rows_.begin(), rows_.end(), nullptr);
    for (const auto& [id, row] : actions) {
      const auto slot = slots_.find(id);
      if (slot == slots_.end())
        return absl::InvalidArgumentError(absl::StrCat("action for the unknown agent '", base::LogSafe(id), "'"));
      const AgentSpec& agent = spec().possible_agents[static_cast<size_t>(slot->second.value())];
      if (static_cast<int64_t>(row.size()) != agent.action_space.action_words()) {
        return absl::InvalidArgumentError(absl::StrCat("action of agent ", base::LogSafe(id), " has ", row.size(),
                                                       " words, expected ", agent.action_space.action_words()));
      }
      if (!buffers_.ready(0, slot->second.value())) {
        return absl::InvalidArgumentError(absl::StrCat("agent ", base::LogSafe(id), " acted, but is not ready"));
      }
      rows_[static_cast<size_t>(slot->second.value())] = row.data();
    }
    for (const auto& [id, slot] : slots_) {
      if (buffers_.ready(0, slot.value()) && rows_[static_cast<size_t>(slot.value())] == nullptr) {
        return absl::InvalidArgumentError(absl::StrCat("agent ", base::LogSafe(id), " is ready, but has no action"));
      }
    }
    TROUPE_RETURN_IF_ERROR(env_->Step(rows_, buffers_.BeginStep(0)));
    return Read(/*reset=*/false);
  }

 private:
  DictStep Read(bool reset) const {
    DictStep step;
    for (const auto& [id, slot] : slots_) {
      const int32_t s = slot.value();
      const AgentSpec& agent = spec().possible_agents[static_cast<size_t>(s)];
      if (buffers_.observed(0, s)) {
        std::vector<float>& row = step.observations[id];
        if (agent.observation_space.flat_dtype() == tensor::DType::kUint8) {
          const absl::Span<const uint8_t> from = buffers_.observation_uint8(0, s);
          row.assign(from.begin(), from.end());
        } else {
          const absl::Span<const float> from = buffers_.observation(0, s);
          row.assign(from.begin(), from.end());
        }
        const absl::Span<const uint8_t> mask = buffers_.action_mask(0, s);
        if (!mask.empty()) step.action_masks[id].assign(mask.begin(), mask.end());
        if (spec().has_agent_mask) step.agent_masks[id] = buffers_.agent_mask(0, s);
        if (spec().state_kind == StateKind::kPerAgent)
          step.states[id].assign(buffers_.state(0, s).begin(), buffers_.state(0, s).end());
      }
      const absl::Span<const double> infos = buffers_.infos(0, s);
      for (size_t column = 0; column < infos.size(); ++column) {
        if (!std::isnan(infos[column])) step.infos[id][spec().info_columns[column]] = infos[column];
      }
      if (reset) continue;
      if (buffers_.reward(0, s) != 0.0f || buffers_.observed(0, s))
        step.rewards[id] = static_cast<double>(buffers_.reward(0, s));
      if (buffers_.terminated(0, s)) step.terminateds[id] = true;
      if (buffers_.truncated(0, s)) step.truncateds[id] = true;
    }
    if (spec().state_kind == StateKind::kPerEnv)
      step.states[DictStep::kAll].assign(buffers_.state(0, 0).begin(), buffers_.state(0, 0).end());
    step.terminateds[DictStep::kAll] = buffers_.all_terminated(0);
    step.truncateds[DictStep::kAll] = buffers_.all_truncated(0);
    return step;
  }

  const std::unique_ptr<MultiAgentEnv> env_;
  const SlotById slots_;
  SlotBuffers buffers_;
  std::vector<const space::ActionWord*> rows_;
};

}  // namespace

std::unique_ptr<MultiAgentEnv> MakeMultiAgentEnv(std::unique_ptr<DictEnv> env) {
  return std::make_unique<SlotsOverDict>(std::move(env));
}

std::unique_ptr<DictEnv> MakeDictEnv(std::unique_ptr<MultiAgentEnv> env) {
  return std::make_unique<DictOverSlots>(std::move(env));
}

}  // namespace troupe::env
