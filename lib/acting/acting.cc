#include "lib/acting/acting.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "lib/base/all_finite.h"
#include "lib/base/mutex.h"
#include "lib/base/status_macros.h"
#include "lib/inference/action_bounds.h"
#include "lib/inference/actor.h"
#include "lib/inference/make_policy_actor.h"
#include "lib/policy/parameter_layout.h"
#include "lib/policy/policy_entry.h"
#include "lib/policy/policy_table.h"
#include "lib/policy/weight_snapshot.h"
#include "lib/storage/checkpoint_weights.h"
#include "lib/storage/run_folder.h"
#include <nlohmann/json.hpp>

namespace troupe::acting {

static_assert(sizeof(TroupeActingKey) == sizeof(inference::RowKey));
static_assert(offsetof(TroupeActingKey, env_id) == offsetof(inference::RowKey, env_id));
static_assert(offsetof(TroupeActingKey, episode) == offsetof(inference::RowKey, episode));
static_assert(offsetof(TroupeActingKey, agent_slot) == offsetof(inference::RowKey, slot));
static_assert(offsetof(TroupeActingKey, env_step) == offsetof(inference::RowKey, env_step));
static_assert(sizeof(int32_t) == sizeof(space::ActionWord));

namespace {

/// Nobody has looked at these rows, as a worker does at those of its environments. `values` [rows, size].
absl::Status CheckFinite(const policy::PolicySpec& spec, const char* name, const float* values, int64_t rows,
                         int64_t size) {
  const absl::Span<const float> all(values, static_cast<size_t>(rows * size));
  if (base::AllFinite(all)) return absl::OkStatus();
  const auto bad = std::find_if(all.begin(), all.end(), [](float value) { return !std::isfinite(value); });
  return absl::InvalidArgumentError(absl::StrCat("policy \"", spec.id.value(), "\": ", name, " row ",
                                                 (bad - all.begin()) / size, ", element ", (bad - all.begin()) % size,
                                                 " is ", *bad, ", expected a finite number"));
}

}  // namespace

/// A policy that may be asked. Its actor is made, and its weights are read, when it is asked first. Thread-safe.
class ActedPolicy {
 public:
  explicit ActedPolicy(policy::PolicySpec spec) : spec_(std::move(spec)), bounds_(spec_) {}

  /// As troupe_acting_act.
  absl::Status Act(const storage::CheckpointWeights& weights, uint64_t seed, const TroupeActingRows& rows) {
    base::MutexLock lock(&mutex_);
    TROUPE_RETURN_IF_ERROR(MakeActorLocked(weights, seed));
    TROUPE_ASSIGN_OR_RETURN(inference::ActInput input, InputOf(rows));
    if (spec_.has_action_mask) {
      const auto bytes = static_cast<size_t>(rows.rows * spec_.mask_size());
      if (rows.action_masks == nullptr && all_allowed_.size() < bytes) all_allowed_.assign(bytes, 1);
      input.action_mask = rows.action_masks == nullptr ? all_allowed_.data() : rows.action_masks;
    }
    auto* const actions = reinterpret_cast<space::ActionWord*>(rows.actions);
    TROUPE_RETURN_IF_ERROR(actor_->Act(input, actions, rows.logp));
    const auto words = static_cast<size_t>(spec_.action_words());
    for (int64_t row = 0; !bounds_.identity() && row < rows.rows; ++row) {
      const absl::Span<space::ActionWord> action(actions + static_cast<size_t>(row) * words, words);
      bounds_.Apply(action, action);
    }
    return absl::OkStatus();
  }

  /// As troupe_acting_outputs. FAILED_PRECONDITION for a policy whose actor is no network of ours.
  absl::Status Outputs(const storage::CheckpointWeights& weights, uint64_t seed, const TroupeActingRows& rows,
                       float* outputs) {
    base::MutexLock lock(&mutex_);
    TROUPE_RETURN_IF_ERROR(MakeActorLocked(weights, seed));
    auto* const actor = dynamic_cast<inference::Actor*>(actor_.get());
    if (actor == nullptr) return NoNetworkError();
    TROUPE_ASSIGN_OR_RETURN(const inference::ActInput input, InputOf(rows));
    const absl::Span<float> all(outputs, static_cast<size_t>(rows.rows * spec_.actor_output_size()));
    TROUPE_RETURN_IF_ERROR(actor->Forward(input, all));
    if (base::AllFinite(all)) return absl::OkStatus();
    return inference::OutputNotFinite(spec_, *actor->weights());
  }

  /// As troupe_acting_network; `entry` is the policy's of the table.
  absl::StatusOr<const char*> Network(const nlohmann::ordered_json& entry) {
    if (!spec_.policy_class.has_weights()) return NoNetworkError();
    const policy::ParameterLayout layout = policy::ParameterLayout::For(spec_);
    nlohmann::ordered_json tensors = nlohmann::ordered_json::array();
    for (const policy::ParameterEntry& tensor : layout.entries()) {
      if (tensor.offset >= layout.acting_size()) break;
      tensors.push_back({{"name", tensor.name}, {"shape", tensor.shape}, {"offset", tensor.offset}});
    }
    const nlohmann::ordered_json network = {{"spec", entry},
                                            {"outputs", spec_.actor_output_size()},
                                            {"parameters", layout.acting_size()},
                                            {"tensors", std::move(tensors)}};
    base::MutexLock lock(&mutex_);
    if (network_.empty()) network_ = network.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
    return network_.c_str();
  }

  /// As troupe_acting_weights.
  absl::Status Weights(const storage::CheckpointWeights& weights, float* parameters, double* moments) const {
    if (!spec_.policy_class.has_weights()) return NoNetworkError();
    if (spec_.normalize_observations && moments == nullptr) {
      return absl::InvalidArgumentError("got no moments, expected an address");
    }
    TROUPE_ASSIGN_OR_RETURN(const policy::PolicyState state, weights.Read(spec_));
    TROUPE_RETURN_IF_ERROR(policy::SnapshotOf(state, spec_).status());  // what a worker would not act with
    const std::vector<float> acting = policy::ParameterLayout::For(spec_).ActingPart(state.parameters());
    std::copy(acting.begin(), acting.end(), parameters);
    if (!spec_.normalize_observations) return absl::OkStatus();
    const policy::RunningMoments read = state.Moments(policy::kObservationMoments);
    const auto size = static_cast<size_t>(spec_.observation_size());
    if (read.mean.size() != size || read.variance.size() != size) {
      return absl::DataLossError(absl::StrCat("policy \"", spec_.id.value(), "\": the checkpoint has moments of ",
                                              read.mean.size(), " numbers of an observation, expected ", size));
    }
    std::copy(read.variance.begin(), read.variance.end(), std::copy(read.mean.begin(), read.mean.end(), moments));
    return absl::OkStatus();
  }

 private:
  absl::Status MakeActorLocked(const storage::CheckpointWeights& weights, uint64_t seed)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (actor_ != nullptr) return absl::OkStatus();
    TROUPE_ASSIGN_OR_RETURN(std::unique_ptr<inference::PolicyActor> actor, inference::MakePolicyActor(spec_, seed));
    if (spec_.policy_class.has_weights()) {
      TROUPE_ASSIGN_OR_RETURN(const policy::PolicyState state, weights.Read(spec_));
      TROUPE_ASSIGN_OR_RETURN(policy::WeightSnapshotPtr snapshot, policy::SnapshotOf(state, spec_));
      TROUPE_RETURN_IF_ERROR(actor->SetWeights(std::move(snapshot)));
    }
    actor_ = std::move(actor);
    return absl::OkStatus();
  }

  /// INVALID_ARGUMENT where a number is not finite.
  absl::StatusOr<inference::ActInput> InputOf(const TroupeActingRows& rows) const {
    if (spec_.observation_space.flat_dtype() == tensor::DType::kFloat32) {
      TROUPE_RETURN_IF_ERROR(CheckFinite(spec_, "observations", static_cast<const float*>(rows.observations), rows.rows,
                                         spec_.observation_size()));
    }
    if (spec_.actor_state_size() > 0 && rows.state_in != nullptr) {
      TROUPE_RETURN_IF_ERROR(CheckFinite(spec_, "state_in", rows.state_in, rows.rows, spec_.actor_state_size()));
    }
    inference::ActInput input;
    input.rows = rows.rows;
    input.obs = rows.observations;
    input.keys = reinterpret_cast<const inference::RowKey*>(rows.keys);
    input.deterministic = rows.deterministic != 0;
    input.state_in = rows.state_in;
    input.state_out = rows.state_out;
    return input;
  }

  absl::Status NoNetworkError() const {
    return absl::FailedPreconditionError(absl::StrCat("policy \"", spec_.id.value(), "\" is of class ",
                                                      spec_.policy_class.ToString(), ", which has no network"));
  }

  const policy::PolicySpec spec_;
  const inference::ActionBounds bounds_;
  base::Mutex mutex_;
  std::unique_ptr<inference::PolicyActor> actor_ ABSL_GUARDED_BY(mutex_);
  std::vector<uint8_t> all_allowed_ ABSL_GUARDED_BY(mutex_);
  std::string network_ ABSL_GUARDED_BY(mutex_);  ///< empty until it is asked for, then as it is
};

namespace {

nlohmann::ordered_json Describe(const policy::PolicySpec& spec, policy::WeightVersion version,
                                const std::vector<int32_t>& agent_slots) {
  std::vector<std::string> word_dtypes(static_cast<size_t>(spec.action_words()), "int32");
  for (const space::ActionLeaf& leaf : space::ActionLeaves(spec.action_space)) {
    for (int64_t i = 0; leaf.kind == space::ActionLeaf::Kind::kContinuous && i < leaf.words; ++i) {
      word_dtypes[static_cast<size_t>(leaf.word + i)] = "float32";
    }
  }
  const bool bytes = spec.observation_space.flat_dtype() == tensor::DType::kUint8;
  return {{"id", spec.id.value()},
          {"learner_epoch", version.learner_epoch},
          {"version", version.n},
          {"observation_space", spec.observation_space.ToString()},
          {"action_space", spec.action_space.ToString()},
          {"obs_dtype", bytes ? "uint8" : "float32"},
          {"obs_size", spec.observation_size()},
          {"mask_size", spec.has_action_mask ? spec.mask_size() : 0},
          {"state_size", spec.actor_state_size()},
          {"word_dtypes", word_dtypes},
          {"needs_agent", spec.agent_id_size > 0},
          {"agents", agent_slots}};
}

/// Runs `body`, which returns a Status; its error, or what it throws, becomes code and text.
template <typename Body>
int32_t AtBorder(TroupeActingError* error, const Body& body) noexcept {
  const auto failed = [error](absl::StatusCode code, const char* text) {
    std::snprintf(error->text, sizeof(error->text), "%s", text);
    return static_cast<int32_t>(code);
  };
  try {
    const absl::Status status = body();
    return status.ok() ? 0 : failed(status.code(), std::string(status.message()).c_str());
  } catch (const std::exception& thrown) {
    return failed(absl::StatusCode::kInternal, thrown.what());
  }
}

}  // namespace
}  // namespace troupe::acting

using troupe::acting::ActedPolicy;

constexpr int32_t kNoPlace = -1;  // of a slot that is free, and of a policy that goes

/// Immutable but for what its policies make when they are asked.
struct TroupeActing {
  static absl::StatusOr<std::unique_ptr<TroupeActing>> Open(const char* checkpoint, uint64_t seed);
  absl::Status Map(uint32_t env_id, uint32_t episode, int32_t* places_of_agents) const;
  absl::Status Act(const TroupeActingRows& rows);
  absl::StatusOr<const char*> Network(int32_t policy);
  absl::Status Outputs(const TroupeActingRows& rows, float* outputs);
  absl::StatusOr<troupe::acting::ActedPolicy*> Find(int32_t policy);

  uint64_t seed = 0;
  std::unique_ptr<troupe::storage::CheckpointWeights> weights;
  troupe::policy::PolicyTablePtr table;
  std::vector<std::unique_ptr<ActedPolicy>> policies;
  std::vector<int32_t> places;  ///< in `policies`, by slot of the table; kNoPlace
  std::string description;
};

/// Opens the folder, or the one that a link stands for.
absl::StatusOr<std::unique_ptr<troupe::storage::CheckpointWeights>> OpenWeights(const std::string& checkpoint) {
  troupe::storage::FileSystem& fs = troupe::storage::FileSystem::Posix();
  const auto find = [&]() -> absl::StatusOr<std::string> {
    const absl::StatusOr<std::string> target = fs.ReadLink(checkpoint);
    return target.ok() ? (std::filesystem::path(checkpoint).parent_path() / *target).string() : checkpoint;
  };
  const auto open = [&fs](const std::string& folder) { return troupe::storage::CheckpointWeights::Open(fs, folder); };
  return troupe::storage::ReadFoundCheckpoint(fs, find, open);
}

absl::StatusOr<std::unique_ptr<TroupeActing>> TroupeActing::Open(const char* checkpoint, uint64_t seed) {
  auto acting = std::make_unique<TroupeActing>();
  acting->seed = seed;
  TROUPE_ASSIGN_OR_RETURN(acting->weights, OpenWeights(checkpoint));
  TROUPE_ASSIGN_OR_RETURN(acting->table, acting->weights->Policies());
  auto agent_slots = troupe::policy::AgentSlotsByPolicy(*acting->table);
  nlohmann::ordered_json described = {{"agents", acting->table->agent_ids()},
                                      {"policies", nlohmann::ordered_json::array()}};
  std::map<troupe::policy::PolicyId, troupe::policy::WeightVersion> versions;
  for (const auto& stored : acting->weights->manifest().state.policies) versions[stored.id] = stored.version;
  acting->places.assign(acting->table->num_slots(), kNoPlace);
  for (const troupe::policy::PolicySlot slot : acting->table->entries().ids()) {
    const troupe::policy::PolicyEntry* const entry = acting->table->Find(slot);
    if (entry == nullptr || !entry->active()) continue;
    TROUPE_RETURN_IF_ERROR(entry->spec.Validate());
    acting->places[static_cast<size_t>(slot.value())] = static_cast<int32_t>(acting->policies.size());
    acting->policies.push_back(std::make_unique<ActedPolicy>(entry->spec));
    described["policies"].push_back(
        troupe::acting::Describe(entry->spec, versions[entry->spec.id], agent_slots[entry->spec.id.value()]));
  }
  acting->description = described.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  return acting;
}

absl::Status TroupeActing::Map(uint32_t env_id, uint32_t episode, int32_t* places_of_agents) const {
  troupe::policy::EpisodeInfo info;
  info.seed = seed;
  info.env_id = troupe::base::EnvId(env_id);
  info.episode = episode;
  std::vector<troupe::policy::MappedAgent> mapped;
  const std::vector<std::string>& agents = table->agent_ids();
  for (size_t i = 0; i < agents.size(); ++i) {
    const troupe::base::AgentSlot agent_slot(static_cast<int32_t>(i));
    info.agents = mapped;
    TROUPE_ASSIGN_OR_RETURN(const troupe::policy::PolicySlot slot,
                            table->mapping().Map(troupe::base::AgentId(agents[i]), agent_slot, info));
    mapped.push_back({agent_slot, slot});
    places_of_agents[i] = places[static_cast<size_t>(slot.value())];
    if (places_of_agents[i] == kNoPlace) {
      return absl::InternalError(
          absl::StrCat("agent \"", agents[i], "\" is mapped to policy slot ", slot.value(), ", which nobody plays"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<ActedPolicy*> TroupeActing::Find(int32_t policy) {
  if (policy >= 0 && static_cast<size_t>(policy) < policies.size()) return policies[static_cast<size_t>(policy)].get();
  return absl::InvalidArgumentError(absl::StrCat("got policy ", policy, ", expected a number below ", policies.size()));
}

namespace {

/// Of memory that the caller must give.
using Needed = std::pair<const char*, const void*>;

absl::Status CheckRows(const TroupeActingRows& rows, std::initializer_list<Needed> needed) {
  if (rows.rows < 1 || rows.rows > TROUPE_ACTING_MAX_ROWS) {
    return absl::InvalidArgumentError(absl::StrCat("got ", rows.rows, " rows, expected 1 to ", TROUPE_ACTING_MAX_ROWS));
  }
  for (const auto& [name, address] : needed) {
    if (address == nullptr) return absl::InvalidArgumentError(absl::StrCat("got no ", name, ", expected an address"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status TroupeActing::Act(const TroupeActingRows& rows) {
  TROUPE_ASSIGN_OR_RETURN(ActedPolicy * policy, Find(rows.policy));
  TROUPE_RETURN_IF_ERROR(CheckRows(
      rows,
      {{"observations", rows.observations}, {"keys", rows.keys}, {"actions", rows.actions}, {"logp", rows.logp}}));
  return policy->Act(*weights, seed, rows);
}

absl::Status TroupeActing::Outputs(const TroupeActingRows& rows, float* outputs) {
  TROUPE_ASSIGN_OR_RETURN(ActedPolicy * policy, Find(rows.policy));
  TROUPE_RETURN_IF_ERROR(
      CheckRows(rows, {{"observations", rows.observations}, {"keys", rows.keys}, {"outputs", outputs}}));
  return policy->Outputs(*weights, seed, rows, outputs);
}

absl::StatusOr<const char*> TroupeActing::Network(int32_t place) {
  TROUPE_ASSIGN_OR_RETURN(ActedPolicy * policy, Find(place));
  const auto slot = std::find(places.begin(), places.end(), place) - places.begin();
  const auto written = nlohmann::ordered_json::parse(troupe::policy::ToJson(*table));
  for (const nlohmann::ordered_json& entry : written.at("policies")) {
    if (entry.at("slot") == slot) return policy->Network(entry);
  }
  return absl::InternalError(absl::StrCat("the table has no slot ", slot));
}

uint32_t troupe_acting_version(void) { return TROUPE_ACTING_VERSION; }

size_t troupe_acting_rows_bytes(void) { return sizeof(TroupeActingRows); }

int32_t troupe_acting_open(const char* checkpoint, uint64_t seed, TroupeActing** acting, TroupeActingError* error) {
  return troupe::acting::AtBorder(error, [&]() -> absl::Status {
    TROUPE_ASSIGN_OR_RETURN(std::unique_ptr<TroupeActing> opened, TroupeActing::Open(checkpoint, seed));
    *acting = opened.release();
    return absl::OkStatus();
  });
}

const char* troupe_acting_describe(const TroupeActing* acting) { return acting->description.c_str(); }

int32_t troupe_acting_map(const TroupeActing* acting, uint32_t env_id, uint32_t episode, int32_t* policies,
                          TroupeActingError* error) {
  return troupe::acting::AtBorder(error, [&] { return acting->Map(env_id, episode, policies); });
}

int32_t troupe_acting_act(TroupeActing* acting, const TroupeActingRows* rows, TroupeActingError* error) {
  return troupe::acting::AtBorder(error, [&] { return acting->Act(*rows); });
}

int32_t troupe_acting_network(TroupeActing* acting, int32_t policy, const char** network, TroupeActingError* error) {
  return troupe::acting::AtBorder(error, [&]() -> absl::Status {
    TROUPE_ASSIGN_OR_RETURN(*network, acting->Network(policy));
    return absl::OkStatus();
  });
}

int32_t troupe_acting_weights(TroupeActing* acting, int32_t policy, float* parameters, double* moments,
                              TroupeActingError* error) {
  return troupe::acting::AtBorder(error, [&]() -> absl::Status {
    TROUPE_ASSIGN_OR_RETURN(const ActedPolicy* found, acting->Find(policy));
    if (parameters == nullptr) return absl::InvalidArgumentError("got no parameters, expected an address");
    return found->Weights(*acting->weights, parameters, moments);
  });
}

int32_t troupe_acting_outputs(TroupeActing* acting, const TroupeActingRows* rows, float* outputs,
                              TroupeActingError* error) {
  return troupe::acting::AtBorder(error, [&] { return acting->Outputs(*rows, outputs); });
}

void troupe_acting_close(TroupeActing* acting) { delete acting; }
