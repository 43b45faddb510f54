#include "lib/env/previous_step.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "lib/base/status_macros.h"
#include "lib/env/env_wrapper.h"

namespace troupe::env {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Bounds of the numbers that stand for an action, in order.
struct Bounds {
  std::vector<double> low;
  std::vector<double> high;

  void Add(int64_t numbers, double from, double to) {
    low.insert(low.end(), static_cast<size_t>(numbers), from);
    high.insert(high.end(), static_cast<size_t>(numbers), to);
  }
};

/// Actions of a Box may leave it where they are not bounded, and rewards have no bounds.
Bounds ActionBounds(const space::Space& actions) {
  Bounds bounds;
  for (const space::ActionLeaf& leaf : space::ActionLeaves(actions)) {
    if (leaf.kind == space::ActionLeaf::Kind::kCategorical) {
      bounds.Add(leaf.categories, 0, 1);
    } else {
      bounds.Add(leaf.words, -kInfinity, kInfinity);
    }
  }
  return bounds;
}

absl::StatusOr<space::Space> Extended(const AgentSpec& agent, const PreviousStep& what) {
  const space::Space& inner = agent.observation_space;
  std::vector<Bounds> parts;
  if (what.action) parts.push_back(ActionBounds(agent.action_space));
  if (what.reward) parts.emplace_back().Add(1, -kInfinity, kInfinity);
  if (inner.kind() == space::SpaceKind::kBox && inner.shape().size() == 1 && inner.dtype() == tensor::DType::kFloat32) {
    Bounds all = {{inner.low().begin(), inner.low().end()}, {inner.high().begin(), inner.high().end()}};
    for (const Bounds& part : parts) {
      all.low.insert(all.low.end(), part.low.begin(), part.low.end());
      all.high.insert(all.high.end(), part.high.begin(), part.high.end());
    }
    const int64_t size = static_cast<int64_t>(all.low.size());
    return space::Space::Box(std::move(all.low), std::move(all.high), {size});
  }
  std::vector<space::Space> items = {inner};
  for (Bounds& part : parts) {
    const int64_t size = static_cast<int64_t>(part.low.size());
    TROUPE_ASSIGN_OR_RETURN(items.emplace_back(), space::Space::Box(std::move(part.low), std::move(part.high), {size}));
  }
  return space::Space::Tuple(std::move(items));
}

class PreviousStepEnv final : public EnvWrapper {
 public:
  PreviousStepEnv(std::unique_ptr<MultiAgentEnv> env, EnvSpec spec, const PreviousStep& what)
      : EnvWrapper(std::move(env), std::move(spec)), what_(what), writer_(*this) {
    for (const AgentSpec& inner : inner_spec().possible_agents) {
      Agent& agent = agents_.emplace_back();
      agent.size = static_cast<size_t>(inner.observation_space.flat_size());
      if (inner.observation_space.flat_dtype() == tensor::DType::kUint8) agent.bytes.resize(agent.size);
      agent.leaves = space::ActionLeaves(inner.action_space);
      if (what_.action) agent.action.resize(ActionBounds(inner.action_space).low.size());
    }
  }

 private:
  struct Agent {
    size_t size = 0;             ///< numbers of what the environment lets it observe
    std::vector<uint8_t> bytes;  ///< where the environment writes them; empty: they are floats, and stand in the row
    float* row = nullptr;        ///< of the call, where they are bytes; nullptr: observes nothing
    std::vector<space::ActionLeaf> leaves;
    std::vector<float> action;  ///< the last one; empty: not observed
    double reward = 0;          ///< since its last observation
    bool seen = false;          ///< in this trajectory
    bool ended = false;         ///< in the call
  };

  class Writer final : public ForwardingWriter {
   public:
    explicit Writer(PreviousStepEnv& owner) : owner_(owner) {}
    void* Observe(AgentSlot slot) override {
      Agent& agent = owner_.agent(slot);
      float* const row = out().ObserveFloat(slot);
      float* behind = std::copy(agent.action.begin(), agent.action.end(), row + agent.size);
      // What came before its first decision belongs to none.
      if (owner_.what_.reward) *behind = agent.seen ? static_cast<float>(agent.reward) : 0.0f;
      agent.reward = 0;
      agent.seen = true;
      if (agent.bytes.empty()) return row;
      agent.row = row;
      return agent.bytes.data();
    }
    void AddReward(AgentSlot slot, float reward) override {
      owner_.agent(slot).reward += static_cast<double>(reward);
      out().AddReward(slot, reward);
    }
    void TerminateAgent(AgentSlot slot) override {
      owner_.agent(slot).ended = true;
      out().TerminateAgent(slot);
    }
    void TruncateAgent(AgentSlot slot) override {
      owner_.agent(slot).ended = true;
      out().TruncateAgent(slot);
    }

   private:
    PreviousStepEnv& owner_;
  };

  Agent& agent(AgentSlot slot) { return agents_[static_cast<size_t>(slot.value())]; }

  ActionRows MapActions(ActionRows actions) override {
    for (size_t slot = 0; slot < actions.size(); ++slot) {
      if (actions[slot] != nullptr && what_.action) Keep(actions[slot], &agents_[slot]);
    }
    return actions;
  }

  /// Actions are inside their space: whoever steps an environment does it through CheckedEnv.
  static void Keep(const space::ActionWord* action, Agent* agent) {
    std::fill(agent->action.begin(), agent->action.end(), 0.0f);
    auto to = agent->action.begin();
    for (const space::ActionLeaf& leaf : agent->leaves) {
      const space::ActionWord* const words = action + leaf.word;
      if (leaf.kind == space::ActionLeaf::Kind::kCategorical) {
        to[words->i32 - leaf.start] = 1;
        to += leaf.categories;
      } else {
        for (int64_t i = 0; i < leaf.words; ++i) *to++ = words[i].f32;
      }
    }
  }

  StepWriter& BeginCall(StepWriter& out) override {
    for (Agent& agent : agents_) {
      agent.row = nullptr;
      if (!std::exchange(agent.ended, false) && !is_reset()) continue;
      std::fill(agent.action.begin(), agent.action.end(), 0.0f);
      agent.reward = 0;
      agent.seen = false;
    }
    writer_.Begin(out);
    return writer_;
  }

  absl::Status EndCall(StepWriter& /*out*/) override {
    for (const Agent& agent : agents_) {
      if (agent.row != nullptr) std::copy(agent.bytes.begin(), agent.bytes.end(), agent.row);
    }
    return absl::OkStatus();
  }

  const PreviousStep what_;
  std::vector<Agent> agents_;
  Writer writer_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<MultiAgentEnv>> WithPreviousStep(std::unique_ptr<MultiAgentEnv> env,
                                                                const PreviousStep& what) {
  if (!what.action && !what.reward) return env;
  EnvSpec spec = env->spec();
  for (AgentSpec& agent : spec.possible_agents) {
    TROUPE_ASSIGN_OR_RETURN(agent.observation_space, Extended(agent, what));
  }
  return std::make_unique<PreviousStepEnv>(std::move(env), std::move(spec), what);
}

}  // namespace troupe::env
