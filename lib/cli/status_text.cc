#include "lib/cli/status_text.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lib/base/log.h"
#include "lib/base/shortened.h"
#include "lib/cli/output.h"
#include "lib/run/policy_lines.h"
#include <nlohmann/json.hpp>

namespace troupe::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
constexpr std::string_view kByPolicy = "last 100 episodes: return of an agent, by policy (least to largest)\n";

std::string Short(const std::string& text) { return base::Shortened(text, kMaxStatusTextBytes); }

/// `returns` with those alone by name that have most of them, in the order they had.
learner::ReturnsByName Few(learner::ReturnsByName returns) {
  std::vector<learner::NamedReturns>& named = returns.named;
  if (named.size() <= run::kFewPolicies) return returns;
  std::vector<learner::NamedReturns> sorted = named;
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.returns.count > b.returns.count; });
  const auto first_other = sorted.begin() + run::kFewPolicies;
  for (auto other = first_other; other != sorted.end(); ++other) {
    returns.others.push_back(other->slot);
    if (!other->returns.empty()) returns.rest.Add(*other->returns.mean());
  }
  sorted.erase(first_other, sorted.end());
  std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.slot < b.slot; });
  named = std::move(sorted);
  return returns;
}

/// So many values of which these are known. Plain numbers of somebody else's: nothing is taken for granted.
learner::Spread SpreadOf(int64_t count, double mean, double min, double max) {
  learner::Spread spread;
  spread.count = std::max<int64_t>(0, count);
  spread.min = min;
  spread.max = max;
  spread.sum = mean * static_cast<double>(spread.count);
  return spread;
}

learner::ReturnsByName ReturnsOf(const rpc::RunStatus& status) {
  learner::ReturnsByName returns;
  for (const rpc::PolicyStatus& policy : status.policies) {
    if (policy.return_count <= 0) continue;  // it played in none of the last episodes
    returns.named.push_back({base::TerminalSafe(policy.id.value()), static_cast<int32_t>(returns.named.size()),
                             SpreadOf(policy.return_count, policy.return_mean, policy.return_min, policy.return_max)});
  }
  return returns;
}

/// Of a line of progress.jsonl: `policy/<id>/return_mean`, and so on.
learner::ReturnsByName ReturnsOf(const Json& line) {
  constexpr std::string_view kPrefix = "policy/";
  constexpr std::string_view kMean = "return_mean";
  const auto number = [&line](const std::string& key, double otherwise) {
    const auto found = line.find(key);
    return found != line.end() && found->is_number() ? found->get<double>() : otherwise;
  };
  const auto spread = [&number](const std::string& prefix, int64_t count) {
    const double mean = number(prefix + "return_mean", 0);
    return SpreadOf(count, mean, number(prefix + "return_min", mean), number(prefix + "return_max", mean));
  };
  learner::ReturnsByName returns;
  for (const auto& [key, value] : line.items()) {
    if (!absl::StartsWith(key, std::string(kPrefix)) || !absl::EndsWith(key, absl::StrCat("/", std::string(kMean)))) {
      continue;
    }
    const std::string prefix = key.substr(0, key.size() - kMean.size());
    const std::string id = prefix.substr(kPrefix.size(), prefix.size() - kPrefix.size() - 1);
    returns.named.push_back({base::TerminalSafe(id), static_cast<int32_t>(returns.named.size()),
                             spread(prefix, value.is_number() ? 1 : 0)});
  }
  const std::string rest = "policies/rest/";
  const double count = number(rest + "count", 0);
  const auto rest_mean = line.find(rest + "return_mean");
  if (count > 0 && count <= 1e6 && rest_mean != line.end() && rest_mean->is_number()) {  // some of the others played
    returns.others.resize(static_cast<size_t>(count), -1);
    returns.rest = spread(rest, static_cast<int64_t>(count));
  }
  return returns;
}

/// What became of rows, environments and grants.
std::string CountersText(const learner::ProgressRecord& progress) {
  const learner::RowCounters& rows = progress.rows;
  std::string text = absl::StrFormat(
      "rows: %s received = %s accepted + %s duplicate + %s stale + %s invalid; %s trained (%s after a wait for "
      "their outcome), %s queued, %s dropped (%s too old), %s rolled back\n",
      WithThousands(rows.received), WithThousands(rows.accepted), WithThousands(rows.duplicate),
      WithThousands(rows.stale), WithThousands(rows.invalid), WithThousands(rows.trained), WithThousands(rows.waited),
      WithThousands(rows.queued), WithThousands(rows.dropped), WithThousands(rows.aged),
      WithThousands(rows.rolled_back));
  const sample::EnvCounters& envs = progress.env_counters;
  if (envs != sample::EnvCounters()) {
    absl::StrAppendFormat(
        &text,
        "environments: %s failed episodes, %s calls with observations outside their space; in Python %s exceptions, %s "
        "bad "
        "outputs, %s timeouts, %s process deaths, %s process restarts\n",
        WithThousands(envs.errors), WithThousands(envs.outside_space), WithThousands(envs.exceptions),
        WithThousands(envs.bad_outputs), WithThousands(envs.timeouts), WithThousands(envs.process_deaths),
        WithThousands(envs.process_restarts));
  }
  if (progress.expired_grants > 0) {
    absl::StrAppendFormat(&text, "grants: %s were out for too long, their work was given to others\n",
                          WithThousands(progress.expired_grants));
  }
  return text;
}

/// null of nothing.
Json IfAny(const std::optional<double>& value) { return value ? Json(*value) : Json(); }

/// What became of rows, by learn group; those of none last.
Json GroupsJson(const learner::RowBooks& books) {
  Json groups = Json::array();
  const auto add = [&groups](const learner::GroupRows& rows) {
    groups.push_back({{"group_id", Short(rows.id.value())},
                      {"accepted", rows.accepted},
                      {"queued", rows.queued},
                      {"trained", rows.trained},
                      {"aged", rows.aged},
                      {"evicted", rows.evicted},
                      {"uses", rows.uses}});
  };
  for (const learner::GroupRows& rows : books.groups) add(rows);
  if (books.groupless.accepted > 0) add(books.groupless);
  return groups;
}

/// The policies with the returns of the agents that they played, and what became of their rows.
Json PoliciesJson(const rpc::RunStatus& status) {
  Json policies = Json::array();
  for (const rpc::PolicyStatus& policy : status.policies) {
    policies.push_back({{"policy_id", Short(policy.id.value())},
                        {"learner_epoch", policy.version.learner_epoch},
                        {"version", policy.version.n},
                        {"trains", policy.trains},
                        {"return_mean", policy.return_count > 0 ? Json(policy.return_mean) : Json()},
                        {"return_min", policy.return_count > 0 ? Json(policy.return_min) : Json()},
                        {"return_max", policy.return_count > 0 ? Json(policy.return_max) : Json()},
                        {"rows_trained", policy.rows.trained},
                        {"rows_dropped", policy.rows.dropped},
                        {"rows_aged", policy.rows.aged},
                        {"rows_waited", policy.rows.waited},
                        {"exploration", policy.exploration}});
  }
  return policies;
}

}  // namespace

Json StatusJson(const rpc::RunStatus& status) {
  const learner::ProgressRecord& progress = status.learner.progress;
  const learner::RowCounters& rows = progress.rows;
  const learner::FragmentCounters& fragments = status.learner.fragments;
  Json workers = Json::array();
  for (const rpc::ConnectedWorker& connected : status.workers) {
    const learner::WorkerStatus& worker = connected.worker;
    workers.push_back({{"worker_id", worker.id.value()},
                       {"worker_epoch", worker.epoch.value()},
                       {"name", Short(connected.name)},
                       {"num_envs", worker.lanes},
                       {"last_seen_s", absl::ToDoubleSeconds(worker.since_last_seen)},
                       {"policy_lag", worker.policy_lag},
                       {"outstanding_steps", worker.outstanding_steps},
                       {"accepted_rows", worker.accepted_rows},
                       {"expired_grants", worker.expired_grants},
                       {"recent_episodes", worker.recent_episodes.ended},
                       {"recent_failed_episodes", worker.recent_episodes.failed},
                       {"gets_no_work", connected.gets_no_work},
                       {"gets_no_work_reason", Short(worker.gets_no_work)}});
  }
  Json door = Json::array();
  for (const rpc::DoorCount& count : status.door) door.push_back({{"what", Short(count.what)}, {"count", count.count}});
  Json degraded = Json::array();
  for (const std::string& words : status.degraded) degraded.push_back(Short(words));
  Json json = {{"running", true},
               {"run_name", Short(status.run_name)},
               {"build_version", Short(status.build_version)},
               {"learner_epoch", status.learner.learner_epoch},
               {"env_steps", progress.env_steps},
               {"agent_steps", progress.agent_steps},
               {"updates", progress.updates},
               {"episodes", progress.episodes},
               {"wall_clock_s", progress.wall_clock_s},
               {"env_steps_per_s", progress.env_steps_per_s},
               {"return_sum", IfAny(progress.return_sum)},
               {"return_mean", IfAny(progress.return_mean)},
               {"rewards_differ", progress.rewards_differ},
               {"state", Short(status.learner.state)},
               {"state_reason", Short(status.learner.reason)},
               {"degraded", degraded},
               {"rows",
                {{"received", rows.received},
                 {"accepted", rows.accepted},
                 {"duplicate", rows.duplicate},
                 {"stale", rows.stale},
                 {"invalid", rows.invalid},
                 {"trained", rows.trained},
                 {"queued", rows.queued},
                 {"dropped", rows.dropped},
                 {"rolled_back", rows.rolled_back},
                 {"aged", rows.aged},
                 {"waited", rows.waited}}},
               {"fragments",
                {{"received", fragments.received},
                 {"accepted", fragments.accepted},
                 {"duplicate", fragments.duplicate},
                 {"stale", fragments.stale},
                 {"invalid", fragments.invalid},
                 {"rolled_back", fragments.rolled_back},
                 {"unknown", fragments.unknown}}},
               {"queue_bytes", status.learner.queue_bytes},
               {"queue_budget_bytes", status.learner.queue_budget_bytes},
               {"expired_grants", progress.expired_grants},
               {"door", door},
               {"workers", workers},
               {"policies", PoliciesJson(status)},
               {"groups", GroupsJson(status.learner.books)}};
  for (const sample::EnvCounterField& field : sample::kEnvCounterFields) {
    json[field.key] = progress.env_counters.*field.value;
  }
  return json;
}

std::string StatusText(const rpc::RunStatus& status) {
  const learner::ProgressRecord& progress = status.learner.progress;
  std::string text;
  const std::string reason = status.learner.reason.empty() ? "" : absl::StrCat(" (", status.learner.reason, ")");
  absl::StrAppendFormat(&text, "run %s: %s%s, learner epoch %llu, version %s\n", base::TerminalSafe(status.run_name),
                        base::TerminalSafe(status.learner.state), base::TerminalSafe(reason),
                        status.learner.learner_epoch, base::TerminalSafe(status.build_version));
  absl::StrAppendFormat(&text, "%s env steps (%s/s), %s agent steps, %s updates, %s episodes, %.0f s\n",
                        WithThousands(progress.env_steps),
                        WithThousands(static_cast<int64_t>(progress.env_steps_per_s)),
                        WithThousands(progress.agent_steps), WithThousands(progress.updates),
                        WithThousands(progress.episodes), progress.wall_clock_s);
  const double return_sum = progress.return_sum.value_or(kNone);
  if (progress.rewards_differ) {
    text += kByPolicy;
    text += run::PolicyLines(Few(ReturnsOf(status)));
  } else if (std::isfinite(return_sum)) {
    absl::StrAppendFormat(&text, "return of the last 100 episodes: %.3f summed over agents, %.3f per agent\n",
                          return_sum, progress.return_mean.value_or(kNone));
  }
  for (const std::string& words : status.degraded)
    absl::StrAppendFormat(&text, "DEGRADED: %s\n", base::TerminalSafe(words));
  absl::StrAppend(&text, CountersText(progress));
  for (const rpc::DoorCount& count : status.door) {
    absl::StrAppendFormat(&text, "%s: %s\n", base::TerminalSafe(count.what), WithThousands(count.count));
  }
  for (const rpc::ConnectedWorker& connected : status.workers) {
    if (!connected.gets_no_work) continue;
    const learner::WorkerStatus& worker = connected.worker;
    absl::StrAppendFormat(&text, "no more work (env.max_failed_share): %s\n",
                          worker.gets_no_work.empty() ? absl::StrCat("worker ", sample::WorkerText(worker.id))
                                                      : base::TerminalSafe(worker.gets_no_work));
  }
  std::vector<std::vector<std::string>> table = {
      {"worker", "name", "environments", "rows", "lag", "last seen", "expired grants"}};
  for (const rpc::ConnectedWorker& connected : status.workers) {
    const learner::WorkerStatus& worker = connected.worker;
    const double last_seen_s = absl::ToDoubleSeconds(worker.since_last_seen);
    table.push_back({sample::WorkerText(worker.id), connected.name, absl::StrCat(worker.lanes),
                     WithThousands(worker.accepted_rows), absl::StrCat(worker.policy_lag),
                     absl::StrCat(std::lround(last_seen_s * 10) / 10.0, " s"), WithThousands(worker.expired_grants)});
  }
  text += TableText(table);
  return text;
}

std::string LineText(const nlohmann::ordered_json& line) {
  std::string text;
  const auto differ = line.find("rewards_differ");
  const bool by_policy = differ != line.end() && differ->is_boolean() && differ->get<bool>();
  std::vector<const char*> keys = {"env_steps", "agent_steps", "updates", "wall_clock_s"};
  if (!by_policy) keys.insert(keys.end(), {"return_sum", "return_mean"});
  for (const char* key : keys) {
    if (line.contains(key)) absl::StrAppendFormat(&text, "%-14s %s\n", key, line[key].dump());
  }
  if (by_policy) absl::StrAppend(&text, std::string(kByPolicy), run::PolicyLines(Few(ReturnsOf(line))));
  return text;
}

}  // namespace troupe::cli
