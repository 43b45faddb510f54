// troupe query

#include <cstdio>
#include <memory>

#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"
#include "lib/rpc/query_client.h"
#include "services/cli/cli_command.h"
#include "services/cli/output.h"
#include "services/cli/query_text.h"
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

namespace troupe::services {
namespace {

struct QueryFlags {
  std::string address;
  std::string policy;
  std::string obs;
  std::string obs_dtype = "float32";
  std::string action_mask;
  std::vector<int32_t> agent_slots;
  double timeout_s = 10;
  bool deterministic = false;
  bool insecure_plaintext_network = false;
  bool json = false;
};

void Print(const serving::PolicyActions& actions) {
  const nlohmann::ordered_json json = ActionsJson(actions);
  std::printf("policy %s, weights version %lld of learner epoch %llu\n", actions.policy_id.value().c_str(),
              static_cast<long long>(actions.version.n),
              static_cast<unsigned long long>(actions.version.learner_epoch));
  std::vector<std::vector<std::string>> table = {{"row", "action", "as sampled", "log-probability"}};
  for (size_t row = 0; row < static_cast<size_t>(actions.rows); ++row) {
    table.push_back({absl::StrCat(row), json["actions"][row].dump(), json["sampled_actions"][row].dump(),
                     absl::StrCat(actions.logp[row])});
  }
  PrintTable(table);
}

absl::StatusOr<int> Query(const QueryFlags& flags) {
  serving::QueryRows rows;
  rows.policy_id = policy::PolicyId(flags.policy);
  rows.obs_dtype = flags.obs_dtype == "uint8" ? tensor::DType::kUint8 : tensor::DType::kFloat32;
  TROUPE_ASSIGN_OR_RETURN(const RowsText obs, ParseRows("--obs", flags.obs, rows.obs_dtype));
  rows.rows = obs.rows;
  rows.obs = absl::MakeConstSpan(reinterpret_cast<const std::byte*>(obs.bytes.data()), obs.bytes.size());
  RowsText mask;
  if (!flags.action_mask.empty()) {
    TROUPE_ASSIGN_OR_RETURN(mask, ParseRows("--action-mask", flags.action_mask, tensor::DType::kUint8));
    if (mask.rows != obs.rows) {
      return absl::InvalidArgumentError(
          absl::StrCat("--action-mask: ", mask.rows, " rows, expected ", obs.rows, " as in --obs"));
    }
  }
  rows.action_mask = absl::MakeConstSpan(reinterpret_cast<const uint8_t*>(mask.bytes.data()), mask.bytes.size());
  rows.agent_slots = flags.agent_slots;
  serving::ActionQuery query;
  query.deterministic = flags.deterministic;
  query.policies.push_back(rows);

  rpc::TransportSecurity security;
  security.insecure_plaintext_network = flags.insecure_plaintext_network;
  TROUPE_ASSIGN_OR_RETURN(const std::unique_ptr<rpc::QueryClient> client,
                          rpc::QueryClient::Create(flags.address, security));
  TROUPE_ASSIGN_OR_RETURN(const serving::ActionAnswer answer,
                          client->ComputeActions(query, absl::Seconds(flags.timeout_s)));
  if (flags.json) {
    PrintJson(ActionsJson(answer[0]));
  } else {
    Print(answer[0]);
  }
  return 0;
}

}  // namespace

void AddQueryCommand(CLI::App& app, Action* action) {
  const auto flags = std::make_shared<QueryFlags>();
  CLI::App* query = app.add_subcommand("query", "Ask a learner or a policy server what a policy does.");
  query->add_option("address", flags->address, "of a learner or of `troupe serve`: unix:PATH or HOST:PORT")->required();
  query->add_option("--policy", flags->policy, "the policy's id")->required();
  query->add_option("--obs", flags->obs, "JSON: a flattened observation, or a list of them")->required();
  query->add_option("--obs-dtype", flags->obs_dtype, "float32, or uint8 for a uint8 Box")
      ->capture_default_str()
      ->check(CLI::IsMember({"float32", "uint8"}));
  query->add_option("--action-mask", flags->action_mask,
                    "JSON: a row of 0 (forbidden) and 1 for each observation (default: everything is allowed)");
  query
      ->add_option("--agent-slot", flags->agent_slots,
                   "place in the run's list of agents, from 0, of each observation's agent; for policies that see it")
      ->delimiter(',')
      ->allow_extra_args(false);
  query->add_flag("--deterministic", flags->deterministic, "the most probable action instead of a sampled one");
  query->add_option("--timeout", flags->timeout_s, "seconds to wait for an answer")
      ->capture_default_str()
      ->check(CLI::Range(0.001, 3600.0));
  query->add_flag("--insecure-plaintext-network", flags->insecure_plaintext_network,
                  "ask without encryption and authentication beyond this machine");
  query->add_flag("--json", flags->json,
                  "one line: {\"policy_id\", \"learner_epoch\", \"version\", \"actions\", \"sampled_actions\", "
                  "\"action_logp\"} (docs/cli.md)");
  query->footer("Example: troupe query 127.0.0.1:50061 --policy shared --obs '[0.1, 0, -0.2, 0]' --deterministic");
  query->callback([=] { *action = [=] { return Query(*flags); }; });
}

}  // namespace troupe::services
