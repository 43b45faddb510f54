#pragma once

#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lib/base/philox.h"
#include "lib/policy/parameter_layout.h"
#include "lib/policy/policy_spec.h"
#include "lib/policy/weight_snapshot.h"
#include "lib/serving/action_query.h"

namespace troupe::serving {

inline policy::PolicySpec MakeSpec(const std::string& id, space::Space obs, space::Space action) {
  policy::PolicySpec spec;
  spec.id = policy::PolicyId(id);
  spec.observation_space = std::move(obs);
  spec.action_space = std::move(action);
  spec.actor.hidden_sizes = {16, 16};
  return spec;
}

/// The same, whose actor has a core of so many layers of 5 units.
inline policy::PolicySpec WithCore(policy::PolicySpec spec, policy::CoreKind kind, int64_t layers = 1) {
  spec.actor.core = {kind, 5, layers};
  spec.sequence_length = 8;
  return spec;
}

/// Random weights; another version has other ones.
inline std::shared_ptr<policy::WeightSnapshot> MakeWeights(const policy::PolicySpec& spec, int64_t version) {
  base::PhiloxSequence random(base::PhiloxKey::Make(5, base::RandomStream::kTest),
                              {1, static_cast<uint32_t>(version), 0, 0});
  auto weights = std::make_shared<policy::WeightSnapshot>();
  weights->id = spec.id;
  weights->version = {1, version};
  weights->actor.resize(static_cast<size_t>(policy::ParameterLayout::For(spec).acting_size()));
  for (float& weight : weights->actor) weight = static_cast<float>(0.5 * random.Normal());
  for (int64_t i = 0; spec.normalize_observations && i < spec.observation_size(); ++i) {
    weights->observation_mean.push_back(static_cast<float>(random.Uniform(-0.5, 0.5)));
    weights->observation_inverse_std.push_back(static_cast<float>(random.Uniform(0.5, 8.0)));
  }
  return weights;
}

/// The arrays of a QueryRows, for a test to spoil.
struct OwnedRows {
  std::string policy_id;
  int64_t rows = 0;
  tensor::DType obs_dtype = tensor::DType::kFloat32;
  std::vector<float> obs;         ///< for float32
  std::vector<uint8_t> byte_obs;  ///< for uint8
  std::vector<uint8_t> action_mask;
  std::vector<int32_t> agent_slots;
  std::vector<float> state_in;  ///< empty: none is given
  uint64_t state_tag = 0;
  std::string version = {};
  policy::WeightVersion min_version = {};
  std::vector<std::string> agent_ids = {};

  QueryRows Borrow() const {
    QueryRows rows_out;
    rows_out.policy_id = policy::PolicyId(policy_id);
    rows_out.rows = rows;
    rows_out.obs_dtype = obs_dtype;
    rows_out.obs = obs_dtype == tensor::DType::kUint8
                       ? absl::MakeConstSpan(reinterpret_cast<const std::byte*>(byte_obs.data()), byte_obs.size())
                       : absl::MakeConstSpan(reinterpret_cast<const std::byte*>(obs.data()), 4 * obs.size());
    rows_out.action_mask = action_mask;
    rows_out.agent_slots = agent_slots;
    rows_out.state_in = absl::MakeConstSpan(reinterpret_cast<const std::byte*>(state_in.data()), 4 * state_in.size());
    rows_out.state_tag = state_tag;
    rows_out.version = version;
    rows_out.min_version = min_version;
    rows_out.agent_ids = agent_ids;
    return rows_out;
  }
};

/// Good rows for `spec`: random observations, a mask that forbids some, slots in turn, no state.
inline OwnedRows MakeRows(const policy::PolicySpec& spec, int64_t rows) {
  base::PhiloxSequence random(base::PhiloxKey::Make(5, base::RandomStream::kTest), {2, 0, 0, 0});
  OwnedRows owned;
  owned.policy_id = spec.id.value();
  owned.rows = rows;
  owned.obs_dtype = spec.observation_space.flat_dtype();
  for (int64_t i = 0; i < rows * spec.observation_size(); ++i) {
    if (owned.obs_dtype == tensor::DType::kUint8) {
      owned.byte_obs.push_back(static_cast<uint8_t>(random.Below(256)));
    } else {
      owned.obs.push_back(static_cast<float>(random.Uniform(-1, 1)));
    }
  }
  // Two of three are allowed, so that every part of two categories has one.
  for (int64_t i = 0; i < rows * spec.mask_size(); ++i) owned.action_mask.push_back(i % 3 == 0 ? 0 : 1);
  for (int64_t row = 0; spec.agent_id_size > 0 && row < rows; ++row) {
    owned.agent_slots.push_back(static_cast<int32_t>(row % spec.agent_id_size));
  }
  return owned;
}

inline ActionQuery Ask(const std::vector<const OwnedRows*>& rows, bool deterministic) {
  ActionQuery query;
  query.deterministic = deterministic;
  for (const OwnedRows* owned : rows) query.policies.push_back(owned->Borrow());
  return query;
}

/// Every number of an answer, for comparing two.
inline std::vector<float> Values(const PolicyActions& answer) {
  std::vector<float> values = answer.logp;
  values.insert(values.end(), answer.state_out.begin(), answer.state_out.end());
  for (const space::ActionWord word : answer.actions) values.push_back(word.f32);
  return values;
}

}  // namespace troupe::serving
