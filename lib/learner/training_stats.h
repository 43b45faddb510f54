#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "lib/learner/learner_options.h"
#include "lib/learner/train_batch.h"
#include "lib/learner/trainer.h"

namespace troupe::learner {

// The training statistics of an update's policies, joined as Tianshou's MapTrainingStats does. Pure functions; tags are
// those of docs/metrics.md.

using TaggedValue = std::pair<std::string, double>;

/// Of more agents in an update, only those with the most rows have losses of their own.
constexpr size_t kMaxAgentsWithLosses = 100;

/// Each tag's mean over the policies that report it.
std::vector<TaggedValue> MeanMetrics(absl::Span<const PolicyUpdateReport> reports);

/// The training times of the policies that trained as one, seconds; nullopt where none did.
std::optional<double> JoinTrainTimes(absl::Span<const PolicyUpdateReport> reports, TrainTimeAggregator aggregator);

/// `<agent id>/<loss>` for the agents with rows of a policy that trained, at most kMaxAgentsWithLosses, and every
/// metric `Loss/...`: the mean over those policies by the agent's rows. Dead agents' rows count where a policy trained
/// on no others. `reports` of `batch`, in its order.
std::vector<TaggedValue> AgentLosses(const TrainBatch& batch, absl::Span<const PolicyUpdateReport> reports,
                                     absl::Span<const std::string> agent_ids);

}  // namespace troupe::learner
