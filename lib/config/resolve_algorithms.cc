#include "lib/config/resolve_algorithms.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "lib/base/check.h"
#include "lib/base/log.h"
#include "lib/base/nearest_name.h"
#include "lib/base/status_macros.h"
#include "lib/config/algorithms.h"
#include "lib/config/ingest_budget.h"
#include "lib/config/overrides.h"
#include "lib/config/schema.h"
#include "lib/policy/policy_spec.h"
#include "lib/training/algorithm_options.h"
#include "proto/troupe/v1/config.pb.h"
#include <google/protobuf/reflection.h>

namespace troupe::config {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using policy::AlgorithmSpec;

constexpr char kMinibatchSize[] = "minibatch_size";
constexpr char kNumMinibatches[] = "num_minibatches";
// minibatch_size: auto makes so many steps an epoch, each of at least so many sequences.
constexpr int64_t kAutoMinibatches = 32;
constexpr int64_t kAutoSequences = 16;
constexpr double kAutoEntropyCoeff = 0.01;

/// Rows of policies in a batch where every agent acts at every step.
struct BatchRows {
  int64_t most = 0;  ///< of the one with the most; one that is drawn counts as often as is to be expected
  /// Of the one with the fewest among those that always play; where all are drawn, the whole batch's, for chance may
  /// give them all to one.
  int64_t fewest = 0;
};
/// `only`: of this policy alone.
BatchRows CountRows(const ResolvedRun& run, std::optional<size_t> only) {
  const int64_t env_steps = EnvStepsOfBatch(run);
  std::vector<double> agents(run.policies.size(), 0);
  std::vector<int64_t> always(run.policies.size(), 0);
  for (const std::vector<MappedPolicy>& policies : run.policies_of_agent) {
    for (const MappedPolicy& mapped : policies)
      agents[static_cast<size_t>(mapped.policy.value())] += mapped.probability;
    if (policies.size() == 1) ++always[static_cast<size_t>(policies[0].policy.value())];
  }
  BatchRows rows;
  rows.most =
      static_cast<int64_t>(std::ceil(*std::max_element(agents.begin(), agents.end()) * static_cast<double>(env_steps)));
  rows.fewest = static_cast<int64_t>(run.policies_of_agent.size()) * env_steps;
  for (size_t p = 0; p < always.size(); ++p) {
    if (always[p] > 0 && only.value_or(p) == p) rows.fewest = std::min(rows.fewest, always[p] * env_steps);
  }
  // Of one that plays nobody yet nothing is known.
  if (only.has_value()) {
    rows.most = agents[*only] == 0 ? rows.fewest
                                   : static_cast<int64_t>(std::ceil(agents[*only] * static_cast<double>(env_steps)));
  }
  return rows;
}

/// An integer among an algorithm's options; nullopt: it has no such key, or the key is not set.
std::optional<int64_t> IntegerOf(const Message& options, const char* name) {
  const FieldDescriptor* const field = options.GetDescriptor()->FindFieldByName(name);
  if (field == nullptr || !options.GetReflection()->HasField(options, field)) return std::nullopt;
  return options.GetReflection()->GetInt64(options, field);
}

/// Rows of a minibatch; nullopt: the algorithm has no minibatches, or none unless it is told to.
absl::StatusOr<std::optional<int64_t>> MinibatchSize(const ResolvedRun& run, const Message& options,
                                                     const SettingsOf& of, size_t slot) {
  // What the run says is counted on all policies, an override on its own.
  const auto count = [&](const std::string& key) {
    return CountRows(run, absl::StartsWith(key, "algorithm.") ? std::nullopt : std::optional<size_t>(slot));
  };
  const auto too_many = [&run](const std::string& key, int64_t got, int64_t rows) {
    return run.config.KeyError(
        key, absl::StrCat("got ", got, ", expected at most the ", rows, " rows that a policy has in a batch of ",
                          BatchText(run), "; lower it, or raise algorithm.train_batch_size"));
  };
  const FieldDescriptor* const field = options.GetDescriptor()->FindFieldByName(kMinibatchSize);
  if (field == nullptr) return std::nullopt;
  const std::optional<int64_t> size = IntegerOf(options, kMinibatchSize);
  if (const std::optional<int64_t> number = IntegerOf(options, kNumMinibatches); number.has_value()) {
    const std::string key = AlgorithmKey(run.config, of, kNumMinibatches);
    if (size.has_value()) {
      return run.config.KeyError(key, "got a value besides algorithm.minibatch_size, expected one of the two");
    }
    const BatchRows rows = count(key);
    if (*number > rows.most) return too_many(key, *number, rows.most);
    return (rows.most + *number - 1) / *number;
  }
  const std::string key = AlgorithmKey(run.config, of, kMinibatchSize);
  const BatchRows rows = count(key);
  if (size.has_value() && *size > rows.fewest) return too_many(key, *size, rows.fewest);
  if (size.has_value()) return size;
  const int64_t least = RuleOf(*field).auto_rows();
  if (least == 0) return std::nullopt;
  const policy::PolicySpec& spec = run.policies[slot];
  const int64_t sequences = spec.remembers() ? kAutoSequences * spec.sequence_length : 0;
  return std::min({std::max({least, sequences, rows.most / kAutoMinibatches}), rows.most, rows.fewest});
}

/// The value of a key that is set.
policy::OptionValue ValueOf(const Message& options, const FieldDescriptor& field) {
  const google::protobuf::Reflection& reflection = *options.GetReflection();
  if (FormOf(field) == KeyForm::kSchedule) {
    const auto& schedule = static_cast<const v1::Schedule&>(reflection.GetMessage(options, &field));
    if (schedule.points().empty() && schedule.env_steps() == 0) return schedule.initial();
    if (schedule.points().empty()) {
      return policy::ScheduleValue{schedule.initial(), schedule.final(), schedule.env_steps()};
    }
    std::vector<policy::SchedulePoint> points;
    for (const v1::SchedulePoint& point : schedule.points()) points.push_back({point.at(), point.value()});
    const bool by_updates = schedule.by() == v1::SCHEDULE_BY_UPDATES;
    return policy::ScheduleValue::OfPoints(
        std::move(points), by_updates ? policy::ScheduleUnit::kUpdates : policy::ScheduleUnit::kEnvSteps);
  }
  if (FormOf(field) == KeyForm::kStringList) {
    const auto& list = static_cast<const v1::StringList&>(reflection.GetMessage(options, &field)).values();
    return std::vector<std::string>(list.begin(), list.end());
  }
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_BOOL:
      return reflection.GetBool(options, &field);
    case FieldDescriptor::CPPTYPE_INT32:
      return int64_t{reflection.GetInt32(options, &field)};
    case FieldDescriptor::CPPTYPE_INT64:
      return int64_t{reflection.GetInt64(options, &field)};
    case FieldDescriptor::CPPTYPE_STRING:
      return reflection.GetString(options, &field);
    case FieldDescriptor::CPPTYPE_ENUM:
      return EnumWord(*reflection.GetEnum(options, &field));
    default:
      TROUPE_CHECK(false);
  }
}

absl::Status CheckStart(const ResolvedRun& run, const SettingsOf& of, const FieldDescriptor& field,
                        const policy::OptionValue& value) {
  const v1::KeyRule& rule = RuleOf(field);
  if (!rule.starts_above_min()) return absl::OkStatus();
  const auto* const schedule = std::get_if<policy::ScheduleValue>(&value);
  const double initial = schedule != nullptr ? schedule->initial : std::get<double>(value);
  if (initial > rule.min()) return absl::OkStatus();
  return run.config.KeyError(AlgorithmKey(run.config, of, field.name()),
                             absl::StrCat("got ", initial, " to begin with, expected a number > ", rule.min(),
                                          rule.unset().empty() ? "" : " or ", rule.unset()));
}

/// What an algorithm says of an option, `algorithm.KEY is GOT; …` or `algorithm.KEY: …`, where the key was written.
absl::Status AtItsKey(const ResolvedRun& run, const SettingsOf& of, const std::string& message) {
  constexpr absl::string_view kSection = "algorithm.";
  absl::string_view text = message;
  if (!absl::ConsumePrefix(&text, kSection)) return run.config.KeyError(AlgorithmKey(run.config, of, "name"), message);
  const absl::string_view name = text.substr(0, text.find_first_of(" :"));
  text.remove_prefix(name.size());
  const bool is_got = absl::ConsumePrefix(&text, " is ");
  absl::ConsumePrefix(&text, ": ");
  return run.config.KeyError(AlgorithmKey(run.config, of, std::string(name)), absl::StrCat(is_got ? "got " : "", text));
}

/// Values of keys that are `auto`, where the policy decides them.
void FillAuto(const policy::PolicySpec& policy, const Message& options, AlgorithmSpec* spec) {
  const auto fill = [&](const char* key, policy::OptionValue value) {
    if (options.GetDescriptor()->FindFieldByName(key) != nullptr) spec->options.emplace(key, std::move(value));
  };
  const double entropy_coeff = policy.HasContinuousActions() ? 0 : kAutoEntropyCoeff;
  fill("entropy_coeff", entropy_coeff);
  fill("minibatch_by", std::string(policy.remembers() ? "rows" : "env_steps"));
}

/// "lr" of "algorithm.lr=1e-4", an option of `entry`.
absl::StatusOr<std::string> OptionKeyOf(const std::string& setting, const FieldDescriptor& entry) {
  constexpr absl::string_view kSection = "algorithm.";
  absl::string_view key = absl::string_view(setting).substr(0, setting.find('='));
  const bool is_algorithms = absl::ConsumePrefix(&key, kSection);
  std::string name(key);
  if (is_algorithms && FindOption(entry, name) != nullptr) return name;
  std::vector<std::string> known;
  for (int i = 0; i < entry.message_type()->field_count(); ++i) {
    known.push_back(absl::StrCat(kSection, entry.message_type()->field(i)->name()));
  }
  const std::string got = base::LogSafe(setting.substr(0, setting.find('=')), 160);
  const std::string nearest = base::NearestName(got, known);
  return absl::InvalidArgumentError(
      absl::StrCat(got, ": cannot change while the run trains, expected an option of ", entry.name(),
                   ", as algorithm.lr", nearest.empty() ? std::string() : absl::StrCat("; the nearest is ", nearest)));
}

/// The error from where it names one of the keys on: nobody wrote them in the places that it begins with.
absl::Status FromKeyOn(const absl::Status& status, const std::vector<std::string>& keys) {
  const std::string text(status.message());
  for (const std::string& key : keys) {
    const size_t begin = text.find(absl::StrCat("algorithm.", key, ": "));
    if (begin != std::string::npos) return absl::Status(status.code(), text.substr(begin));
  }
  return status;
}

absl::StatusOr<AlgorithmSpec> SpecOf(const ResolvedRun& run, const SettingsOf& of, size_t slot) {
  const v1::AlgorithmConfig algorithm = AlgorithmOf(run.config, of);
  const FieldDescriptor& entry = OptionsOf(algorithm.name());
  const Message& options = algorithm.GetReflection()->GetMessage(algorithm, &entry);
  AlgorithmSpec spec;
  spec.name = entry.name();
  for (int i = 0; i < options.GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor& field = *options.GetDescriptor()->field(i);
    const bool is_set = options.GetReflection()->HasField(options, &field);
    if (!is_set || field.name() == kMinibatchSize || field.name() == kNumMinibatches) continue;
    policy::OptionValue value = ValueOf(options, field);
    TROUPE_RETURN_IF_ERROR(CheckStart(run, of, field, value));
    spec.options.emplace(field.name(), std::move(value));
  }
  FillAuto(run.policies[slot], options, &spec);
  TROUPE_ASSIGN_OR_RETURN(const std::optional<int64_t> minibatch_size, MinibatchSize(run, options, of, slot));
  if (minibatch_size.has_value()) spec.options.emplace(kMinibatchSize, *minibatch_size);
  const absl::Status fits = training::CheckAlgorithm(spec);
  if (!fits.ok()) return AtItsKey(run, of, std::string(fits.message()));
  return spec;
}

absl::Status CheckFits(const ResolvedRun& run, const SettingsOf& of, size_t slot, const AlgorithmSpec& spec) {
  const absl::Status fits = training::CheckAlgorithmOf(run.policies[slot], spec);
  return fits.ok() ? fits : AtItsKey(run, of, std::string(fits.message()));
}

}  // namespace

absl::StatusOr<AlgorithmSpec> AlgorithmWith(const ResolvedRun& run, size_t slot,
                                            const std::vector<std::string>& settings) {
  const SettingsOf& of = run.settings[slot];
  const FieldDescriptor& entry = OptionsOf(AlgorithmOf(run.config, of).name());
  std::vector<std::string> keys;
  for (const std::string& setting : settings) {
    TROUPE_ASSIGN_OR_RETURN(keys.emplace_back(), OptionKeyOf(setting, entry));
  }
  const absl::StatusOr<RunConfig> parsed =
      RunConfig::FromYaml(absl::StrCat("{algorithm: {name: ", entry.name(), "}}"), "settings", settings);
  if (!parsed.ok()) return FromKeyOn(parsed.status(), keys);
  const v1::AlgorithmConfig& said = parsed->proto().algorithm();
  for (const std::string& key : keys) {
    const KeyIn option = FindKey(said, key);
    if (!option.field->has_presence() || option.message->GetReflection()->HasField(*option.message, option.field)) {
      continue;
    }
    return absl::InvalidArgumentError(
        absl::StrCat("algorithm.", key, ": got ", RuleOf(*option.field).unset(), ", expected a value"));
  }
  ResolvedRun changed = run;
  changed.config = WithOwnOptions(run.config, of, said, keys);
  if (RewardDiscount(AlgorithmOf(changed.config, of)) != run.policies[slot].reward_discount) {
    return absl::InvalidArgumentError(
        "algorithm.gamma: got another discount per env step, expected the one that the run began with: workers "
        "discount by it, too");
  }
  const absl::StatusOr<AlgorithmSpec> spec = SpecOf(changed, of, slot);
  absl::Status status = spec.status();
  if (status.ok()) status = CheckFits(changed, of, slot, *spec);
  if (!status.ok()) return FromKeyOn(status, keys);
  return spec;
}

absl::Status FillAlgorithms(const std::vector<SettingsOf>& settings, ResolvedRun* run) {
  for (size_t slot = 0; slot < settings.size(); ++slot) {
    TROUPE_ASSIGN_OR_RETURN(const AlgorithmSpec spec, SpecOf(*run, settings[slot], slot));
    const absl::Status set = training::SetNetworks(spec, &run->policies[slot]);
    if (!set.ok()) return AtItsKey(*run, settings[slot], std::string(set.message()));
    TROUPE_RETURN_IF_ERROR(CheckFits(*run, settings[slot], slot, spec));
    run->algorithms.push_back(spec);
  }
  return absl::OkStatus();
}

std::vector<std::string> AlgorithmsThatFit(const env::AgentSpec& agent) {
  policy::PolicySpec policy;
  policy.id = policy::PolicyId("policy");
  policy.observation_space = agent.observation_space;
  policy.action_space = agent.action_space;
  policy.has_action_mask = agent.has_action_mask;
  policy.mutable_critic();
  return training::NamesThatFit(policy);
}

}  // namespace troupe::config
