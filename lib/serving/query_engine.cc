#include "lib/serving/query_engine.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "lib/base/check.h"
#include "lib/base/clock.h"
#include "lib/base/log.h"
#include "lib/base/philox.h"
#include "lib/base/status_macros.h"
#include "lib/policy/policy_entry.h"
#include "lib/policy/policy_spec.h"
#include "lib/serving/served_policy.h"

namespace troupe::serving {
namespace {

uint64_t ActorSeed(uint64_t seed) {
  const base::PhiloxKey key = base::PhiloxKey::Make(seed, base::RandomStream::kQuery);
  return (static_cast<uint64_t>(key.k1) << 32) | key.k0;
}

// Every policy of the largest table with its labels, and as many removed ones that queries still hold.
constexpr int32_t kMaxSlots =
    (2 + static_cast<int32_t>(QueryEngine::kMaxLabels)) * static_cast<int32_t>(policy::PolicyTable::kMaxPolicies);
constexpr int64_t kSinceCreate = -1;

}  // namespace

QueryEngine::QueryEngine(const Options& options)
    : options_(options),
      tier_(ActorSeed(options.seed), options.backend, options.source, options.actor_host),
      next_request_(options.first_request),
      budget_(options.queue_limits),
      routes_(std::make_shared<const Routes>()),
      turns_(options.hosted_limits) {}

QueryEngine::~QueryEngine() = default;

absl::StatusOr<std::unique_ptr<QueryEngine>> QueryEngine::Create(absl::Span<const policy::PolicySpec> specs,
                                                                 Options options) {
  auto engine = std::unique_ptr<QueryEngine>(new QueryEngine(options));
  policy::PolicyMapCore::Options map_options;
  map_options.max_slots = kMaxSlots;
  map_options.capacity = options.policy_map_capacity;
  TROUPE_ASSIGN_OR_RETURN(engine->actors_.map, ActorMap::Make(map_options, &engine->tier_, &base::Clock::Real()));
  map_options.capacity = kHostedActors;
  TROUPE_ASSIGN_OR_RETURN(engine->hosted_actors_.map,
                          ActorMap::Make(map_options, &engine->tier_, &base::Clock::Real()));
  TROUPE_RETURN_IF_ERROR(engine->AdmitAll(specs));
  return engine;
}

absl::Status QueryEngine::AdmitAll(absl::Span<const policy::PolicySpec> specs) {
  auto routes = std::make_shared<Routes>();
  base::MutexLock lock(&change_mutex_);
  for (const policy::PolicySpec& spec : specs) {
    TROUPE_RETURN_IF_ERROR(spec.Validate());
    Route& route = routes->by_id[spec.id.value()];
    if (route.policy != nullptr) {
      return absl::InvalidArgumentError(absl::StrCat("policy \"", spec.id.value(), "\" comes twice"));
    }
    TROUPE_ASSIGN_OR_RETURN(route.policy, AdmitLocked(spec));
    route.since = kSinceCreate;
  }
  base::MutexLock routes_lock(&routes_mutex_);
  routes_ = std::move(routes);
  return absl::OkStatus();
}

QueryEngine::Actors& QueryEngine::ActorsOf(const ServedPolicy& policy) {
  return policy.runs_elsewhere() ? hosted_actors_ : actors_;
}

absl::StatusOr<std::shared_ptr<ServedPolicy>> QueryEngine::AdmitLocked(const policy::PolicySpec& spec) {
  if (free_slots_.empty() && next_slot_ == kMaxSlots) {
    return absl::ResourceExhaustedError(absl::StrCat("policy \"", spec.id.value(), "\" is one too many: there are ",
                                                     kMaxSlots, " with those that queries still hold"));
  }
  policy::PolicySlot slot(next_slot_);
  if (free_slots_.empty()) {
    ++next_slot_;
  } else {
    slot = free_slots_.back();
    free_slots_.pop_back();
  }
  auto policy = std::make_shared<ServedPolicy>(spec, slot, options_.has_values, &budget_);
  tier_.SetPolicy(slot, policy.get());
  TROUPE_CHECK(ActorsOf(*policy).map->core().Add(slot).ok());
  return policy;
}

std::vector<QueryEngine::Gone> QueryEngine::FreeRetiredLocked() {
  std::vector<Gone> gone;
  size_t kept = 0;
  for (std::shared_ptr<ServedPolicy>& policy : retired_) {
    // No route leads to it, so that the count only falls; the map says whether anything is left to be unpinned.
    absl::StatusOr<policy::PolicyTier::Value> actor = absl::FailedPreconditionError("a query holds it");
    if (policy.use_count() == 1) actor = ActorsOf(*policy).map->core().Take(policy->slot());
    if (actor.ok()) {
      free_slots_.push_back(policy->slot());
      gone.push_back({std::move(policy), *std::move(actor)});
    } else {
      retired_[kept++].swap(policy);
    }
  }
  retired_.resize(kept);
  num_retired_.store(static_cast<int64_t>(kept), std::memory_order_relaxed);
  return gone;
}

void QueryEngine::FreeRetired() {
  if (num_retired_.load(std::memory_order_relaxed) == 0) return;
  std::vector<Gone> gone;
  {
    base::MutexLock lock(&change_mutex_);
    gone = FreeRetiredLocked();
  }
  BidFarewell(std::move(gone));
}

absl::Status QueryEngine::SetPolicies(const policy::PolicyTable& table) {
  FreeRetired();
  auto routes = std::make_shared<Routes>();
  routes->agent_ids = table.agent_ids();
  routes->players.resize(routes->agent_ids.size());
  for (size_t slot = 0; slot < routes->agent_ids.size(); ++slot) {
    routes->slot_of.emplace(routes->agent_ids[slot], static_cast<int32_t>(slot));
  }
  std::map<std::string, std::vector<int32_t>> agent_slots = policy::AgentSlotsByPolicy(table);
  for (const auto& [id, slots] : agent_slots) {
    for (const int32_t slot : slots) routes->players[static_cast<size_t>(slot)].push_back(id);
  }
  base::MutexLock lock(&change_mutex_);
  const std::shared_ptr<const Routes> before = CurrentRoutes();
  absl::Status status;
  for (const std::optional<policy::PolicyEntry>& entry : table.entries()) {
    if (!entry.has_value() || !entry->active()) continue;
    const std::string& id = entry->spec.id.value();
    const auto found = before->by_id.find(id);
    if (found != before->by_id.end() && IsStill(found->second, *entry, table)) {
      routes->by_id.emplace(
          id, Route{found->second.policy, entry->since, std::move(agent_slots[id]), found->second.labels});
      continue;
    }
    absl::StatusOr<std::shared_ptr<ServedPolicy>> admitted = AdmitLocked(entry->spec);
    status.Update(admitted.status());
    if (!status.ok()) break;
    routes->by_id.emplace(id, Route{*std::move(admitted), entry->since, std::move(agent_slots[id])});
  }
  // What the new routes brought goes if they are refused; what they lack goes if they are not.
  RetireLocked(status.ok() ? *before : *routes, status.ok() ? *routes : *before);
  if (!status.ok()) return status;
  base::MutexLock routes_lock(&routes_mutex_);
  routes_ = std::move(routes);
  return status;
}

void QueryEngine::RetireLocked(const Routes& leaving, const Routes& staying) {
  std::set<const ServedPolicy*> stays;
  for (const auto& [id, route] : staying.by_id) {
    stays.insert(route.policy.get());
    for (const auto& [label, policy] : route.labels) stays.insert(policy.get());
  }
  std::vector<std::shared_ptr<ServedPolicy>> retired;
  const auto retire = [&](const std::shared_ptr<ServedPolicy>& policy) {
    if (stays.count(policy.get()) == 0) retired.push_back(policy);
  };
  for (const auto& [id, route] : leaving.by_id) {
    retire(route.policy);
    for (const auto& [label, policy] : route.labels) retire(policy);
  }
  retired_.insert(retired_.end(), retired.begin(), retired.end());
  num_retired_.store(static_cast<int64_t>(retired_.size()), std::memory_order_relaxed);
}

bool QueryEngine::IsStill(const Route& route, const policy::PolicyEntry& entry, const policy::PolicyTable& table) {
  const policy::PolicySpec& spec = route.policy->spec();
  if (spec.ToString() != entry.spec.ToString()) return false;  // also where another run's policy has its place
  if (route.since != kSinceCreate) return route.since == entry.since;
  // Made without a table: it is the entry, unless the entry took its place just now.
  return std::none_of(table.entries().begin(), table.entries().end(), [&spec](const auto& other) {
    return other.has_value() && other->replaced && other->spec.id == spec.id;
  });
}

std::shared_ptr<const QueryEngine::Routes> QueryEngine::CurrentRoutes() const {
  base::MutexLock lock(&routes_mutex_);
  return routes_;
}

absl::Status QueryEngine::SetWeights(policy::WeightSnapshotPtr weights) {
  if (weights == nullptr) return absl::InvalidArgumentError("no weights");
  const std::shared_ptr<const Routes> routes = CurrentRoutes();
  TROUPE_ASSIGN_OR_RETURN(const Route* const route, Find(*routes, weights->id));
  const std::shared_ptr<ServedPolicy>& policy = route->policy;
  TROUPE_RETURN_IF_ERROR(weights->Validate(policy->spec(), policy->acting_size()));
  const policy::WeightVersion version = weights->version;
  policy->Offer({version, std::move(weights)});
  return absl::OkStatus();
}

absl::Status QueryEngine::SetSource(const policy::PolicyId& id, policy::WeightVersion version,
                                    std::shared_ptr<WeightSource> source, policy::WeightSnapshotPtr weights) {
  if (source == nullptr) return absl::InvalidArgumentError("no source of weights");
  const std::shared_ptr<const Routes> routes = CurrentRoutes();
  TROUPE_ASSIGN_OR_RETURN(const Route* const route, Find(*routes, id));
  if (weights != nullptr) {
    TROUPE_RETURN_IF_ERROR(weights->Validate(route->policy->spec(), route->policy->acting_size()));
  }
  route->policy->Offer({version, std::move(weights), std::move(source)});
  return absl::OkStatus();
}

absl::Status QueryEngine::CheckLabel(const std::string& label) {
  const auto is_good = [](char c) {
    return absl::ascii_islower(c) || absl::ascii_isdigit(c) || c == '_' || c == '.' || c == '-';
  };
  if (!label.empty() && label.size() <= 64 && absl::ascii_islower(label[0]) && label != "latest" &&
      std::all_of(label.begin(), label.end(), is_good)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("\"", base::LogSafe(label, 64), "\" is no label, expected [a-z][a-z0-9_.-]{0,63} and not latest"));
}

absl::Status QueryEngine::SetLabel(const std::string& label, const std::map<std::string, OfferedWeights>& weights) {
  TROUPE_RETURN_IF_ERROR(CheckLabel(label));
  FreeRetired();
  base::MutexLock lock(&change_mutex_);
  const std::shared_ptr<const Routes> before = CurrentRoutes();
  for (const auto& [id, offer] : weights) {
    TROUPE_ASSIGN_OR_RETURN(const Route* const route, Find(*before, policy::PolicyId(id)));
    if (offer.empty()) return absl::InvalidArgumentError(absl::StrCat("policy \"", id, "\": no weights"));
    if (offer.weights == nullptr) continue;
    TROUPE_RETURN_IF_ERROR(offer.weights->Validate(route->policy->spec(), route->policy->acting_size()));
  }
  auto routes = std::make_shared<Routes>(*before);
  absl::Status status;
  for (auto& [id, route] : routes->by_id) {
    route.labels.erase(label);
    const auto found = weights.find(id);
    if (found == weights.end() || !status.ok()) continue;
    if (route.labels.size() == kMaxLabels) {
      status = absl::ResourceExhaustedError(absl::StrCat("policy \"", id, "\": label \"", label, "\" is one too many, ",
                                                         "expected at most ", kMaxLabels));
      continue;
    }
    absl::StatusOr<std::shared_ptr<ServedPolicy>> admitted = AdmitLocked(route.policy->spec());
    status.Update(admitted.status());
    if (!status.ok()) continue;
    (*admitted)->Offer(found->second);
    route.labels.emplace(label, *std::move(admitted));
  }
  RetireLocked(status.ok() ? *before : *routes, status.ok() ? *routes : *before);
  if (!status.ok()) return status;
  base::MutexLock routes_lock(&routes_mutex_);
  routes_ = std::move(routes);
  return status;
}

}  // namespace troupe::serving
