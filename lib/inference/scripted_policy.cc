#include "lib/inference/scripted_policy.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/base/nearest_name.h"

namespace troupe::inference {
namespace {

using Leaf = space::ActionLeaf;

absl::Status CannotPlay(const policy::PolicySpec& spec, const std::string& why) {
  return absl::InvalidArgumentError(
      absl::StrCat("policy \"", spec.id.value(), "\": class ", spec.policy_class.ToString(), " ", why));
}

absl::Status CheckUniform(const policy::PolicySpec& spec) {
  for (const Leaf& leaf : space::ActionLeaves(spec.action_space)) {
    for (size_t i = 0; leaf.kind == Leaf::Kind::kContinuous && i < leaf.low.size(); ++i) {
      if (std::isfinite(leaf.low[i]) && std::isfinite(leaf.high[i])) continue;
      return CannotPlay(spec, absl::StrCat("needs a bounded Box; the action space is ", spec.action_space.ToString()));
    }
  }
  return absl::OkStatus();
}

void Uniform(ScriptedDecision& decision, absl::Span<space::ActionWord> action) {
  decision.spec.action_space.SampleAction(decision.random, decision.action_mask, action);
}

absl::Status CheckAlwaysSame(const policy::PolicySpec& spec) {
  for (const Leaf& leaf : space::ActionLeaves(spec.action_space)) {
    if (leaf.kind == Leaf::Kind::kCategorical) continue;
    return CannotPlay(spec, absl::StrCat("needs discrete actions; the action space is ", spec.action_space.ToString()));
  }
  return absl::OkStatus();
}

/// Lets `visit(word, first value, mask)` see every word of a discrete action row; the mask is empty without one.
template <typename Visit>
void ForEachWord(const space::Space& actions, absl::Span<const uint8_t> mask, Visit visit) {
  size_t word = 0;
  size_t place = 0;
  const auto next = [&](int64_t start, int64_t categories) {
    const auto count = static_cast<size_t>(categories);
    visit(word++, start, mask.empty() ? mask : mask.subspan(place, count));
    place += count;
  };
  const auto walk = [&next](const auto& self, const space::Space& part) -> void {
    switch (part.kind()) {
      case space::SpaceKind::kDiscrete:
        return next(part.start(), part.n());
      case space::SpaceKind::kMultiDiscrete:
        for (const int64_t n : part.nvec()) next(0, n);
        return;
      case space::SpaceKind::kMultiBinary:
        for (int64_t i = 0; i < part.n(); ++i) next(0, 2);
        return;
      default:
        for (const space::Space& child : part.children()) self(self, child);
    }
  };
  walk(walk, actions);
}

void AlwaysSame(ScriptedDecision& decision, absl::Span<space::ActionWord> action) {
  ForEachWord(decision.spec.action_space, decision.action_mask,
              [action](size_t word, int64_t start, absl::Span<const uint8_t> mask) {
                const auto allowed = std::find_if(mask.begin(), mask.end(), [](uint8_t bit) { return bit != 0; });
                action[word].i32 = static_cast<int32_t>(start + (allowed - mask.begin()));
              });
}

// Of rock_paper_scissors (docs/environments.md): own last hand, the other's, whether there was a last round.
constexpr int kHands = 3;
constexpr int kOtherHand = kHands;
constexpr int kHasLast = 2 * kHands;

absl::Status CheckBeatLast(const policy::PolicySpec& spec) {
  const std::string obs = spec.observation_space.ToString();
  const std::string actions = spec.action_space.ToString();
  if (obs == "Box(0, 1, [7])" && actions == "Discrete(3)") return absl::OkStatus();
  return CannotPlay(spec, absl::StrCat("plays rock_paper_scissors only, with observations Box(0, 1, [7]) and actions "
                                       "Discrete(3); these are ",
                                       obs, " and ", actions));
}

void BeatLast(ScriptedDecision& decision, absl::Span<space::ActionWord> action) {
  if (decision.obs[kHasLast] < 0.5f) {
    action[0].i32 = static_cast<int32_t>(decision.random.Below(kHands));
    return;
  }
  const absl::Span<const float> other = decision.obs.subspan(kOtherHand, kHands);
  const auto hand = std::max_element(other.begin(), other.end()) - other.begin();
  action[0].i32 = static_cast<int32_t>((hand + 1) % kHands);  // each hand is beaten by the next
}

constexpr ScriptedPolicy kUniform = {"random", CheckUniform, Uniform};
constexpr ScriptedPolicy kScripted[] = {
    {"always_same", CheckAlwaysSame, AlwaysSame},
    {"beat_last", CheckBeatLast, BeatLast},
};

}  // namespace

absl::StatusOr<const ScriptedPolicy*> FindScriptedPolicy(std::string_view name) {
  std::vector<std::string> names;
  for (const ScriptedPolicy& policy : kScripted) {
    if (policy.name == name) return &policy;
    names.emplace_back(policy.name);
  }
  return base::NoSuchName("scripted policy", name, names);
}

const ScriptedPolicy& UniformPolicy() { return kUniform; }

}  // namespace troupe::inference
