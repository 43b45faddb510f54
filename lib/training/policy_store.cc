#include "lib/training/policy_store.h"

#include <algorithm>
#include <iterator>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "lib/base/check.h"
#include "lib/base/clock.h"
#include "lib/base/status_macros.h"
#include "lib/policy/parameter_layout.h"
#include "lib/training/moments.h"
#include "lib/training/prepared_batch.h"

namespace troupe::training {
namespace {

using policy::PolicySlot;
using policy::PolicySpec;
using policy::PolicyState;
using policy::PolicyTier;
using Access = policy::PolicyMapCore::Access;

policy::WeightSnapshotPtr MakeSnapshot(const PolicySpec& spec, const policy::WeightVersion& version,
                                       absl::Span<const float> parameters, const policy::RunningMoments& moments) {
  auto snapshot = std::make_shared<policy::WeightSnapshot>();
  snapshot->id = spec.id;
  snapshot->version = version;
  const int64_t actor_size = policy::ParameterLayout::For(spec).actor_size();
  snapshot->actor.assign(parameters.begin(), parameters.begin() + actor_size);
  snapshot->observation_mean = Mean(moments);
  snapshot->observation_inverse_std = InverseStd(moments);
  return snapshot;
}

std::vector<float> Copy(absl::Span<const float> values) { return std::vector<float>(values.begin(), values.end()); }

}  // namespace

/// Policies of one shape have their value moments alike, too.
absl::Status PolicyStore::CheckExchangeable(const std::vector<PolicySpec>& specs, const std::vector<PpoOptions>& ppo) {
  std::vector<PolicySpec> taken;
  std::vector<bool> use_value_norm;
  for (size_t i = 0; i < specs.size(); ++i) {
    // Others have no networks of their own to exchange.
    if (specs[i].id.value().empty() || !specs[i].policy_class.trainable()) continue;
    taken.push_back(specs[i]);
    use_value_norm.push_back(ppo[i].use_value_norm);
  }
  TROUPE_RETURN_IF_ERROR(policy::CheckSwappable(taken));
  for (size_t i = 1; i < taken.size(); ++i) {
    if (use_value_norm[i] == use_value_norm[0]) continue;
    return absl::InvalidArgumentError(absl::StrCat("policies \"", taken[0].id.value(), "\" and \"", taken[i].id.value(),
                                                   "\" cannot swap their states: use_value_norm is ",
                                                   use_value_norm[0] ? "true and false" : "false and true"));
  }
  return absl::OkStatus();
}

PolicyState InitialState(const PolicySpec& spec, bool use_value_norm, uint64_t seed) {
  const FlatParameters parameters = InitialParameters(spec, seed);
  PolicyState state;
  state.id = spec.id;
  state.parameters = Copy(parameters.values());
  if (spec.policy_class.trainable()) {
    state.adam_exp_avg = Copy(parameters.exp_avg());
    state.adam_exp_avg_sq = Copy(parameters.exp_avg_sq());
  }
  if (spec.normalize_observations) state.observation_moments = InitialMoments(spec.observation_size());
  if (use_value_norm && spec.policy_class.has_weights()) state.value_moments = InitialMoments(1);
  return state;
}

absl::StatusOr<std::unique_ptr<PolicyStore>> PolicyStore::Make(std::vector<PolicySpec> specs,
                                                               std::vector<PpoOptions> ppo, uint64_t seed,
                                                               BackendFactory make_backend,
                                                               const PolicyStoreOptions& options, Deps deps) {
  for (const PolicySpec& spec : specs) {
    if (!spec.id.value().empty()) TROUPE_RETURN_IF_ERROR(spec.Validate());
  }
  if (ppo.size() != specs.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("got options for ", ppo.size(), " policies; expected ", specs.size()));
  }
  if (options.states_are_swappable) TROUPE_RETURN_IF_ERROR(CheckExchangeable(specs, ppo));
  auto store = std::unique_ptr<PolicyStore>(
      new PolicyStore(std::move(specs), std::move(ppo), seed, std::move(make_backend), options));
  PolicyStore* const self = store.get();
  policy::PolicyStateTier::Deps tier_deps;
  tier_deps.blobs = deps.blobs;
  tier_deps.form = self;
  tier_deps.initial = [self](PolicySlot slot) -> absl::StatusOr<PolicyState> {
    return InitialState(self->spec(slot), self->ppo(slot).use_value_norm, self->seed_);
  };
  if (deps.fallback != nullptr) {
    tier_deps.fallback = [self, fallback = std::move(deps.fallback)](PolicySlot slot) -> absl::StatusOr<PolicyState> {
      TROUPE_ASSIGN_OR_RETURN(PolicyState state, fallback(slot));
      self->book(slot).snapshot.reset();  // it was of the newer weights
      return self->Completed(slot, std::move(state));
    };
  }
  TROUPE_ASSIGN_OR_RETURN(
      store->tier_, policy::PolicyStateTier::Make(&store->specs_, {options.host_budget_bytes}, std::move(tier_deps)));
  policy::PolicyMapCore::Options map_options;
  map_options.capacity = options.capacity;
  map_options.max_slots = std::max(static_cast<int32_t>(policy::PolicyTable::kMaxPolicies),  // more may be added
                                   static_cast<int32_t>(store->size()));
  TROUPE_ASSIGN_OR_RETURN(
      store->map_, policy::PolicyMap<ResidentPolicy>::Make(map_options, store->tier_.get(), &base::Clock::Real()));
  store->reader_ = std::make_unique<policy::PolicyMap<ResidentPolicy>::Reader>(store->map_.get());
  TROUPE_RETURN_IF_ERROR(store->MakeFirst());
  return store;
}

PolicyStore::PolicyStore(std::vector<PolicySpec> specs, std::vector<PpoOptions> ppo, uint64_t seed,
                         BackendFactory make_backend, const PolicyStoreOptions& options)
    : specs_(std::move(specs)),
      ppo_(std::move(ppo)),
      seed_(seed),
      make_backend_(std::move(make_backend)),
      options_(options),
      books_(specs_.size()) {}

PolicyStore::~PolicyStore() = default;

absl::Status PolicyStore::MakeFirst() {
  const bool all_fit = num_policies() <= options_.capacity;
  std::set<std::string> shapes;
  for (size_t i = 0; i < size(); ++i) {
    const PolicySlot slot(static_cast<int32_t>(i));
    if (!CheckSlot(slot).ok()) continue;
    TROUPE_RETURN_IF_ERROR(map_->core().Add(slot));
    if (all_fit) {
      TROUPE_RETURN_IF_ERROR(reader_->Acquire({slot}, Access::kRead).status());
    } else if (spec(slot).policy_class.trainable() && shapes.insert(policy::ShapeOf(spec(slot))).second) {
      TROUPE_RETURN_IF_ERROR(make_backend_(spec(slot)).status());
    }
  }
  return absl::OkStatus();
}

absl::Status PolicyStore::CheckSlot(PolicySlot slot) const {
  const bool taken = slot.value() >= 0 && slot.value() < static_cast<int32_t>(size()) && !spec(slot).id.value().empty();
  if (taken) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat("policy slot ", slot.value(), "; there are ", num_policies(), " policies"));
}

std::vector<std::vector<PolicySlot>> PolicyStore::InTurns(absl::Span<const PolicySlot> slots) const {
  return map_->core().SplitInTurns(slots);
}

absl::StatusOr<policy::PolicyMap<ResidentPolicy>::Batch> PolicyStore::Acquire(PolicySlot slot) {
  TROUPE_RETURN_IF_ERROR(CheckSlot(slot));
  auto batch = reader_->Acquire({slot}, Access::kWrite);
  // Who made room for it is written here, before it changes: a second one never waits.
  while (map_->core().StepWriteBack()) {
  }
  if (batch.ok()) book(slot).snapshot.reset();
  return batch;
}

int32_t PolicyStore::ShapeNumber(PolicySlot slot) {
  int32_t& shape = book(slot).shape;
  if (shape < 0)
    shape = shapes_.emplace(policy::ShapeOf(spec(slot)), static_cast<int32_t>(shapes_.size())).first->second;
  return shape;
}

std::unique_ptr<ResidentPolicy> PolicyStore::TakeShell(int32_t shape) {
  // The one that was evicted last is the likeliest to be in the cache.
  const auto found =
      std::find_if(shells_.rbegin(), shells_.rend(), [shape](const Shell& s) { return s.shape == shape; });
  if (found == shells_.rend()) return nullptr;
  std::unique_ptr<ResidentPolicy> policy = std::move(found->policy);
  shells_.erase(std::next(found).base());
  return policy;
}

void PolicyStore::KeepShell(int32_t shape, std::unique_ptr<ResidentPolicy> evicted) {
  if (!options_.states_are_swappable) evicted->backend.reset();
  if (num_spares() >= SparesOf(options_.capacity)) shells_.erase(shells_.begin());
  shells_.push_back({shape, std::move(evicted)});
}

absl::StatusOr<PolicyTier::Value> PolicyStore::FromState(PolicySlot slot, const PolicyState& state) {
  const bool trainable = spec(slot).policy_class.trainable();
  const int32_t shape = trainable ? ShapeNumber(slot) : -1;
  std::unique_ptr<ResidentPolicy> policy = trainable ? TakeShell(shape) : nullptr;
  if (policy == nullptr) {
    FlatParameters parameters(policy::ParameterLayout::For(spec(slot)));
    policy = std::make_unique<ResidentPolicy>(ResidentPolicy{.parameters = std::move(parameters), .backend = nullptr});
  }
  // It stays empty for a policy that is only kept.
  if (trainable && policy->backend == nullptr) {
    TROUPE_ASSIGN_OR_RETURN(policy->backend, make_backend_(spec(slot)));
  }
  Fill(state, policy.get());
  const std::shared_ptr<ResidentPolicy> resident(policy.release(), [this, shape](ResidentPolicy* evicted) {
    std::unique_ptr<ResidentPolicy> shell(evicted);
    if (shape >= 0) KeepShell(shape, std::move(shell));
  });
  book(slot).resident = resident;
  return PolicyTier::Value(resident);
}

PolicyState PolicyStore::ToState(PolicySlot slot, const PolicyTier::Value& value) {
  const auto& policy = *static_cast<const ResidentPolicy*>(value.get());
  Book& entry = book(slot);
  if (entry.snapshot == nullptr) {
    // It will be published, and is at hand now.
    entry.snapshot = MakeSnapshot(spec(slot), entry.version, policy.parameters.values(), policy.observation_moments);
  }
  return StateOf(slot, policy);
}

int64_t PolicyStore::Bytes(const PolicyTier::Value& value) const {
  const auto& policy = *static_cast<const ResidentPolicy*>(value.get());
  // Parameters, gradients and the optimizer's two moments; a back end's own memory depends on the batch.
  return 4 * policy.parameters.size() * static_cast<int64_t>(sizeof(float));
}

PolicyState PolicyStore::StateOf(PolicySlot slot, const ResidentPolicy& policy) const {
  PolicyState state;
  state.id = spec(slot).id;
  state.version = books_[static_cast<size_t>(slot.value())].version;
  state.parameters = Copy(policy.parameters.values());
  if (spec(slot).policy_class.trainable()) {
    state.adam_exp_avg = Copy(policy.parameters.exp_avg());
    state.adam_exp_avg_sq = Copy(policy.parameters.exp_avg_sq());
    state.adam_steps = policy.parameters.adam_steps;
  }
  state.observation_moments = policy.observation_moments;
  state.value_moments = policy.value_moments;
  state.trained_rows = policy.trained_rows;
  state.skipped_updates = policy.skipped_updates;
  state.consecutive_skips = policy.consecutive_skips;
  return state;
}

PolicyState PolicyStore::Completed(PolicySlot slot, PolicyState state) const {
  const policy::PolicyClass& policy_class = spec(slot).policy_class;
  if (!policy_class.trainable()) {
    state.adam_exp_avg.clear();
    state.adam_exp_avg_sq.clear();
    state.adam_steps = 0;
  } else if (state.adam_exp_avg.empty() || state.adam_exp_avg_sq.empty()) {
    state.adam_exp_avg.assign(state.parameters.size(), 0.0f);
    state.adam_exp_avg_sq.assign(state.parameters.size(), 0.0f);
    state.adam_steps = 0;
  }
  const bool value_norm = ppo(slot).use_value_norm && policy_class.has_weights();
  if (value_norm && state.value_moments.mean.empty()) state.value_moments = InitialMoments(1);
  if (!value_norm) state.value_moments = {};
  return state;
}

void PolicyStore::Fill(const PolicyState& state, ResidentPolicy* policy) {
  FlatParameters& parameters = policy->parameters;
  std::copy(state.parameters.begin(), state.parameters.end(), parameters.values().begin());
  std::copy(state.adam_exp_avg.begin(), state.adam_exp_avg.end(), parameters.exp_avg().begin());
  std::copy(state.adam_exp_avg_sq.begin(), state.adam_exp_avg_sq.end(), parameters.exp_avg_sq().begin());
  parameters.adam_steps = state.adam_steps;
  policy->observation_moments = state.observation_moments;
  policy->value_moments = state.value_moments;
  policy->trained_rows = state.trained_rows;
  policy->skipped_updates = state.skipped_updates;
  policy->consecutive_skips = state.consecutive_skips;
}

absl::StatusOr<PolicyState> PolicyStore::Export(PolicySlot slot) {
  TROUPE_RETURN_IF_ERROR(CheckSlot(slot));
  if (const std::shared_ptr<ResidentPolicy> resident = book(slot).resident.lock()) return StateOf(slot, *resident);
  TROUPE_ASSIGN_OR_RETURN(const policy::PolicyStateTier::StatePtr kept, tier_->Read(slot));
  PolicyState state = *kept;
  state.version = book(slot).version;
  return state;
}

absl::Status PolicyStore::Import(PolicySlot slot, PolicyState state) {
  TROUPE_RETURN_IF_ERROR(CheckSlot(slot));
  const policy::WeightVersion version = state.version;
  TROUPE_RETURN_IF_ERROR(Restore(slot, std::move(state)));
  book(slot).version = version;
  return absl::OkStatus();
}

absl::Status PolicyStore::Restore(PolicySlot slot, PolicyState state) {
  state = Completed(slot, std::move(state));
  if (!book(slot).resident.expired()) {
    TROUPE_ASSIGN_OR_RETURN(const auto batch, Acquire(slot));
    Fill(state, &batch[0]);
  } else {
    tier_->Put(slot, std::move(state));
  }
  book(slot).snapshot.reset();
  return absl::OkStatus();
}

absl::StatusOr<policy::WeightSnapshotPtr> PolicyStore::Snapshot(PolicySlot slot) {
  TROUPE_RETURN_IF_ERROR(CheckSlot(slot));
  Book& entry = book(slot);
  if (entry.snapshot != nullptr && entry.snapshot->version == entry.version) return entry.snapshot;
  policy::WeightSnapshotPtr made;
  if (entry.snapshot != nullptr) {
    auto again = std::make_shared<policy::WeightSnapshot>(*entry.snapshot);
    again->version = entry.version;
    made = std::move(again);
  } else if (const std::shared_ptr<ResidentPolicy> resident = entry.resident.lock()) {
    const FlatParameters& parameters = resident->parameters;
    made = MakeSnapshot(spec(slot), entry.version, parameters.values(), resident->observation_moments);
  } else {
    TROUPE_ASSIGN_OR_RETURN(const policy::PolicyStateTier::StatePtr kept, tier_->Read(slot));
    made = MakeSnapshot(spec(slot), entry.version, kept->parameters, kept->observation_moments);
  }
  entry.snapshot = made;
  return made;
}

void PolicyStore::SetVersions(const policy::WeightVersion& version) {
  for (Book& entry : books_) entry.version = version;
}

std::vector<std::pair<std::string, double>> PolicyStore::Metrics() const {
  if (num_policies() <= options_.capacity) return {};
  const policy::PolicyMapStats map = map_stats();
  const policy::PolicyStateTierStats tier = tier_stats();
  const auto number = [](int64_t count) { return static_cast<double>(count); };
  return {{"Policy map/Hits", number(map.hits)},
          {"Policy map/Misses", number(map.misses)},
          {"Policy map/Evictions", number(map.evictions)},
          {"Policy map/Load time", absl::ToDoubleSeconds(map.load_time)},
          {"Policy map/Write time", absl::ToDoubleSeconds(map.write_time)},
          {"Policy map/Write failures", number(map.write_failures)},
          {"Policy map/Resident", number(map.resident)},
          {"Policy map/Resident bytes", number(map.resident_bytes)},
          {"Policy map/Host bytes", number(tier.host_bytes)},
          {"Policy map/On disk", number(tier.states_on_disk)},
          {"Policy map/Lost", number(tier.lost)}};
}

}  // namespace troupe::training
