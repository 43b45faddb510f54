#include "lib/config/yaml_writer.h"

#include <cctype>
#include <cstdio>
#include <string_view>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "lib/base/check.h"
#include "lib/config/algorithms.h"
#include "lib/config/schema.h"
#include "lib/config/yaml_loader.h"
#include <google/protobuf/reflection.h>

namespace troupe::config {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

constexpr size_t kCommentWidth = 100;

/// The fewest digits that read back as the same double, always recognizable as a real number.
std::string DoubleText(double value) {
  char text[40];
  for (int digits = 6; digits <= 17; ++digits) {
    std::snprintf(text, sizeof(text), "%.*g", digits, value);
    double back = 0;
    if (absl::SimpleAtod(text, &back) && back == value) break;
  }
  std::string result(text);
  if (result.find_first_of(".en") == std::string::npos) result += ".0";
  return result;
}

bool IsWord(const std::string& text) {
  if (text.empty() || !std::isalpha(static_cast<unsigned char>(text[0]))) return false;
  for (const char c : text) {
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '_' && c != '-' && c != '/' && c != '.') return false;
  }
  return true;
}

/// Plain when nothing else could be read in it, else double-quoted.
std::string StringText(const std::string& text) {
  for (const std::string_view reserved :
       {"true", "True", "false", "False", "null", "Null", "NULL", "all", "auto", "none", "per_agent"}) {
    if (text == reserved) return absl::StrCat("\"", text, "\"");
  }
  double number = 0;
  if (IsWord(text) && !absl::SimpleAtod(text, &number)) return text;  // "inf" and "nan" are numbers to SimpleAtod
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      char escaped[8];
      std::snprintf(escaped, sizeof(escaped), "\\x%02x", static_cast<unsigned>(c));
      quoted += escaped;
    } else {
      quoted += c;
    }
  }
  return quoted + "\"";
}

}  // namespace

std::string ArgumentText(const v1::Argument& argument) {
  switch (argument.value_case()) {
    case v1::Argument::kBoolValue:
      return argument.bool_value() ? "true" : "false";
    case v1::Argument::kIntValue:
      return absl::StrCat(argument.int_value());
    case v1::Argument::kDoubleValue:
      return DoubleText(argument.double_value());
    case v1::Argument::kStringValue:
      return StringText(argument.string_value());
    case v1::Argument::kListValue: {
      std::vector<std::string> values;
      for (const v1::Argument& value : argument.list_value().values()) values.push_back(ArgumentText(value));
      return absl::StrCat("[", absl::StrJoin(values, ", "), "]");
    }
    case v1::Argument::kMapValue: {
      std::vector<std::string> entries;
      for (const v1::Argument& entry : argument.map_value().entries()) {
        entries.push_back(absl::StrCat(StringText(entry.name()), ": ", ArgumentText(entry)));
      }
      return absl::StrCat("{", absl::StrJoin(entries, ", "), "}");
    }
    default:
      return "null";
  }
}

namespace {

std::string ScalarText(const Message& message, const FieldDescriptor& field) {
  const google::protobuf::Reflection& reflection = *message.GetReflection();
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return absl::StrCat(reflection.GetInt32(message, &field));
    case FieldDescriptor::CPPTYPE_INT64:
      return absl::StrCat(reflection.GetInt64(message, &field));
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return DoubleText(reflection.GetDouble(message, &field));
    case FieldDescriptor::CPPTYPE_BOOL:
      return reflection.GetBool(message, &field) ? "true" : "false";
    case FieldDescriptor::CPPTYPE_STRING:
      return StringText(reflection.GetString(message, &field));
    case FieldDescriptor::CPPTYPE_ENUM:
      return EnumWord(*reflection.GetEnum(message, &field));
    default:
      TROUPE_CHECK(false);
  }
}

std::string ConvFiltersText(const v1::ConvFilters& filters) {
  return absl::StrCat("[",
                      absl::StrJoin(filters.filters(), ", ",
                                    [](std::string* out, const v1::ConvFilter& filter) {
                                      absl::StrAppend(out, "[", filter.channels(), ", ", filter.kernel(), ", ",
                                                      filter.stride(), "]");
                                    }),
                      "]");
}

std::string LeafEncoderText(const v1::LeafEncoder& encoder) {
  if (encoder.flat()) return absl::StrCat(StringText(encoder.leaf()), ": flat");
  std::vector<std::string> parts;
  if (encoder.auto_filters()) parts.push_back("conv_filters: auto");
  if (encoder.has_conv_filters()) {
    parts.push_back(absl::StrCat("conv_filters: ", ConvFiltersText(encoder.conv_filters())));
  }
  if (encoder.has_hidden_sizes()) {
    parts.push_back(absl::StrCat("hidden_sizes: [", absl::StrJoin(encoder.hidden_sizes().values(), ", "), "]"));
  }
  return absl::StrCat(StringText(encoder.leaf()), ": {", absl::StrJoin(parts, ", "), "}");
}

std::string ScheduleText(const v1::Schedule& schedule) {
  if (schedule.points_size() > 0) {
    std::vector<std::string> points;
    for (const v1::SchedulePoint& point : schedule.points()) {
      points.push_back(absl::StrCat("[", point.at(), ", ", DoubleText(point.value()), "]"));
    }
    const auto* const by = v1::ScheduleBy_descriptor()->FindValueByNumber(schedule.by());
    return absl::StrCat("{points: [", absl::StrJoin(points, ", "), "], by: ", EnumWord(*by), "}");
  }
  if (schedule.env_steps() == 0) return DoubleText(schedule.initial());
  return absl::StrCat("{initial: ", DoubleText(schedule.initial()), ", final: ", DoubleText(schedule.final()),
                      ", env_steps: ", schedule.env_steps(), "}");
}

template <typename Names>
std::string NamesText(const Names& names) {
  std::vector<std::string> texts;
  for (const std::string& name : names) texts.push_back(StringText(name));
  return absl::StrCat("[", absl::StrJoin(texts, ", "), "]");
}

std::string TrainRuleText(const v1::TrainRule& rule) {
  std::vector<std::string> parts;
  if (!rule.policies().empty()) parts.push_back(absl::StrCat("policies: ", NamesText(rule.policies())));
  if (!rule.only_against().empty()) parts.push_back(absl::StrCat("only_against: ", NamesText(rule.only_against())));
  if (rule.only_newest() > 0) parts.push_back(absl::StrCat("only_newest: ", rule.only_newest()));
  if (!rule.function().empty()) parts.push_back(absl::StrCat("function: ", StringText(rule.function())));
  return absl::StrCat("{", absl::StrJoin(parts, ", "), "}");
}

std::string GroupText(const v1::AgentGroup& group) {
  const std::string agents = NamesText(group.agents());
  if (group.obs_space().empty() && group.act_space().empty()) return agents;
  const auto space = [](const char* name, const std::string& text) {
    return text.empty() ? "" : absl::StrCat(", ", name, ": ", StringText(text));
  };
  return absl::StrCat("{agents: ", agents, space("obs_space", group.obs_space()), space("act_space", group.act_space()),
                      "}");
}

/// Whether a policy or agent is more than its name.
bool SaysMore(const v1::PolicyConfig& policy) {
  return policy.has_model() || policy.has_algorithm() || !policy.class_().empty() || !policy.load().empty() ||
         !policy.observation_space().empty() || !policy.action_space().empty();
}
bool SaysMore(const v1::AgentConfig& agent) { return agent.has_model() || agent.has_algorithm(); }

/// What a rule of policy_mapping maps to.
std::string MappedText(const v1::PolicyMappingRule& rule) {
  if (!rule.function().empty()) {
    std::vector<std::string> ids;
    for (const v1::WeightedPolicy& policy : rule.policies()) ids.push_back(policy.policy());
    return absl::StrCat("{function: ", StringText(rule.function()),
                        ids.empty() ? "" : absl::StrCat(", policies: ", NamesText(ids)), "}");
  }
  if (rule.policies_size() == 1) return StringText(rule.policies(0).policy());
  std::vector<std::string> weights;
  for (const v1::WeightedPolicy& weighted : rule.policies()) {
    weights.push_back(absl::StrCat(StringText(weighted.policy()), ": ", DoubleText(weighted.weight())));
  }
  return absl::StrCat("{", absl::StrJoin(weights, ", "), "}");
}

/// The value on the key's own line; empty when it takes lines of its own.
std::string InlineText(const Message& message, const FieldDescriptor& field) {
  const google::protobuf::Reflection& reflection = *message.GetReflection();
  const bool unset = !field.is_repeated() && !reflection.HasField(message, &field);
  if (unset && !RuleOf(field).unset().empty()) return RuleOf(field).unset();
  switch (FormOf(field)) {
    case KeyForm::kScalar:
      return ScalarText(message, field);
    case KeyForm::kIntegerList: {
      const auto& list = static_cast<const v1::IntegerList&>(reflection.GetMessage(message, &field));
      return absl::StrCat("[", absl::StrJoin(list.values(), ", "), "]");
    }
    case KeyForm::kStringList:
      return NamesText(static_cast<const v1::StringList&>(reflection.GetMessage(message, &field)).values());
    case KeyForm::kConvFilters:
      return ConvFiltersText(static_cast<const v1::ConvFilters&>(reflection.GetMessage(message, &field)));
    case KeyForm::kLeafEncoders: {
      const auto& encoders = static_cast<const v1::LeafEncoders&>(reflection.GetMessage(message, &field));
      std::vector<std::string> entries;
      for (const v1::LeafEncoder& encoder : encoders.encoders()) entries.push_back(LeafEncoderText(encoder));
      return absl::StrCat("{", absl::StrJoin(entries, ", "), "}");
    }
    case KeyForm::kSchedule:
      return ScheduleText(static_cast<const v1::Schedule&>(reflection.GetMessage(message, &field)));
    case KeyForm::kArguments:
      return reflection.FieldSize(message, &field) == 0 ? "{}" : "";
    case KeyForm::kPolicies: {
      std::vector<std::string> ids;
      for (const v1::PolicyConfig& policy : reflection.GetRepeatedFieldRef<v1::PolicyConfig>(message, &field)) {
        if (SaysMore(policy)) return "";
        ids.push_back(StringText(policy.id()));
      }
      return absl::StrCat("[", absl::StrJoin(ids, ", "), "]");
    }
    case KeyForm::kPolicyMapping: {
      const auto& mapping = static_cast<const v1::PolicyMapping&>(reflection.GetMessage(message, &field));
      if (mapping.per_agent()) return "per_agent";
      return mapping.rules().empty() ? "{}" : "";
    }
    case KeyForm::kAgents:
      return reflection.FieldSize(message, &field) == 0 ? "{}" : "";
    case KeyForm::kGroups:
      return reflection.FieldSize(message, &field) == 0 ? "{}" : "";
    case KeyForm::kRange: {
      const auto& range = static_cast<const v1::RewardClip&>(reflection.GetMessage(message, &field));
      return absl::StrCat("[", DoubleText(range.low()), ", ", DoubleText(range.high()), "]");
    }
    case KeyForm::kPoliciesToTrain: {
      const auto& trains = static_cast<const v1::PoliciesToTrain&>(reflection.GetMessage(message, &field));
      std::vector<std::string> entries;
      for (const std::string& id : trains.ids()) entries.push_back(StringText(id));
      for (const v1::TrainRule& rule : trains.rules()) entries.push_back(TrainRuleText(rule));
      return absl::StrCat("[", absl::StrJoin(entries, ", "), "]");
    }
    case KeyForm::kReturnTargets: {
      const auto& returns = static_cast<const v1::ReturnTargets&>(reflection.GetMessage(message, &field));
      if (returns.targets_size() == 1 && returns.targets(0).score() == "sum") {
        return DoubleText(returns.targets(0).at_least());
      }
      std::vector<std::string> targets;
      for (const v1::ReturnTarget& target : returns.targets()) {
        targets.push_back(absl::StrCat(StringText(target.score()), ": ", DoubleText(target.at_least())));
      }
      return absl::StrCat("{", absl::StrJoin(targets, ", "), "}");
    }
    case KeyForm::kSection:
      return "";
  }
  TROUPE_CHECK(false);
}

/// Whether a section that inherits (a policy's model) says something of the field.
bool IsPresent(const Message& message, const FieldDescriptor& field) {
  return field.is_repeated() ? message.GetReflection()->FieldSize(message, &field) > 0
                             : message.GetReflection()->HasField(message, &field);
}

class Writer {
 public:
  explicit Writer(bool comments, const KeyFilter& include = nullptr) : comments_(comments), include_(include) {}

  void Section(const Message& message, int indent, bool only_present) {
    for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
      const FieldDescriptor& field = *message.GetDescriptor()->field(i);
      if (only_present && !IsPresent(message, field)) continue;
      if (!Includes(field)) continue;
      if (IsOptions(field)) {
        if (IsPresent(message, field)) Options(message, field, indent, only_present);
        continue;
      }
      if (comments_) CommentKey(field, indent);
      const std::string text = InlineText(message, field);
      Line(indent, text.empty() ? absl::StrCat(field.name(), ":") : absl::StrCat(field.name(), ": ", text));
      if (text.empty()) Below(message, field, indent + 1);
    }
  }

  /// What stands after the key: on its line, or below it.
  void Value(const Message& message, const FieldDescriptor& field) {
    text_ = InlineText(message, field);
    if (text_.empty()) Below(message, field, 0);
  }

  std::string Take() { return std::move(text_); }

 private:
  /// An algorithm's keys among those of its section; where there are comments those of others, too.
  void Options(const Message& message, const FieldDescriptor& field, int indent, bool only_present) {
    Section(message.GetReflection()->GetMessage(message, &field), indent, only_present);
    if (!comments_) return;
    for (const FieldDescriptor* const other : AllOptions()) {
      if (other == &field) continue;
      v1::AlgorithmConfig algorithm;
      const Message& defaults = *MutableOptions(*other, &algorithm);
      ApplyDefaults(MutableOptions(*other, &algorithm));
      std::vector<std::string> keys;
      for (int i = 0; i < other->message_type()->field_count(); ++i) {
        const FieldDescriptor& key = *other->message_type()->field(i);
        keys.push_back(absl::StrCat(key.name(), ": ", InlineText(defaults, key)));
      }
      Comment(absl::StrCat("With name: ", absl::StrJoin(NamesOf(*other), ", "), " these are instead of the keys from ",
                           field.message_type()->field(0)->name(), " to here: ", absl::StrJoin(keys, ", "), "."),
              indent);
    }
  }

  /// A section is there when one of its keys is.
  bool Includes(const FieldDescriptor& field) const {
    if (!include_ || FormOf(field) != KeyForm::kSection) return !include_ || include_(field);
    for (int i = 0; i < field.message_type()->field_count(); ++i) {
      if (Includes(*field.message_type()->field(i))) return true;
    }
    return false;
  }

  void Line(int indent, const std::string& line) { absl::StrAppend(&text_, std::string(2 * indent, ' '), line, "\n"); }

  /// model and algorithm of a policy or an agent, where they say something.
  template <typename Settings>
  void Overrides(const Settings& settings, int indent) {
    if (settings.has_model()) {
      Line(indent, "model:");
      Section(settings.model(), indent + 1, true);
    }
    if (settings.has_algorithm()) {
      Line(indent, "algorithm:");
      Section(settings.algorithm(), indent + 1, true);
    }
  }

  void Below(const Message& message, const FieldDescriptor& field, int indent) {
    const google::protobuf::Reflection& reflection = *message.GetReflection();
    switch (FormOf(field)) {
      case KeyForm::kSection:
        return Section(reflection.GetMessage(message, &field), indent, false);
      case KeyForm::kArguments:
        for (const v1::Argument& argument : reflection.GetRepeatedFieldRef<v1::Argument>(message, &field)) {
          Line(indent, absl::StrCat(StringText(argument.name()), ": ", ArgumentText(argument)));
        }
        return;
      case KeyForm::kPolicies:
        for (const v1::PolicyConfig& policy : reflection.GetRepeatedFieldRef<v1::PolicyConfig>(message, &field)) {
          Line(indent, absl::StrCat(StringText(policy.id()), SaysMore(policy) ? ":" : ": {}"));
          if (!policy.class_().empty()) Line(indent + 1, absl::StrCat("class: ", StringText(policy.class_())));
          if (!policy.load().empty()) Line(indent + 1, absl::StrCat("load: ", StringText(policy.load())));
          if (!policy.observation_space().empty()) {
            Line(indent + 1, absl::StrCat("observation_space: ", StringText(policy.observation_space())));
          }
          if (!policy.action_space().empty()) {
            Line(indent + 1, absl::StrCat("action_space: ", StringText(policy.action_space())));
          }
          Overrides(policy, indent + 1);
        }
        return;
      case KeyForm::kAgents:
        for (const v1::AgentConfig& agent : reflection.GetRepeatedFieldRef<v1::AgentConfig>(message, &field)) {
          Line(indent, absl::StrCat(StringText(agent.agents()), SaysMore(agent) ? ":" : ": {}"));
          Overrides(agent, indent + 1);
        }
        return;
      case KeyForm::kGroups:
        for (const v1::AgentGroup& group : reflection.GetRepeatedFieldRef<v1::AgentGroup>(message, &field)) {
          Line(indent, absl::StrCat(StringText(group.name()), ": ", GroupText(group)));
        }
        return;
      case KeyForm::kPolicyMapping: {
        const auto& mapping = static_cast<const v1::PolicyMapping&>(reflection.GetMessage(message, &field));
        for (const v1::PolicyMappingRule& rule : mapping.rules()) {
          Line(indent, absl::StrCat(StringText(rule.agents()), ": ", MappedText(rule)));
        }
        return;
      }
      default:
        TROUPE_CHECK(false);
    }
  }

  void CommentKey(const FieldDescriptor& field, int indent) {
    std::string comment = RuleOf(field).help();
    if (FormOf(field) == KeyForm::kSection) {
      text_ += "\n";
    } else {
      absl::StrAppend(&comment, " Expected: ", Expectation(field), ".");
    }
    Comment(comment, indent);
  }

  void Comment(const std::string& comment, int indent) {
    std::string line = "#";
    for (const absl::string_view word : absl::StrSplit(comment, ' ')) {
      if (line.size() + 1 + word.size() > kCommentWidth) {
        Line(indent, line);
        line = "#";
      }
      absl::StrAppend(&line, " ", word);
    }
    Line(indent, line);
  }

  const bool comments_;
  const KeyFilter include_;
  std::string text_;
};

std::string Cell(std::string text) {
  // A bar would end the cell.
  std::string cell;
  for (const char c : text) cell += c == '|' ? std::string("\\|") : std::string(1, c);
  return cell;
}

constexpr char kTableHead[] = "| key | default | expected | meaning |\n|---|---|---|---|\n";

std::string Row(const Message& message, const FieldDescriptor& field, const std::string& key) {
  return absl::StrCat("| `", key, "` | `", InlineText(message, field), "` | ", Cell(Expectation(field)), " | ",
                      Cell(RuleOf(field).help()), " |\n");
}

/// The keys that an algorithm has besides those of all.
std::string MarkdownOptions(const FieldDescriptor& options, const std::string& section) {
  v1::AlgorithmConfig algorithm;
  const Message& defaults = *MutableOptions(options, &algorithm);
  ApplyDefaults(MutableOptions(options, &algorithm));
  std::string text = absl::StrCat("\n### ", JoinKey(section, "name"), ": ", absl::StrJoin(NamesOf(options), ", "),
                                  "\n\n", RuleOf(options).help(), "\n\n", kTableHead);
  for (int i = 0; i < options.message_type()->field_count(); ++i) {
    const FieldDescriptor& field = *options.message_type()->field(i);
    text += Row(defaults, field, JoinKey(section, field.name()));
  }
  return text;
}

void MarkdownSection(const Message& message, const std::string& section, std::string* text) {
  const Descriptor& type = *message.GetDescriptor();
  std::string rows;
  std::string below;
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    const std::string key = JoinKey(section, field.name());
    if (IsOptions(field)) {
      below += MarkdownOptions(field, section);
    } else if (FormOf(field) == KeyForm::kSection) {
      absl::StrAppend(&below, "\n## ", key, "\n\n", RuleOf(field).help(), "\n\n");
      MarkdownSection(message.GetReflection()->GetMessage(message, &field), key, &below);
    } else {
      rows += Row(message, field, key);
    }
  }
  absl::StrAppend(text, kTableHead, rows, below);
}

}  // namespace

std::string WriteYaml(const v1::RunConfig& config) {
  Writer writer(false);
  writer.Section(config, 0, false);
  return writer.Take();
}

std::string WriteYaml(const v1::RunConfig& config, const KeyFilter& include) {
  Writer writer(false, include);
  writer.Section(config, 0, false);
  return writer.Take();
}

std::string WriteCommentedYaml(const v1::RunConfig& config) {
  Writer writer(true);
  writer.Section(config, 0, false);
  return writer.Take();
}

std::string ValueText(const v1::RunConfig& config, std::string_view key) {
  const Message* section = &config;
  for (;;) {
    const size_t dot = key.find('.');
    const std::string_view name = key.substr(0, dot);
    TROUPE_CHECK(!FieldsOf(*section->GetDescriptor(), name).empty());
    const KeyIn found = FindKey(*section, name);
    if (found.field == nullptr) return "";  // of another algorithm
    if (dot == std::string_view::npos) return ValueText(*found.message, *found.field);
    section = &section->GetReflection()->GetMessage(*section, found.field);
    key.remove_prefix(dot + 1);
  }
}

std::string ValueText(const Message& section, const FieldDescriptor& key) {
  Writer writer(false);
  writer.Value(section, key);
  return writer.Take();
}

std::string WriteMarkdown(const v1::RunConfig& config) {
  std::string text;
  MarkdownSection(config, "", &text);
  return text;
}

}  // namespace troupe::config
