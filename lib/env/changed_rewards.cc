#include "lib/env/changed_rewards.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/env/env_wrapper.h"

namespace troupe::env {
namespace {

class ChangedRewards final : public EnvWrapper {
 public:
  ChangedRewards(std::unique_ptr<MultiAgentEnv> env, const EnvSpec& spec, const RewardChange& change)
      : EnvWrapper(std::move(env), spec), writer_(change, inner_spec().possible_agents.size()) {}

 private:
  /// Adds up what an agent gets in a call, for an environment may give it in parts, and hands it on before the agent's
  /// observation, or at the end of the call.
  class Writer final : public ForwardingWriter {
   public:
    Writer(const RewardChange& change, size_t num_agents) : change_(change), sums_(num_agents), given_(num_agents) {}

    void Begin(StepWriter& out) {
      ForwardingWriter::Begin(out);
      std::fill(given_.begin(), given_.end(), uint8_t{0});
    }
    void End() {
      for (size_t slot = 0; slot < sums_.size(); ++slot) HandOn(slot);
    }
    void* Observe(AgentSlot slot) override {
      HandOn(static_cast<size_t>(slot.value()));
      return out().Observe(slot);
    }
    void AddReward(AgentSlot slot, float reward) override {
      const size_t s = static_cast<size_t>(slot.value());
      sums_[s] = (given_[s] != 0 ? sums_[s] : 0.0) + static_cast<double>(reward);
      given_[s] = 1;
    }

   private:
    void HandOn(size_t slot) {
      if (given_[slot] == 0) return;
      given_[slot] = 0;
      const double reward = std::clamp(sums_[slot] * change_.scale, change_.low, change_.high);
      out().AddReward(AgentSlot(static_cast<int32_t>(slot)), static_cast<float>(reward));
    }

    const RewardChange change_;
    std::vector<double> sums_;
    std::vector<uint8_t> given_;
  };

  StepWriter& BeginCall(StepWriter& out) override {
    writer_.Begin(out);
    return writer_;
  }
  absl::Status EndCall(StepWriter& /*out*/) override {
    writer_.End();
    return absl::OkStatus();
  }

  Writer writer_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<MultiAgentEnv>> WithChangedRewards(std::unique_ptr<MultiAgentEnv> env,
                                                                  const RewardChange& change) {
  if (!std::isfinite(change.scale) || change.scale == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("got a reward scale of ", change.scale, ", expected a number other than 0"));
  }
  if (!(change.low <= 0 && change.high >= 0 && change.low < change.high)) {
    return absl::InvalidArgumentError(
        absl::StrCat("got rewards in [", change.low, ", ", change.high, "], expected a range that holds 0"));
  }
  const EnvSpec spec = env->spec();
  return std::make_unique<ChangedRewards>(std::move(env), spec, change);
}

}  // namespace troupe::env
