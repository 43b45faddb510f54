#include "lib/run/learner/policy_trial.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"
#include "lib/env/checked_env.h"
#include "lib/env/slot_buffers.h"
#include "lib/inference/policy_actor.h"
#include "lib/policy/policy_class.h"
#include "lib/policy/policy_entry.h"
#include "lib/policy/policy_spec.h"
#include "lib/policy/python_callable.h"

namespace troupe::run {
namespace {

using policy::PolicyEntry;
using policy::PolicySlot;
using policy::PolicySpec;
using policy::PolicyTable;

bool IsInPython(const PolicySpec& spec) { return spec.policy_class.kind == policy::PolicyClass::Kind::kPython; }

bool AsksPython(const PolicyTable& table) {
  return std::any_of(table.rules().begin(), table.rules().end(),
                     [](const policy::MappingRule& rule) { return policy::IsPythonName(rule.function); });
}

}  // namespace

PolicyTrial::PolicyTrial(const config::ResolvedRun& run, const env::EnvRegistry& registry, policy::PolicyTablePtr table,
                         std::vector<PolicySpec> policies)
    : env_(run.env),
      env_spec_(run.env_spec),
      seed_(run.seed),
      registry_(registry),
      table_(std::move(table)),
      policies_(std::move(policies)),
      functions_(config::MakePythonFunctions(run.env)) {}

std::shared_ptr<PolicyTrial> PolicyTrial::MakeIfAny(std::shared_ptr<PolicyTrial> trial) {
  return trial->policies_.empty() && !AsksPython(*trial->table_) ? nullptr : trial;
}

std::shared_ptr<PolicyTrial> PolicyTrial::OfChange(const config::ResolvedRun& run, const env::EnvRegistry& registry,
                                                   policy::PolicyTablePtr next, const PolicyTable& now) {
  std::vector<PolicySpec> policies;
  for (const PolicySlot slot : next->entries().ids()) {
    const PolicyEntry* const entry = next->Find(slot);
    if (entry == nullptr || entry->since <= now.revision() || !IsInPython(entry->spec)) continue;
    policies.push_back(entry->spec);
  }
  return MakeIfAny(std::shared_ptr<PolicyTrial>(new PolicyTrial(run, registry, std::move(next), std::move(policies))));
}

std::shared_ptr<PolicyTrial> PolicyTrial::OfResume(const config::ResolvedRun& run, const env::EnvRegistry& registry,
                                                   policy::PolicyTablePtr table) {
  std::vector<PolicySpec> policies;
  for (const PolicySlot slot : table->entries().ids()) {
    if (table->IsMapped(slot) && IsInPython(table->Find(slot)->spec)) policies.push_back(table->Find(slot)->spec);
  }
  return MakeIfAny(std::shared_ptr<PolicyTrial>(new PolicyTrial(run, registry, std::move(table), std::move(policies))));
}

absl::Status PolicyTrial::Run() {
  absl::Status status = TryMapping();
  if (status.ok() && !policies_.empty()) {
    const std::vector<Sight> sights = Look();
    for (const PolicySpec& spec : policies_) {
      if (status.ok()) status = TryPolicy(spec, sights);
    }
  }
  // Whatever Python's error is: the same try again ends the same.
  if (status.ok() || absl::IsCancelled(status)) return status;
  return absl::InvalidArgumentError(status.message());
}

absl::Status PolicyTrial::TryMapping() {
  if (!AsksPython(*table_)) return absl::OkStatus();
  std::vector<policy::EnvArgument> arguments;
  for (const auto& [name, value] : env_.args.values()) arguments.push_back({name, env::ArgText(value)});
  std::vector<policy::MappedAgent> mapped;
  for (size_t i = 0; i < env_spec_.possible_agents.size(); ++i) {
    const env::AgentSpec& agent = env_spec_.possible_agents[i];
    const base::AgentSlot slot(static_cast<int32_t>(i));
    policy::EpisodeInfo episode;
    episode.seed = seed_;
    episode.env_args = arguments;
    episode.agents = mapped;
    episode.host = functions_.get();
    TROUPE_ASSIGN_OR_RETURN(const PolicySlot chosen, table_->mapping().Map(agent.id, slot, episode));
    const PolicySpec& spec = table_->Find(chosen)->spec;
    if (spec.observation_space != agent.observation_space || spec.action_space != agent.action_space) {
      return absl::InvalidArgumentError(
          absl::StrCat("policy \"", spec.id.value(), "\" cannot play agent \"", agent.id.value(), "\": its spaces are ",
                       spec.observation_space.ToString(), " and ", spec.action_space.ToString(), ", expected ",
                       agent.observation_space.ToString(), " and ", agent.action_space.ToString()));
    }
    mapped.push_back({slot, chosen});
  }
  return absl::OkStatus();
}

absl::Status PolicyTrial::TryPolicy(const PolicySpec& spec, const std::vector<Sight>& sights) {
  TROUPE_ASSIGN_OR_RETURN(const std::unique_ptr<inference::PolicyActor> actor, functions_->MakeActor(spec, seed_));
  TROUPE_RETURN_IF_ERROR(actor->Prepare());
  const auto seen = std::find_if(sights.begin(), sights.end(), [&](const Sight& sight) {
    const env::AgentSpec& agent = env_spec_.possible_agents[static_cast<size_t>(sight.agent.value())];
    return agent.observation_space == spec.observation_space && agent.action_space == spec.action_space;
  });
  Sight sight = seen != sights.end() ? *seen : Draw(spec);
  sight.action_mask.resize(static_cast<size_t>(spec.mask_size()), 1);
  const inference::RowKey key = {.slot = sight.agent};
  inference::ActInput input;
  input.rows = 1;
  input.obs = sight.observation.data();
  input.action_mask = spec.has_action_mask ? sight.action_mask.data() : nullptr;
  input.keys = &key;
  std::vector<space::ActionWord> action(static_cast<size_t>(spec.action_words()));
  float logp = 0;
  return actor->Act(input, action.data(), &logp);
}

std::vector<PolicyTrial::Sight> PolicyTrial::Look() const {
  std::vector<Sight> sights;
  if (env_.external != nullptr) return sights;
  absl::StatusOr<std::unique_ptr<env::MultiAgentEnv>> made = config::MakeEnv(env_, registry_);
  if (!made.ok() || (*made)->spec().possible_agents.size() != env_spec_.possible_agents.size()) return sights;
  env::CheckedEnv env(*std::move(made));
  env::SlotBuffers buffers(env.spec(), 1);
  if (!env.Reset({seed_, base::EnvId(0), 0}, buffers.BeginStep(0)).ok()) return sights;
  for (size_t i = 0; i < env_spec_.possible_agents.size(); ++i) {
    const auto slot = static_cast<int32_t>(i);
    if (!buffers.observed(0, slot)) continue;
    const absl::Span<const std::byte> observation = buffers.observation_bytes(0, slot);
    const absl::Span<const uint8_t> mask = buffers.action_mask(0, slot);
    sights.push_back({base::AgentSlot(slot), {observation.begin(), observation.end()}, {mask.begin(), mask.end()}});
  }
  return sights;
}

PolicyTrial::Sight PolicyTrial::Draw(const PolicySpec& spec) const {
  const space::Space& space = spec.observation_space;
  const auto size = static_cast<size_t>(space.flat_size());
  base::PhiloxSequence random(base::PhiloxKey::Make(seed_, base::RandomStream::kInit), {});
  Sight sight{base::AgentSlot(0), std::vector<std::byte>(size * tensor::ElementBytes(space.flat_dtype())), {}};
  if (space.flat_dtype() == tensor::DType::kUint8) {
    for (size_t i = 0; i < size; ++i) sight.observation[i] = static_cast<std::byte>(space.low()[i]);
  } else {
    space.SampleFlat(random, absl::MakeSpan(reinterpret_cast<float*>(sight.observation.data()), size));
  }
  return sight;
}

}  // namespace troupe::run
