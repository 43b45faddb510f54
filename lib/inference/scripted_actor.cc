#include "lib/inference/scripted_actor.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"
#include "lib/policy/policy_spec.h"

namespace troupe::inference {
namespace {

// Agent slots are below this (EnvSpec::Validate), so that a step and a slot share a word of the counter, and the draws
// of a decision have one of their own.
constexpr uint32_t kMaxAgents = 1024;

}  // namespace

absl::StatusOr<std::unique_ptr<ScriptedActor>> ScriptedActor::Create(const policy::PolicySpec& spec, uint64_t seed) {
  TROUPE_RETURN_IF_ERROR(spec.Validate());
  const ScriptedPolicy* policy = &UniformPolicy();
  if (spec.policy_class.kind == policy::PolicyClass::Kind::kScripted) {
    TROUPE_ASSIGN_OR_RETURN(policy, FindScriptedPolicy(spec.policy_class.name));
  } else if (spec.policy_class.kind != policy::PolicyClass::Kind::kRandom) {
    return absl::InvalidArgumentError(absl::StrCat("policy \"", spec.id.value(), "\" is of class ",
                                                   spec.policy_class.ToString(), ", expected random or scripted"));
  }
  TROUPE_RETURN_IF_ERROR(policy->check(spec));
  return std::make_unique<ScriptedActor>(spec, *policy, seed);
}

ScriptedActor::ScriptedActor(const policy::PolicySpec& spec, const ScriptedPolicy& policy, uint64_t seed)
    : spec_(spec),
      policy_(policy),
      key_(base::PhiloxKey::Make(seed, base::RandomStream::kAction)),
      obs_size_(static_cast<size_t>(spec.observation_size())),
      action_words_(static_cast<size_t>(spec.action_words())),
      mask_size_(static_cast<size_t>(spec.mask_size())),
      uint8_obs_(spec.observation_space.flat_dtype() == tensor::DType::kUint8),
      leaves_(space::ActionLeaves(spec.action_space)) {}

absl::Status ScriptedActor::SetWeights(policy::WeightSnapshotPtr /*weights*/) {
  return absl::FailedPreconditionError(absl::StrCat("policy \"", spec_.id.value(), "\" is of class ",
                                                    spec_.policy_class.ToString(), ", which has no weights"));
}

bool ScriptedActor::AllowsSomething(absl::Span<const uint8_t> mask) const {
  return std::all_of(leaves_.begin(), leaves_.end(), [mask](const space::ActionLeaf& leaf) {
    if (leaf.kind != space::ActionLeaf::Kind::kCategorical) return true;
    const auto part = mask.subspan(static_cast<size_t>(leaf.mask_offset), static_cast<size_t>(leaf.categories));
    return std::any_of(part.begin(), part.end(), [](uint8_t bit) { return bit != 0; });
  });
}

absl::Status ScriptedActor::Act(const ActInput& input, space::ActionWord* actions, float* logp) {
  if (input.rows == 0) return absl::OkStatus();
  TROUPE_RETURN_IF_ERROR(CheckHasMask(spec_, input));
  const base::PhiloxKey random_key =
      input.seed == nullptr ? key_ : base::PhiloxKey::Make(*input.seed, base::RandomStream::kAction);
  for (int64_t r = 0; r < input.rows; ++r) {
    const auto row = static_cast<size_t>(r);
    const RowKey& key = input.keys[r];
    const base::PhiloxCounter counter = {.env_id = key.env_id.value(),
                                         .episode = key.episode,
                                         .slot = key.env_step * kMaxAgents + static_cast<uint32_t>(key.slot.value())};
    ScriptedDecision decision = {.spec = spec_, .agent_slot = key.slot, .random = {random_key, counter}};
    if (uint8_obs_) {
      decision.uint8_obs = {static_cast<const uint8_t*>(input.obs) + row * obs_size_, obs_size_};
    } else {
      decision.obs = {static_cast<const float*>(input.obs) + row * obs_size_, obs_size_};
    }
    if (mask_size_ > 0) {
      decision.action_mask = {input.action_mask + row * mask_size_, mask_size_};
      if (!AllowsSomething(decision.action_mask)) return EverythingForbidden(spec_, key);
    }
    const absl::Span<space::ActionWord> action(actions + row * action_words_, action_words_);
    policy_.act(decision, action);
    if (const absl::Status status = spec_.action_space.ContainsAction(action); !status.ok()) {
      return absl::InternalError(absl::StrCat("policy \"", spec_.id.value(), "\": class ",
                                              spec_.policy_class.ToString(),
                                              " made an action outside its space: ", std::string(status.message())));
    }
    logp[r] = 0;
  }
  return absl::OkStatus();
}

}  // namespace troupe::inference
