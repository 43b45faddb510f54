#include "lib/training/core/policy_store.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "lib/base/check.h"
#include "lib/base/clock.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/policy/parameter_layout.h"
#include "lib/policy/policy_spec.h"
#include "lib/training/core/block_writer.h"
#include "lib/training/core/moments.h"
#include "lib/training/core/prepared_batch.h"
#include "lib/training/core/state_blocks.h"

namespace troupe::training {
namespace {

using policy::PolicySlot;
using policy::PolicySpec;
using policy::PolicyState;
using policy::PolicyTier;
using Access = policy::PolicyMapCore::Access;

policy::WeightSnapshotPtr MakeSnapshot(const PolicySpec& spec, const policy::ParameterLayout& layout,
                                       const policy::WeightVersion& version, absl::Span<const float> parameters,
                                       const policy::RunningMoments& moments) {
  auto snapshot = std::make_shared<policy::WeightSnapshot>();
  snapshot->id = spec.id;
  snapshot->version = version;
  snapshot->actor = layout.ActingPart(parameters);
  snapshot->observation_mean = Mean(moments);
  snapshot->observation_inverse_std = InverseStd(moments);
  return snapshot;
}

/// Of what happened to a policy; every state with weights has them, wherever it lies.
constexpr std::array<const char*, 3> kCounters = {kTrainedRows, kSkippedUpdates, kConsecutiveSkips};
/// Of which a StateForm may have some.
constexpr std::array<const char*, 2> kNumbers = {kLearningRate, kKlCoeff};

std::vector<int64_t> ZeroSteps(const policy::ParameterLayout& layout) {
  const auto& sections = layout.sections();
  const auto trained = [](const policy::ParameterSection& section) { return section.trained; };
  return std::vector<int64_t>(static_cast<size_t>(std::count_if(sections.begin(), sections.end(), trained)));
}

std::vector<float> Copy(absl::Span<const float> values) { return std::vector<float>(values.begin(), values.end()); }

}  // namespace

absl::Status CheckSwappable(const std::vector<PolicySpec>& specs, const std::vector<StateForm>& forms) {
  std::vector<PolicySpec> taken;
  std::vector<StateForm> form;
  for (size_t i = 0; i < specs.size(); ++i) {
    // Others have no networks of their own to exchange.
    if (specs[i].id.value().empty() || !specs[i].policy_class.trainable()) continue;
    taken.push_back(specs[i]);
    form.push_back(forms[i]);
  }
  TROUPE_RETURN_IF_ERROR(policy::CheckSwappable(taken));
  for (size_t i = 1; i < taken.size(); ++i) {
    if (form[i] == form[0]) continue;
    const bool by_norm = form[i].value_moments != form[0].value_moments;
    const std::string what = by_norm ? absl::StrCat("use_value_norm or use_popart (",
                                                    form[0].value_moments ? "true and false" : "false and true", ")")
                                     : absl::StrCat("optimizer, lr_kl_target or use_kl_loss (\"", form[0].ToString(),
                                                    "\" and \"", form[i].ToString(), "\")");
    return absl::InvalidArgumentError(
        absl::StrCat("policies \"", taken[0].id.value(), "\" and \"", taken[i].id.value(), "\" differ in ", what));
  }
  return absl::OkStatus();
}

absl::Status PolicyStore::CheckNetworks(const PolicySpec& spec, const StateForm& form) {
  if (!spec.policy_class.trainable() || form.loss == LossOver::kTensors) return absl::OkStatus();
  const bool is_pair = spec.learner_networks.size() == 1 && spec.learner_networks[0].role == policy::kCriticRole;
  const auto is_plain = [](const policy::NetworkSpec& network) {
    return !network.action_values && !network.reads_actions();
  };
  if (is_pair && is_plain(spec.actor) && is_plain(spec.critic()) && !spec.critic().has_target &&
      spec.learner_numbers.empty()) {
    return absl::OkStatus();
  }
  std::vector<std::string> roles;
  for (const policy::NetworkSpec& network : spec.learner_networks) roles.push_back(network.role);
  for (const policy::LearnerNumber& number : spec.learner_numbers) roles.push_back(number.name);
  return absl::InvalidArgumentError(
      absl::StrCat("policy \"", spec.id.value(),
                   "\": a loss of rows trains an actor and a critic, which gives values of "
                   "observations, got an actor",
                   roles.empty() ? "" : " and ", absl::StrJoin(roles, ", ")));
}

absl::StatusOr<PolicyState> InitialState(const PolicySpec& spec, const StateForm& form, uint64_t seed) {
  PolicyState state;
  state.id = spec.id;
  if (!spec.policy_class.has_weights()) return state;
  FlatParameters parameters = InitialParameters(spec, seed);
  TROUPE_RETURN_IF_ERROR(AddModuleValues(spec, &parameters));
  state.Set(policy::kParameters, Copy(parameters.values()));
  if (spec.policy_class.trainable()) {
    state.Set(kAdamExpAvg, Copy(parameters.exp_avg()));
    state.Set(kAdamExpAvgSq, Copy(parameters.exp_avg_sq()));
    state.SetInteger(kAdamSteps, 0);
    if (form.loss == LossOver::kTensors) state.Set(kBlockSteps, ZeroSteps(parameters.layout()));
    if (form.optimizer != 0) state.SetInteger(kOptimizer, form.optimizer);
    for (const StateNumber& number : form.numbers) state.SetNumber(number.name, number.initial);
  }
  if (spec.normalize_observations) {
    state.SetMoments(policy::kObservationMoments, InitialMoments(spec.observation_size()));
  }
  if (form.value_moments) state.SetMoments(policy::kValueMoments, InitialMoments(1));
  if (spec.normalize_state) SetStateMoments(InitialColumnMoments(spec.critic_state_size()), &state);
  for (const char* name : kCounters) state.SetInteger(name, 0);
  return state;
}

absl::StatusOr<std::unique_ptr<PolicyStore>> PolicyStore::Make(std::vector<PolicySpec> specs,
                                                               std::vector<StateForm> forms, uint64_t seed,
                                                               BackendFactory make_backend,
                                                               const PolicyStoreOptions& options, Deps deps) {
  if (forms.size() != specs.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("got options for ", forms.size(), " policies; expected ", specs.size()));
  }
  for (size_t i = 0; i < specs.size(); ++i) {
    if (specs[i].id.value().empty()) continue;
    TROUPE_RETURN_IF_ERROR(specs[i].Validate());
    TROUPE_RETURN_IF_ERROR(CheckNetworks(specs[i], forms[i]));
  }
  if (options.states_are_swappable) TROUPE_RETURN_IF_ERROR(CheckSwappable(specs, forms));
  auto store = std::unique_ptr<PolicyStore>(
      new PolicyStore(std::move(specs), std::move(forms), seed, std::move(make_backend), options));
  store->make_module_backend_ = std::move(deps.make_module_backend);
  PolicyStore* const self = store.get();
  policy::PolicyStateTier::Deps tier_deps;
  tier_deps.blobs = deps.blobs;
  tier_deps.form = self;
  tier_deps.initial = [self](PolicySlot slot) -> absl::StatusOr<PolicyState> {
    return InitialState(self->spec(slot), self->form(slot), self->seed_);
  };
  if (deps.fallback != nullptr) {
    tier_deps.fallback = [self, fallback = std::move(deps.fallback)](PolicySlot slot) -> absl::StatusOr<PolicyState> {
      TROUPE_ASSIGN_OR_RETURN(PolicyState state, fallback(slot));
      TROUPE_RETURN_IF_ERROR(CheckBlocks(self->spec(slot), state));
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

PolicyStore::PolicyStore(std::vector<PolicySpec> specs, std::vector<StateForm> forms, uint64_t seed,
                         BackendFactory make_backend, const PolicyStoreOptions& options)
    : specs_(std::move(specs)),
      forms_(std::move(forms)),
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
    } else if (HasBackend(slot) && shapes.insert(policy::ShapeOf(spec(slot))).second) {
      TROUPE_RETURN_IF_ERROR(MakeBackend(slot).status());
    }
  }
  return absl::OkStatus();
}

size_t PolicyStore::size() const { return specs_.size(); }

const policy::PolicySpec& PolicyStore::spec(PolicySlot slot) const { return specs_[static_cast<size_t>(slot.value())]; }

bool PolicyStore::HasBackend(PolicySlot slot) const {
  return spec(slot).policy_class.trainable() && form(slot).loss != LossOver::kTensors;
}

absl::StatusOr<std::unique_ptr<NetworkBackend>> PolicyStore::MakeBackend(PolicySlot slot) const {
  if (form(slot).loss == LossOver::kRows) return make_backend_(spec(slot));
  if (make_module_backend_ != nullptr) return make_module_backend_(spec(slot));
  return absl::FailedPreconditionError(absl::StrCat("the loss of policy \"", spec(slot).id.value(),
                                                    "\" is a TorchScript module, which trains with LibTorch; this "
                                                    "program is without"));
}

absl::Status PolicyStore::CheckSlot(PolicySlot slot) const {
  const bool taken = slot.value() >= 0 && slot.value() < static_cast<int32_t>(size()) && !spec(slot).id.value().empty();
  if (taken) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat("policy slot ", slot.value(), "; there are ", num_policies(), " policies"));
}

std::vector<std::vector<size_t>> PolicyStore::InTurns(absl::Span<const std::vector<PolicySlot>> groups) const {
  std::unordered_map<int32_t, size_t> group_of;  // by slot
  std::vector<PolicySlot> slots;
  for (size_t i = 0; i < groups.size(); ++i) {
    for (const PolicySlot slot : groups[i]) {
      group_of[slot.value()] = i;
      slots.push_back(slot);
    }
  }
  std::vector<std::vector<size_t>> turns;
  std::vector<bool> placed(groups.size(), false);
  int64_t policies = 0;  // of the last turn
  for (const std::vector<PolicySlot>& turn : map_->core().SplitInTurns(slots)) {
    for (const PolicySlot slot : turn) {
      const size_t group = group_of.at(slot.value());
      if (placed[group]) continue;
      placed[group] = true;
      const auto size = static_cast<int64_t>(groups[group].size());
      if (turns.empty() || policies + size > options_.capacity) {
        turns.emplace_back();
        policies = 0;
      }
      turns.back().push_back(group);
      policies += size;
    }
  }
  return turns;
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
  if (HasBackend(slot) && policy->backend == nullptr) {
    TROUPE_ASSIGN_OR_RETURN(policy->backend, MakeBackend(slot));
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
    const FlatParameters& parameters = policy.parameters;
    entry.snapshot =
        MakeSnapshot(spec(slot), parameters.layout(), entry.version, parameters.values(), policy.observation_moments);
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
  WriteState(slot, policy, &state);
  return state;
}

void PolicyStore::WriteState(PolicySlot slot, const ResidentPolicy& policy, PolicyState* state) const {
  state->id = spec(slot).id;
  state->version = books_[static_cast<size_t>(slot.value())].version;
  BlockWriter writer(&state->blocks);
  if (!spec(slot).policy_class.has_weights()) return;
  writer.Array(policy::kParameters, policy.parameters.values());
  if (spec(slot).policy_class.trainable()) {
    writer.Array(kAdamExpAvg, policy.parameters.exp_avg());
    writer.Array(kAdamExpAvgSq, policy.parameters.exp_avg_sq());
    writer.Scalar(kAdamSteps, policy.parameters.adam_steps);
    if (form(slot).loss == LossOver::kTensors) writer.Array(kBlockSteps, absl::MakeConstSpan(policy.block_steps));
    if (form(slot).optimizer != 0) writer.Scalar(kOptimizer, form(slot).optimizer);
    for (const auto& [name, value] : policy.numbers) writer.Scalar(name, value);
  }
  for (const auto& [name, moments] : {std::pair(policy::kObservationMoments, &policy.observation_moments),
                                      {policy::kValueMoments, &policy.value_moments}}) {
    writer.Moments(name, moments->mean, moments->variance, absl::MakeConstSpan(&moments->count, 1));
  }
  const ColumnMoments& states = policy.state_moments;
  writer.Moments(policy::kStateMoments, states.mean, states.variance, states.count);
  writer.Scalar(kTrainedRows, policy.trained_rows);
  writer.Scalar(kSkippedUpdates, policy.skipped_updates);
  writer.Scalar(kConsecutiveSkips, policy.consecutive_skips);
}

absl::Status PolicyStore::CheckBlocks(const PolicySpec& spec, const PolicyState& state) {
  using policy::BlockType;
  const int64_t size = policy::ParameterLayout::For(spec).size();
  std::vector<policy::BlockSpec> known = {{policy::kParameters, BlockType::kF32, {size}, size > 0},
                                          {kAdamExpAvg, BlockType::kF32, {size}, false},
                                          {kAdamExpAvgSq, BlockType::kF32, {size}, false}};
  for (const char* name : {kAdamSteps, kTrainedRows, kSkippedUpdates, kConsecutiveSkips, kOptimizer}) {
    known.push_back({name, BlockType::kI64, {}, false});
  }
  for (const char* name : kNumbers) known.push_back({name, BlockType::kF64, {}, false});
  const auto blocks = static_cast<int64_t>(ZeroSteps(policy::ParameterLayout::For(spec)).size());
  known.push_back({kBlockSteps, BlockType::kI64, {blocks}, false});
  policy::AddMomentSpecs(policy::kObservationMoments, spec.observation_size(), spec.normalize_observations, &known);
  policy::AddMomentSpecs(policy::kValueMoments, 1, state.Find(absl::StrCat(policy::kValueMoments, ".mean")) != nullptr,
                         &known);
  AddStateMomentSpecs(spec, &known);
  const bool has_exp_avg = state.Find(kAdamExpAvg) != nullptr;
  for (const size_t of_both : {1, 2}) known[of_both].required = has_exp_avg || state.Find(kAdamExpAvgSq) != nullptr;
  return policy::CheckKnownBlocks(absl::StrCat("policy \"", spec.id.value(), "\""), state.blocks, known);
}

void PolicyStore::CompleteOptimizer(PolicySlot slot, PolicyState* state) const {
  const int64_t expected = form(slot).optimizer;
  const bool has_moments = !state->Floats(kAdamExpAvg).empty() && !state->Floats(kAdamExpAvgSq).empty();
  if (!spec(slot).policy_class.trainable()) {
    for (const char* name : {kAdamExpAvg, kAdamExpAvgSq, kAdamSteps, kBlockSteps, kOptimizer}) state->Remove(name);
    return;
  }
  const bool of_another = has_moments && state->Integer(kOptimizer) != expected;
  if (of_another) {
    TROUPE_WARN("the optimizer begins anew: the state's moments are another one's policy={} got={} expected={}",
                spec(slot).id.value(), state->Integer(kOptimizer), expected);
  }
  if (!has_moments || of_another) {
    for (const char* name : {kAdamExpAvg, kAdamExpAvgSq}) {
      state->Set(name, std::vector<float>(state->parameters().size(), 0.0f));
    }
    state->SetInteger(kAdamSteps, 0);
    state->Remove(kBlockSteps);
  }
  if (form(slot).loss != LossOver::kTensors) {
    state->Remove(kBlockSteps);
  } else if (state->Find(kBlockSteps) == nullptr) {
    state->Set(kBlockSteps, ZeroSteps(policy::ParameterLayout::For(spec(slot))));
  }
  if (expected != 0) {
    state->SetInteger(kOptimizer, expected);
  } else {
    state->Remove(kOptimizer);
  }
}

PolicyState PolicyStore::Completed(PolicySlot slot, PolicyState state) const {
  const policy::PolicyClass& policy_class = spec(slot).policy_class;
  CompleteOptimizer(slot, &state);
  for (const char* name : kNumbers) {
    const std::vector<StateNumber>& numbers = form(slot).numbers;
    const auto number = std::find_if(numbers.begin(), numbers.end(), [name](const auto& n) { return n.name == name; });
    if (number == numbers.end() || !policy_class.trainable()) {
      state.Remove(name);
    } else if (state.Find(name) == nullptr) {
      state.SetNumber(name, number->initial);
    }
  }
  const bool value_norm = form(slot).value_moments && policy_class.has_weights();
  if (!value_norm) {
    state.SetMoments(policy::kValueMoments, {});
  } else if (state.Moments(policy::kValueMoments).mean.empty()) {
    state.SetMoments(policy::kValueMoments, InitialMoments(1));
  }
  if (!policy_class.has_weights()) return state;
  for (const char* name : kCounters) state.SetInteger(name, state.Integer(name));
  return state;
}

void PolicyStore::Fill(const PolicyState& state, ResidentPolicy* policy) {
  FlatParameters& parameters = policy->parameters;
  const auto copy = [&state](const char* name, absl::Span<float> to) {
    const std::vector<float>& values = state.Floats(name);
    std::copy(values.begin(), values.end(), to.begin());
  };
  copy(policy::kParameters, parameters.values());
  copy(kAdamExpAvg, parameters.exp_avg());
  copy(kAdamExpAvgSq, parameters.exp_avg_sq());
  parameters.adam_steps = state.Integer(kAdamSteps);
  policy->block_steps = policy::BlockValues<int64_t>(state.blocks, kBlockSteps);
  policy->observation_moments = state.Moments(policy::kObservationMoments);
  policy->value_moments = state.Moments(policy::kValueMoments);
  policy->state_moments = StateMomentsOf(state);
  policy->trained_rows = state.Integer(kTrainedRows);
  policy->skipped_updates = state.Integer(kSkippedUpdates);
  policy->consecutive_skips = state.Integer(kConsecutiveSkips);
  policy->numbers.clear();
  for (const char* name : kNumbers) {
    if (const std::vector<double>& value = state.Doubles(name); !value.empty()) {
      policy->numbers.emplace_back(name, value[0]);
    }
  }
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
  TROUPE_RETURN_IF_ERROR(CheckBlocks(spec(slot), state));
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
    made = MakeSnapshot(spec(slot), parameters.layout(), entry.version, parameters.values(),
                        resident->observation_moments);
  } else {
    TROUPE_ASSIGN_OR_RETURN(const policy::PolicyStateTier::StatePtr kept, tier_->Read(slot));
    made = MakeSnapshot(spec(slot), policy::ParameterLayout::For(spec(slot)), entry.version, kept->parameters(),
                        kept->Moments(policy::kObservationMoments));
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
