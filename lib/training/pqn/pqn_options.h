#pragma once

#include <array>
#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/policy/algorithm_spec.h"
#include "lib/training/core/on_policy_options.h"
#include "lib/training/core/optimizer_options.h"
#include "lib/training/core/schedule.h"

namespace troupe::training {

/// How values of agents become one of the team.
enum class Mixer : uint8_t {
  kNone = 1,  ///< not at all: each policy learns by itself
  kVdn = 2,   ///< their sum (value decomposition networks, Sunehag et al. 2018)
};
inline constexpr std::array<std::pair<Mixer, const char*>, 2> kMixerNames = {
    {{Mixer::kNone, "none"}, {Mixer::kVdn, "vdn"}}};

/// PQN (Gallici et al. 2025, arXiv 2407.04811): Q(lambda) from batches of the newest policy, without replay and without
/// target network. Members have the keys of the configuration's `pqn`, and the schema's defaults. One network has one
/// norm: clip_grad_norm_by is no key. Plain value.
struct PqnOptions : OptimizerOptions {
  PqnOptions() { max_grad_norm = 10; }

  int64_t minibatch_size = 1000;  ///< rows of a policy; required of a spec
  int64_t num_epochs = 4;
  double learning_rate = 5e-4;  ///< `lr`
  double gamma = 0.99;
  DiscountBy discount_by = DiscountBy::kDecision;  ///< PolicySpec::reward_discount follows from it
  double q_lambda = 0.65;
  bool time_limit_bootstrap = true;
  bool use_policy_active_masks = true;
  /// Share of actions that workers draw evenly. Of parsed options constant: as it is at their time.
  policy::ScheduleValue epsilon = {1.0, 0.05, 200000};
  Mixer mixer = Mixer::kNone;
};

/// The options of a spec of the name "pqn" at `now`, validated. INVALID_ARGUMENT, naming the option, what it is and
/// what is expected.
absl::StatusOr<PqnOptions> ParsePqnOptions(const policy::AlgorithmSpec& spec, const ScheduleTime& now = {});
/// The spec that ParsePqnOptions reads as `options`.
policy::AlgorithmSpec PqnSpec(const PqnOptions& options);

}  // namespace troupe::training
