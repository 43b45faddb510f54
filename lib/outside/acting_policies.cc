#include "lib/outside/acting_policies.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <random>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/outside/limits.h"
#include "lib/policy/policy_entry.h"
#include "lib/policy/policy_mapping.h"
#include "lib/policy/policy_spec.h"

namespace troupe::outside {
namespace {

constexpr size_t kMaxNameShown = 64;  // characters of a name

/// Never 0; small enough for what counts in doubles.
uint64_t DrawNumber() {
  std::random_device device;
  return (uint64_t{device()} << 16) + 1;
}

template <typename... Parts>
absl::Status Cannot(const Parts&... parts) {
  return absl::FailedPreconditionError(
      absl::StrCat("a client cannot act by itself here: ", parts..., "; ask GetActions"));
}

/// Of an action that is drawn evenly, nats.
double EvenLogProb(const space::Space& actions) {
  double sum = 0;
  for (const space::ActionLeaf& leaf : space::ActionLeaves(actions))
    sum -= std::log(static_cast<double>(leaf.categories));
  return sum;
}

absl::Status CheckPlayer(const env::AgentSpec& agent, const policy::PolicySpec& policy) {
  const std::string who = absl::StrCat("policy \"", policy.id.value(), "\" ");
  const std::string whom = absl::StrCat("agent \"", base::LogSafe(agent.id.value(), kMaxNameShown), "\"");
  if (!policy.policy_class.has_weights()) {
    return Cannot(who, "is of class ", base::LogSafe(policy.policy_class.ToString(), kMaxNameShown),
                  ", which has no network");
  }
  if (policy.actor.encoder == policy::EncoderKind::kTorchScript) {
    return Cannot(who, "is a user's module (model.torchscript), a program that is not given away");
  }
  if (policy.HasContinuousActions()) {
    return Cannot(who, "has continuous actions, which LogActions does not take");
  }
  if (const double even = EvenLogProb(policy.action_space); even < kMinLogProb / 2) {
    return Cannot(who, "has so many actions that one drawn evenly has the log-probability ", even,
                  ", expected at least ", kMinLogProb / 2, ": LogActions takes ", kMinLogProb, " at least");
  }
  if (policy.observation_space.ToString() != agent.observation_space.ToString() ||
      policy.action_space.ToString() != agent.action_space.ToString()) {
    return Cannot(who, "plays ", whom, " in other spaces than the world's");
  }
  if (agent.has_action_mask && !policy.has_action_mask) {
    return Cannot(who, "does not see the action masks of ", whom, " (algorithm.use_actions_mask)");
  }
  return absl::OkStatus();
}

int64_t SinceOf(const policy::PolicyTablePtr& table, policy::PolicySlot slot) {
  const policy::PolicyEntry* const entry = table == nullptr ? nullptr : table->Find(slot);
  return entry == nullptr ? -1 : entry->since;
}

}  // namespace

ActingPolicies::ActingPolicies(const env::EnvSpec& spec) : spec_(spec), next_number_(DrawNumber()) {}

absl::StatusOr<std::vector<policy::PolicySlot>> ActingPolicies::PlayersOf(const policy::PolicyTable& table) const {
  std::vector<policy::PolicySlot> players;
  for (const env::AgentSpec& agent : spec_.possible_agents) {
    const policy::MappingRule* const rule = policy::FirstMatch(table.rules(), agent.id.value());
    if (rule == nullptr || !rule->function.empty() || rule->policies.size() != 1) {
      return Cannot("who plays agent \"", base::LogSafe(agent.id.value(), kMaxNameShown), "\" is ",
                    rule != nullptr && !rule->function.empty() ? "asked of a function" : "drawn",
                    " for each episode (multi_agent.policy_mapping)");
    }
    TROUPE_ASSIGN_OR_RETURN(players.emplace_back(), table.SlotOf(rule->policies[0].policy));
    TROUPE_RETURN_IF_ERROR(CheckPlayer(agent, table.Find(players.back())->spec));
  }
  return players;
}

void ActingPolicies::TakeLocked(policy::PolicyTablePtr table) {
  players_ = PlayersOf(*table).value_or(std::vector<policy::PolicySlot>());
  for (auto each = weights_.begin(); each != weights_.end();) {
    // Of another policy in the slot nobody has weights yet.
    const bool stays = std::count(players_.begin(), players_.end(), each->first) > 0 &&
                       SinceOf(table_, each->first) == SinceOf(table, each->first);
    each = stays ? std::next(each) : weights_.erase(each);
  }
  table_ = std::move(table);
}

void ActingPolicies::Begin(absl::StatusOr<policy::PolicyTablePtr> policies) {
  base::MutexLock lock(&mutex_);
  refusal_ = policies.status();
  if (!policies.ok()) return;
  first_ = *std::move(policies);
  TakeLocked(first_);
}

void ActingPolicies::SetPolicies(policy::PolicyTablePtr policies) {
  base::MutexLock lock(&mutex_);
  if (policies == nullptr) policies = first_;
  if (!refusal_.ok() || policies == nullptr) return;
  TakeLocked(std::move(policies));
  if (numbers_.empty()) return;
  const Numbered& last = numbers_.back();
  bool changed = last.players != players_;
  for (const auto& [slot, version] : last.versions) changed = changed || weights_.count(slot) == 0;
  if (!changed) return;
  NextLocked();
}

ActingPolicies::Numbered& ActingPolicies::NextLocked() {
  Numbered next;
  if (!told_ && !numbers_.empty()) {
    // Several policies change in an update; nobody knows of the number yet.
    Numbered& last = numbers_.back();
    last.players = players_;
    for (auto each = last.versions.begin(); each != last.versions.end();) {
      each = weights_.count(each->first) > 0 ? std::next(each) : last.versions.erase(each);
    }
    return last;
  }
  told_ = false;
  next.number = next_number_++;
  next.players = players_;
  if (!numbers_.empty()) {
    for (const auto& [slot, version] : numbers_.back().versions) {
      if (weights_.count(slot) > 0) next.versions[slot] = version;
    }
  }
  numbers_.push_back(std::move(next));
  if (numbers_.size() > kWeightsKept) numbers_.pop_front();
  return numbers_.back();
}

void ActingPolicies::SetWeights(policy::PolicySlot slot, policy::WeightSnapshotPtr weights,
                                policy::WeightVersion version) {
  const policy::WeightVersion made = weights->version;
  base::MutexLock lock(&mutex_);
  if (std::find(players_.begin(), players_.end(), slot) == players_.end()) return;
  const auto before = weights_.find(slot);
  const bool is_new = before == weights_.end() || before->second->version != made;
  weights_[slot] = std::move(weights);
  Numbered& newest = is_new ? NextLocked() : numbers_.back();
  newest.versions[slot] = {made, version, SinceOf(table_, slot)};
}

std::optional<policy::WeightVersion> ActingPolicies::VersionOf(uint64_t number, base::AgentSlot agent,
                                                               policy::PolicySlot slot) const {
  base::MutexLock lock(&mutex_);
  const auto known =
      std::find_if(numbers_.begin(), numbers_.end(), [number](const Numbered& each) { return each.number == number; });
  if (known == numbers_.end()) return std::nullopt;
  const auto player = static_cast<size_t>(agent.value());
  const auto then = known->versions.find(slot);
  if (player >= known->players.size() || known->players[player] != slot || then == known->versions.end()) {
    return std::nullopt;
  }
  const auto now = numbers_.back().versions.find(slot);
  if (now == numbers_.back().versions.end() || now->second.since != then->second.since) return std::nullopt;
  // They may act still.
  return now->second.made == then->second.made ? now->second.current : then->second.current;
}

uint64_t ActingPolicies::number() const {
  base::MutexLock lock(&mutex_);
  told_ = true;
  return numbers_.empty() ? 0 : numbers_.back().number;
}

absl::Status ActingPolicies::CheckNumber(uint64_t number) const {
  base::MutexLock lock(&mutex_);
  if (number == 0 || (!numbers_.empty() && number <= numbers_.back().number)) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("weights ", number, " are none that this worker has acted with: GetPolicies gives the newest"));
}

absl::StatusOr<std::optional<ActingPolicies::Players>> ActingPolicies::Now() const {
  Players now;
  policy::PolicyTablePtr table;
  std::map<policy::PolicySlot, policy::WeightSnapshotPtr> weights;
  {
    base::MutexLock lock(&mutex_);
    // A status of its own: that of another thread would be shared with it.
    if (!refusal_.ok()) return absl::Status(refusal_.code(), refusal_.message());
    told_ = true;
    table = table_;
    weights = weights_;
    now.number = numbers_.empty() ? 0 : numbers_.back().number;
  }
  if (table == nullptr) return std::nullopt;
  TROUPE_ASSIGN_OR_RETURN(std::vector<policy::PolicySlot> slots, PlayersOf(*table));
  std::sort(slots.begin(), slots.end());
  slots.erase(std::unique(slots.begin(), slots.end()), slots.end());
  for (const policy::PolicySlot slot : slots) {
    const auto found = weights.find(slot);
    if (found == weights.end()) return std::nullopt;
    now.specs.push_back(table->Find(slot)->spec);
    now.weights.push_back(found->second);
  }
  now.agent_ids = table->agent_ids();
  // Those that decide, in their order, which is part of what they say. Others may name policies that nobody plays.
  std::set<const policy::MappingRule*> deciding;
  for (const std::string& id : now.agent_ids) deciding.insert(policy::FirstMatch(table->rules(), id));
  for (const policy::MappingRule& rule : table->rules()) {
    if (deciding.count(&rule) > 0) now.rules.push_back(rule);
  }
  return now;
}

}  // namespace troupe::outside
