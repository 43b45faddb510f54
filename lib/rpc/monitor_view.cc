#include "lib/rpc/monitor_view.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/match.h"
#include "lib/rpc/convert.h"
#include <google/protobuf/message.h>

namespace troupe::rpc {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

/// Texts that a stranger may read: names that the user gave to the run and its policies, and words of our own.
constexpr std::string_view kOpenTexts[] = {
    "troupe.v1.StatusReply.build_version", "troupe.v1.StatusReply.run_name",   "troupe.v1.StatusReply.state",
    "troupe.v1.StatusReply.degraded",      "troupe.v1.PolicyStatus.policy_id",
};

void DropTexts(Message* message) {
  const Reflection& reflection = *message->GetReflection();
  std::vector<const FieldDescriptor*> fields;
  reflection.ListFields(*message, &fields);
  for (const FieldDescriptor* field : fields) {
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
      const bool open =
          std::find(std::begin(kOpenTexts), std::end(kOpenTexts), field->full_name()) != std::end(kOpenTexts);
      if (!open) reflection.ClearField(message, field);
    } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE && field->is_repeated()) {
      for (int i = 0; i < reflection.FieldSize(*message, field); ++i) {
        DropTexts(reflection.MutableRepeatedMessage(message, field, i));
      }
    } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      DropTexts(reflection.MutableMessage(message, field));
    }
  }
}

std::string KindOf(const policy::PolicyClass& policy_class) {
  switch (policy_class.kind) {
    case policy::PolicyClass::Kind::kPpo:
      return "ppo";
    case policy::PolicyClass::Kind::kRandom:
      return "random";
    case policy::PolicyClass::Kind::kScripted:
      return "scripted";
    case policy::PolicyClass::Kind::kCheckpoint:
      return "checkpoint";
    case policy::PolicyClass::Kind::kPython:
      return "python";
  }
  return "";
}

std::string KindOfFunction(const std::string& function) {
  if (function.empty()) return "";
  return absl::StartsWith(function, "python:") ? "python" : "native";
}

void Fill(const learner::RowCounters& rows, v1::RowCounters* out) {
  out->set_received(rows.received);
  out->set_accepted(rows.accepted);
  out->set_duplicate(rows.duplicate);
  out->set_stale(rows.stale);
  out->set_invalid(rows.invalid);
  out->set_trained(rows.trained);
  out->set_queued(rows.queued);
  out->set_dropped(rows.dropped);
  out->set_rolled_back(rows.rolled_back);
}

void Fill(const learner::FragmentCounters& fragments, v1::FragmentCounters* out) {
  out->set_received(fragments.received);
  out->set_accepted(fragments.accepted);
  out->set_duplicate(fragments.duplicate);
  out->set_stale(fragments.stale);
  out->set_invalid(fragments.invalid);
  out->set_rolled_back(fragments.rolled_back);
  out->set_unknown(fragments.unknown);
}

void Fill(const learner::WorkerStatus& worker, v1::WorkerStatus* out) {
  out->set_worker_id(worker.id.value());
  out->set_worker_epoch(worker.epoch.value());
  out->set_num_envs(worker.lanes);
  out->set_outstanding_steps(worker.outstanding_steps);
  out->set_accepted_rows(worker.accepted_rows);
  out->set_policy_lag(worker.policy_lag);
  out->set_expired_grants(worker.expired_grants);
  out->mutable_recent_episodes()->set_ended(worker.recent_episodes.ended);
  out->mutable_recent_episodes()->set_failed(worker.recent_episodes.failed);
  out->set_gets_no_work(!worker.gets_no_work.empty());
  out->set_gets_no_work_reason(worker.gets_no_work);
  out->set_last_seen_s(absl::ToDoubleSeconds(worker.since_last_seen));
}

void Fill(const PolicyStatus& policy, v1::PolicyStatus* out) {
  out->set_policy_id(policy.id.value());
  *out->mutable_version() = ToProto(policy.version);
  out->set_trains(policy.trains);
  if (policy.returns.empty()) return;
  out->set_return_count(policy.returns.count);
  out->set_return_mean(*policy.returns.mean());
  out->set_return_min(policy.returns.min);
  out->set_return_max(policy.returns.max);
}

}  // namespace

v1::StatusReply ToProto(const RunStatus& status) {
  const learner::LearnerStatus& learner = status.learner;
  const learner::ProgressRecord& progress = learner.progress;
  const double none = std::numeric_limits<double>::quiet_NaN();
  v1::StatusReply reply;
  reply.set_build_version(status.build_version);
  reply.set_run_name(status.run_name);
  reply.set_learner_epoch(learner.learner_epoch);
  reply.set_updates(progress.updates);
  reply.set_env_steps(progress.env_steps);
  reply.set_agent_steps(progress.agent_steps);
  reply.set_episodes(progress.episodes);
  reply.set_wall_clock_s(progress.wall_clock_s);
  reply.set_env_steps_per_s(progress.env_steps_per_s);
  reply.set_return_sum(progress.return_sum.value_or(none));
  reply.set_return_mean(progress.return_mean.value_or(none));
  reply.set_rewards_differ(progress.rewards_differ);
  reply.set_state(learner.state);
  reply.set_state_reason(learner.reason);
  reply.set_queue_bytes(learner.queue_bytes);
  reply.set_queue_budget_bytes(learner.queue_budget_bytes);
  reply.set_expired_grants(progress.expired_grants);
  Fill(progress.rows, reply.mutable_rows());
  Fill(learner.fragments, reply.mutable_fragments());
  *reply.mutable_env_counters() = ToProto(progress.env_counters);
  for (size_t i = 0; i < learner.workers.size(); ++i) {
    v1::WorkerStatus* const worker = reply.add_workers();
    Fill(learner.workers[i], worker);
    if (i < status.worker_names.size()) worker->set_name(status.worker_names[i]);
  }
  for (const std::string& words : status.degraded) reply.add_degraded(words);
  for (const PolicyStatus& policy : status.policies) Fill(policy, reply.add_policies());
  return reply;
}

void WithholdFromAnybody(v1::StatusReply* status) {
  DropTexts(status);
  status->clear_queue_budget_bytes();
}

v1::PoliciesReply ListPolicies(const policy::PolicyTable& table, bool whole) {
  v1::PoliciesReply reply;
  reply.set_revision(table.revision());
  reply.mutable_agent_ids()->Add(table.agent_ids().begin(), table.agent_ids().end());
  for (size_t i = 0; i < table.num_slots(); ++i) {
    const policy::PolicySlot slot(static_cast<int32_t>(i));
    const policy::PolicyEntry* entry = table.Find(slot);
    if (entry == nullptr) continue;
    v1::PolicyListing* listing = reply.add_policies();
    listing->set_slot(slot.value());
    listing->set_policy_id(entry->spec.id.value());
    listing->set_since(entry->since);
    listing->set_removed(entry->removed);
    listing->set_replaced(entry->replaced);
    listing->set_trains(entry->trains);
    listing->set_plays(entry->active() && table.IsMapped(slot));
    const policy::PolicyClass& policy_class = entry->spec.policy_class;
    listing->set_policy_class(whole ? policy_class.ToString() : KindOf(policy_class));
  }
  for (const policy::MappingRule& rule : table.rules()) {
    v1::MappingListing* listing = reply.add_mapping();
    listing->set_agent_glob(rule.agent_glob);
    listing->set_function(whole ? rule.function : KindOfFunction(rule.function));
    for (const policy::WeightedPolicy& weighted : rule.policies) {
      v1::PolicyWeight* policy = listing->add_policies();
      policy->set_policy_id(weighted.policy.value());
      policy->set_weight(weighted.weight);
    }
  }
  return reply;
}

}  // namespace troupe::rpc
