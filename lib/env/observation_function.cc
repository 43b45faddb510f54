#include "lib/env/observation_function.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/log.h"
#include "lib/base/nearest_name.h"
#include "lib/base/status_macros.h"
#include "lib/env/checked_env.h"

namespace troupe::env {
namespace {

absl::StatusOr<std::vector<space::Space>> JointSpaces(const EnvSpec& spec) {
  int64_t size = spec.num_agents();
  for (const AgentSpec& agent : spec.possible_agents) {
    if (agent.observation_space.flat_dtype() != tensor::DType::kFloat32) {
      return absl::InvalidArgumentError(absl::StrCat("joint_observation: agent \"", base::LogSafe(agent.id.value()),
                                                     "\" observes ", agent.observation_space.ToString(),
                                                     ", expected spaces with float rows"));
    }
    size += agent.observation_space.flat_size();
  }
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  TROUPE_ASSIGN_OR_RETURN(const space::Space joint, space::Space::Box(-kInfinity, kInfinity, {size}));
  return std::vector<space::Space>(spec.possible_agents.size(), joint);
}

void Joint(const SlotBuffers& all, AgentSlot /*slot*/, float* row) {
  const int32_t num_agents = all.spec().num_agents();
  for (int32_t agent = 0; agent < num_agents; ++agent) {
    const absl::Span<const float> obs = all.observation(0, agent);
    row = all.observed(0, agent) ? std::copy(obs.begin(), obs.end(), row) : std::fill_n(row, obs.size(), 0.0f);
  }
  for (int32_t agent = 0; agent < num_agents; ++agent) *row++ = all.observed(0, agent) ? 1.0f : 0.0f;
}

constexpr ObservationFunction kFunctions[] = {
    {"joint_observation", JointSpaces, Joint},
};

/// Keeps the environment's observations and passes the rest on, in the order of the calls.
class Interceptor final : public StepWriter {
 public:
  Interceptor(StepWriter& kept, StepWriter& out, std::vector<float*>& rows) : kept_(kept), out_(out), rows_(rows) {}

  void* Observe(AgentSlot slot) override {
    rows_[static_cast<size_t>(slot.value())] = out_.ObserveFloat(slot);
    return kept_.Observe(slot);
  }
  uint8_t* ActionMask(AgentSlot slot) override { return out_.ActionMask(slot); }
  float* State(AgentSlot slot) override { return out_.State(slot); }
  void AddReward(AgentSlot slot, float reward) override { out_.AddReward(slot, reward); }
  void TerminateAgent(AgentSlot slot) override { out_.TerminateAgent(slot); }
  void TruncateAgent(AgentSlot slot) override { out_.TruncateAgent(slot); }
  void TerminateAll() override { out_.TerminateAll(); }
  void TruncateAll() override { out_.TruncateAll(); }
  void SetAgentMask(AgentSlot slot, bool active) override { out_.SetAgentMask(slot, active); }
  void SetInfo(AgentSlot slot, int column, double value) override { out_.SetInfo(slot, column, value); }

 private:
  StepWriter& kept_;
  StepWriter& out_;
  std::vector<float*>& rows_;
};

class ObservedEnv final : public MultiAgentEnv {
 public:
  ObservedEnv(std::unique_ptr<MultiAgentEnv> env, EnvSpec spec, const ObservationFunction& function)
      : inner_(std::move(env)),
        spec_(std::move(spec)),
        function_(function),
        observations_(inner_.spec(), 1),
        rows_(spec_.possible_agents.size()) {}

  const EnvSpec& spec() const override { return spec_; }
  absl::Status Reset(const EpisodeSeed& seed, StepWriter& out) override {
    Interceptor interceptor = Begin(out);
    TROUPE_RETURN_IF_ERROR(inner_.Reset(seed, interceptor));
    Write();
    return absl::OkStatus();
  }
  absl::Status Step(ActionRows actions, StepWriter& out) override {
    Interceptor interceptor = Begin(out);
    TROUPE_RETURN_IF_ERROR(inner_.Step(actions, interceptor));
    Write();
    return absl::OkStatus();
  }

 private:
  Interceptor Begin(StepWriter& out) {
    std::fill(rows_.begin(), rows_.end(), nullptr);
    return Interceptor(observations_.BeginStep(0), out, rows_);
  }
  void Write() {
    for (size_t slot = 0; slot < rows_.size(); ++slot) {
      if (rows_[slot] != nullptr) function_.observe(observations_, AgentSlot(static_cast<int32_t>(slot)), rows_[slot]);
    }
  }

  CheckedEnv inner_;
  const EnvSpec spec_;
  const ObservationFunction& function_;
  SlotBuffers observations_;
  std::vector<float*> rows_;  ///< of the call in progress, by agent slot: where policies look
};

}  // namespace

absl::StatusOr<const ObservationFunction*> FindObservationFunction(std::string_view name) {
  std::vector<std::string> names;
  for (const ObservationFunction& function : kFunctions) {
    if (function.name == name) return &function;
    names.emplace_back(function.name);
  }
  return base::NoSuchName("observation function", name, names);
}

absl::StatusOr<std::unique_ptr<MultiAgentEnv>> WithObservationFunction(std::unique_ptr<MultiAgentEnv> env,
                                                                       const ObservationFunction& function) {
  EnvSpec spec = env->spec();
  TROUPE_ASSIGN_OR_RETURN(std::vector<space::Space> spaces, function.spaces(spec));
  for (size_t slot = 0; slot < spaces.size(); ++slot) {
    spec.possible_agents[slot].observation_space = std::move(spaces[slot]);
  }
  TROUPE_RETURN_IF_ERROR(spec.Validate());
  return std::make_unique<ObservedEnv>(std::move(env), std::move(spec), function);
}

absl::StatusOr<std::unique_ptr<MultiAgentEnv>> WithObservationFunction(std::unique_ptr<MultiAgentEnv> env,
                                                                       std::string_view name) {
  if (name.empty()) return env;
  TROUPE_ASSIGN_OR_RETURN(const ObservationFunction* const function, FindObservationFunction(name));
  return WithObservationFunction(std::move(env), *function);
}

}  // namespace troupe::env
