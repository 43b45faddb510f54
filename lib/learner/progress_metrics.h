#pragma once

#include "lib/base/metric_sink.h"
#include "lib/learner/progress.h"

namespace troupe::learner {

/// Tells `sink` of an update, by the tags of docs/metrics.md: what is not of one policy, agent or group alone (that is
/// NamedValues').
void ReportProgress(const ProgressRecord& record, base::MetricSink* sink);

}  // namespace troupe::learner
