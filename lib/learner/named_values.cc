#include "lib/learner/named_values.h"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lib/policy/policy_entry.h"
#include "lib/sample/multi_agent_batch.h"

namespace troupe::learner {
namespace {

/// How the parts of a Spread are called.
struct Names {
  const char* key;
  const char* tag;
};
constexpr Names kLeast = {"return_min", "Episode-Rewards/Min"};
constexpr Names kMean = {"return_mean", "Episode-Rewards"};
constexpr Names kLargest = {"return_max", "Episode-Rewards/Max"};

/// Where something is told: its key and its tag begin so.
struct Prefix {
  std::string key;
  std::string tag;
};

void AppendReturns(const Prefix& prefix, const Spread& returns, std::vector<NamedValue>* values) {
  if (returns.empty()) return;
  const auto append = [&](const Names& names, double value) {
    values->push_back({absl::StrCat(prefix.key, names.key), absl::StrCat(prefix.tag, names.tag), value});
  };
  append(kMean, *returns.mean());
  append(kLeast, returns.min);
  append(kLargest, returns.max);
}

/// `one` and `rest`: of which the names, and those of the others, are parts.
void AppendAll(const ReturnsByName& returns, const Prefix& one, const Prefix& rest, std::vector<NamedValue>* values) {
  for (const NamedReturns& named : returns.named) {
    AppendReturns({absl::StrCat(one.key, named.name, "/"), absl::StrCat(one.tag, named.name, "/")}, named.returns,
                  values);
  }
  if (returns.others.empty()) return;
  AppendReturns(rest, returns.rest, values);
  values->push_back({absl::StrCat(rest.key, "count"), "", static_cast<double>(returns.others.size())});
}

/// The first `most` of `slots` by `before` by name, the others as one.
template <typename Before, typename NameOf>
ReturnsByName Split(std::vector<int32_t> slots, size_t most, const std::vector<Spread>& returns, const Before& before,
                    const NameOf& name_of) {
  ReturnsByName split;
  const auto returns_of = [&returns](int32_t slot) {
    return static_cast<size_t>(slot) < returns.size() ? returns[static_cast<size_t>(slot)] : Spread();
  };
  if (slots.size() > most) {
    const auto first_other = slots.begin() + static_cast<std::ptrdiff_t>(most);
    std::nth_element(slots.begin(), first_other, slots.end(), before);
    split.others.assign(first_other, slots.end());
    slots.resize(most);
    std::sort(slots.begin(), slots.end());
    std::sort(split.others.begin(), split.others.end());
  }
  for (const int32_t slot : slots) split.named.push_back({std::string(name_of(slot)), slot, returns_of(slot)});
  for (const int32_t slot : split.others) {
    if (const std::optional<double> mean = returns_of(slot).mean()) split.rest.Add(*mean);
  }
  return split;
}

/// How a group's numbers are called, in a line and in TensorBoard.
struct GroupField {
  const char* key;
  const char* tag;
  int64_t GroupRows::*value;
};
constexpr GroupField kGroupFields[] = {
    {"rows_accepted", "Rows/accepted", &GroupRows::accepted}, {"rows_queued", "Rows/queued", &GroupRows::queued},
    {"rows_trained", "Rows/trained", &GroupRows::trained},    {"rows_aged", "Rows/aged", &GroupRows::aged},
    {"rows_evicted", "Rows/evicted", &GroupRows::evicted},    {"row_uses", "Rows/uses", &GroupRows::uses}};

/// Of each group, where there are several, what became of its rows: those with most by name, the others summed.
void AppendGroups(const std::vector<GroupRows>& all, size_t most, std::vector<NamedValue>* values) {
  if (all.size() < 2) return;
  std::vector<const GroupRows*> groups;
  groups.reserve(all.size());
  for (const GroupRows& rows : all) groups.push_back(&rows);
  const size_t named = std::min(most, groups.size());
  const auto first_other = groups.begin() + static_cast<std::ptrdiff_t>(named);
  std::partial_sort(groups.begin(), first_other, groups.end(), [](const GroupRows* a, const GroupRows* b) {
    return a->accepted != b->accepted ? a->accepted > b->accepted : a->id < b->id;
  });
  const auto append = [values](const std::string& prefix, const GroupRows& rows) {
    for (const GroupField& field : kGroupFields) {
      values->push_back(
          {absl::StrCat(prefix, field.key), absl::StrCat(prefix, field.tag), static_cast<double>(rows.*field.value)});
    }
  };
  for (auto group = groups.begin(); group != first_other; ++group) {
    append(absl::StrCat("group/", (*group)->id.value(), "/"), **group);
  }
  if (named == groups.size()) return;
  GroupRows rest;
  for (auto group = first_other; group != groups.end(); ++group) {
    for (const GroupField& field : kGroupFields) rest.*field.value += **group.*field.value;
  }
  append("groups/rest/", rest);
  values->push_back({"groups/rest/count", "", static_cast<double>(groups.size() - named)});
}

/// Of a run with several policies, those that lost rows because they were too old: the `most` with most such rows.
void AppendAged(const ProgressRecord& record, size_t most, std::vector<NamedValue>* values) {
  if (record.table->num_slots() < 2) return;
  std::vector<std::pair<int64_t, policy::PolicySlot>> aged;
  for (const policy::PolicySlot slot : record.policy_rows.ids()) {
    if (record.policy_rows[slot].aged > 0) aged.emplace_back(-record.policy_rows[slot].aged, slot);
  }
  const size_t named = std::min(most, aged.size());
  std::partial_sort(aged.begin(), aged.begin() + static_cast<std::ptrdiff_t>(named), aged.end());
  for (size_t i = 0; i < named; ++i) {
    const policy::PolicyEntry* const entry = record.table->Find(aged[i].second);
    if (entry == nullptr) continue;
    const std::string prefix = absl::StrCat("policy/", entry->spec.id.value(), "/");
    values->push_back(
        {absl::StrCat(prefix, "rows_aged"), absl::StrCat(prefix, "Rows/aged"), static_cast<double>(-aged[i].first)});
  }
}

}  // namespace

const NamedValues::PolicyRows& NamedValues::Rows(policy::PolicySlot policy) const {
  static const PolicyRows kNone;
  return rows_.Contains(policy) ? rows_[policy] : kNone;
}

void NamedValues::Add(const ProgressRecord& record) {
  if (record.policies == nullptr || record.table == nullptr) return;
  if (rows_.size() < record.table->num_slots()) rows_.resize(record.table->num_slots());
  for (const PolicyUpdateReport& report : *record.policies) {
    const policy::PolicyEntry* const entry = record.table->Find(report.policy);
    if (report.trained_rows == 0 || entry == nullptr) continue;
    PolicyRows& rows = rows_[report.policy];
    if (rows.since != entry->since) {
      rows = PolicyRows();
      rows.since = entry->since;
    }
    rows.in_line += report.trained_rows;
    rows.in_all += report.trained_rows;
    rows.last = &report;
    rows.reports = record.policies;
  }
}

ReturnsByName NamedValues::Choose(const EpisodeStats& stats, const policy::PolicyTable& table, size_t most,
                                  bool of_line) const {
  std::vector<int32_t> slots;
  for (const policy::PolicySlot slot : table.entries().ids()) {
    const policy::PolicyEntry* const entry = table.Find(slot);
    // Of two policies of one id it is the one that episodes begin with.
    if (entry == nullptr || entry->replaced) continue;
    const bool played = stats.policies.Contains(slot) && !stats.policies[slot].empty();
    if (played || Rows(slot).in_line > 0) slots.push_back(slot.value());
  }
  const auto before = [&](int32_t a, int32_t b) {
    const auto key = [&](int32_t place) {
      const policy::PolicySlot slot(place);
      const PolicyRows& rows = Rows(slot);
      return std::make_tuple(of_line ? rows.in_line : rows.in_all, rows.in_all,
                             stats.policies.Contains(slot) ? stats.policies[slot].count : 0, -place);
    };
    return key(a) > key(b);
  };
  return Split(std::move(slots), most, stats.policies.values(), before,
               [&table](int32_t slot) { return table.Find(policy::PolicySlot(slot))->spec.id.value(); });
}

ReturnsByName NamedValues::Policies(const EpisodeStats& stats, const policy::PolicyTable& table, size_t most) const {
  return Choose(stats, table, most, /*of_line=*/false);
}

ReturnsByName NamedValues::Agents(const EpisodeStats& stats, size_t most) const {
  std::vector<int32_t> slots;
  for (size_t slot = 0; slot < stats.agents.size() && slot < agent_ids_.size(); ++slot) {
    if (!stats.agents[slot].empty()) slots.push_back(static_cast<int32_t>(slot));
  }
  const auto before = [&stats](int32_t a, int32_t b) {
    const int64_t of_a = stats.agents[static_cast<size_t>(a)].count;
    const int64_t of_b = stats.agents[static_cast<size_t>(b)].count;
    return of_a != of_b ? of_a > of_b : a < b;
  };
  return Split(std::move(slots), most, stats.agents, before,
               [this](int32_t slot) { return agent_ids_[static_cast<size_t>(slot)]; });
}

void NamedValues::AppendTraining(const ReturnsByName& policies, std::vector<NamedValue>* values) const {
  for (const NamedReturns& policy : policies.named) {
    const PolicyRows& rows = Rows(policy::PolicySlot(policy.slot));
    if (rows.in_line == 0) continue;
    const std::string prefix = absl::StrCat("policy/", policy.name, "/");
    values->push_back({absl::StrCat(prefix, "rows"), "", static_cast<double>(rows.in_line)});
    for (const auto& [tag, value] : rows.last->metrics) {
      std::string name = absl::StrCat(prefix, tag);
      std::string key = absl::StartsWith(tag, "Loss/") ? name : "";
      values->push_back({std::move(key), std::move(name), value});
    }
    values->push_back({"", absl::StrCat(prefix, "Time/train_s"), rows.last->train_time_s});
  }
  std::map<std::string, Spread> losses;
  for (const int32_t slot : policies.others) {
    const PolicyRows& rows = Rows(policy::PolicySlot(slot));
    if (rows.in_line == 0) continue;
    for (const auto& [tag, value] : rows.last->metrics) {
      if (absl::StartsWith(tag, "Loss/")) losses[tag].Add(value);
    }
  }
  for (const auto& [tag, loss] : losses) {
    for (const auto& [part, value] : {std::pair("min", loss.min), {"mean", *loss.mean()}, {"max", loss.max}}) {
      std::string name = absl::StrCat("policies/rest/", tag, "/", part);
      values->push_back({name, name, value});
    }
  }
}

std::vector<NamedValue> NamedValues::TakeLine(const ProgressRecord& record) {
  std::vector<NamedValue> values;
  values.reserve(line_size_);
  for (const auto& [column, mean] : record.window.infos) values.push_back({absl::StrCat("env/", column), "", mean});
  AppendAll(Agents(record.window, kMost), {"agent/", "agent/"}, {"agents/rest/", "agents/rest/"}, &values);
  if (record.table == nullptr) return values;
  const ReturnsByName policies = Choose(record.window, *record.table, kMost, /*of_line=*/true);
  AppendAll(policies, {"policy/", "policy/"}, {"policies/rest/", "policies/rest/"}, &values);
  if (record.table->num_slots() > 1) AppendTraining(policies, &values);
  AppendAged(record, kMost, &values);
  if (record.groups != nullptr) AppendGroups(*record.groups, kMost, &values);
  for (PolicyRows& rows : rows_) rows.in_line = 0;
  line_size_ = values.size();
  return values;
}

std::vector<NamedValue> NamedValues::OfEvaluation(const EpisodeStats& evaluation,
                                                  const policy::PolicyTable& table) const {
  std::vector<NamedValue> values;
  if (const std::optional<double> mean = evaluation.return_mean.mean()) {
    values.push_back({"evaluation_return_mean", "", *mean});
  }
  for (const auto& [key, spread] : {std::pair("evaluation_return_sum", &evaluation.return_sum),
                                    std::pair("evaluation_episode_length", &evaluation.length)}) {
    if (spread->empty()) continue;
    values.push_back({key, "", *spread->mean()});
    values.push_back({absl::StrCat(key, "_min"), "", spread->min});
    values.push_back({absl::StrCat(key, "_max"), "", spread->max});
  }
  for (const auto& [column, mean] : evaluation.infos) {
    values.push_back({absl::StrCat("evaluation/env/", column), absl::StrCat("Test-Results/env/", column), mean});
  }
  AppendAll(Agents(evaluation, kMost), {"evaluation/agent/", "Test-Results/"},
            {"evaluation/agents/rest/", "Test-Results/agents/rest/"}, &values);
  AppendAll(Choose(evaluation, table, kMost, /*of_line=*/true), {"evaluation/policy/", "Test-Results/policy/"},
            {"evaluation/policies/rest/", "Test-Results/policies/rest/"}, &values);
  return values;
}

}  // namespace troupe::learner
