#include "lib/policy/policy_table.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/check.h"
#include "lib/base/log.h"
#include "lib/base/nearest_name.h"
#include "lib/base/status_macros.h"
#include "lib/policy/policy_entry.h"
#include "lib/policy/policy_spec.h"

namespace troupe::policy {
namespace {

/// As errors quote an id that anybody may have sent.
std::string Quoted(const PolicyId& id) { return absl::StrCat("\"", base::LogSafe(id.value(), 64), "\""); }

/// The rule that names `id`, or nullptr.
const MappingRule* RuleNaming(const std::vector<MappingRule>& rules, const PolicyId& id) {
  for (const MappingRule& rule : rules) {
    for (const WeightedPolicy& weighted : rule.policies) {
      if (weighted.policy == id) return &rule;
    }
  }
  return nullptr;
}

absl::Status CheckSettings(const std::vector<std::string>& settings) {
  if (settings.size() > PolicyTable::kMaxSettings) {
    return absl::InvalidArgumentError(
        absl::StrCat("got ", settings.size(), " settings of a policy, expected at most ", PolicyTable::kMaxSettings));
  }
  for (const std::string& setting : settings) {
    if (setting.size() <= PolicyTable::kMaxSettingBytes) continue;
    return absl::InvalidArgumentError(absl::StrCat("got a setting of ", setting.size(), " bytes, \"",
                                                   base::LogSafe(setting, 64), "\", expected at most ",
                                                   PolicyTable::kMaxSettingBytes));
  }
  return absl::OkStatus();
}

absl::Status CheckTrains(const PolicySpec& spec, bool trains) {
  if (!trains || spec.policy_class.trainable()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("policy ", Quoted(spec.id), " is of class ",
                                                 base::LogSafe(spec.policy_class.ToString()),
                                                 ", which is never trained; expected one of class trained"));
}

}  // namespace

PolicyTable::PolicyTable() = default;
PolicyTable::PolicyTable(const PolicyTable& other) = default;
PolicyTable::~PolicyTable() = default;

absl::StatusOr<PolicyTablePtr> PolicyTable::Make(std::vector<PolicySpec> specs, std::vector<bool> trains,
                                                 std::vector<MappingRule> mapping, std::vector<std::string> agent_ids) {
  if (specs.empty()) return absl::InvalidArgumentError("a run needs at least one policy, got none");
  if (trains.size() != specs.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "got ", trains.size(), " marks of who trains, expected one for each of ", specs.size(), " policies"));
  }
  std::shared_ptr<PolicyTable> table(new PolicyTable);
  for (size_t i = 0; i < specs.size(); ++i) {
    TROUPE_RETURN_IF_ERROR(table->Place(std::move(specs[i]), trains[i]).status());
  }
  table->rules_ = std::move(mapping);
  table->agent_ids_ = std::move(agent_ids);
  return Finish(std::move(table));
}

std::shared_ptr<PolicyTable> PolicyTable::Next() const {
  std::shared_ptr<PolicyTable> next(new PolicyTable(*this));
  ++next->revision_;
  return next;
}

absl::StatusOr<PolicyTablePtr> PolicyTable::Finish(std::shared_ptr<PolicyTable> table) {
  // Words for a policy that is not there; MakeRuleMapping would have fewer.
  std::set<std::string_view> active;
  for (const std::optional<PolicyEntry>& entry : table->entries_) {
    if (entry.has_value() && entry->active()) active.insert(entry->spec.id.value());
  }
  for (const MappingRule& rule : table->rules_) {
    for (const WeightedPolicy& weighted : rule.policies) {
      if (active.count(weighted.policy.value()) > 0) continue;
      if (const absl::Status known = table->SlotOf(weighted.policy).status(); !known.ok()) {
        return absl::Status(
            known.code(), absl::StrCat("policy_mapping: \"", base::LogSafe(rule.agent_glob), "\": ", known.message()));
      }
    }
  }
  TROUPE_ASSIGN_OR_RETURN(table->mapping_, MakeRuleMapping(table->rules_, table->agent_ids_, table->ActiveIds()));
  return table;
}

absl::StatusOr<PolicySlot> PolicyTable::Place(PolicySpec spec, bool trains, std::vector<std::string> settings) {
  TROUPE_RETURN_IF_ERROR(spec.Validate());
  TROUPE_RETURN_IF_ERROR(CheckTrains(spec, trains));
  if (FindSlot(spec.id).has_value()) {
    return absl::AlreadyExistsError(absl::StrCat("policy ", Quoted(spec.id), " is one of the run's already"));
  }
  const auto place = std::find(entries_.begin(), entries_.end(), std::nullopt);
  const PolicySlot slot(static_cast<int32_t>(place - entries_.begin()));
  if (!entries_.Contains(slot)) {
    if (entries_.size() == kMaxPolicies) {
      return absl::ResourceExhaustedError(absl::StrCat("the run has ", kMaxPolicies,
                                                       " policies, the most there may be; remove one before ",
                                                       Quoted(spec.id), " is added"));
    }
    entries_.GrowTo(slot);
  }
  entries_[slot].emplace(PolicyEntry{std::move(spec), trains, /*since=*/revision_});
  entries_[slot]->settings = std::move(settings);
  return slot;
}

absl::StatusOr<PolicyTablePtr> PolicyTable::Add(PolicySpec spec, bool trains, std::vector<std::string> settings) const {
  std::shared_ptr<PolicyTable> next = Next();
  TROUPE_RETURN_IF_ERROR(next->Place(std::move(spec), trains, std::move(settings)).status());
  return Finish(std::move(next));
}

absl::StatusOr<PolicyTablePtr> PolicyTable::Remove(const PolicyId& id) const {
  TROUPE_ASSIGN_OR_RETURN(const PolicySlot slot, SlotOf(id));
  if (const MappingRule* rule = RuleNaming(rules_, id)) {
    return absl::FailedPreconditionError(absl::StrCat("policy ", Quoted(id), " plays: policy_mapping gives it to \"",
                                                      base::LogSafe(rule->agent_glob),
                                                      "\"; map those agents to others before it is removed"));
  }
  std::shared_ptr<PolicyTable> next = Next();
  next->entries_[slot]->removed = next->revision_;
  return Finish(std::move(next));
}

absl::StatusOr<PolicyTablePtr> PolicyTable::Replace(PolicySpec spec, std::vector<std::string> settings) const {
  TROUPE_ASSIGN_OR_RETURN(const PolicySlot slot, SlotOf(spec.id));
  std::shared_ptr<PolicyTable> next = Next();
  PolicyEntry& old = *next->entries_[slot];
  old.removed = next->revision_;
  old.replaced = true;
  const bool trains = old.trains && spec.policy_class.trainable();
  TROUPE_RETURN_IF_ERROR(next->Place(std::move(spec), trains, std::move(settings)).status());
  return Finish(std::move(next));
}

absl::StatusOr<PolicyTablePtr> PolicyTable::SetTrains(const PolicyId& id, bool trains) const {
  TROUPE_ASSIGN_OR_RETURN(const PolicySlot slot, SlotOf(id));
  TROUPE_RETURN_IF_ERROR(CheckTrains(Find(slot)->spec, trains));
  std::shared_ptr<PolicyTable> next = Next();
  next->entries_[slot]->trains = trains;
  return next;
}

absl::StatusOr<PolicyTablePtr> PolicyTable::SetTrainable(absl::Span<const PolicyId> ids) const {
  std::shared_ptr<PolicyTable> next = Next();
  for (std::optional<PolicyEntry>& entry : next->entries_) {
    if (entry.has_value() && entry->active()) entry->trains = false;
  }
  for (const PolicyId& id : ids) {
    TROUPE_ASSIGN_OR_RETURN(const PolicySlot slot, SlotOf(id));
    PolicyEntry& entry = *next->entries_[slot];
    TROUPE_RETURN_IF_ERROR(CheckTrains(entry.spec, true));
    entry.trains = true;
  }
  return next;
}

absl::StatusOr<PolicyTablePtr> PolicyTable::Set(const PolicyId& id, absl::Span<const std::string> settings) const {
  TROUPE_ASSIGN_OR_RETURN(const PolicySlot slot, SlotOf(id));
  TROUPE_RETURN_IF_ERROR(CheckTrains(Find(slot)->spec, true));
  std::shared_ptr<PolicyTable> next = Next();
  std::vector<std::string>& all = next->entries_[slot]->settings;
  for (const std::string& setting : settings) {
    const size_t equals = setting.find('=');
    if (equals == std::string::npos || equals == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("got setting \"", base::LogSafe(setting, 160), "\", expected KEY=VALUE"));
    }
    const std::string_view key = std::string_view(setting).substr(0, equals + 1);
    all.erase(std::remove_if(all.begin(), all.end(), [key](const std::string& had) { return had.starts_with(key); }),
              all.end());
    all.push_back(setting);
  }
  TROUPE_RETURN_IF_ERROR(CheckSettings(all));
  return next;
}

absl::StatusOr<PolicyTablePtr> PolicyTable::SetMapping(std::vector<MappingRule> rules) const {
  std::shared_ptr<PolicyTable> next = Next();
  next->rules_ = std::move(rules);
  return Finish(std::move(next));
}

absl::StatusOr<PolicyTablePtr> PolicyTable::Release(absl::Span<const PolicySlot> slots) const {
  std::shared_ptr<PolicyTable> next = Next();
  for (const PolicySlot slot : slots) {
    const PolicyEntry* entry = next->Find(slot);
    if (entry == nullptr) return absl::NotFoundError(absl::StrCat("slot ", slot.value(), " holds no policy"));
    if (entry->active()) {
      return absl::FailedPreconditionError(
          absl::StrCat("slot ", slot.value(), " holds policy ", Quoted(entry->spec.id), ", which was not removed"));
    }
    next->entries_[slot].reset();
  }
  while (!next->entries_.empty() && !next->entries_.back().has_value()) next->entries_.pop_back();
  return Finish(std::move(next));
}

PolicyTablePtr PolicyTable::AtLeast(int64_t revision) const {
  std::shared_ptr<PolicyTable> later(new PolicyTable(*this));
  later->revision_ = std::max(revision_, revision);
  return later;
}

const PolicyEntry* PolicyTable::Find(PolicySlot slot) const {
  if (!entries_.Contains(slot)) return nullptr;
  const std::optional<PolicyEntry>& entry = entries_[slot];
  return entry.has_value() ? &*entry : nullptr;
}

std::optional<PolicySlot> PolicyTable::FindSlot(const PolicyId& id) const {
  for (const PolicySlot slot : entries_.ids()) {
    const PolicyEntry* const entry = Find(slot);
    if (entry != nullptr && entry->active() && entry->spec.id == id) return slot;
  }
  return std::nullopt;
}

absl::StatusOr<PolicySlot> PolicyTable::SlotOf(const PolicyId& id) const {
  if (const std::optional<PolicySlot> slot = FindSlot(id)) return *slot;
  std::vector<std::string> known;
  for (const PolicyId& active : ActiveIds()) {
    if (!active.value().empty()) known.push_back(active.value());
  }
  const std::string nearest = base::NearestName(id.value(), known);
  return absl::NotFoundError(
      absl::StrCat("policy ", Quoted(id), " is not one of this run's ", known.size(),
                   nearest.empty() ? std::string() : absl::StrCat("; the nearest is \"", nearest, "\"")));
}

BySlot<PolicySpec> PolicyTable::Specs() const {
  BySlot<PolicySpec> specs(entries_.size());
  for (const PolicySlot slot : entries_.ids()) {
    if (const PolicyEntry* const entry = Find(slot)) specs[slot] = entry->spec;
  }
  return specs;
}

BySlot<PolicyId> PolicyTable::ActiveIds() const {
  BySlot<PolicyId> ids(entries_.size());
  for (const PolicySlot slot : entries_.ids()) {
    const PolicyEntry* const entry = Find(slot);
    if (entry != nullptr && entry->active()) ids[slot] = entry->spec.id;
  }
  return ids;
}

size_t PolicyTable::num_slots() const { return entries_.size(); }

const PolicyId& PolicyTable::IdOf(PolicySlot slot) const {
  const PolicyEntry* const entry = Find(slot);
  TROUPE_CHECK(entry != nullptr);
  return entry->spec.id;
}

int64_t PolicyTable::SinceOf(PolicySlot slot) const {
  const PolicyEntry* const entry = Find(slot);
  return entry == nullptr ? -1 : entry->since;
}

bool PolicyTable::IsMapped(PolicySlot slot) const {
  const PolicyEntry* entry = Find(slot);
  if (entry == nullptr || !entry->active()) return false;
  // A function without policies of its own may choose any.
  return RuleNaming(rules_, entry->spec.id) != nullptr ||
         std::any_of(rules_.begin(), rules_.end(),
                     [](const MappingRule& rule) { return !rule.function.empty() && rule.policies.empty(); });
}

std::map<std::string, std::vector<int32_t>> AgentSlotsByPolicy(const PolicyTable& table) {
  std::map<std::string, std::vector<int32_t>> slots;
  for (const PolicyId& id : table.ActiveIds()) {
    if (!id.value().empty()) slots[id.value()];
  }
  for (size_t agent = 0; agent < table.agent_ids().size(); ++agent) {
    const MappingRule* const rule = FirstMatch(table.rules(), table.agent_ids()[agent]);
    if (rule == nullptr) continue;  // no table is made so
    const auto slot = static_cast<int32_t>(agent);
    for (const WeightedPolicy& weighted : rule->policies) {
      std::vector<int32_t>& agents = slots[weighted.policy.value()];
      if (agents.empty() || agents.back() != slot) agents.push_back(slot);  // a rule may name a policy twice
    }
    if (!rule->policies.empty()) continue;
    for (auto& [id, agents] : slots) agents.push_back(slot);
  }
  return slots;
}

}  // namespace troupe::policy
