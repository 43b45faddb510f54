#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lib/policy/ids.h"
#include "lib/tensor/dtype.h"

namespace troupe::serving {

/// Bytes of descriptions in an answer; more are RESOURCE_EXHAUSTED.
constexpr int64_t kMaxDescriptionBytes = int64_t{1} << 20;

/// Weights beside the newest. Plain value.
struct LabelledVersion {
  std::string label;
  policy::WeightVersion version;
};

/// What one needs to know of a policy to ask it. Plain value.
struct PolicyDescription {
  policy::PolicyId policy_id;
  policy::WeightVersion version;  ///< of the newest weights; (0, 0): none, or none were read yet
  std::string observation_space;  ///< as space::Space::ToString writes it
  std::string action_space;
  tensor::DType obs_dtype = tensor::DType::kUnspecified;
  int64_t observation_size = 0;            ///< elements of a flattened observation
  int64_t mask_size = 0;                   ///< 0: the policy has no action masks
  int64_t state_size = 0;                  ///< elements of what it remembers of an agent; 0: nothing
  std::vector<tensor::DType> word_dtypes;  ///< [action words]: int32 or float32
  bool needs_agent_slots = false;          ///< each row comes with the slot of its agent
  std::vector<int32_t> agent_slots;        ///< ascending, of the agents that may play it
  std::string network;                     ///< of its actor: "mlp [64, 64] tanh"; empty where it has none
  std::vector<std::string> outputs;        ///< what ActionQuery::outputs may name
  int64_t logits_size = 0, mean_size = 0;  ///< elements of a row of these
  std::vector<LabelledVersion> versions;   ///< beside the newest, by label
};

/// Plain value.
struct PolicyDescriptions {
  std::vector<std::string> agent_ids;       ///< of the run, by slot; empty where that is not known
  std::vector<PolicyDescription> policies;  ///< in the order asked for, or by id
};

}  // namespace troupe::serving
