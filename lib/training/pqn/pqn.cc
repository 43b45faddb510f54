#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"
#include "lib/policy/policy_spec.h"
#include "lib/training/core/algorithm.h"
#include "lib/training/core/schedule.h"
#include "lib/training/pqn/pqn_options.h"

namespace troupe::training {
namespace {

bool Mixes(const policy::AlgorithmSpec& spec) {
  const auto mixer = spec.options.find("mixer");
  return mixer != spec.options.end() &&
         mixer->second == policy::OptionValue(std::string(WordOf(kMixerNames, Mixer::kVdn)));
}

/// The actor gives values of actions. The loss is in pqn_torch.cc.
class Pqn final : public Algorithm {
 public:
  std::string_view name() const override { return "pqn"; }

  absl::StatusOr<StateForm> FormOf(const policy::AlgorithmSpec& spec) const override {
    return FormAtAllTimes(spec, [&spec](const ScheduleTime& now) -> absl::StatusOr<StateForm> {
      TROUPE_ASSIGN_OR_RETURN(const PqnOptions options, ParsePqnOptions(spec, now));
      return StateForm{.optimizer = OptimizerNumber(options.optimizer), .loss = LossOver::kTensors};
    });
  }

  absl::Status SetNetworks(const policy::AlgorithmSpec& /*spec*/, policy::PolicySpec* policy) const override {
    if (policy->HasContinuousActions()) {
      return absl::InvalidArgumentError(
          absl::StrCat("algorithm.name is pqn, but policy \"", policy->id.value(),
                       "\" has continuous actions (a Box), which have no greatest value; expected ippo or mappo"));
    }
    policy->actor.action_values = true;
    policy->actor.output_gain = 1;
    policy->learner_networks.clear();
    if (!policy->remembers()) policy->sequence_length = 0;  // a critic's core remembered
    return absl::OkStatus();
  }

  absl::Status CheckPolicy(const policy::PolicySpec& policy, const policy::AlgorithmSpec& spec) const override {
    const auto gamma = spec.options.find("gamma");
    if (policy.reward_discount == 1 || gamma == spec.options.end() ||
        !std::holds_alternative<policy::ScheduleValue>(gamma->second)) {
      return absl::OkStatus();
    }
    return absl::InvalidArgumentError(
        "algorithm.gamma: got a schedule with discount_by: env_step, expected a number: workers discount by it, too");
  }

  /// All that mix are one, the others each by itself.
  std::vector<std::vector<policy::PolicySlot>> Groups(absl::Span<const GroupMember> members) const override {
    std::vector<std::vector<policy::PolicySlot>> groups;
    std::vector<policy::PolicySlot> team;
    for (const GroupMember& member : members) {
      if (Mixes(*member.algorithm)) {
        team.push_back(member.slot);
      } else {
        groups.push_back({member.slot});
      }
    }
    if (!team.empty()) groups.push_back(std::move(team));
    return groups;
  }

  bool reads_joint_steps(const policy::AlgorithmSpec& spec) const override { return Mixes(spec); }
};

}  // namespace

const Algorithm& PqnAlgorithm() {
  static const auto& pqn = *new Pqn;
  return pqn;
}

}  // namespace troupe::training
