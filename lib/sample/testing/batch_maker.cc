#include "lib/sample/testing/batch_maker.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/policy/policy_spec.h"
#include "lib/sample/columns.h"

namespace troupe::sample {
namespace {

base::PhiloxSequence Random(uint64_t seed, uint32_t what) {
  return base::PhiloxSequence(base::PhiloxKey::Make(seed, base::RandomStream::kTest),
                              base::PhiloxCounter{0, 0, what, 0});
}

policy::PolicySpec Spec(const char* id, space::Space observation, space::Space action) {
  policy::PolicySpec spec;
  spec.id = policy::PolicyId(id);
  spec.observation_space = std::move(observation);
  spec.action_space = std::move(action);
  spec.actor.hidden_sizes = {8};
  spec.mutable_critic()->hidden_sizes = {8};
  return spec;
}

}  // namespace

BatchSchema SimpleSchema(int32_t num_agents, int64_t observation_size) {
  BatchSchema schema;
  for (int32_t i = 0; i < num_agents; ++i) {
    schema.agent_ids.push_back(absl::StrCat("agent_", i));
    schema.agent_observation_sizes.push_back(observation_size);
  }
  schema.policies.push_back(Spec("shared", *space::Space::Box(-1, 1, {observation_size}), *space::Space::Discrete(5)));
  schema.policies[policy::PolicySlot(0)].SetCriticInput(policy::NetworkInput::kJointObservation,
                                                        num_agents * (observation_size + 1));
  schema.num_envs = 1000;
  return schema;
}

BatchSchema RandomSchema(uint64_t seed) {
  base::PhiloxSequence random = Random(seed, 1);
  BatchSchema schema;
  schema.agent_ids = {"scout_0", "scout_1", "eye_0", "arm_0"};
  schema.num_envs = 16;
  schema.has_agent_mask = random.Below(2) == 0;
  schema.num_info_columns = random.Below(3);
  const auto scout_size = static_cast<int64_t>(1 + random.Below(24));
  schema.agent_observation_sizes = {scout_size, scout_size, 12, 3};
  if (random.Below(2) == 0) {
    schema.env_state_size = 5;
  } else if (random.Below(2) == 0) {
    schema.agent_state_size = 4;
  }
  schema.policies.push_back(Spec("scouts", *space::Space::Box(-1, 1, {scout_size}), *space::Space::Discrete(4, 2)));
  schema.policies.push_back(
      Spec("eye", *space::Space::Box(0, 255, {2, 2, 3}, tensor::DType::kUint8), *space::Space::MultiDiscrete({3, 2})));
  schema.policies.push_back(Spec("arm", *space::Space::Box(-1, 1, {3}), *space::Space::Box(-2, 2, {2})));
  // A second policy for the scouts, so that mapping differs between episodes.
  schema.policies.push_back(Spec("scouts_2", *space::Space::Box(-1, 1, {scout_size}), *space::Space::Discrete(4, 2)));
  schema.policies[policy::PolicySlot(1)].has_action_mask = true;
  const int64_t joint = 2 * scout_size + 12 + 3 + 4;
  const int64_t state = schema.env_state_size + schema.agent_state_size;
  for (policy::PolicySpec& spec : schema.policies) {
    const uint32_t kind = random.Below(3);
    if (kind == 0) {
      spec.SetCriticInput(policy::NetworkInput::kJointObservation, joint);
    } else if (kind == 1 && state > 0) {
      spec.SetCriticInput(policy::NetworkInput::kState, state);
    }
  }
  return schema;
}

FakeRolloutOptions RandomRolloutOptions(const BatchSchema& schema, uint64_t seed) {
  base::PhiloxSequence random = Random(seed, 2);
  FakeRolloutOptions options;
  options.seed = seed;
  options.min_episode_steps = 1 + static_cast<int32_t>(random.Below(4));
  options.max_episode_steps = options.min_episode_steps + static_cast<int32_t>(random.Below(20));
  options.agents_come_and_go = random.Below(2) == 0;
  options.ready_probability = random.Below(2) == 0 ? 1.0 : 0.6;
  if (random.Below(2) == 0) options.max_ticks_per_fragment = 1 + static_cast<int32_t>(random.Below(10));
  if (schema.policies.size() == 4) options.policies_of_slot = {{0, 3}, {0, 3}, {1}, {2}};
  return options;
}

BatchSchema FullSchema() {
  BatchSchema schema;
  schema.agent_ids = {"left", "right"};
  schema.agent_observation_sizes = {3, 3};
  schema.num_envs = 16;
  schema.env_state_size = 5;
  schema.agent_state_size = 4;
  schema.has_agent_mask = true;
  schema.num_info_columns = 1;
  schema.policies.push_back(Spec("full", *space::Space::Box(-1, 1, {3}), *space::Space::Discrete(4)));
  schema.policies[policy::PolicySlot(0)].has_action_mask = true;
  schema.policies[policy::PolicySlot(0)].SetCriticInput(policy::NetworkInput::kState, schema.env_state_size);
  schema.policies[policy::PolicySlot(0)].actor.core = {policy::CoreKind::kGru, 3, 1};
  schema.policies[policy::PolicySlot(0)].sequence_length = 2;
  return schema;
}

BatchSchema WithCores(BatchSchema schema, uint64_t seed) {
  base::PhiloxSequence random = Random(seed, 5);
  const auto core = [&random](uint32_t kind) {
    const int64_t size = 1 + random.Below(5);
    const int64_t layers = 1 + random.Below(2);
    if (kind == 0) return policy::CoreSpec();
    return policy::CoreSpec{kind == 1 ? policy::CoreKind::kGru : policy::CoreKind::kLstm, size, layers};
  };
  for (const policy::PolicySlot slot : schema.policies.ids()) {
    policy::PolicySpec& spec = schema.policies[slot];
    spec.actor.core = core(slot.value() == 0 ? 1 : random.Below(3));
    spec.mutable_critic()->core = core(random.Below(3));
    const int64_t length = 1 + random.Below(6);
    spec.sequence_length = spec.remembers() ? length : 0;
  }
  return schema;
}

std::shared_ptr<MultiAgentBatch> RandomColumns(const BatchSchema& schema, uint64_t seed) {
  base::PhiloxSequence random = Random(seed, 4);
  auto storage = std::make_shared<std::vector<std::vector<std::byte>>>();
  const auto make = [&](const ColumnForm& form, int64_t rows) {
    if (!form.present()) return ColumnView{};
    std::vector<std::byte>& bytes = storage->emplace_back(static_cast<size_t>(rows * form.row_bytes()));
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.Below(256));
    return ColumnView{bytes.data(), form.dtype, rows, form.row_elements};
  };
  auto batch = std::make_shared<MultiAgentBatch>();
  batch->env_rows = 2 + random.Below(4);
  batch->final_env_rows = 1 + random.Below(4);
  const EnvSizes sizes = schema.sizes(batch->policies_revision);
  for (const auto& column : StepColumns()) {
    (*batch).*column.member = make(column.form(sizes), NumRows(*batch));
  }
  for (const policy::PolicySlot slot : schema.policies.ids()) {
    PolicyRows rows;
    rows.policy = slot;
    rows.rows = 4 + random.Below(8);
    rows.num_segments = 2 + random.Below(3);
    rows.final_rows = 1 + random.Below(2);
    if (schema.policies[slot].remembers()) {
      rows.num_memories = rows.num_segments + random.Below(static_cast<uint32_t>(rows.rows - rows.num_segments) + 1);
    }
    for (const auto& column : PolicyColumns()) {
      rows.*column.member = make(column.form(sizes, schema.policies[slot]), NumRows(rows, column.extent));
    }
    batch->num_env_steps += rows.rows;
    batch->policies.push_back(rows);
  }
  batch->storage = std::move(storage);
  return batch;
}

Grant MakeGrant(int32_t num_lanes, int32_t env_steps, policy::WeightVersion version) {
  Grant grant;
  grant.id = GrantId(1);
  grant.iteration = version.n;
  grant.min_version = version;
  for (int32_t i = 0; i < num_lanes; ++i) {
    grant.lanes.push_back(GrantLane{base::EnvId(static_cast<uint32_t>(i)), 0, true, env_steps});
  }
  return grant;
}

std::shared_ptr<MultiAgentBatch> MakeBatch(const BatchSchema& schema, const FakeRolloutOptions& options,
                                           int32_t num_lanes, int32_t env_steps, policy::WeightVersion version) {
  FakeRolloutOptions whole = options;
  whole.max_ticks_per_fragment = env_steps;
  FakeRollout rollout(schema, std::move(whole));
  return rollout.Play(MakeGrant(num_lanes, env_steps, version), version).front();
}

std::shared_ptr<MultiAgentBatch> RandomBatch(const BatchSchema& schema, uint64_t seed, policy::WeightVersion version) {
  base::PhiloxSequence random = Random(seed, 3);
  const auto lanes = static_cast<int32_t>(1 + random.Below(std::min<uint32_t>(schema.num_envs, 8)));
  const auto steps = static_cast<int32_t>(1 + random.Below(40));
  return MakeBatch(schema, RandomRolloutOptions(schema, seed), lanes, steps, version);
}

}  // namespace troupe::sample
