#include "lib/serving/query_engine.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/check.h"
#include "lib/base/clock.h"
#include "lib/base/nearest_name.h"
#include "lib/base/philox.h"
#include "lib/base/status_macros.h"
#include "lib/serving/check_rows.h"

namespace troupe::serving {
namespace {

uint64_t ActorSeed(uint64_t seed) {
  const base::PhiloxKey key = base::PhiloxKey::Make(seed, base::RandomStream::kQuery);
  return (static_cast<uint64_t>(key.k1) << 32) | key.k0;
}

// Every policy of the largest table, and as many removed ones that queries still hold.
constexpr int32_t kMaxSlots = 2 * static_cast<int32_t>(policy::PolicyTable::kMaxPolicies);
constexpr int64_t kSinceCreate = -1;
constexpr size_t kMaxPoliciesNamed = 8;  // in an error

}  // namespace

/// A reader of the map for one query, from those that no query uses.
class QueryEngine::ReaderLease {
 public:
  explicit ReaderLease(Actors* actors) : actors_(*actors) {
    {
      base::MutexLock lock(&actors_.mutex);
      if (!actors_.idle_readers.empty()) {
        reader_ = std::move(actors_.idle_readers.back());
        actors_.idle_readers.pop_back();
      }
    }
    if (reader_ == nullptr) reader_ = std::make_unique<ActorMap::Reader>(actors_.map.get());
  }
  ~ReaderLease() {
    base::MutexLock lock(&actors_.mutex);
    actors_.idle_readers.push_back(std::move(reader_));
  }
  ReaderLease(const ReaderLease&) = delete;
  ReaderLease& operator=(const ReaderLease&) = delete;
  ActorMap::Reader* operator->() { return reader_.get(); }

 private:
  Actors& actors_;
  std::unique_ptr<ActorMap::Reader> reader_;
};

QueryEngine::QueryEngine(const Options& options)
    : options_(options),
      tier_(ActorSeed(options.seed), options.backend, options.source, options.actor_host),
      next_request_(options.first_request),
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
  auto policy = std::make_shared<ServedPolicy>(spec, slot);
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
  std::map<std::string, std::vector<int32_t>> agent_slots = policy::AgentSlotsByPolicy(table);
  base::MutexLock lock(&change_mutex_);
  const std::shared_ptr<const Routes> before = CurrentRoutes();
  absl::Status status;
  for (const std::optional<policy::PolicyEntry>& entry : table.entries()) {
    if (!entry.has_value() || !entry->active()) continue;
    const std::string& id = entry->spec.id.value();
    const auto found = before->by_id.find(id);
    if (found != before->by_id.end() && IsStill(found->second, *entry, table)) {
      routes->by_id.emplace(id, Route{found->second.policy, entry->since, std::move(agent_slots[id])});
      continue;
    }
    absl::StatusOr<std::shared_ptr<ServedPolicy>> admitted = AdmitLocked(entry->spec);
    status.Update(admitted.status());
    if (!status.ok()) break;
    routes->by_id.emplace(id, Route{*std::move(admitted), entry->since, std::move(agent_slots[id])});
  }
  // What the new routes brought goes if they are refused; what they lack goes if they are not.
  const Routes& leaving = status.ok() ? *before : *routes;
  const Routes& staying = status.ok() ? *routes : *before;
  for (const auto& [id, route] : leaving.by_id) {
    const auto found = staying.by_id.find(id);
    if (found == staying.by_id.end() || found->second.policy != route.policy) retired_.push_back(route.policy);
  }
  num_retired_.store(static_cast<int64_t>(retired_.size()), std::memory_order_relaxed);
  if (!status.ok()) return status;
  base::MutexLock routes_lock(&routes_mutex_);
  routes_ = std::move(routes);
  return status;
}

bool QueryEngine::IsStill(const Route& route, const policy::PolicyEntry& entry, const policy::PolicyTable& table) {
  if (route.since != kSinceCreate) return route.since == entry.since;
  // Made without a table: it is the entry, unless the entry took its place just now.
  const policy::PolicySpec& spec = route.policy->spec();
  if (spec.ToString() != entry.spec.ToString()) return false;
  return std::none_of(table.entries().begin(), table.entries().end(), [&spec](const auto& other) {
    return other.has_value() && other->replaced && other->spec.id == spec.id;
  });
}

std::shared_ptr<const QueryEngine::Routes> QueryEngine::CurrentRoutes() const {
  base::MutexLock lock(&routes_mutex_);
  return routes_;
}

absl::StatusOr<const QueryEngine::Route*> QueryEngine::Find(const Routes& routes, const policy::PolicyId& id) {
  TROUPE_RETURN_IF_ERROR(policy::ValidatePolicyId(id.value()));
  const auto found = routes.by_id.find(id.value());
  if (found != routes.by_id.end()) return &found->second;
  std::vector<std::string> ids;
  for (const auto& [name, route] : routes.by_id) ids.push_back(name);
  const std::string nearest = base::NearestName(id.value(), ids);
  std::stable_partition(ids.begin(), ids.end(), [&nearest](const std::string& name) { return name == nearest; });
  return absl::NotFoundError(
      absl::StrCat("there is no policy \"", id.value(), "\" among the ", ids.size(), " here",
                   nearest.empty() ? ": " : absl::StrCat(", did you mean \"", nearest, "\"? There are: "),
                   ids.empty() ? "none" : base::FewOf(ids, kMaxPoliciesNamed)));
}

absl::Status QueryEngine::SetWeights(policy::WeightSnapshotPtr weights) {
  if (weights == nullptr) return absl::InvalidArgumentError("no weights");
  const std::shared_ptr<const Routes> routes = CurrentRoutes();
  TROUPE_ASSIGN_OR_RETURN(const Route* const route, Find(*routes, weights->id));
  const std::shared_ptr<ServedPolicy>& policy = route->policy;
  TROUPE_RETURN_IF_ERROR(weights->Validate(policy->spec(), policy->acting_size()));
  policy->Offer(std::move(weights));
  return absl::OkStatus();
}

absl::StatusOr<QueryEngine::Policies> QueryEngine::Check(const Routes& routes, const ActionQuery& query) {
  if (query.policies.empty()) return absl::InvalidArgumentError("the query asks no policy, expected at least one");
  if (query.policies.size() > static_cast<size_t>(kMaxQueryRows)) {
    return absl::ResourceExhaustedError(absl::StrCat("the query asks ", query.policies.size(),
                                                     " times, expected at most ", kMaxQueryRows, " rows in all"));
  }
  int64_t total_rows = 0;
  for (const QueryRows& rows : query.policies) total_rows += rows.rows;
  if (total_rows > kMaxQueryRows) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the query has ", total_rows, " rows, expected at most ", kMaxQueryRows));
  }
  Policies policies;
  int64_t answer_bytes = 0;
  for (const QueryRows& rows : query.policies) {
    TROUPE_ASSIGN_OR_RETURN(const Route* const route, Find(routes, rows.policy_id));
    const ServedPolicy& policy = *route->policy;
    TROUPE_RETURN_IF_ERROR(CheckRows(policy.spec(), policy.leaves(), rows, {routes.agent_ids, route->agent_slots}));
    answer_bytes += rows.rows * 4 * (2 * policy.spec().action_words() + 1 + policy.spec().actor_state_size());
    policies.push_back(route->policy);
  }
  if (answer_bytes > kMaxAnswerBytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the answer would have ", answer_bytes, " bytes, expected at most ", kMaxAnswerBytes));
  }
  return policies;
}

absl::StatusOr<PolicyActions> QueryEngine::Act(const ServedPolicy& policy, const QueryRows& rows, uint64_t request,
                                               int64_t first_row, bool deterministic) {
  PolicyActions answer;
  answer.policy_id = policy.spec().id;
  answer.rows = rows.rows;
  answer.word_dtypes = policy.word_dtypes();
  const auto words = static_cast<size_t>(policy.spec().action_words());
  answer.sampled_actions.resize(static_cast<size_t>(rows.rows) * words);
  answer.logp.resize(static_cast<size_t>(rows.rows));
  std::vector<inference::RowKey> keys(static_cast<size_t>(rows.rows));
  for (size_t row = 0; row < keys.size(); ++row) {
    keys[row] = {base::EnvId(static_cast<uint32_t>(request >> 32)), static_cast<uint32_t>(request),
                 base::AgentSlot(rows.agent_slots.empty() ? 0 : rows.agent_slots[row]),
                 static_cast<uint32_t>(first_row) + static_cast<uint32_t>(row)};
  }
  std::vector<uint8_t> all_allowed;
  inference::ActInput input;
  input.rows = rows.rows;
  input.obs = rows.obs.data();
  input.keys = keys.data();
  input.deterministic = deterministic;
  if (policy.spec().mask_size() > 0) {
    if (rows.action_mask.empty()) all_allowed.assign(static_cast<size_t>(rows.rows * policy.spec().mask_size()), 1);
    input.action_mask = rows.action_mask.empty() ? all_allowed.data() : rows.action_mask.data();
  }
  if (const int64_t state_size = policy.spec().actor_state_size(); state_size > 0) {
    answer.state_out.resize(static_cast<size_t>(rows.rows * state_size));
    if (!rows.state_in.empty()) std::memcpy(answer.state_out.data(), rows.state_in.data(), rows.state_in.size());
    input.state_in = input.state_out = answer.state_out.data();
  }
  policy::WeightSnapshotPtr newest = policy.newest();
  const bool has_weights = policy.spec().policy_class.has_weights();
  // Said before the map makes room for what cannot come.
  if (has_weights && newest == nullptr && options_.source == nullptr) return ActorTier::NoWeights(policy.spec());
  ReaderLease reader(&ActorsOf(policy));
  TROUPE_ASSIGN_OR_RETURN(const ActorMap::Batch batch,
                          reader->Acquire({policy.slot()}, policy::PolicyMapCore::Access::kRead));
  ServingActor& resident = batch[0];
  {
    base::MutexLock lock(&resident.mutex);
    newest = policy.newest();
    if (has_weights && newest != nullptr && resident.acting->version < newest->version) {
      TROUPE_RETURN_IF_ERROR(resident.actor->SetWeights(newest));
      resident.acting.swap(newest);  // maybe the last owner of what it replaced: destroyed after the lock
    }
    if (has_weights) answer.version = resident.acting->version;
    TROUPE_RETURN_IF_ERROR(resident.actor->Act(input, answer.sampled_actions.data(), answer.logp.data()));
  }
  answer.actions = answer.sampled_actions;
  for (size_t row = 0; !policy.bounds().identity() && row < keys.size(); ++row) {
    const absl::Span<space::ActionWord> action = absl::MakeSpan(answer.actions).subspan(row * words, words);
    policy.bounds().Apply(action, action);
  }
  return answer;
}

absl::StatusOr<ActionAnswer> QueryEngine::Compute(const ActionQuery& query) {
  absl::StatusOr<ActionAnswer> answer;
  {
    const absl::StatusOr<Policies> policies = Check(*CurrentRoutes(), query);
    answer = policies.ok() ? Answer(query, *policies) : policies.status();
  }
  FreeRetired();
  return answer;
}

ActionQueries::GiveUp QueryEngine::ComputeActions(const ActionQuery& query, Done done) {
  absl::StatusOr<ActionAnswer> answer;
  {
    absl::StatusOr<Policies> policies = Check(*CurrentRoutes(), query);
    if (policies.ok() &&
        std::any_of(policies->begin(), policies->end(), [](const auto& policy) { return policy->runs_elsewhere(); })) {
      return Enqueue(query, *std::move(policies), std::move(done));
    }
    answer = policies.ok() ? Answer(query, *policies) : policies.status();
  }
  FreeRetired();
  done(std::move(answer));
  return nullptr;
}

absl::StatusOr<ActionAnswer> QueryEngine::Answer(const ActionQuery& query, const Policies& policies) {
  const uint64_t request = NextRequest(query.deterministic);
  ActionAnswer answer;
  answer.reserve(policies.size());
  int64_t first_row = 0;
  for (size_t i = 0; i < policies.size(); ++i) {
    const QueryRows& rows = query.policies[i];
    TROUPE_ASSIGN_OR_RETURN(PolicyActions actions, Act(*policies[i], rows, request, first_row, query.deterministic));
    answer.push_back(std::move(actions));
    first_row += rows.rows;
  }
  return answer;
}

}  // namespace troupe::serving
