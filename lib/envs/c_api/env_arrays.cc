#include "lib/envs/c_api/env_arrays.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/base/ids.h"
#include "lib/base/status_macros.h"
#include "lib/env/checked_env.h"
#include "lib/env/plugin_env.h"
#include "lib/env/plugin_file.h"
#include "lib/env/plugin_json.h"
#include "lib/envs/c_api/border.h"
#include <nlohmann/json.hpp>

namespace {

using troupe::env::AgentSlot;
using troupe::env::AgentSpec;
using troupe::env::CheckedEnv;
using troupe::env::EnvPlugin;
using troupe::env::EnvSpec;
using troupe::env::MultiAgentEnv;
using troupe::env::StateKind;
using troupe::envs::AtBorder;
using troupe::envs::NativeEnvs;

/// Rows of TroupeArrays::flags.
enum Flag : size_t { kObserved, kReady, kTerminated, kTruncated, kAgentMask, kFlagRows };

}  // namespace

/// An environment and its arrays, which it writes itself. Not thread-safe.
struct TroupeArrayEnv final : public troupe::env::StepWriter {
 public:
  explicit TroupeArrayEnv(std::unique_ptr<MultiAgentEnv> made)
      : env_(std::move(made)), spec_(env_.spec()), spec_json_(troupe::env::PluginSpecJson(spec_)) {
    const size_t agents = spec_.possible_agents.size();
    const size_t columns = spec_.info_columns.size();
    const size_t state_rows = spec_.state_kind == StateKind::kNone     ? 0
                              : spec_.state_kind == StateKind::kPerEnv ? 1
                                                                       : agents;
    const size_t state_size = static_cast<size_t>(spec_.state_space.flat_size());
    for (std::vector<uint64_t>* offsets : {&observation_offsets_, &mask_offsets_, &action_offsets_})
      offsets->push_back(0);
    for (const AgentSpec& agent : spec_.possible_agents) {
      const size_t bytes = static_cast<size_t>(agent.observation_space.flat_size()) *
                           troupe::tensor::ElementBytes(agent.observation_space.flat_dtype());
      observation_offsets_.push_back(observation_offsets_.back() + (bytes + 3) / 4 * 4);
      const int64_t mask = agent.has_action_mask ? agent.action_space.mask_size() : 0;
      mask_offsets_.push_back(mask_offsets_.back() + static_cast<uint64_t>(mask));
      action_offsets_.push_back(action_offsets_.back() + static_cast<uint64_t>(agent.action_space.action_words()));
    }
    observations_.resize(observation_offsets_.back() / sizeof(float) + 1);
    masks_.resize(mask_offsets_.back() + 1);
    states_.resize(state_rows * state_size + 1);
    rewards_.resize(agents);
    infos_.resize(agents * columns + 1);
    flags_.resize(kFlagRows * agents + 2);
    actions_.resize(action_offsets_.back());
    rows_.resize(agents);
    view_ = {.num_agents = static_cast<int32_t>(agents),
             .num_info_columns = static_cast<int32_t>(columns),
             .state_rows = state_rows,
             .state_size = state_size,
             .observation_offsets = observation_offsets_.data(),
             .action_mask_offsets = mask_offsets_.data(),
             .action_offsets = action_offsets_.data(),
             .observations = reinterpret_cast<uint8_t*>(observations_.data()),
             .action_masks = masks_.data(),
             .states = states_.data(),
             .rewards = rewards_.data(),
             .infos = infos_.data(),
             .flags = flags_.data(),
             .actions = reinterpret_cast<TroupeActionWord*>(actions_.data())};
  }

  absl::Status Reset(const TroupeEpisodeSeed& seed) {
    Begin();
    TROUPE_RETURN_IF_ERROR(Failed(
        env_.Reset({.seed = seed.seed, .env_id = troupe::base::EnvId(seed.env_id), .episode = seed.episode}, *this)));
    End();
    return absl::OkStatus();
  }

  absl::Status Step() {
    for (size_t i = 0; i < rows_.size(); ++i)
      rows_[i] = Row(kReady)[i] != 0 ? actions_.data() + action_offsets_[i] : nullptr;
    Begin();
    TROUPE_RETURN_IF_ERROR(Failed(env_.Step(rows_, *this)));
    End();
    return absl::OkStatus();
  }

  const std::string& spec_json() const { return spec_json_; }
  const TroupeArrays& view() const { return view_; }

  void* Observe(AgentSlot slot) override {
    Row(kObserved)[At(slot)] = 1;
    Row(kAgentMask)[At(slot)] = 1;
    return view_.observations + observation_offsets_[At(slot)];
  }
  uint8_t* ActionMask(AgentSlot slot) override { return masks_.data() + mask_offsets_[At(slot)]; }
  float* State(AgentSlot slot) override {
    return states_.data() + (spec_.state_kind == StateKind::kPerAgent ? At(slot) * view_.state_size : 0);
  }
  void AddReward(AgentSlot slot, float reward) override { rewards_[At(slot)] += reward; }
  void TerminateAgent(AgentSlot slot) override { Row(kTerminated)[At(slot)] = 1; }
  void TruncateAgent(AgentSlot slot) override { Row(kTruncated)[At(slot)] = 1; }
  void TerminateAll() override { Row(kFlagRows)[0] = 1; }
  void TruncateAll() override { Row(kFlagRows)[1] = 1; }
  void SetAgentMask(AgentSlot slot, bool active) override { Row(kAgentMask)[At(slot)] = active ? 1 : 0; }
  void SetInfo(AgentSlot slot, int column, double value) override {
    infos_[At(slot) * spec_.info_columns.size() + static_cast<size_t>(column)] = value;
  }

 private:
  static size_t At(AgentSlot slot) { return static_cast<size_t>(slot.value()); }
  uint8_t* Row(size_t flag) { return flags_.data() + flag * rows_.size(); }

  void Begin() {
    std::fill(flags_.begin(), flags_.end(), uint8_t{0});
    std::fill(rewards_.begin(), rewards_.end(), 0.0f);
    std::fill(infos_.begin(), infos_.end(), std::nan(""));
  }
  void End() {
    const bool over = Row(kFlagRows)[0] != 0 || Row(kFlagRows)[1] != 0;
    for (size_t i = 0; i < rows_.size(); ++i) {
      Row(kReady)[i] = Row(kObserved)[i] != 0 && Row(kTerminated)[i] == 0 && Row(kTruncated)[i] == 0 && !over ? 1 : 0;
    }
  }
  /// After an error nobody is ready: only a reset may follow.
  absl::Status Failed(absl::Status status) {
    if (!status.ok()) std::fill(flags_.begin(), flags_.end(), uint8_t{0});
    return status;
  }

  CheckedEnv env_;
  const EnvSpec& spec_;
  const std::string spec_json_;
  std::vector<uint64_t> observation_offsets_, mask_offsets_, action_offsets_;
  std::vector<float> observations_;  ///< as bytes; float for the alignment
  std::vector<uint8_t> masks_;
  std::vector<float> states_;
  std::vector<float> rewards_;
  std::vector<double> infos_;
  std::vector<uint8_t> flags_;
  std::vector<troupe::space::ActionWord> actions_;
  std::vector<const troupe::space::ActionWord*> rows_;
  TroupeArrays view_;
};

namespace {

absl::StatusOr<std::shared_ptr<const EnvPlugin>> LoadPlugin(const char* path) {
  const char* const search = std::getenv("TROUPE_PLUGIN_PATH");
  TROUPE_ASSIGN_OR_RETURN(const std::string found, troupe::env::FindEnvPlugin(path, search == nullptr ? "" : search));
  return EnvPlugin::Load(found);
}

}  // namespace

uint32_t troupe_arrays_version(void) { return TROUPE_ARRAYS_VERSION; }

int32_t troupe_arrays_list(const char* plugin, char** json, TroupeEnvError* error) {
  return AtBorder(error, [&]() -> absl::Status {
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    const auto add = [&list](const auto& entries) {
      for (const auto& entry : entries) list.push_back({{"name", entry.name}, {"description", entry.description}});
    };
    if (plugin == nullptr) {
      add(NativeEnvs().entries());
    } else {
      TROUPE_ASSIGN_OR_RETURN(const std::shared_ptr<const EnvPlugin> loaded, LoadPlugin(plugin));
      add(loaded->entries());
    }
    *json = strdup(list.dump(-1, ' ', true, nlohmann::ordered_json::error_handler_t::replace).c_str());
    return absl::OkStatus();
  });
}

void troupe_arrays_free(char* json) { std::free(json); }

int32_t troupe_arrays_make(const char* plugin, const char* name, const char* args, TroupeArrayEnv** env,
                           TroupeEnvError* error) {
  return AtBorder(error, [&]() -> absl::Status {
    TROUPE_ASSIGN_OR_RETURN(const troupe::env::EnvArgs parsed,
                            troupe::env::ParseEnvArgsJson(args == nullptr ? "" : args));
    std::unique_ptr<MultiAgentEnv> made;
    if (plugin == nullptr) {
      TROUPE_ASSIGN_OR_RETURN(made, NativeEnvs().Make(name, parsed));
    } else {
      TROUPE_ASSIGN_OR_RETURN(const std::shared_ptr<const EnvPlugin> loaded, LoadPlugin(plugin));
      TROUPE_ASSIGN_OR_RETURN(made, loaded->Make(name, parsed));
    }
    *env = new TroupeArrayEnv(std::move(made));
    return absl::OkStatus();
  });
}

const char* troupe_arrays_spec(const TroupeArrayEnv* env) { return env->spec_json().c_str(); }

const TroupeArrays* troupe_arrays_view(const TroupeArrayEnv* env) { return &env->view(); }

int32_t troupe_arrays_reset(TroupeArrayEnv* env, const TroupeEpisodeSeed* seed, TroupeEnvError* error) {
  return AtBorder(error, [&] { return env->Reset(*seed); });
}

int32_t troupe_arrays_step(TroupeArrayEnv* env, TroupeEnvError* error) {
  return AtBorder(error, [&] { return env->Step(); });
}

void troupe_arrays_destroy(TroupeArrayEnv* env) { delete env; }
