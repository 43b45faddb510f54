// The native environments through plugin_abi.h: what a plug-in is to Troupe, this library is to any other program.

#include <memory>
#include <utility>
#include <vector>

#include "lib/base/ids.h"
#include "lib/base/status_macros.h"
#include "lib/env/multi_agent_env.h"
#include "lib/env/plugin_abi.h"
#include "lib/env/plugin_json.h"
#include "lib/envs/c_api/border.h"
#include "lib/envs/register_all.h"

namespace troupe::envs {

const env::EnvRegistry& NativeEnvs() {
  static const env::EnvRegistry* const kRegistry = [] {
    auto* const registry = new env::EnvRegistry;
    RegisterAllEnvs(*registry);
    return registry;
  }();
  return *kRegistry;
}

namespace {

/// What TroupeEnv points to.
struct Native {
  std::unique_ptr<env::MultiAgentEnv> env;
  std::string spec;
};

Native* Of(TroupeEnv* env) { return reinterpret_cast<Native*>(env); }

/// Writes through the caller's functions.
class CallerWriter final : public env::StepWriter {
 public:
  explicit CallerWriter(const TroupeStepWriter& out) : out_(out) {}

  void* Observe(env::AgentSlot slot) override { return out_.observe(out_.context, slot.value()); }
  uint8_t* ActionMask(env::AgentSlot slot) override { return out_.action_mask(out_.context, slot.value()); }
  float* State(env::AgentSlot slot) override { return out_.state(out_.context, slot.value()); }
  void AddReward(env::AgentSlot slot, float reward) override { out_.add_reward(out_.context, slot.value(), reward); }
  void TerminateAgent(env::AgentSlot slot) override { out_.terminate_agent(out_.context, slot.value()); }
  void TruncateAgent(env::AgentSlot slot) override { out_.truncate_agent(out_.context, slot.value()); }
  void TerminateAll() override { out_.terminate_all(out_.context); }
  void TruncateAll() override { out_.truncate_all(out_.context); }
  void SetAgentMask(env::AgentSlot slot, bool active) override {
    out_.set_agent_mask(out_.context, slot.value(), active ? 1 : 0);
  }
  void SetInfo(env::AgentSlot slot, int column, double value) override {
    out_.set_info(out_.context, slot.value(), column, value);
  }

 private:
  const TroupeStepWriter& out_;
};

int32_t Make(const char* name, const char* args, TroupeEnv** made, TroupeEnvError* error) {
  return AtBorder(error, [&]() -> absl::Status {
    TROUPE_ASSIGN_OR_RETURN(const env::EnvArgs parsed, env::ParseEnvArgsJson(args));
    auto native = std::make_unique<Native>();
    TROUPE_ASSIGN_OR_RETURN(native->env, NativeEnvs().Make(name, parsed));
    native->spec = env::PluginSpecJson(native->env->spec());
    *made = reinterpret_cast<TroupeEnv*>(native.release());
    return absl::OkStatus();
  });
}

const char* Spec(TroupeEnv* env) { return Of(env)->spec.c_str(); }

int32_t Reset(TroupeEnv* env, const TroupeEpisodeSeed* seed, const TroupeStepWriter* out, TroupeEnvError* error) {
  return AtBorder(error, [&] {
    CallerWriter writer(*out);
    return Of(env)->env->Reset({.seed = seed->seed, .env_id = base::EnvId(seed->env_id), .episode = seed->episode},
                               writer);
  });
}

int32_t Step(TroupeEnv* env, const TroupeActionWord* const* actions, const TroupeStepWriter* out,
             TroupeEnvError* error) {
  return AtBorder(error, [&] {
    CallerWriter writer(*out);
    // The two unions are the same words; only their names differ.
    const auto* rows = reinterpret_cast<const space::ActionWord* const*>(actions);
    return Of(env)->env->Step(env::ActionRows(rows, Of(env)->env->spec().possible_agents.size()), writer);
  });
}

void Destroy(TroupeEnv* env) { delete Of(env); }

/// The table, whose texts lie in the registry.
struct Table {
  Table() {
    for (const env::EnvRegistry::Entry& entry : NativeEnvs().entries()) {
      entries.push_back({.name = entry.name.c_str(), .description = entry.description.c_str()});
    }
    table = {.abi_version = TROUPE_ENV_ABI_VERSION,
             .num_envs = static_cast<uint32_t>(entries.size()),
             .envs = entries.data(),
             .make = &Make,
             .spec = &Spec,
             .reset = &Reset,
             .step = &Step,
             .destroy = &Destroy};
  }
  std::vector<TroupeEnvEntry> entries;
  TroupeEnvPlugin table;
};

}  // namespace
}  // namespace troupe::envs

const TroupeEnvPlugin* troupe_env_plugin(uint32_t abi_version) {
  if (abi_version != TROUPE_ENV_ABI_VERSION) return nullptr;
  static const auto* const kTable = new troupe::envs::Table;
  return &kTable->table;
}
