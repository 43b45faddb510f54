// troupe query

#include <cstdio>
#include <memory>
#include <optional>

#include "absl/strings/str_cat.h"
#include "lib/base/log.h"
#include "lib/base/nearest_name.h"
#include "lib/base/status_macros.h"
#include "lib/cli/learner_target.h"
#include "lib/cli/output.h"
#include "lib/cli/query_agents.h"
#include "lib/cli/query_text.h"
#include "lib/rpc/serve/query_client.h"
#include "lib/run/checkpoint_engine.h"
#include "services/cli/cli_command.h"
#include "services/cli/run_command_line.h"
#include "services/cli/transport_flags.h"
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

namespace troupe::services {
namespace {

struct QueryFlags {
  std::string target;
  std::string directory = "runs";
  std::string checkpoint;  // empty: the learner where there is one, else the latest
  std::string config;
  std::vector<std::string> modules;
  std::string policy;
  std::string obs;
  std::string obs_dtype = "float32";
  std::string action_mask;
  std::string state_in;
  std::vector<std::string> agents;
  std::vector<int32_t> agent_slots;
  double timeout_s = 10;
  bool deterministic = false;
  rpc::TransportSecurity security;
  bool json = false;
};

/// Who answers.
class Answerer {
 public:
  virtual ~Answerer() = default;
  virtual absl::StatusOr<serving::ActionAnswer> ComputeActions(const serving::ActionQuery& query) = 0;
  virtual absl::StatusOr<serving::PolicyDescriptions> DescribePolicies(const std::vector<policy::PolicyId>& ids) = 0;
  /// The checkpoint that answers; "": whoever is asked has the newest weights.
  virtual std::string checkpoint() const { return ""; }
};

/// A learner or a policy server.
class Server final : public Answerer {
 public:
  Server(std::unique_ptr<rpc::QueryClient> client, absl::Duration timeout)
      : client_(std::move(client)), timeout_(timeout) {}
  absl::StatusOr<serving::ActionAnswer> ComputeActions(const serving::ActionQuery& query) override {
    return client_->ComputeActions(query, timeout_);
  }
  absl::StatusOr<serving::PolicyDescriptions> DescribePolicies(const std::vector<policy::PolicyId>& ids) override {
    return client_->DescribePolicies(ids, timeout_);
  }

 private:
  const std::unique_ptr<rpc::QueryClient> client_;
  const absl::Duration timeout_;
};

/// This program, with a checkpoint's weights.
class Checkpoint final : public Answerer {
 public:
  explicit Checkpoint(std::unique_ptr<run::CheckpointEngine> opened) : opened_(std::move(opened)) {}
  absl::StatusOr<serving::ActionAnswer> ComputeActions(const serving::ActionQuery& query) override {
    return opened_->engine()->Compute(query);
  }
  absl::StatusOr<serving::PolicyDescriptions> DescribePolicies(const std::vector<policy::PolicyId>& ids) override {
    return opened_->engine()->DescribePolicies(ids);
  }
  std::string checkpoint() const override { return opened_->checkpoint(); }

 private:
  const std::unique_ptr<run::CheckpointEngine> opened_;
};

absl::StatusOr<std::unique_ptr<Answerer>> OpenCheckpoint(const QueryFlags& flags, const std::string& folder) {
  run::AskedCheckpoint asked;
  asked.run_folder = folder;
  if (!flags.checkpoint.empty()) asked.checkpoint = flags.checkpoint;
  asked.permits.config_path = flags.config;
  asked.permits.modules = flags.modules;
  TROUPE_RETURN_IF_ERROR(ActWhereLibTorchIs(
      [&] { return !flags.modules.empty() || (!flags.config.empty() && NamesModules(flags.config)); }));
  TROUPE_ASSIGN_OR_RETURN(std::unique_ptr<run::CheckpointEngine> opened, run::CheckpointEngine::Open(asked));
  return std::make_unique<Checkpoint>(std::move(opened));
}

absl::StatusOr<std::unique_ptr<Answerer>> FindAnswerer(const QueryFlags& flags) {
  TROUPE_ASSIGN_OR_RETURN(const cli::LearnerTarget target, cli::FindLearner(flags.target, flags.directory));
  if (!flags.checkpoint.empty()) {
    if (!target.folder.empty()) return OpenCheckpoint(flags, target.folder);
    return absl::InvalidArgumentError(absl::StrCat(
        "--checkpoint: expected a run's folder or name beside it, got the address \"", target.address, "\""));
  }
  const bool is_here = !target.folder.empty() && !target.elsewhere();
  if (is_here && (target.address.empty() || !cli::IsTrained(target))) return OpenCheckpoint(flags, target.folder);
  TROUPE_ASSIGN_OR_RETURN(const std::string address, cli::ReachableAddress(target));
  TROUPE_ASSIGN_OR_RETURN(std::unique_ptr<rpc::QueryClient> client, rpc::QueryClient::Create(address, flags.security));
  return std::make_unique<Server>(std::move(client), absl::Seconds(flags.timeout_s));
}

/// Which moment the answer is of, where that is not now.
void PrintMoment(const Answerer& answerer) {
  if (!answerer.checkpoint().empty()) std::printf("as of %s:\n", base::LogSafe(answerer.checkpoint()).c_str());
}

void Print(const serving::PolicyActions& actions) {
  const nlohmann::ordered_json json = cli::ActionsJson(actions);
  std::printf("policy %s, weights version %lld of learner epoch %llu\n",
              base::TerminalSafe(actions.policy_id.value()).c_str(), static_cast<long long>(actions.version.n),
              static_cast<unsigned long long>(actions.version.learner_epoch));
  std::vector<std::vector<std::string>> table = {{"row", "action", "as sampled", "log-probability"}};
  const bool remembers = !actions.state_out.empty();
  if (remembers) table[0].push_back("state_out");
  for (size_t row = 0; row < static_cast<size_t>(actions.rows); ++row) {
    table.push_back({absl::StrCat(row), json["actions"][row].dump(), json["sampled_actions"][row].dump(),
                     absl::StrCat(actions.logp[row])});
    if (remembers) table.back().push_back(json["state_out"][row].dump());
  }
  cli::PrintTable(table);
}

void Print(const serving::PolicyDescriptions& run) {
  constexpr size_t kMaxAgents = 6;
  std::vector<std::vector<std::string>> table = {{"policy", "version", "observations", "actions", "--agent", "agents"}};
  for (const serving::PolicyDescription& policy : run.policies) {
    std::vector<std::string> agents;
    for (const int32_t slot : policy.agent_slots) agents.push_back(run.agent_ids[static_cast<size_t>(slot)]);
    table.push_back({policy.policy_id.value(), absl::StrCat(policy.version.n), base::LogSafe(policy.observation_space),
                     base::LogSafe(policy.action_space), policy.needs_agent_slots ? "needed" : "not needed",
                     agents.empty() ? "none" : base::LogSafe(base::FewOf(agents, kMaxAgents))});
  }
  cli::PrintTable(table);
}

absl::StatusOr<int> Describe(const QueryFlags& flags, Answerer& answerer) {
  std::vector<policy::PolicyId> ids;
  if (!flags.policy.empty()) ids.emplace_back(flags.policy);
  TROUPE_ASSIGN_OR_RETURN(const serving::PolicyDescriptions run, answerer.DescribePolicies(ids));
  if (flags.json) {
    cli::PrintJson(cli::DescriptionsJson(run));
  } else {
    PrintMoment(answerer);
    Print(run);
  }
  return 0;
}

/// Whom to ask. The server need not be asked for it where the command line says it all.
absl::StatusOr<cli::AskedPolicy> Resolve(const QueryFlags& flags, Answerer& answerer, int64_t rows) {
  if (!flags.policy.empty() && flags.agents.empty())
    return cli::AskedPolicy{policy::PolicyId(flags.policy), flags.agent_slots};
  std::vector<policy::PolicyId> ids;
  if (!flags.policy.empty()) ids.emplace_back(flags.policy);
  TROUPE_ASSIGN_OR_RETURN(const serving::PolicyDescriptions run, answerer.DescribePolicies(ids));
  TROUPE_ASSIGN_OR_RETURN(cli::AskedPolicy asked, cli::ResolveAgents(run, flags.policy, flags.agents, rows));
  if (!flags.agent_slots.empty()) asked.agent_slots = flags.agent_slots;
  return asked;
}

/// What was given beside the observations, as many rows; none where it was not given.
absl::StatusOr<cli::RowsText> ParseBeside(const std::string& flag, const std::string& json, tensor::DType dtype,
                                          const cli::RowsText& obs) {
  if (json.empty()) return cli::RowsText();
  TROUPE_ASSIGN_OR_RETURN(cli::RowsText text, cli::ParseRows(flag, json, dtype));
  if (text.rows == obs.rows) return text;
  return absl::InvalidArgumentError(absl::StrCat(flag, ": ", text.rows, " rows, expected ", obs.rows, " as in --obs"));
}

absl::StatusOr<int> Query(const QueryFlags& flags) {
  if (flags.obs.empty()) {
    TROUPE_ASSIGN_OR_RETURN(const std::unique_ptr<Answerer> answerer, FindAnswerer(flags));
    return Describe(flags, *answerer);
  }
  serving::QueryRows rows;
  rows.obs_dtype = flags.obs_dtype == "uint8" ? tensor::DType::kUint8 : tensor::DType::kFloat32;
  TROUPE_ASSIGN_OR_RETURN(const cli::RowsText obs, cli::ParseRows("--obs", flags.obs, rows.obs_dtype));
  rows.rows = obs.rows;
  rows.obs = absl::MakeConstSpan(reinterpret_cast<const std::byte*>(obs.bytes.data()), obs.bytes.size());
  TROUPE_ASSIGN_OR_RETURN(const cli::RowsText mask,
                          ParseBeside("--action-mask", flags.action_mask, tensor::DType::kUint8, obs));
  TROUPE_ASSIGN_OR_RETURN(const cli::RowsText state,
                          ParseBeside("--state-in", flags.state_in, tensor::DType::kFloat32, obs));
  rows.state_in = absl::MakeConstSpan(reinterpret_cast<const std::byte*>(state.bytes.data()), state.bytes.size());
  rows.action_mask = absl::MakeConstSpan(reinterpret_cast<const uint8_t*>(mask.bytes.data()), mask.bytes.size());
  TROUPE_ASSIGN_OR_RETURN(const std::unique_ptr<Answerer> answerer, FindAnswerer(flags));
  TROUPE_ASSIGN_OR_RETURN(const cli::AskedPolicy asked, Resolve(flags, *answerer, rows.rows));
  rows.policy_id = asked.policy_id;
  rows.agent_slots = asked.agent_slots;
  serving::ActionQuery query;
  query.deterministic = flags.deterministic;
  query.policies.push_back(rows);
  TROUPE_ASSIGN_OR_RETURN(const serving::ActionAnswer answer, answerer->ComputeActions(query));
  if (flags.json) {
    cli::PrintJson(cli::ActionsJson(answer[0]));
  } else {
    PrintMoment(*answerer);
    Print(answer[0]);
  }
  return 0;
}

}  // namespace

void AddQueryCommand(CLI::App& app, Action* action) {
  const auto flags = std::make_shared<QueryFlags>();
  CLI::App* query = app.add_subcommand("query", "Ask a run, a learner or a policy server what a policy does.");
  query
      ->add_option("target", flags->target,
                   "a run folder or a run's name: its learner where it trains, else its newest checkpoint; or the "
                   "address of a learner or of `troupe serve`: unix:PATH or HOST:PORT")
      ->required();
  query->add_option("--policy", flags->policy,
                    "the policy's id; may be left out where --agent says it, or there is but one");
  query->add_option(
      "--obs", flags->obs,
      "JSON: a flattened observation, or a list of them; without it: the policies, their spaces and agents");
  query->add_option("--obs-dtype", flags->obs_dtype, "float32, or uint8 for a uint8 Box")
      ->capture_default_str()
      ->check(CLI::IsMember({"float32", "uint8"}));
  query->add_option("--action-mask", flags->action_mask,
                    "JSON: a row of 0 (forbidden) and 1 for each observation (default: everything is allowed)");
  query->add_option("--state-in", flags->state_in,
                    "JSON: the state_out of each agent's decision before, of a policy that remembers (default: each "
                    "observation is its agent's first)");
  CLI::Option* const agent = query
                                 ->add_option("--agent", flags->agents,
                                              "id of the agent that each observation is of, or of all: for policies "
                                              "that see which agent they play, and to find the policy by its agent")
                                 ->delimiter(',')
                                 ->allow_extra_args(false);
  query->add_option("--agent-slot", flags->agent_slots, "the same by place in the run's list of agents, from 0")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->excludes(agent);
  query->add_flag("--deterministic", flags->deterministic, "the most probable action instead of a sampled one");
  query->add_option("--checkpoint", flags->checkpoint,
                    "of a run: ask this checkpoint, latest, best, or its env steps, though it may train");
  query->add_option(
      "--config", flags->config,
      "for a checkpoint: a configuration of yours; what it names in Python may be imported, its TorchScript "
      "files run");
  query
      ->add_option("--allow-torchscript", flags->modules,
                   "for a checkpoint: a TorchScript file that may be run, as the run keeps in RUN/torchscript (repeat)")
      ->allow_extra_args(false);
  query->add_option("--directory", flags->directory, "where runs are looked for by name")->capture_default_str();
  query->add_option("--timeout", flags->timeout_s, "seconds to wait for an answer")
      ->capture_default_str()
      ->check(CLI::Range(0.001, 3600.0));
  AddTransportFlags(query, "ask", &flags->security);
  query->add_flag("--json", flags->json,
                  "one line: {\"policy_id\", \"learner_epoch\", \"version\", \"actions\", \"sampled_actions\", "
                  "\"action_logp\"}, and \"state_out\" of a policy that remembers; without --obs {\"agents\", "
                  "\"policies\"} (docs/cli.md)");
  query->footer(
      "Example: troupe query runs/my_run\n"
      "         troupe query runs/my_run --agent agent_0 --obs '[0.1, 0, -0.2, 0]' --deterministic");
  query->callback([=] { *action = [=] { return Query(*flags); }; });
}

}  // namespace troupe::services
