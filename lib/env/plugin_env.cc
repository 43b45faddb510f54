#include "lib/env/plugin_env.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/base/attributes.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/base/log.h"
#include "lib/base/nearest_name.h"
#include "lib/base/status_macros.h"
#include "lib/env/env_rule.h"
#include "lib/env/plugin_canvas.h"
#include "lib/env/plugin_file.h"
#include "lib/env/plugin_json.h"

namespace troupe::env {
namespace {

static_assert(sizeof(TroupeActionWord) == sizeof(space::ActionWord));
static_assert(sizeof(TroupeEpisodeSeed) == 16);

/// `text` up to its zero, but at most `limit - 1` bytes; `*cut` when there was no zero among the first `limit`.
std::string_view Bounded(const char* text, size_t limit, bool* cut) {
  const size_t length = strnlen(text, limit);
  *cut = length == limit;
  return {text, *cut ? limit - 1 : length};
}

/// A name or description of the library's table; INVALID_ARGUMENT when it is missing or too long.
absl::StatusOr<std::string> TableText(const char* text, const std::string& path, uint32_t place, const char* what) {
  bool cut = false;
  if (text == nullptr || *text == 0) {
    return absl::InvalidArgumentError(absl::StrCat("plug-in ", path, ": environment ", place, " has no ", what));
  }
  const std::string_view bounded = Bounded(text, TROUPE_ENV_NAME_BYTES, &cut);
  if (cut) {
    return absl::InvalidArgumentError(absl::StrCat("plug-in ", path, ": the ", what, " of environment ", place,
                                                   " is too long, expected at most ", TROUPE_ENV_NAME_BYTES - 1,
                                                   " bytes"));
  }
  return std::string(bounded);
}

/// The status of a call into the library.
absl::Status StatusOf(int32_t code, const TroupeEnvError& error, std::string_view call) {
  if (code == TROUPE_ENV_OK) return absl::OkStatus();
  bool cut = false;
  const std::string text = base::LogSafe(Bounded(error.text, sizeof(error.text), &cut), TROUPE_ENV_ERROR_BYTES);
  const bool known = code > 0 && code <= static_cast<int32_t>(absl::StatusCode::kUnauthenticated);
  return absl::Status(known ? static_cast<absl::StatusCode>(code) : absl::StatusCode::kInternal,
                      !text.empty() ? text : absl::StrCat(std::string(call), " returned ", code, " and no text"));
}

class PluginEnv final : public MultiAgentEnv {
 public:
  PluginEnv(std::shared_ptr<const EnvPlugin> plugin, const TroupeEnvPlugin* table, EnvPlugin::DrawFunction draw,
            TroupeEnv* env, EnvSpec spec)
      : plugin_(std::move(plugin)), table_(table), draw_(draw), env_(env), spec_(std::move(spec)) {
    num_agents_ = spec_.num_agents();
    num_columns_ = static_cast<int32_t>(spec_.info_columns.size());
    size_t bytes = sizeof(float) * static_cast<size_t>(spec_.state_space.flat_size());
    for (const AgentSpec& agent : spec_.possible_agents) {
      observation_sizes_.push_back(static_cast<uint64_t>(agent.observation_space.flat_size()));
      action_mask_sizes_.push_back(agent.has_action_mask ? static_cast<uint64_t>(agent.action_space.mask_size()) : 0);
      bytes = std::max({bytes, sizeof(float) * static_cast<size_t>(observation_sizes_.back()),
                        static_cast<size_t>(agent.action_space.mask_size())});
    }
    scratch_.resize(bytes / sizeof(float) + 1);
    writer_ = {.context = this,
               .observation_sizes = observation_sizes_.data(),
               .action_mask_sizes = action_mask_sizes_.data(),
               .state_size = static_cast<uint64_t>(spec_.state_space.flat_size()),
               .observe = &Observe,
               .action_mask = &ActionMask,
               .state = &State,
               .add_reward = &AddReward,
               .terminate_agent = &TerminateAgent,
               .truncate_agent = &TruncateAgent,
               .terminate_all = &TerminateAll,
               .truncate_all = &TruncateAll,
               .set_agent_mask = &SetAgentMask,
               .set_info = &SetInfo};
  }
  PluginEnv(const PluginEnv&) = delete;
  PluginEnv& operator=(const PluginEnv&) = delete;
  ~PluginEnv() override { table_->destroy(env_); }

  const EnvSpec& spec() const override { return spec_; }

  absl::Status Reset(const EpisodeSeed& seed, StepWriter& out) override {
    const TroupeEpisodeSeed plain = {.seed = seed.seed, .env_id = seed.env_id.value(), .episode = seed.episode};
    Begin(out);
    return End(table_->reset(env_, &plain, &writer_, &error_), "reset");
  }

  absl::Status Step(ActionRows actions, StepWriter& out) override {
    Begin(out);
    // The two unions are the same words; only their names differ.
    const auto* rows = reinterpret_cast<const TroupeActionWord* const*>(actions.data());
    return End(table_->step(env_, rows, &writer_, &error_), "step");
  }

  absl::Status Draw(Canvas& canvas) const override {
    if (draw_ == nullptr) return MultiAgentEnv::Draw(canvas);
    PluginCanvas drawn(&canvas);
    TroupeEnvError error;
    error.text[0] = 0;
    const int32_t code = draw_(env_, &drawn.functions(), &error);
    if (code == TROUPE_ENV_UNIMPLEMENTED) return MultiAgentEnv::Draw(canvas);
    TROUPE_RETURN_IF_ERROR(StatusOf(code, error, "draw"));
    return drawn.Finish();
  }

 private:
  void Begin(StepWriter& out) {
    out_ = &out;
    refused_ = absl::OkStatus();
    error_.text[0] = 0;
  }

  absl::Status End(int32_t code, std::string_view call) {
    out_ = nullptr;
    TROUPE_RETURN_IF_ERROR(StatusOf(code, error_, call));
    return std::move(refused_);
  }

  static PluginEnv& Self(void* context) { return *static_cast<PluginEnv*>(context); }

  /// Whether the slot is there. Without this a wrong number would write over the caller's memory.
  bool Has(int32_t slot, EnvRule rule, const char* what) {
    if (ABSL_PREDICT_TRUE(slot >= 0 && slot < num_agents_)) return true;
    Refuse(rule, absl::StrCat(what, " for agent slot ", slot, ", expected 0 to ", num_agents_ - 1));
    return false;
  }
  void Refuse(EnvRule rule, const std::string& what) {
    if (refused_.ok()) refused_ = WithEnvRule(absl::InternalError(what), rule);
  }

  static void* Observe(void* context, int32_t slot) noexcept {
    PluginEnv& self = Self(context);
    if (!self.Has(slot, EnvRule::kObservedAgents, "observe")) return self.scratch_.data();
    return self.out_->Observe(AgentSlot(slot));
  }
  static uint8_t* ActionMask(void* context, int32_t slot) noexcept {
    PluginEnv& self = Self(context);
    if (!self.Has(slot, EnvRule::kActionMask, "action_mask")) return reinterpret_cast<uint8_t*>(self.scratch_.data());
    return self.out_->ActionMask(AgentSlot(slot));
  }
  static float* State(void* context, int32_t slot) noexcept {
    PluginEnv& self = Self(context);
    if (self.spec_.state_kind == StateKind::kPerAgent && !self.Has(slot, EnvRule::kState, "state")) {
      return self.scratch_.data();
    }
    return self.out_->State(AgentSlot(slot));
  }
  static void AddReward(void* context, int32_t slot, float reward) noexcept {
    PluginEnv& self = Self(context);
    if (self.Has(slot, EnvRule::kReward, "add_reward")) self.out_->AddReward(AgentSlot(slot), reward);
  }
  static void TerminateAgent(void* context, int32_t slot) noexcept {
    PluginEnv& self = Self(context);
    if (self.Has(slot, EnvRule::kDone, "terminate_agent")) self.out_->TerminateAgent(AgentSlot(slot));
  }
  static void TruncateAgent(void* context, int32_t slot) noexcept {
    PluginEnv& self = Self(context);
    if (self.Has(slot, EnvRule::kDone, "truncate_agent")) self.out_->TruncateAgent(AgentSlot(slot));
  }
  static void TerminateAll(void* context) noexcept { Self(context).out_->TerminateAll(); }
  static void TruncateAll(void* context) noexcept { Self(context).out_->TruncateAll(); }
  static void SetAgentMask(void* context, int32_t slot, int32_t active) noexcept {
    PluginEnv& self = Self(context);
    if (self.Has(slot, EnvRule::kInfo, "set_agent_mask")) self.out_->SetAgentMask(AgentSlot(slot), active != 0);
  }
  static void SetInfo(void* context, int32_t slot, int32_t column, double value) noexcept {
    PluginEnv& self = Self(context);
    if (!self.Has(slot, EnvRule::kInfo, "set_info")) return;
    if (column < 0 || column >= self.num_columns_) {
      self.Refuse(EnvRule::kInfo, absl::StrCat("set_info for column ", column, ", but the spec has ", self.num_columns_,
                                               " info columns"));
      return;
    }
    self.out_->SetInfo(AgentSlot(slot), column, value);
  }

  const std::shared_ptr<const EnvPlugin> plugin_;
  const TroupeEnvPlugin* const table_;
  const EnvPlugin::DrawFunction draw_;
  TroupeEnv* const env_;
  const EnvSpec spec_;
  int32_t num_agents_ = 0;
  int32_t num_columns_ = 0;
  std::vector<uint64_t> observation_sizes_;
  std::vector<uint64_t> action_mask_sizes_;
  std::vector<float> scratch_;  ///< where the library may write what is refused
  TroupeStepWriter writer_;

  // Of the call.
  StepWriter* out_ = nullptr;
  absl::Status refused_;
  TroupeEnvError error_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<const EnvPlugin>> EnvPlugin::Load(const std::string& path) {
  const std::string shown = base::LogSafe(path);
  const absl::Status file = CheckPluginFile(path);
  if (!file.ok()) return absl::Status(file.code(), absl::StrCat("plug-in ", shown, ": ", std::string(file.message())));
  // dlopen searches the system's folders for a name without a slash: never what a configuration means.
  std::error_code error;
  const std::string full = std::filesystem::absolute(path, error).string();
  // NODELETE: code of the library may run until the process ends (destructors, threads), so it stays.
  void* const library = dlopen(full.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library == nullptr) {
    const char* const why = dlerror();
    return absl::InvalidArgumentError(absl::StrCat(
        "plug-in ", shown, " cannot be loaded: ", base::LogSafe(why == nullptr ? "no reason given" : why, 512),
        "; expected a shared library for this machine with all that it needs"));
  }
  using Entry = const TroupeEnvPlugin* (*)(uint32_t);
  void* const symbol = dlsym(library, "troupe_env_plugin");
  void* const draw_symbol = dlsym(library, "troupe_env_draw");  // of later libraries, where they draw
  dlclose(library);
  if (symbol == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("plug-in ", shown,
                     " has no function troupe_env_plugin, expected a library that exports it (lib/env/plugin_abi.h)"));
  }
  Entry entry = nullptr;
  std::memcpy(&entry, &symbol, sizeof(entry));
  DrawFunction draw = nullptr;
  std::memcpy(&draw, &draw_symbol, sizeof(draw));
  return FromTable(entry(TROUPE_ENV_ABI_VERSION), path, draw);
}

absl::StatusOr<std::shared_ptr<const EnvPlugin>> EnvPlugin::FromTable(const TroupeEnvPlugin* table,
                                                                      const std::string& path, DrawFunction draw) {
  const std::string shown = base::LogSafe(path);
  if (table == nullptr || table->abi_version != TROUPE_ENV_ABI_VERSION) {
    return absl::FailedPreconditionError(absl::StrCat(
        "plug-in ", shown, " ",
        table == nullptr ? "does not know" : absl::StrCat("has ABI version ", table->abi_version, ", expected"),
        " ABI version ", TROUPE_ENV_ABI_VERSION, ": build it with this Troupe's lib/env/plugin_abi.h"));
  }
  if (table->num_envs == 0 || table->num_envs > TROUPE_ENV_MAX_ENVS || table->envs == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("plug-in ", shown, " offers ", table->num_envs,
                                                   " environments, expected 1 to ", TROUPE_ENV_MAX_ENVS));
  }
  if (table->make == nullptr || table->spec == nullptr || table->reset == nullptr || table->step == nullptr ||
      table->destroy == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("plug-in ", shown, " leaves a function out, expected make, spec, reset, step and destroy"));
  }
  std::shared_ptr<EnvPlugin> plugin(new EnvPlugin(shown, table, draw));
  for (uint32_t i = 0; i < table->num_envs; ++i) {
    Entry entry;
    TROUPE_ASSIGN_OR_RETURN(entry.name, TableText(table->envs[i].name, shown, i, "name"));
    TROUPE_ASSIGN_OR_RETURN(entry.description, TableText(table->envs[i].description, shown, i, "description"));
    plugin->entries_.push_back(std::move(entry));
  }
  return plugin;
}

absl::StatusOr<std::unique_ptr<MultiAgentEnv>> EnvPlugin::Make(std::string_view name, const EnvArgs& args) const {
  std::vector<std::string> names;
  for (const Entry& entry : entries_) names.push_back(entry.name);
  if (std::find(names.begin(), names.end(), name) == names.end()) {
    const std::string nearest = base::NearestName(name, names);
    return absl::NotFoundError(absl::StrCat("plug-in ", path_, " has no environment '", base::LogSafe(name, 64), "', ",
                                            nearest.empty()
                                                ? absl::StrCat("expected one of ", absl::StrJoin(names, ", "))
                                                : absl::StrCat("did you mean '", nearest, "'?")));
  }
  const std::string where = absl::StrCat("plug-in ", path_, ", environment ", std::string(name), ": ");
  TROUPE_ASSIGN_OR_RETURN(const std::string args_json, ArgsJson(args.values()));
  TroupeEnv* env = nullptr;
  TroupeEnvError error;
  error.text[0] = 0;
  const std::string env_name(name);
  const absl::Status made = StatusOf(table_->make(env_name.c_str(), args_json.c_str(), &env, &error), error, "make");
  if (!made.ok()) return absl::Status(made.code(), absl::StrCat(where, std::string(made.message())));
  if (env == nullptr) return absl::InvalidArgumentError(absl::StrCat(where, "make returned 0 and no environment"));
  std::unique_ptr<TroupeEnv, void (*)(TroupeEnv*)> owned(env, table_->destroy);
  const char* const json = table_->spec(env);
  if (json == nullptr) return absl::InvalidArgumentError(absl::StrCat(where, "spec is NULL, expected JSON text"));
  bool cut = false;
  const std::string_view text = Bounded(json, TROUPE_ENV_SPEC_BYTES, &cut);
  if (cut) {
    return absl::InvalidArgumentError(
        absl::StrCat(where, "spec is too long, expected at most ", TROUPE_ENV_SPEC_BYTES - 1, " bytes"));
  }
  absl::StatusOr<EnvSpec> spec = ParsePluginSpec(name, text);
  if (!spec.ok()) return absl::Status(spec.status().code(), absl::StrCat(where, std::string(spec.status().message())));
  return std::make_unique<PluginEnv>(shared_from_this(), table_, draw_, owned.release(), *std::move(spec));
}

}  // namespace troupe::env
