// troupe policy ls|add|copy|import|remove|set|freeze|thaw|set-trainable, troupe mapping show|set

#include <cstdio>
#include <filesystem>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/cli/learner_target.h"
#include "lib/cli/output.h"
#include "lib/config/parse_policy_mapping.h"
#include "lib/policy/policy_change.h"
#include "lib/policy/policy_table.h"
#include "lib/rpc/control/control_client.h"
#include "lib/rpc/control/monitor_client.h"
#include "lib/rpc/control/policy_listing.h"
#include "lib/run/stopped_run.h"
#include "lib/storage/checkpoint_weights.h"
#include "lib/storage/run_folder.h"
#include "services/cli/cli_command.h"
#include "services/cli/transport_flags.h"
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

namespace troupe::services {
namespace {

using policy::PolicyId;

/// Whom every one of these commands speaks to.
struct ControlFlags {
  std::string command;  ///< "policy add"
  std::string target;
  std::string directory = "runs";
  double timeout_s = 120;  ///< longer than the learner tries what is in Python, so that its words arrive
  rpc::TransportSecurity security;
  bool json = false;
};

/// What the commands say of the policy they bring.
struct NewPolicyFlags {
  std::string id;
  std::string like;
  std::string policy_class;
  std::string copy_of;
  std::string import_from;
  bool frozen = false;
  bool replace = false;
};

/// The policies as the learner tells of them, or as the run's newest checkpoint holds them.
struct Policies {
  rpc::PolicyListing listing;
  std::string json;        ///< the whole table; empty where only the listing is told: at an address
  std::string checkpoint;  ///< that told it; empty: a learner did
};

absl::StatusOr<Policies> AskLearner(const ControlFlags& flags, const cli::LearnerTarget& target) {
  TROUPE_ASSIGN_OR_RETURN(const std::unique_ptr<rpc::MonitorClient> client, cli::OpenMonitor(target, flags.security));
  TROUPE_ASSIGN_OR_RETURN(rpc::PoliciesAnswer answer, client->Policies(absl::Seconds(flags.timeout_s)));
  if (answer.table_json.empty()) return Policies{std::move(answer.listing), "", ""};
  TROUPE_ASSIGN_OR_RETURN(const policy::PolicyTablePtr table, policy::PolicyTableFromJson(answer.table_json));
  return Policies{rpc::ListPolicies(*table, /*whole=*/true), std::move(answer.table_json), ""};
}

absl::StatusOr<Policies> ReadCheckpoint(const std::string& folder) {
  storage::FileSystem& fs = storage::FileSystem::Posix();
  const auto read = [&fs](const std::string& checkpoint) -> absl::StatusOr<Policies> {
    TROUPE_ASSIGN_OR_RETURN(const storage::CheckpointManifest manifest,
                            storage::ReadManifest(fs, checkpoint, storage::ManifestPart::kPolicies));
    TROUPE_ASSIGN_OR_RETURN(const policy::PolicyTablePtr table, storage::PoliciesOf(manifest, checkpoint));
    return Policies{rpc::ListPolicies(*table, /*whole=*/true), policy::ToJson(*table), checkpoint};
  };
  return storage::ReadNamedCheckpoint(fs, folder, "latest", read);
}

/// For who only looks: a run that nobody trains tells of its policies, too.
absl::StatusOr<Policies> Look(const ControlFlags& flags) {
  TROUPE_ASSIGN_OR_RETURN(const cli::LearnerTarget target, cli::FindLearner(flags.target, flags.directory));
  absl::StatusOr<Policies> told = AskLearner(flags, target);
  const bool nobody = absl::IsUnavailable(told.status()) && !target.folder.empty() && !target.elsewhere();
  return nobody ? ReadCheckpoint(target.folder) : std::move(told);
}

/// Which moment a table is of, where that is not now.
void PrintMoment(const Policies& policies) {
  if (policies.checkpoint.empty()) return;
  std::printf("nobody trains the run now; as of %s:\n", base::LogSafe(policies.checkpoint).c_str());
}

/// Nobody trains the run, as OpenControl says, and its folder is here.
bool IsStopped(const cli::LearnerTarget& target, const absl::Status& control) {
  return absl::IsUnavailable(control) && !target.folder.empty() && !target.elsewhere();
}

absl::StatusOr<int> Change(const ControlFlags& flags, const policy::PolicyChange& change) {
  TROUPE_ASSIGN_OR_RETURN(const cli::LearnerTarget target, cli::FindLearner(flags.target, flags.directory));
  const absl::StatusOr<std::unique_ptr<rpc::ControlClient>> client = cli::OpenControl(target, flags.command);
  const bool needs_no_learner =
      std::holds_alternative<policy::RemovePolicy>(change) || std::holds_alternative<policy::SetMapping>(change);
  run::StoppedChange done;
  if (needs_no_learner && IsStopped(target, client.status())) {
    TROUPE_ASSIGN_OR_RETURN(done, run::ChangeStoppedRun(target.folder, change));
  } else {
    TROUPE_RETURN_IF_ERROR(client.status());
    TROUPE_ASSIGN_OR_RETURN(done.revision, (*client)->ChangePolicies(change, absl::Seconds(flags.timeout_s)));
  }
  if (flags.json) {
    cli::PrintJson({{"revision", done.revision}});
  } else {
    std::printf("done, %sthe policies are at revision %lld\n",
                done.checkpoint.empty() ? "" : absl::StrCat("in ", base::LogSafe(done.checkpoint), ": ").c_str(),
                static_cast<long long>(done.revision));
  }
  return 0;
}

const char* PartOf(const rpc::ListedPolicy& policy) {
  if (policy.replaced) return "replaced, its episodes end";
  if (policy.removed != 0) return "removed, its episodes end";
  return policy.plays ? "plays" : "idle";
}

/// What `policy ls --json` says of a listing, with the keys that the whole table has, too.
nlohmann::ordered_json ToJson(const rpc::PolicyListing& listing) {
  nlohmann::ordered_json policies = nlohmann::ordered_json::array();
  for (const rpc::ListedPolicy& policy : listing.policies) {
    policies.push_back({{"slot", policy.slot.value()},
                        {"id", policy.id.value()},
                        {"since", policy.since},
                        {"removed", policy.removed},
                        {"replaced", policy.replaced},
                        {"trains", policy.trains},
                        {"class", policy.policy_class}});
  }
  nlohmann::ordered_json mapping = nlohmann::ordered_json::array();
  for (const policy::MappingRule& rule : listing.mapping) {
    nlohmann::ordered_json choices = nlohmann::ordered_json::array();
    for (const policy::WeightedPolicy& weighted : rule.policies) {
      choices.push_back({{"policy", weighted.policy.value()}, {"weight", weighted.weight}});
    }
    mapping.push_back({{"agents", rule.agent_glob}, {"policies", std::move(choices)}});
    if (!rule.function.empty()) mapping.back()["function"] = rule.function;
  }
  return {{"revision", listing.revision}, {"agents", listing.agent_ids}, {"policies", policies}, {"mapping", mapping}};
}

absl::StatusOr<int> List(const ControlFlags& flags) {
  TROUPE_ASSIGN_OR_RETURN(const Policies policies, Look(flags));
  if (flags.json) {
    cli::PrintJson(policies.json.empty() ? ToJson(policies.listing) : nlohmann::ordered_json::parse(policies.json));
    return 0;
  }
  std::vector<std::vector<std::string>> rows = {{"policy", "class", "trains", "part", "since revision"}};
  for (const rpc::ListedPolicy& policy : policies.listing.policies) {
    rows.push_back({policy.id.value(), policy.policy_class, policy.trains ? "yes" : "no", PartOf(policy),
                    absl::StrCat(policy.since)});
  }
  PrintMoment(policies);
  cli::PrintTable(rows);
  return 0;
}

absl::StatusOr<int> ShowMapping(const ControlFlags& flags) {
  TROUPE_ASSIGN_OR_RETURN(const Policies told, Look(flags));
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  std::vector<std::vector<std::string>> rows = {{"agents", "policies"}};
  for (const policy::MappingRule& rule : told.listing.mapping) {
    std::vector<std::string> choices;
    nlohmann::ordered_json weights = nlohmann::ordered_json::object();
    for (const policy::WeightedPolicy& weighted : rule.policies) {
      const std::string& id = weighted.policy.value();
      choices.push_back(rule.policies.size() == 1 ? id : absl::StrCat(id, ": ", weighted.weight));
      weights[id] = weighted.weight;
    }
    const std::string policies = absl::StrJoin(choices, ", ");
    if (rule.function.empty()) {
      rows.push_back({rule.agent_glob, policies});
      json[rule.agent_glob] = std::move(weights);
    } else {
      rows.push_back(
          {rule.agent_glob, absl::StrCat("function ", rule.function, policies.empty() ? "" : " of ", policies)});
      json[rule.agent_glob] = {{"function", rule.function}, {"policies", std::move(weights)}};
    }
  }
  if (flags.json) {
    cli::PrintJson(json);
  } else {
    PrintMoment(told);
    cli::PrintTable(rows);
  }
  return 0;
}

absl::StatusOr<int> SetMapping(const ControlFlags& flags, const std::string& yaml) {
  TROUPE_ASSIGN_OR_RETURN(const cli::LearnerTarget target, cli::FindLearner(flags.target, flags.directory));
  const absl::Status control = cli::OpenControl(target, flags.command).status();
  if (!control.ok() && !IsStopped(target, control)) return control;  // before an error of a run that cannot be asked
  TROUPE_ASSIGN_OR_RETURN(const Policies policies, Look(flags));
  TROUPE_ASSIGN_OR_RETURN(std::vector<policy::MappingRule> rules,
                          config::ParsePolicyMapping(yaml, "MAPPING", policies.listing.agent_ids));
  return Change(flags, policy::SetMapping{std::move(rules)});
}

/// A path that is one here goes to the learner whole, since that may run in another folder.
std::string WholePath(const std::string& path) {
  std::error_code error;
  const std::string file = path.substr(0, path.find('#'));
  if (!std::filesystem::exists(file, error)) return path;
  return std::filesystem::absolute(file, error).string() + path.substr(file.size());
}

absl::StatusOr<int> Add(const ControlFlags& flags, const NewPolicyFlags& policy) {
  policy::AddPolicy add;
  add.id = PolicyId(policy.id);
  add.like = PolicyId(policy.like);
  add.policy_class = policy.policy_class;
  add.copy_of = PolicyId(policy.copy_of);
  if (!policy.import_from.empty()) add.import_from = WholePath(policy.import_from);
  add.trains = !policy.frozen;
  add.replace = policy.replace;
  return Change(flags, add);
}

std::vector<PolicyId> Ids(const std::vector<std::string>& texts) {
  std::vector<PolicyId> ids;
  for (const std::string& text : texts) ids.emplace_back(text);
  return ids;
}

/// A subcommand and the flags that all of them share.
CLI::App* AddControl(CLI::App* parent, const std::string& name, const std::string& what,
                     const std::shared_ptr<ControlFlags>& flags, const std::string& json,
                     const std::string& target = "run folder, or a run's name") {
  flags->command = absl::StrCat(parent->get_name(), " ", name);
  CLI::App* command = parent->add_subcommand(name, what);
  command->add_option("target", flags->target, target)->required();
  command->add_option("--directory", flags->directory, "where runs are looked for by name")->capture_default_str();
  command->add_option("--timeout", flags->timeout_s, "seconds to wait for an answer")
      ->capture_default_str()
      ->check(CLI::Range(0.001, 3600.0));
  AddTransportFlags(command, "ask", &flags->security);
  command->add_flag("--json", flags->json, json);
  return command;
}

constexpr char kAnyTarget[] = "the learner's address (unix:PATH or HOST:PORT), a run folder, or a run's name";
constexpr char kRevisionJson[] = "one line: {\"revision\"}";

void AddFrozenFlag(CLI::App* command, const std::shared_ptr<NewPolicyFlags>& policy) {
  command->add_flag("--frozen", policy->frozen, "updates leave it as it is");
}

void AddLs(CLI::App* parent, Action* action) {
  const auto flags = std::make_shared<ControlFlags>();
  CLI::App* ls =
      AddControl(parent, "ls", "The policies of a run.", flags,
                 "one line: {\"revision\", \"agents\", \"policies\", \"mapping\"} (docs/cli.md)", kAnyTarget);
  ls->footer("Example: troupe policy ls runs/my_run");
  ls->callback([=] { *action = [=] { return List(*flags); }; });
}

void AddAdd(CLI::App* parent, Action* action) {
  const auto flags = std::make_shared<ControlFlags>();
  const auto policy = std::make_shared<NewPolicyFlags>();
  CLI::App* add = AddControl(parent, "add", "A policy more, with fresh weights.", flags, kRevisionJson);
  add->add_option("id", policy->id, "its id")->required();
  add->add_option("--like", policy->like,
                  "the policy whose spaces and networks it has (default: what all have in common)");
  add->add_option("--class", policy->policy_class,
                  "ppo (default), random, scripted:NAME, python:MODULE:NAME or checkpoint:PATH[#ID]");
  AddFrozenFlag(add, policy);
  add->footer("Example: troupe policy add runs/my_run challenger --like main");
  add->callback([=] { *action = [=] { return Add(*flags, *policy); }; });
}

void AddCopy(CLI::App* parent, Action* action) {
  const auto flags = std::make_shared<ControlFlags>();
  const auto policy = std::make_shared<NewPolicyFlags>();
  CLI::App* copy =
      AddControl(parent, "copy", "A policy more, with all that another one has learned.", flags, kRevisionJson);
  copy->add_option("source", policy->copy_of, "the policy to copy")->required();
  copy->add_option("id", policy->id, "the copy's id")->required();
  AddFrozenFlag(copy, policy);
  copy->add_flag("--replace", policy->replace, "the id is there: the copy takes its place");
  copy->footer("Example: troupe policy copy runs/my_run main main_v1 --frozen");
  copy->callback([=] { *action = [=] { return Add(*flags, *policy); }; });
}

void AddImport(CLI::App* parent, Action* action) {
  const auto flags = std::make_shared<ControlFlags>();
  const auto policy = std::make_shared<NewPolicyFlags>();
  CLI::App* command = AddControl(parent, "import", "A policy more, from a run or checkpoint on the learner's machine.",
                                 flags, kRevisionJson);
  command->add_option("source", policy->import_from, "run folder or checkpoint, with #ID for a policy of another id")
      ->required();
  command->add_option("id", policy->id, "its id here")->required();
  command->add_option("--like", policy->like,
                      "the policy whose spaces and networks it has (default: what all have in common)");
  AddFrozenFlag(command, policy);
  command->add_flag("--replace", policy->replace, "the id is there: the imported one takes its place");
  command->footer("Example: troupe policy import runs/my_run 'runs/older#main' rival --frozen");
  command->callback([=] { *action = [=] { return Add(*flags, *policy); }; });
}

void AddRemove(CLI::App* parent, Action* action) {
  const auto flags = std::make_shared<ControlFlags>();
  const auto id = std::make_shared<std::string>();
  CLI::App* remove = AddControl(parent, "remove",
                                "Take out a policy that no agent is mapped to; its episodes in progress end with it. "
                                "Of a stopped run: in its newest checkpoint.",
                                flags, kRevisionJson);
  remove->add_option("id", *id, "the policy's id")->required();
  remove->footer("Example: troupe policy remove runs/my_run challenger");
  remove->callback([=] { *action = [=] { return Change(*flags, policy::RemovePolicy{PolicyId(*id)}); }; });
}

void AddSet(CLI::App* parent, Action* action) {
  const auto flags = std::make_shared<ControlFlags>();
  const auto set = std::make_shared<policy::SetPolicy>();
  const auto id = std::make_shared<std::string>();
  CLI::App* command = AddControl(
      parent, "set",
      "Train a policy with other options of its algorithm, from the next update on. A resumed run keeps them.", flags,
      kRevisionJson);
  command->add_option("id", *id, "the policy's id")->required();
  command->add_option("settings", set->settings, "algorithm.KEY=VALUE, with the value in YAML")->required();
  command->footer("Example: troupe policy set runs/my_run main algorithm.lr=1e-4 algorithm.clip_param=0.1");
  command->callback([=] {
    *action = [=] {
      set->id = PolicyId(*id);
      return Change(*flags, *set);
    };
  });
}

void AddIds(CLI::App* parent, Action* action, const std::string& name, const std::string& what, bool needs_one,
            policy::PolicyChange (*make)(std::vector<PolicyId>)) {
  const auto flags = std::make_shared<ControlFlags>();
  const auto ids = std::make_shared<std::vector<std::string>>();
  CLI::App* command = AddControl(parent, name, what, flags, kRevisionJson);
  CLI::Option* option = command->add_option("ids", *ids, "policy ids");
  if (needs_one) option->required();
  command->footer(absl::StrCat("Example: troupe policy ", name, " runs/my_run main"));
  command->callback([=] { *action = [=] { return Change(*flags, make(Ids(*ids))); }; });
}

}  // namespace

void AddPolicyCommand(CLI::App& app, Action* action) {
  CLI::App* policy = app.add_subcommand("policy", "See and change the policies of a run that trains.");
  policy->require_subcommand(1);
  policy->footer("Example: troupe policy ls runs/my_run");
  AddLs(policy, action);
  AddAdd(policy, action);
  AddCopy(policy, action);
  AddImport(policy, action);
  AddRemove(policy, action);
  AddSet(policy, action);
  AddIds(policy, action, "freeze", "Updates leave these policies as they are from now on.", true,
         [](std::vector<PolicyId> ids) -> policy::PolicyChange {
           return policy::SetPoliciesTrain{std::move(ids), false};
         });
  AddIds(policy, action, "thaw", "Updates train these policies again.", true,
         [](std::vector<PolicyId> ids) -> policy::PolicyChange {
           return policy::SetPoliciesTrain{std::move(ids), true};
         });
  AddIds(policy, action, "set-trainable", "Exactly these policies train; without ids none does.", false,
         [](std::vector<PolicyId> ids) -> policy::PolicyChange { return policy::SetTrainable{std::move(ids)}; });
}

void AddMappingCommand(CLI::App& app, Action* action) {
  CLI::App* mapping = app.add_subcommand("mapping", "See and change which policies the agents of a run play.");
  mapping->require_subcommand(1);
  mapping->footer("Example: troupe mapping show runs/my_run");

  const auto show_flags = std::make_shared<ControlFlags>();
  CLI::App* show = AddControl(mapping, "show", "Which policies the agents play.", show_flags,
                              "one line: {GLOB: {POLICY: WEIGHT, ...}, ...} (docs/cli.md)", kAnyTarget);
  show->footer("Example: troupe mapping show runs/my_run");
  show->callback([=] { *action = [=] { return ShowMapping(*show_flags); }; });

  const auto flags = std::make_shared<ControlFlags>();
  const auto yaml = std::make_shared<std::string>();
  CLI::App* set = AddControl(mapping, "set",
                             "Map the agents anew, from the next episode of every environment on. Of a stopped run: in "
                             "its newest checkpoint.",
                             flags, kRevisionJson);
  set->add_option("mapping", *yaml, "YAML as multi_agent.policy_mapping has it")->required();
  set->footer("Example: troupe mapping set runs/my_run '{agent_0: main, \"*\": {main: 1, main_v1: 2}}'");
  set->callback([=] { *action = [=] { return SetMapping(*flags, *yaml); }; });
}

}  // namespace troupe::services
