#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "lib/envhost/python_function.h"
#include "lib/envhost/python_functions.h"
#include "lib/inference/policy_actor.h"
#include "lib/policy/policy_spec.h"
#include <nlohmann/json.hpp>

namespace troupe::envhost {

/// Plays a policy of class python:…: its function is called with the rows, in calls of at most Layout::rows. Made by
/// PythonFunctions, whose errors it has, with the policy's id. An action outside the action space is INTERNAL.
/// Log-probabilities are 0.
class PythonActor final : public inference::PolicyActor {
 public:
  /// Where everything of a call lies in the payload, in bytes.
  struct Layout {
    explicit Layout(const policy::PolicySpec& spec);
    /// What the process is told of the policy.
    nlohmann::json ToJson(const policy::PolicySpec& spec, const std::string& function) const;

    int64_t rows = 0;
    size_t keys = 0;     ///< [rows] inference::RowKey
    size_t obs = 0;      ///< [rows, observation_size]
    size_t mask = 0;     ///< [rows, mask_size]
    size_t actions = 0;  ///< [rows, action_words]
    size_t payload_bytes = 0;
    size_t obs_bytes = 0;  ///< of a row
    size_t mask_size = 0;
    size_t action_words = 0;
  };

  PythonActor(std::shared_ptr<PythonFunctions> functions, std::shared_ptr<PythonFunction> function,
              const policy::PolicySpec& spec, const Layout& layout, uint64_t seed);

  bool runs_elsewhere() const override { return true; }
  absl::Status Prepare() override;
  absl::Status SetWeights(policy::WeightSnapshotPtr weights) override;
  absl::Status Act(const inference::ActInput& input, space::ActionWord* actions, float* logp) override;

 private:
  absl::Status ActFor(const inference::ActInput& input, int64_t first, int64_t rows, space::ActionWord* actions);
  absl::Status Named(const absl::Status& status) const;

  const std::shared_ptr<PythonFunctions> functions_;
  const std::shared_ptr<PythonFunction> function_;
  const policy::PolicySpec spec_;
  const Layout layout_;
  const uint64_t seed_;
};

}  // namespace troupe::envhost
