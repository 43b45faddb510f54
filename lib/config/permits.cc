#include "lib/config/permits.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <utility>
#include <variant>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "lib/base/exit_code.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/config/external.h"
#include "lib/config/resolved_run.h"
#include "lib/config/torch_modules.h"
#include "lib/env/env_args.h"
#include "lib/policy/module_files.h"
#include "lib/policy/policy_class.h"
#include "lib/policy/policy_entry.h"
#include "lib/policy/policy_spec.h"
#include "lib/policy/python_callable.h"
#include "proto/troupe/v1/config.pb.h"

namespace troupe::config {
namespace {

constexpr size_t kMaxShown = 200;  // characters of a name in an error message

/// What a name behind --allow-python may stand for.
constexpr Statement::Kind kInPython[] = {Statement::Kind::kEnv, Statement::Kind::kMapping, Statement::Kind::kPolicy,
                                         Statement::Kind::kCallback, Statement::Kind::kObservation};

uint64_t Fnv1a(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325ull;
  for (const char c : text) {
    hash ^= static_cast<uint8_t>(c);
    hash *= 0x100000001b3ull;
  }
  return hash;
}

std::string PluginStatement(const v1::EnvConfig& env) {
  return absl::StrCat(std::filesystem::path(env.plugin()).filename().string(), ":", env.name());
}

void AddMapping(const std::string& function, std::set<Statement>* statements) {
  if (policy::IsPythonName(function)) statements->insert({Statement::Kind::kMapping, function});
}

void AddModules(const policy::PolicySpec& spec, std::set<Statement>* statements) {
  for (const std::string& hash : policy::ModuleHashes(spec)) {
    statements->insert({Statement::Kind::kModule, absl::StrCat(std::string(policy::kModuleHashPrefix), hash)});
  }
}

/// Text in a value; names inside a mapping are text, too.
bool HoldsText(const env::ArgValue& value) {
  if (std::holds_alternative<std::string>(value)) return true;
  if (const auto* map = std::get_if<env::ArgMap>(&value)) return !map->empty();
  const auto* list = std::get_if<env::ArgList>(&value);
  return list != nullptr && std::any_of(list->begin(), list->end(), HoldsText);
}

/// The entries by name: their order is no text, and a run of an older version has them sorted.
env::ArgMap ByName(env::ArgMap map) {
  std::sort(map.begin(), map.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  return map;
}

/// True if two values differ in nothing but numbers, booleans, null and the order of mappings.
bool SameText(const env::ArgValue& a, const env::ArgValue& b) {
  if (!HoldsText(a) && !HoldsText(b)) return true;
  if (a.index() != b.index()) return false;
  if (const auto* text = std::get_if<std::string>(&a)) return *text == std::get<std::string>(b);
  if (const auto* list = std::get_if<env::ArgList>(&a)) {
    const auto& other = std::get<env::ArgList>(b);
    return std::equal(list->begin(), list->end(), other.begin(), other.end(), SameText);
  }
  const auto same = [](const auto& x, const auto& y) { return x.first == y.first && SameText(x.second, y.second); };
  const env::ArgMap map = ByName(std::get<env::ArgMap>(a));
  const env::ArgMap other = ByName(std::get<env::ArgMap>(b));
  return std::equal(map.begin(), map.end(), other.begin(), other.end(), same);
}

/// The first argument whose text is another.
std::optional<std::string> FirstOtherText(const env::ArgMap& asked, const env::ArgMap& own) {
  const auto value_in = [](const env::ArgMap& args, const std::string& name) {
    const env::ArgValue* const found = env::FindArg(args, name);
    return found == nullptr ? env::ArgValue() : *found;
  };
  env::ArgMap names = own;
  names.insert(names.end(), asked.begin(), asked.end());
  for (const auto& [name, value] : names) {
    if (!SameText(value_in(asked, name), value_in(own, name))) return name;
  }
  return std::nullopt;
}

absl::Status Refused(const std::string& text) {
  return base::WithExitCode(absl::PermissionDeniedError(text), base::ExitCode::kRefused);
}

/// A name that a person may copy into a shell.
bool IsPlainName(std::string_view name) {
  return name.size() <= kMaxShown && std::all_of(name.begin(), name.end(), [](char c) {
           return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.' || c == ':' || c == '/' ||
                  c == '-';
         });
}

std::string NameOf(Statement::Kind kind) {
  switch (kind) {
    case Statement::Kind::kEnv:
    case Statement::Kind::kPlugin:
      return "environment";
    case Statement::Kind::kMapping:
      return "mapping function";
    case Statement::Kind::kPolicy:
      return "policy class";
    case Statement::Kind::kModule:
      return "TorchScript module";
    case Statement::Kind::kCallback:
      return "callback";
    case Statement::Kind::kObservation:
      return "observation function";
    case Statement::Kind::kExternal:
      return "world outside";
  }
  return "code";
}

absl::Status Refuse(const Statement& asked) {
  const std::string name = base::LogSafe(asked.name, kMaxShown);
  if (asked.kind == Statement::Kind::kPlugin) {
    const size_t colon = name.find(':');
    return Refused(absl::StrCat("the learner asks for the environment ", name.substr(colon + 1), " of the plug-in ",
                                name.substr(0, colon),
                                ", which this worker does not permit; to permit it start it with --config FILE, whose "
                                "env names both"));
  }
  if (asked.kind == Statement::Kind::kExternal) {
    return Refused(
        "the learner asks for a door for worlds outside (env.external), which this worker does not permit; to permit "
        "it start it with --config FILE, whose env.external says where it is");
  }
  if (asked.kind == Statement::Kind::kModule) {
    return Refused(absl::StrCat("the learner asks for the TorchScript module ", name,
                                ", which this worker does not permit; to permit it start it with --allow-torchscript "
                                "FILE, the file with that SHA-256, or --config FILE, whose model names it"));
  }
  return Refused(absl::StrCat("the learner asks for the ", NameOf(asked.kind), " ", name,
                              ", which this worker does not permit; to permit it start it with ",
                              IsPlainName(asked.name) ? absl::StrCat("--allow-python ", asked.name, " or ") : "",
                              "--config FILE, which names it"));
}

}  // namespace

uint64_t Statement::Digest() const { return Fnv1a(absl::StrCat(static_cast<int>(kind), " ", name)); }

std::set<Statement> StatementsOf(const RunConfig& config) {
  std::set<Statement> statements;
  const v1::EnvConfig& env = config.proto().env();
  if (policy::IsPythonName(env.name())) statements.insert({Statement::Kind::kEnv, env.name()});
  if (!env.plugin().empty()) statements.insert({Statement::Kind::kPlugin, PluginStatement(env)});
  if (IsExternal(config)) statements.insert({Statement::Kind::kExternal, ""});
  for (const v1::PolicyConfig& policy : config.proto().multi_agent().policies()) {
    if (policy::IsPythonName(policy.class_())) statements.insert({Statement::Kind::kPolicy, policy.class_()});
  }
  for (const v1::PolicyMappingRule& rule : config.proto().multi_agent().policy_mapping().rules()) {
    AddMapping(rule.function(), &statements);
  }
  for (const std::string& name : config.proto().callbacks().values()) {
    if (policy::IsPythonName(name)) statements.insert({Statement::Kind::kCallback, name});
  }
  const std::string& observation_fn = config.proto().multi_agent().observation_fn();
  if (policy::IsPythonName(observation_fn)) statements.insert({Statement::Kind::kObservation, observation_fn});
  for (const NamedModule& module : ModulesOf(config, ModuleUse::kTraining)) {
    // A worker runs no loss, and has no file with its hash. A path would be read, and the file tried.
    if (module.acts || IsModulePath(module.text)) statements.insert({Statement::Kind::kModule, module.text});
  }
  return statements;
}

std::set<Statement> StatementsOf(const policy::PolicyTable& table) {
  std::set<Statement> statements;
  for (const std::optional<policy::PolicyEntry>& entry : table.entries()) {
    if (entry.has_value() && entry->spec.policy_class.kind == policy::PolicyClass::Kind::kPython) {
      statements.insert({Statement::Kind::kPolicy, entry->spec.policy_class.name});
    }
    if (entry.has_value()) AddModules(entry->spec, &statements);
  }
  for (const policy::MappingRule& rule : table.rules()) AddMapping(rule.function, &statements);
  return statements;
}

uint64_t CombineDigests(absl::Span<const uint64_t> digests) {
  std::string text;
  for (const uint64_t digest : digests) absl::StrAppend(&text, absl::Hex(digest, absl::kZeroPad16), "\n");
  return Fnv1a(text);
}

Permits::Permits(RunConfig own) : own_(std::move(own)), statements_(StatementsOf(own_)) {}

absl::StatusOr<Permits> Permits::Make(const RunConfig& own, const std::vector<std::string>& python_names,
                                      const std::vector<std::string>& module_hashes) {
  Permits permits(own);
  for (const std::string& hash : module_hashes) {
    permits.statements_.insert({Statement::Kind::kModule, absl::StrCat(std::string(policy::kModuleHashPrefix), hash)});
  }
  for (const std::string& name : python_names) {
    const std::string_view rest = policy::WithoutPythonPrefix(name);
    if (!policy::IsPythonName(name) || rest.empty() || name.size() > policy::kMaxPythonNameLength ||
        rest.find_first_of("*?") != std::string_view::npos) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--allow-python: got \"", base::LogSafe(name, kMaxShown), "\", expected one exact name, python:MODULE or ",
          "python:MODULE:NAME, of at most ", policy::kMaxPythonNameLength, " characters, without * and ?"));
    }
    for (const Statement::Kind kind : kInPython) {
      permits.statements_.insert({kind, name});
    }
  }
  if (const size_t told = permits.Digests().size(); told > kMaxStatements) {
    return absl::InvalidArgumentError(absl::StrCat("this worker would permit ", told,
                                                   " names of Python, plug-ins and TorchScript files (--config, "
                                                   "--allow-torchscript and, three times each, --allow-python), "
                                                   "expected at most ",
                                                   kMaxStatements));
  }
  return permits;
}

absl::Status Permits::Check(const std::set<Statement>& asked) const {
  for (const Statement& statement : asked) {
    if (!Permit(statement)) return Refuse(statement);
  }
  return absl::OkStatus();
}

absl::Status Permits::Check(const policy::PolicyTable& table) const { return Check(StatementsOf(table)); }

absl::StatusOr<RunConfig> Permits::Admit(const RunConfig& asked) const {
  TROUPE_RETURN_IF_ERROR(Check(StatementsOf(asked)));
  const v1::EnvConfig& env = asked.proto().env();
  if (policy::IsPythonName(env.name()) || !env.plugin().empty()) {
    // Of an environment that a flag permits the worker's file says no arguments.
    const env::ArgMap own = env.name() == own_.proto().env().name() ? EnvArgsOf(own_).values() : env::ArgMap();
    const env::ArgMap args = EnvArgsOf(asked).values();
    if (const std::optional<std::string> name = FirstOtherText(args, own)) {
      const env::ArgValue* const found = env::FindArg(args, *name);
      return Refused(absl::StrCat(
          "the learner gives the environment ", base::LogSafe(env.name(), kMaxShown), " env.args.",
          base::LogSafe(*name, 64), ": ", found == nullptr ? "nothing" : base::LogSafe(env::ArgText(*found), kMaxShown),
          ", whose text this worker does not permit; to permit it start it with --config FILE, which says the same "
          "(numbers, booleans and null may differ)"));
    }
  }
  return asked.WithPlacesOf(own_);
}

std::vector<uint64_t> Permits::Digests() const {
  std::vector<uint64_t> digests;
  for (const Statement& statement : statements_) {
    if (statement.kind < Statement::Kind::kCallback) digests.push_back(statement.Digest());
  }
  std::sort(digests.begin(), digests.end());
  return digests;
}

}  // namespace troupe::config
