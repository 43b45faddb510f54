// troupe status

#include <cmath>
#include <cstdio>
#include <memory>

#include "absl/strings/str_cat.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/rpc/convert.h"
#include "lib/rpc/monitor_client.h"
#include "services/cli/cli_command.h"
#include "services/cli/learner_target.h"
#include "services/cli/output.h"
#include "services/cli/run_path.h"
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

namespace troupe::services {
namespace {

using Json = nlohmann::ordered_json;

struct StatusFlags {
  std::string target;
  std::string learner;
  std::string directory = "runs";
  double timeout_s = 5;
  bool insecure_plaintext_network = false;
  bool json = false;
};

sample::EnvCounters EnvCountersOf(const v1::StatusReply& reply) {
  return rpc::FromProto(reply.env_counters()).value_or(sample::EnvCounters());
}

Json ToJson(const v1::StatusReply& reply) {
  const v1::RowCounters& rows = reply.rows();
  const v1::FragmentCounters& fragments = reply.fragments();
  Json workers = Json::array();
  for (const v1::WorkerStatus& worker : reply.workers()) {
    workers.push_back({{"worker_id", worker.worker_id()},
                       {"worker_epoch", worker.worker_epoch()},
                       {"name", worker.name()},
                       {"num_envs", worker.num_envs()},
                       {"last_seen_s", worker.last_seen_s()},
                       {"policy_lag", worker.policy_lag()},
                       {"accepted_rows", worker.accepted_rows()},
                       {"expired_grants", worker.expired_grants()},
                       {"recent_episodes", worker.recent_episodes().ended()},
                       {"recent_failed_episodes", worker.recent_episodes().failed()},
                       {"gets_no_work", worker.gets_no_work()},
                       {"gets_no_work_reason", worker.gets_no_work_reason()}});
  }
  Json policies = Json::array();
  for (const v1::PolicyStatus& policy : reply.policies()) {
    policies.push_back({{"policy_id", policy.policy_id()},
                        {"learner_epoch", policy.version().learner_epoch()},
                        {"version", policy.version().n()},
                        {"trains", policy.trains()}});
  }
  const sample::EnvCounters env_counters = EnvCountersOf(reply);
  Json json = {{"running", true},
               {"run_name", reply.run_name()},
               {"build_version", reply.build_version()},
               {"learner_epoch", reply.learner_epoch()},
               {"env_steps", reply.env_steps()},
               {"agent_steps", reply.agent_steps()},
               {"updates", reply.updates()},
               {"episodes", reply.episodes()},
               {"wall_clock_s", reply.wall_clock_s()},
               {"env_steps_per_s", reply.env_steps_per_s()},
               {"return_sum", reply.return_sum()},
               {"return_mean", reply.return_mean()},
               {"state", reply.state()},
               {"degraded", std::vector<std::string>(reply.degraded().begin(), reply.degraded().end())},
               {"rows",
                {{"received", rows.received()},
                 {"accepted", rows.accepted()},
                 {"duplicate", rows.duplicate()},
                 {"stale", rows.stale()},
                 {"invalid", rows.invalid()},
                 {"trained", rows.trained()},
                 {"queued", rows.queued()},
                 {"dropped", rows.dropped()},
                 {"rolled_back", rows.rolled_back()}}},
               {"fragments",
                {{"received", fragments.received()},
                 {"accepted", fragments.accepted()},
                 {"duplicate", fragments.duplicate()},
                 {"stale", fragments.stale()},
                 {"invalid", fragments.invalid()},
                 {"rolled_back", fragments.rolled_back()},
                 {"unknown", fragments.unknown()}}},
               {"expired_grants", reply.expired_grants()},
               {"workers", workers},
               {"policies", policies}};
  for (const sample::EnvCounterField& field : sample::kEnvCounterFields) {
    json[field.key] = env_counters.*field.value;
  }
  return json;
}

void Print(const v1::StatusReply& reply) {
  const std::string reason = reply.state_reason().empty() ? "" : absl::StrCat(" (", reply.state_reason(), ")");
  std::printf("run %s: %s%s, learner epoch %llu, version %s\n", base::TerminalSafe(reply.run_name()).c_str(),
              base::TerminalSafe(reply.state()).c_str(), base::TerminalSafe(reason).c_str(),
              static_cast<unsigned long long>(reply.learner_epoch()),
              base::TerminalSafe(reply.build_version()).c_str());
  std::printf("%s env steps (%s/s), %s agent steps, %s updates, %s episodes, %.0f s\n",
              WithThousands(reply.env_steps()).c_str(),
              WithThousands(static_cast<int64_t>(reply.env_steps_per_s())).c_str(),
              WithThousands(reply.agent_steps()).c_str(), WithThousands(reply.updates()).c_str(),
              WithThousands(reply.episodes()).c_str(), reply.wall_clock_s());
  if (std::isfinite(reply.return_sum())) {
    std::printf("return of the last 100 episodes: %.3f summed over agents, %.3f per agent\n", reply.return_sum(),
                reply.return_mean());
  }
  for (const std::string& words : reply.degraded()) std::printf("DEGRADED: %s\n", base::TerminalSafe(words).c_str());
  const v1::RowCounters& rows = reply.rows();
  std::printf(
      "rows: %s received = %s accepted + %s duplicate + %s stale + %s invalid; %s trained, %s queued, %s dropped, %s "
      "rolled back\n",
      WithThousands(rows.received()).c_str(), WithThousands(rows.accepted()).c_str(),
      WithThousands(rows.duplicate()).c_str(), WithThousands(rows.stale()).c_str(),
      WithThousands(rows.invalid()).c_str(), WithThousands(rows.trained()).c_str(),
      WithThousands(rows.queued()).c_str(), WithThousands(rows.dropped()).c_str(),
      WithThousands(rows.rolled_back()).c_str());
  const sample::EnvCounters envs = EnvCountersOf(reply);
  if (envs != sample::EnvCounters()) {
    std::printf(
        "environments: %s failed episodes, %s calls with observations outside their space; in Python %s exceptions, %s "
        "bad "
        "outputs, %s timeouts, %s process deaths, %s process restarts\n",
        WithThousands(envs.errors).c_str(), WithThousands(envs.outside_space).c_str(),
        WithThousands(envs.exceptions).c_str(), WithThousands(envs.bad_outputs).c_str(),
        WithThousands(envs.timeouts).c_str(), WithThousands(envs.process_deaths).c_str(),
        WithThousands(envs.process_restarts).c_str());
  }
  if (reply.expired_grants() > 0) {
    std::printf("grants: %s were out for too long, their work was given to others\n",
                WithThousands(reply.expired_grants()).c_str());
  }
  for (const v1::WorkerStatus& worker : reply.workers()) {
    if (!worker.gets_no_work()) continue;
    std::printf("no more work (env.max_failed_share): %s\n",
                worker.gets_no_work_reason().empty() ? absl::StrCat("worker ", worker.worker_id()).c_str()
                                                     : base::TerminalSafe(worker.gets_no_work_reason()).c_str());
  }
  std::vector<std::vector<std::string>> table = {
      {"worker", "name", "environments", "rows", "lag", "last seen", "expired grants"}};
  for (const v1::WorkerStatus& worker : reply.workers()) {
    table.push_back(
        {sample::WorkerText(sample::WorkerId(worker.worker_id())), worker.name(), absl::StrCat(worker.num_envs()),
         WithThousands(worker.accepted_rows()), absl::StrCat(worker.policy_lag()),
         absl::StrCat(std::lround(worker.last_seen_s() * 10) / 10.0, " s"), WithThousands(worker.expired_grants())});
  }
  PrintTable(table);
}

absl::StatusOr<v1::StatusReply> Ask(const StatusFlags& flags, const LearnerTarget& target) {
  rpc::TransportSecurity security;
  security.insecure_plaintext_network = flags.insecure_plaintext_network;
  TROUPE_ASSIGN_OR_RETURN(const std::unique_ptr<rpc::MonitorClient> client, OpenMonitor(target, security));
  return client->Status(absl::Seconds(flags.timeout_s));
}

/// What the folder says of a run whose learner does not answer: its last line of progress.
absl::StatusOr<int> ShowFolder(const StatusFlags& flags, const LearnerTarget& learner) {
  TROUPE_ASSIGN_OR_RETURN(const std::string line, LastProgressLine(learner.folder));
  const Json last = Json::parse(line, nullptr, false);
  if (!last.is_object()) {
    return absl::DataLossError(
        absl::StrCat("the last line of progress.jsonl in \"", learner.folder, "\" is no JSON object"));
  }
  if (flags.json) {
    Json reply = {{"running", learner.elsewhere() ? Json() : Json(false)}};
    reply.update(last);
    PrintJson(reply);
    return 0;
  }
  const std::string state = learner.elsewhere()
                                ? absl::StrCat("its learner was started on ", learner.host, ", no answer from here")
                                : "not running";
  std::printf("run %s: %s\n", learner.folder.c_str(), state.c_str());
  for (const char* key : {"env_steps", "agent_steps", "updates", "wall_clock_s", "return_sum", "return_mean"}) {
    if (last.contains(key)) std::printf("%-14s %s\n", key, last[key].dump().c_str());
  }
  return 0;
}

absl::StatusOr<int> Status(const StatusFlags& flags) {
  LearnerTarget learner{.address = flags.learner};
  if (learner.address.empty()) {
    if (flags.target.empty()) return absl::InvalidArgumentError("needs an address (unix:PATH or HOST:PORT) or a run");
    TROUPE_ASSIGN_OR_RETURN(learner, FindLearner(flags.target, flags.directory));
    if (learner.address.empty() && learner.control.empty()) return ShowFolder(flags, learner);
  }
  const absl::StatusOr<v1::StatusReply> reply = Ask(flags, learner);
  if (!reply.ok()) {
    // A learner that was killed leaves its address behind.
    const bool nobody = absl::IsUnavailable(reply.status()) && !learner.folder.empty();
    return nobody ? ShowFolder(flags, learner) : reply.status();
  }
  if (flags.json) {
    PrintJson(ToJson(*reply));
  } else {
    Print(*reply);
  }
  return 0;
}

}  // namespace

void AddStatusCommand(CLI::App& app, Action* action) {
  const auto flags = std::make_shared<StatusFlags>();
  CLI::App* status = app.add_subcommand("status", "Ask a running learner how it goes, or see where a run stopped.");
  auto* target = status->add_option("target", flags->target,
                                    "the learner's address (unix:PATH or HOST:PORT), a run folder, or a run's name");
  status->add_option("--learner", flags->learner, "the learner's address")->excludes(target);
  status->add_option("--directory", flags->directory, "where runs are looked for by name")->capture_default_str();
  status->add_option("--timeout", flags->timeout_s, "seconds to wait for an answer")
      ->capture_default_str()
      ->check(CLI::Range(0.001, 3600.0));
  status->add_flag("--insecure-plaintext-network", flags->insecure_plaintext_network,
                   "ask without encryption and authentication beyond this machine");
  status->add_flag(
      "--json", flags->json,
      "one line: {\"running\", \"env_steps\", \"agent_steps\", \"updates\", \"wall_clock_s\", \"env_steps_per_s\", "
      "\"return_sum\", "
      "\"return_mean\", \"env_errors\", ...}; of a running learner also \"rows\", \"workers\", \"policies\" "
      "(docs/cli.md)");
  status->footer("Example: troupe status runs/my_run --json");
  status->callback([=] { *action = [=] { return Status(*flags); }; });
}

}  // namespace troupe::services
