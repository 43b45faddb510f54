#include "lib/env/observation_function.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/log.h"
#include "lib/base/nearest_name.h"
#include "lib/base/status_macros.h"
#include "lib/env/env_wrapper.h"

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

class ObservedEnv final : public EnvWrapper {
 public:
  ObservedEnv(std::unique_ptr<MultiAgentEnv> env, EnvSpec spec, const ObservationFunction& function)
      : EnvWrapper(std::move(env), std::move(spec)),
        function_(function),
        observations_(inner_spec(), 1),
        writer_(inner_spec().possible_agents.size()) {}

 private:
  /// Keeps the environment's observations and passes the rest on.
  class Writer final : public ForwardingWriter {
   public:
    explicit Writer(size_t num_agents) : rows_(num_agents) {}
    void Begin(StepWriter& kept, StepWriter& out) {
      ForwardingWriter::Begin(out);
      kept_ = &kept;
      std::fill(rows_.begin(), rows_.end(), nullptr);
    }
    void* Observe(AgentSlot slot) override {
      rows_[static_cast<size_t>(slot.value())] = out().ObserveFloat(slot);
      return kept_->Observe(slot);
    }
    /// Of the call, by agent slot: where policies look; nullptr for those who observe nothing.
    const std::vector<float*>& rows() const { return rows_; }

   private:
    StepWriter* kept_ = nullptr;
    std::vector<float*> rows_;
  };

  StepWriter& BeginCall(StepWriter& out) override {
    writer_.Begin(observations_.BeginStep(0), out);
    return writer_;
  }
  absl::Status EndCall(StepWriter& /*out*/) override {
    const std::vector<float*>& rows = writer_.rows();
    for (size_t slot = 0; slot < rows.size(); ++slot) {
      if (rows[slot] != nullptr) function_.observe(observations_, AgentSlot(static_cast<int32_t>(slot)), rows[slot]);
    }
    return absl::OkStatus();
  }

  const ObservationFunction& function_;
  SlotBuffers observations_;
  Writer writer_;
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
  const std::string whose = absl::StrCat("observation function ", std::string(function.name));
  if (spaces.size() != spec.possible_agents.size()) {
    return absl::InvalidArgumentError(absl::StrCat(whose, " declares ", spaces.size(),
                                                   " spaces, expected one for each of ", spec.possible_agents.size(),
                                                   " agents"));
  }
  for (size_t slot = 0; slot < spaces.size(); ++slot) {
    if (spaces[slot].flat_dtype() != tensor::DType::kFloat32) {
      return absl::InvalidArgumentError(absl::StrCat(whose, " declares ", spaces[slot].ToString(), " for agent \"",
                                                     base::LogSafe(spec.possible_agents[slot].id.value()),
                                                     "\", expected a space with float rows"));
    }
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
