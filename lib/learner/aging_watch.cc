#include "lib/learner/aging_watch.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/policy/policy_entry.h"

namespace troupe::learner {
namespace {

std::string Cause(const LearnerOptions& options) {
  return absl::StrCat("clients decided with older weights than algorithm.max_policy_lag (", options.max_policy_lag,
                      ") allows. Let them take new weights more often",
                      options.max_policy_lag == 0 ? ", or set algorithm.max_policy_lag: 1" : "");
}

}  // namespace

void AgingWatch::Add(const Assembly& assembly, const policy::PolicyTable& table) {
  if (policies_.size() < table.num_slots()) policies_.resize(table.num_slots());
  for (const PolicyRowCount& count : assembly.trained) policies_[count.policy].update.all += count.rows;
  for (const PolicyRowCount& count : assembly.aged) {
    policies_[count.policy].update.all += count.rows;
    policies_[count.policy].update.aged += count.rows;
  }
  for (const policy::PolicySlot slot : policies_.ids()) {
    Policy& policy = policies_[slot];
    const policy::PolicyEntry* const entry = table.Find(slot);
    const bool trains = entry != nullptr && entry->active() && entry->trains;
    if (!trains || entry->since != policy.since) {
      const Rows update = policy.update;
      policy = Policy();
      if (!trains) continue;
      policy.since = entry->since;
      policy.update = update;
    }
    if (policy.update.all > 0) Judge(entry->spec.id, policy);
    policy.update = Rows();
  }
}

void AgingWatch::Judge(const policy::PolicyId& id, Policy& policy) {
  const auto add = [&update = policy.update](Rows* rows) {
    ++rows->updates;
    rows->all += update.all;
    rows->aged += update.aged;
  };
  if (policy.update.aged < policy.update.all) policy.lost = Rows();
  if (policy.update.aged == policy.update.all) add(&policy.lost);
  add(&policy.judged);
  if (policy.judged.updates == kUpdates) {
    const Rows rows = std::exchange(policy.judged, Rows());
    policy.losing.clear();
    if (rows.aged * kOneIn > rows.all) {
      policy.losing = absl::StrCat("policy \"", id.value(), "\" lost ", rows.aged, " of its last ", rows.all,
                                   " rows: ", Cause(options_));
      if (!policy.named) news_.push_back(policy.losing);
      policy.named = true;
    }
  }
  if (policy.lost.updates == kUpdates && !end_.has_value()) {
    end_ = absl::StrCat("policy \"", id.value(), "\" trains on nothing: all its ", policy.lost.all, " rows of ",
                        kUpdates, " updates were dropped, since ", Cause(options_));
  }
}

std::vector<std::string> AgingWatch::Losing() const {
  std::vector<std::string> sentences;
  size_t others = 0;
  for (const Policy& policy : policies_) {
    if (policy.losing.empty()) continue;
    if (sentences.size() < kMostNamed) {
      sentences.push_back(policy.losing);
    } else {
      ++others;
    }
  }
  if (others > 0) sentences.push_back(absl::StrCat(others, " more policies lose rows for this reason"));
  return sentences;
}

std::vector<std::string> AgingWatch::TakeNews() { return std::exchange(news_, {}); }

}  // namespace troupe::learner
