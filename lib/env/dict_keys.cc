#include "lib/env/dict_keys.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/env/env_wrapper.h"
#include "lib/env/slot_buffers.h"

namespace troupe::env {
namespace {

/// Elements of a flattened row.
struct Part {
  size_t first = 0;
  size_t size = 0;
  bool present() const { return size > 0; }
};

/// What becomes of an agent's rows.
struct Plan {
  bool changes = false;
  std::vector<Part> rest;
  bool uint8_rest = false;  ///< what remains is a uint8 Box, whose elements a Dict's row holds as floats
  Part state;               ///< to hand on
  Part mask;                ///< to hand on
};

absl::Status Refuse(const AgentSpec& agent, const std::string& key, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("agent \"", base::LogSafe(agent.id.value()), "\" observes ",
                                                 agent.observation_space.ToString(), ": its key \"", base::LogSafe(key),
                                                 "\" ", what));
}

/// Bytes with other bounds than an image's become integers in float rows, which networks read as they are: runs of
/// before bytes were scaled by their bounds have this space.
absl::StatusOr<space::Space> Alone(const space::Space& space) {
  const auto is = [](double bound) { return [bound](double value) { return value == bound; }; };
  const bool bytes = space.flat_dtype() == tensor::DType::kUint8;
  const bool image = bytes && std::all_of(space.low().begin(), space.low().end(), is(0)) &&
                     std::all_of(space.high().begin(), space.high().end(), is(255));
  if (!bytes || image) return space;
  return space::Space::Box({space.low().begin(), space.low().end()}, {space.high().begin(), space.high().end()},
                           {space.shape().begin(), space.shape().end()}, tensor::DType::kInt32);
}

/// `agent` becomes what policies see; `state` is the space of its state, if it has one.
absl::StatusOr<Plan> MakePlan(const DictKeys& keys, AgentSpec* agent, space::Space* state) {
  Plan plan;
  const space::Space dict = agent->observation_space;
  if (dict.kind() != space::SpaceKind::kDict) return plan;
  std::vector<std::pair<std::string, space::Space>> rest;
  Part part;
  bool takes_mask = false;
  for (size_t i = 0; i < dict.children().size(); ++i) {
    const std::string& key = dict.keys()[i];
    const space::Space& child = dict.children()[i];
    part = {part.first + part.size, static_cast<size_t>(child.flat_size())};
    if (!keys.state.empty() && key == keys.state) {
      plan.state = part;
      *state = child;
    } else if (!keys.action_mask.empty() && key == keys.action_mask) {
      if (child.flat_size() != agent->action_space.mask_size()) {
        return Refuse(*agent, key,
                      absl::StrCat("has ", child.flat_size(), " elements, expected ", agent->action_space.mask_size(),
                                   ", one for every category of ", agent->action_space.ToString()));
      }
      takes_mask = !agent->has_action_mask;
      if (takes_mask) plan.mask = part;
    } else {
      plan.rest.push_back(part);
      rest.emplace_back(key, child);
      continue;
    }
    plan.changes = true;
  }
  if (!plan.changes) return plan;
  if (rest.empty()) return Refuse(*agent, dict.keys()[0], "is no observation, and no other key is there");
  if (rest.size() == 1) {
    TROUPE_ASSIGN_OR_RETURN(agent->observation_space, Alone(rest[0].second));
  } else {
    TROUPE_ASSIGN_OR_RETURN(agent->observation_space, space::Space::Dict(std::move(rest)));
  }
  plan.uint8_rest = agent->observation_space.flat_dtype() == tensor::DType::kUint8;
  agent->has_action_mask = agent->has_action_mask || takes_mask;
  return plan;
}

/// A state has float rows, whatever type a Dict's element has.
absl::StatusOr<space::Space> StateSpace(const space::Space& space) {
  if (space.flat_dtype() == tensor::DType::kFloat32) return space;
  return space::Space::Box({space.low().begin(), space.low().end()}, {space.high().begin(), space.high().end()},
                           {space.shape().begin(), space.shape().end()});
}

class DictKeysEnv final : public EnvWrapper {
 public:
  DictKeysEnv(std::unique_ptr<MultiAgentEnv> env, EnvSpec spec, std::vector<Plan> plans)
      : EnvWrapper(std::move(env), std::move(spec)),
        plans_(std::move(plans)),
        has_state_(inner_spec().state_kind == StateKind::kNone && this->spec().state_kind != StateKind::kNone),
        kept_(inner_spec(), 1),
        writer_(*this) {}

 private:
  class Writer final : public ForwardingWriter {
   public:
    explicit Writer(const DictKeysEnv& owner) : owner_(owner), rows_(owner.plans_.size()) {}
    void Begin(StepWriter& kept, StepWriter& out) {
      ForwardingWriter::Begin(out);
      kept_ = &kept;
      std::fill(rows_.begin(), rows_.end(), nullptr);
    }
    void* Observe(AgentSlot slot) override {
      const size_t s = static_cast<size_t>(slot.value());
      void* const row = out().Observe(slot);
      if (!owner_.plans_[s].changes) return row;
      rows_[s] = row;
      return kept_->Observe(slot);
    }
    const std::vector<void*>& rows() const { return rows_; }

   private:
    const DictKeysEnv& owner_;
    StepWriter* kept_ = nullptr;
    std::vector<void*> rows_;  ///< of the call, by agent slot: where policies look, for observations that change
  };

  StepWriter& BeginCall(StepWriter& out) override {
    writer_.Begin(kept_.BeginStep(0), out);
    return writer_;
  }

  absl::Status EndCall(StepWriter& out) override {
    for (size_t s = 0; s < plans_.size(); ++s) {
      if (writer_.rows()[s] == nullptr) continue;
      const AgentSlot slot(static_cast<int32_t>(s));
      const Plan& plan = plans_[s];
      const absl::Span<const float> from = kept_.observation(0, slot.value());
      if (plan.uint8_rest) {
        TROUPE_RETURN_IF_ERROR(
            WriteUint8(slot, from.subspan(plan.rest[0].first, plan.rest[0].size), writer_.rows()[s]));
      } else {
        float* row = static_cast<float*>(writer_.rows()[s]);
        for (const Part& part : plan.rest)
          row = std::copy_n(from.begin() + static_cast<int64_t>(part.first), part.size, row);
      }
      if (plan.mask.present()) {
        uint8_t* mask = out.ActionMask(slot);
        for (const float element : from.subspan(plan.mask.first, plan.mask.size)) *mask++ = element != 0.0f ? 1 : 0;
      }
      if (has_state_) {
        const absl::Span<const float> state = from.subspan(plan.state.first, plan.state.size);
        std::copy(state.begin(), state.end(), out.State(slot));
      }
    }
    return absl::OkStatus();
  }

  absl::Status WriteUint8(AgentSlot slot, absl::Span<const float> from, void* row) const {
    auto* to = static_cast<uint8_t*>(row);
    for (size_t i = 0; i < from.size(); ++i) {
      if (!(from[i] >= 0.0f && from[i] <= 255.0f)) {
        return Broken(
            EnvRule::kObservationValue,
            absl::StrCat("agent ", base::LogSafe(spec().possible_agents[static_cast<size_t>(slot.value())].id.value()),
                         ": observation element ", i, " is ", from[i], ", expected a whole number in [0, 255]"));
      }
      to[i] = static_cast<uint8_t>(from[i]);
    }
    return absl::OkStatus();
  }

  const std::vector<Plan> plans_;
  const bool has_state_;  ///< the state comes from observations
  SlotBuffers kept_;
  Writer writer_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<MultiAgentEnv>> WithDictKeys(std::unique_ptr<MultiAgentEnv> env,
                                                            const DictKeys& all_keys) {
  EnvSpec spec = env->spec();
  DictKeys keys = all_keys;
  // What one agent alone calls its state is what it observes.
  if (spec.possible_agents.size() == 1) keys.state.clear();
  std::vector<Plan> plans;
  std::vector<space::Space> states(spec.possible_agents.size());
  bool changes = false;
  size_t with_state = spec.possible_agents.size();
  for (size_t s = 0; s < spec.possible_agents.size(); ++s) {
    TROUPE_ASSIGN_OR_RETURN(plans.emplace_back(), MakePlan(keys, &spec.possible_agents[s], &states[s]));
    changes = changes || plans[s].changes;
    if (plans[s].state.present()) with_state = std::min(with_state, s);
  }
  if (!changes) return env;
  if (with_state < plans.size() && spec.state_kind == StateKind::kNone) {
    for (size_t s = 0; s < plans.size(); ++s) {
      if (states[s] == states[with_state]) continue;
      const std::string got = states[s].has_value() ? absl::StrCat("is ", states[s].ToString()) : "is not there";
      return absl::InvalidArgumentError(absl::StrCat(
          "agent \"", base::LogSafe(spec.possible_agents[s].id.value()), "\": key \"", base::LogSafe(keys.state),
          "\" of its observation ", got, ", expected ", states[with_state].ToString(), " as of agent \"",
          base::LogSafe(spec.possible_agents[with_state].id.value()), "\", for it is the global state"));
    }
    spec.state_kind = StateKind::kPerAgent;
    TROUPE_ASSIGN_OR_RETURN(spec.state_space, StateSpace(states[with_state]));
  }
  TROUPE_RETURN_IF_ERROR(spec.Validate());
  return std::make_unique<DictKeysEnv>(std::move(env), std::move(spec), std::move(plans));
}

}  // namespace troupe::env
