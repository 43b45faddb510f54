#include "lib/rollout/policy_adopter.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/inference/make_policy_actor.h"
#include "lib/policy/policy_entry.h"

namespace troupe::rollout {
namespace {

// A wait in the middle of a grant looks so often whether the worker is told to stop.
constexpr absl::Duration kWeightWait = absl::Milliseconds(100);

}  // namespace

PolicyAdopter::PolicyAdopter(const RolloutConfig& config, FragmentBuilder& builder, LaneMap& lanes)
    : config_(config),
      builder_(builder),
      lanes_(lanes),
      actors_(config.options.policy_map_capacity),
      since_(config.policies.size(), 0),
      versions_(since_.size()),
      uses_(since_.size()) {}

absl::Status PolicyAdopter::Start() {
  // A policy that cannot play is said at the start, but for one that nobody plays: it costs nobody anything.
  for (const policy::PolicySpec& spec : config_.policies) {
    TROUPE_ASSIGN_OR_RETURN(const std::unique_ptr<ResidentActor> made, MakeActor(spec));
    if (config_.unplayed.count(spec.id) == 0) TROUPE_RETURN_IF_ERROR(made->actor->Prepare());
  }
  for (const policy::PolicySlot slot : builder_.policies().ids()) NumberShape(slot, builder_.policies()[slot]);
  return absl::OkStatus();
}

void PolicyAdopter::BeginGrant(policy::WeightVersion min_version) {
  ++grants_;
  min_version_ = newest_ = min_version;
}

absl::StatusOr<std::unique_ptr<ResidentActor>> PolicyAdopter::MakeActor(const policy::PolicySpec& spec) const {
  TROUPE_ASSIGN_OR_RETURN(
      std::unique_ptr<inference::PolicyActor> actor,
      inference::MakePolicyActor(spec, config_.options.seed, config_.backend, config_.actor_host.get()));
  return std::make_unique<ResidentActor>(ResidentActor{.actor = std::move(actor),
                                                       .bounds = inference::ActionBounds(spec),
                                                       .action_words = static_cast<size_t>(spec.action_words()),
                                                       .has_weights = spec.policy_class.has_weights()});
}

void PolicyAdopter::NumberShape(policy::PolicySlot slot, const policy::PolicySpec& spec) {
  shape_.GrowTo(slot, -1);
  shape_[slot] = -1;
  if (!spec.policy_class.has_weights()) return;
  shape_[slot] = shapes_.try_emplace(policy::ShapeOf(spec), static_cast<int32_t>(shapes_.size())).first->second;
}

absl::Status PolicyAdopter::CheckTable(const sample::Grant& grant) const {
  const policy::PolicyTable& table = *grant.policies;
  const std::vector<env::AgentSpec>& agents = config_.env_spec.possible_agents;
  const auto other = [&](const auto&... what) {
    return absl::InvalidArgumentError(absl::StrCat("grant ", grant.id.value(), ": the policy table of revision ",
                                                   table.revision(), " has ", what..., " of environment ",
                                                   config_.env_spec.name));
  };
  if (table.agent_ids().size() != agents.size()) {
    return other(table.agent_ids().size(), " agents, expected ", agents.size(), ", those");
  }
  for (size_t slot = 0; slot < agents.size(); ++slot) {
    const std::string& id = agents[slot].id.value();
    // On its way a table loses bytes that are no UTF-8.
    const bool plain = std::all_of(id.begin(), id.end(), [](char c) { return static_cast<signed char>(c) >= 0; });
    if (!plain || table.agent_ids()[slot] == id) continue;
    return other("agent \"", base::LogSafe(table.agent_ids()[slot], 64), "\" in slot ", slot, ", expected \"",
                 base::LogSafe(id, 64), "\"");
  }
  return absl::OkStatus();
}

void PolicyAdopter::GiveUpOldTables() {
  std::set<int64_t> revisions;
  for (const auto& [env_id, lane] : lanes_) {
    if (lane->episode.running) revisions.insert(lane->episode.revision);
  }
  if (revisions.size() < kMaxTablesInProgress) return;
  const int64_t oldest_kept = *std::prev(revisions.end(), static_cast<std::ptrdiff_t>(kMaxTablesInProgress) - 1);
  for (const auto& [env_id, lane] : lanes_) {
    if (lane->episode.running && lane->episode.revision < oldest_kept) GiveUp(*lane);
  }
}

void PolicyAdopter::GiveUp(Lane& lane) {
  lane.episode.running = false;
  ++counters_.given_up;
}

void PolicyAdopter::GiveUpEpisodes(const policy::BySlot<int64_t>& since, bool same_learner) {
  for (auto& [env_id, lane] : lanes_) {
    if (lane->episode.running && !(same_learner && MayGoOn(*lane, since))) GiveUp(*lane);
  }
  GiveUpOldTables();
  for (auto& [env_id, lane] : lanes_) {
    if (!lane->episode.running) lane->episode.mapping = nullptr;  // a table that nobody plays by is free
  }
}

void PolicyAdopter::Forget(policy::PolicySlot slot, WeightSource& weights) {
  actors_.Erase(slot);
  // What is subscribed to in the slot is of another policy now; who needs it asks again.
  if (!uses_[slot].subscribed) return;
  weights.Unsubscribe(slot);
  uses_[slot].subscribed = false;
  subscriptions_.erase(std::find(subscriptions_.begin(), subscriptions_.end(), slot));
}

bool PolicyAdopter::MayGoOn(const Lane& lane, const policy::BySlot<int64_t>& since) const {
  for (size_t agent = 0; agent < lane.agents.size(); ++agent) {
    policy::PolicySlot slot = lane.agents[agent].policy;
    if (slot == policy::kNoPolicy) {
      // It may still appear, and is mapped as the episode's others then.
      const base::AgentSlot agent_slot(static_cast<int32_t>(agent));
      if (!lane.episode.mapping->KnownAhead(agent_slot)) return false;
      const base::AgentId& id = config_.env_spec.possible_agents[agent].id;
      const absl::StatusOr<policy::PolicySlot> mapped =
          lane.episode.mapping->Map(id, agent_slot, builder_.EpisodeOf(lane.env_id, lane.episode.ordinal));
      if (!mapped.ok()) return false;
      slot = *mapped;
    }
    if (!since.Contains(slot)) return false;
    const int64_t brought = since[slot];
    if (brought < 0 || brought > lane.episode.revision) return false;
  }
  return true;
}

absl::StatusOr<bool> PolicyAdopter::AdoptTable(const sample::Grant& grant, WeightSource& weights) {
  const uint64_t epoch = grant.min_version.learner_epoch;
  const int64_t revision = grant.policies == nullptr ? 0 : grant.policies->revision();
  const bool same_learner = epoch == learner_epoch_;
  if (same_learner && revision < builder_.revision()) {
    return absl::InvalidArgumentError(absl::StrCat("grant ", grant.id.value(), " has the policy table of revision ",
                                                   revision, " after ", builder_.revision(), " in learner epoch ",
                                                   epoch));
  }
  // Revision 0 is the run's start, whatever the learner's epoch.
  const bool unchanged = revision == builder_.revision() && (same_learner || revision == 0);
  learner_epoch_ = epoch;
  if (unchanged) return false;
  if (grant.policies != nullptr) TROUPE_RETURN_IF_ERROR(CheckTable(grant));

  policy::BySlot<policy::PolicySpec> specs(grant.policies == nullptr ? config_.policies : grant.policies->Specs());
  policy::BySlot<int64_t> since(specs.size(), 0);
  std::shared_ptr<const policy::PolicyMapping> mapping = config_.mapping;
  if (grant.policies != nullptr) {
    for (const policy::PolicySlot slot : specs.ids()) {
      const policy::PolicyEntry* entry = grant.policies->Find(slot);
      since[slot] = entry == nullptr ? -1 : entry->since;
    }
    mapping = std::shared_ptr<const policy::PolicyMapping>(grant.policies, &grant.policies->mapping());
  }
  const auto changed = [&](policy::PolicySlot slot) {
    return !same_learner || !since.Contains(slot) || !since_.Contains(slot) || since[slot] != since_[slot];
  };
  for (const policy::PolicySlot slot : specs.ids()) {
    if (changed(slot) && since[slot] >= 0) TROUPE_RETURN_IF_ERROR(MakeActor(specs[slot]).status());
  }
  GiveUpEpisodes(since, same_learner);
  const size_t slots = std::max(since.size(), since_.size());
  for (const policy::PolicySlot slot : specs.ids()) {
    if (changed(slot) && since[slot] >= 0) NumberShape(slot, specs[slot]);
  }
  for (const policy::PolicySlot slot : since_.ids()) {
    if (changed(slot)) Forget(slot, weights);
  }
  since_ = std::move(since);
  versions_.resize(slots);
  uses_.resize(slots);
  builder_.SetPolicies(std::move(specs), std::move(mapping), revision);
  if (config_.outside != nullptr) config_.outside->SetPolicies(grant.policies);
  return true;
}

void PolicyAdopter::Subscribe(policy::PolicySlot slot, WeightSource& weights) {
  if (!since_.Contains(slot) || uses_[slot].subscribed) return;  // what is out of range is an error later
  if (since_[slot] < 0 || !builder_.policies()[slot].policy_class.has_weights()) return;
  uses_[slot].subscribed = true;
  subscriptions_.push_back(slot);
  weights.Subscribe(slot);
}

void PolicyAdopter::LookAhead(Lane& lane, WeightSource& weights) {
  builder_.MapEpisode(*builder_.mapping(), lane.env_id, lane.next_episode, lane.upcoming);
  for (const policy::PolicySlot slot : lane.upcoming) Subscribe(slot, weights);
}

absl::Status PolicyAdopter::Adopt(policy::PolicySlot slot, WeightSource& weights, absl::Duration timeout) {
  ResidentActor* actor = actors_.Find(slot);
  if (actor != nullptr && actor->adopted_in == grants_) return absl::OkStatus();
  // Of the tries that waited in vain, only the first one counts.
  const bool first_try = actor == nullptr || uses_[slot].sought_in != grants_;
  uses_[slot].sought_in = grants_;
  if (actor == nullptr) {
    ++counters_.misses;
    std::unique_ptr<ResidentActor> made = actors_.TakeSpare(shape_[slot], builder_.policies()[slot]);
    if (made == nullptr) {
      TROUPE_ASSIGN_OR_RETURN(made, MakeActor(builder_.policies()[slot]));
      made->shape = shape_[slot];
    }
    actor = &actors_.Insert(slot, std::move(made));
  } else if (first_try) {
    ++counters_.hits;
  }
  const bool again = uses_[slot].adopted_in == grants_;
  const policy::PolicySpec& spec = builder_.policies()[slot];
  policy::WeightSnapshotPtr adopted;
  if (actor->has_weights) {
    Subscribe(slot, weights);
    // Weights that never change are published once.
    const bool changes = spec.policy_class.trainable();
    const policy::WeightVersion needed = changes ? min_version_ : policy::WeightVersion{};
    absl::StatusOr<CurrentWeights> current = weights.AwaitWeights(slot, needed, absl::ZeroDuration());
    if (absl::IsDeadlineExceeded(current.status())) {
      counters_.weight_waits += static_cast<int64_t>(first_try);
      current = weights.AwaitWeights(slot, needed, timeout);
    }
    TROUPE_RETURN_IF_ERROR(current.status());
    if (current->snapshot == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat("got no weights of policy \"", spec.id.value(), "\""));
    }
    if (current->version < needed) {
      return absl::FailedPreconditionError(absl::StrCat("weights of policy \"", spec.id.value(), "\" are of version ",
                                                        current->version.learner_epoch, ".", current->version.n,
                                                        ", the grant needs ", needed.learner_epoch, ".", needed.n));
    }
    TROUPE_RETURN_IF_ERROR(actor->actor->SetWeights(current->snapshot));
    adopted = current->snapshot;
    if (changes && newest_ < current->version) newest_ = current->version;
    if (!again) versions_[slot] = current->version;
  }
  // What plays by weights that never change is as new as the newest that do.
  if (!spec.policy_class.trainable() && !again) versions_[slot] = newest_;
  if (config_.outside != nullptr && adopted != nullptr) {
    config_.outside->SetWeights(slot, std::move(adopted), versions_[slot]);
  }
  actor->adopted_in = grants_;
  uses_[slot].adopted_in = grants_;
  return absl::OkStatus();
}

absl::Status PolicyAdopter::AdoptFirst(absl::Span<Lane* const> granted, WeightSource& weights, absl::Duration timeout) {
  first_.clear();
  for (Lane* lane : granted) {
    LookAhead(*lane, weights);
    // A client that acts by itself wants all that play before it begins an episode.
    if (!lane->episode.running || config_.outside != nullptr) {
      first_.insert(first_.end(), lane->upcoming.begin(), lane->upcoming.end());
    }
    if (!lane->episode.running) continue;
    for (const AgentState& agent : lane->agents) {
      if (agent.policy != policy::kNoPolicy) first_.push_back(agent.policy);
    }
  }
  std::sort(first_.begin(), first_.end());
  first_.erase(std::unique(first_.begin(), first_.end()), first_.end());
  Trim(weights);
  // Those that train first: they say how new the others are.
  for (const bool trainable : {true, false}) {
    for (const policy::PolicySlot slot : first_) {
      if (!since_.Contains(slot) || since_[slot] < 0) continue;  // FragmentBuilder says what is wrong with it
      if (builder_.policies()[slot].policy_class.trainable() != trainable) continue;
      TROUPE_RETURN_IF_ERROR(Adopt(slot, weights, timeout));
    }
  }
  return absl::OkStatus();
}

absl::Status PolicyAdopter::AdoptOpen(WeightSource& weights, const std::atomic<bool>& stop) {
  for (size_t place = 0; place < builder_.num_places(); ++place) {
    if (builder_.OpenCount(place) == 0) continue;
    absl::Status status = Adopt(builder_.PolicyAt(place), weights, kWeightWait);
    while (absl::IsDeadlineExceeded(status)) {
      if (stop.load(std::memory_order_relaxed)) return absl::CancelledError("the rollout was told to stop");
      status = Adopt(builder_.PolicyAt(place), weights, kWeightWait);
    }
    TROUPE_RETURN_IF_ERROR(status);
  }
  return absl::OkStatus();
}

void PolicyAdopter::Trim(WeightSource& weights) {
  ++trims_;
  actors_.BeginHolding();
  const auto need = [this](policy::PolicySlot slot) {
    if (uses_.Contains(slot)) uses_[slot].needed_by = trims_;
  };
  for (const auto& [env_id, lane] : lanes_) {
    for (const policy::PolicySlot slot : lane->upcoming) need(slot);
    if (!lane->episode.running) continue;
    for (const AgentState& agent : lane->agents) {
      if (agent.policy == policy::kNoPolicy) continue;
      actors_.Hold(agent.policy);
      need(agent.policy);
    }
  }
  dropped_.clear();
  actors_.Trim(dropped_);
  counters_.evictions += static_cast<int64_t>(dropped_.size());
  for (const policy::PolicySlot slot : actors_.resident()) need(slot);
  const auto unneeded = [&](policy::PolicySlot slot) {
    if (uses_[slot].needed_by == trims_) return false;
    uses_[slot].subscribed = false;
    weights.Unsubscribe(slot);
    return true;
  };
  subscriptions_.erase(std::remove_if(subscriptions_.begin(), subscriptions_.end(), unneeded), subscriptions_.end());
}

}  // namespace troupe::rollout
