#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "lib/learner/learner_options.h"
#include "lib/learner/train_batch.h"
#include "lib/learner/trainer.h"

namespace troupe::learner {

// The training statistics of an update's policies, joined as Tianshou's MapTrainingStats does. Pure functions; tags are
// those of docs/metrics.md.

using TaggedValue = std::pair<std::string, double>;

/// Of more policies that trained in an update, only those with the most rows have tags of their own: a run of a
/// thousand must not flood its event files.
constexpr size_t kMaxPoliciesWithTags = 100;

/// Each tag's mean over the policies that report it.
std::vector<TaggedValue> MeanMetrics(absl::Span<const PolicyUpdateReport> reports);

/// The training times of the policies that trained as one, seconds; nullopt where none did.
std::optional<double> JoinTrainTimes(absl::Span<const PolicyUpdateReport> reports, TrainTimeAggregator aggregator);

/// `policy/<id>/<tag>` of the policies that trained, with `Time/train_s`. `id_of` gives "" for a policy to leave out.
std::vector<TaggedValue> PolicyStats(absl::Span<const PolicyUpdateReport> reports,
                                     absl::FunctionRef<std::string_view(policy::PolicySlot)> id_of);

/// `<agent id>/<loss>` for every agent with rows of a policy that trained, and every metric `Loss/...`: the mean over
/// those policies by the agent's rows. `reports` of `batch`, in its order.
std::vector<TaggedValue> AgentLosses(const TrainBatch& batch, absl::Span<const PolicyUpdateReport> reports,
                                     absl::Span<const std::string> agent_ids);

}  // namespace troupe::learner
