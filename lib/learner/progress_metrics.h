#pragma once

#include "lib/base/metric_sink.h"
#include "lib/learner/episode_book.h"
#include "lib/learner/learner_config.h"
#include "lib/learner/progress.h"

namespace troupe::learner {

/// Tells `sink` of an update, by the tags of docs/metrics.md: what is not of one policy, agent or group alone (that is
/// NamedValues').
void ReportProgress(const ProgressRecord& record, const LearnerConfig& config, const EpisodeBook& episodes,
                    base::MetricSink* sink);

}  // namespace troupe::learner
