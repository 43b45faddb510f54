#include "lib/config/sampling_ahead.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/learner/feed.h"
#include "lib/policy/algorithm_spec.h"
#include "lib/policy/policy_spec.h"
#include "lib/training/algorithm_options.h"
#include "proto/troupe/v1/config.pb.h"

namespace troupe::config {
namespace {

constexpr char kKey[] = "algorithm.max_policy_lag";

}  // namespace

std::string SamplingText(const ResolvedRun& run) {
  const training::SampledAhead ahead = training::AheadOf(run.algorithms, run.learner.max_policy_lag);
  const std::string plan = ahead.iterations >= learner::kFreeRunning ? "free-running, "
                           : ahead.iterations > 0                    ? "in rounds, "
                                                                     : "in rounds, each after the update";
  const std::string bound =
      ahead.iterations == 0
          ? ""
          : absl::StrCat("at most ", ahead.iterations, ahead.iterations == 1 ? " batch" : " batches", " ahead");
  const std::string reason =
      ahead.feed.empty() ? absl::StrCat("max_policy_lag ", run.learner.max_policy_lag) : ahead.feed;
  return absl::StrCat(plan, bound, " (policy \"", run.policies[ahead.policy].id.value(), "\", ",
                      run.algorithms[ahead.policy].name, ": ", reason, ")");
}

std::vector<std::string> LagWarnings(const ResolvedRun& run) {
  std::vector<std::string> warnings;
  const int64_t lag = run.learner.max_policy_lag;
  const std::vector<std::string> correct = training::NamesThatCorrectLag();
  for (size_t slot = 0; slot < run.algorithms.size() && lag > 1; ++slot) {
    const std::string& name = run.algorithms[slot].name;
    const bool trains = run.learner.trains.empty() || run.learner.trains[slot];
    if (name.empty() || !trains || std::count(correct.begin(), correct.end(), name) > 0) continue;
    warnings.push_back(
        absl::StrCat(run.config.Where(kKey), ": ", kKey, ": got ", lag, ", but ", name, " of policy \"",
                     run.policies[slot].id.value(),
                     "\" takes rows of older policies as its own; expected at most 1, or algorithm.name: ",
                     absl::StrJoin(correct, " or "), ", which correct for them"));
    break;
  }
  if (lag < learner::kFreeRunning && run.config.proto().algorithm().has_max_policy_lag() &&
      training::DefaultPolicyLag(run.algorithms) > lag) {
    warnings.push_back(absl::StrCat(run.config.Where(kKey), ": ", kKey, ": got ", lag,
                                    ", so that workers wait for each "
                                    "other, which ",
                                    run.algorithms.front().name, " does not need; expected at least ",
                                    learner::kFreeRunning, ", or auto"));
  }
  return warnings;
}

}  // namespace troupe::config
