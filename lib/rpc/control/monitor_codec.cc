#include "lib/rpc/control/monitor_codec.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "lib/rpc/transport/convert.h"

namespace troupe::rpc {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

std::optional<double> IfAny(double value) { return std::isnan(value) ? std::nullopt : std::optional<double>(value); }

int32_t Narrow(int64_t count) {
  return static_cast<int32_t>(
      std::clamp<int64_t>(count, std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max()));
}

void FillRows(const learner::RowCounters& rows, v1::RowCounters* out) {
  out->set_received(rows.received);
  out->set_accepted(rows.accepted);
  out->set_duplicate(rows.duplicate);
  out->set_stale(rows.stale);
  out->set_invalid(rows.invalid);
  out->set_trained(rows.trained);
  out->set_queued(rows.queued);
  out->set_dropped(rows.dropped);
  out->set_rolled_back(rows.rolled_back);
  out->set_aged(rows.aged);
  out->set_waited(rows.waited);
}

learner::RowCounters RowsOf(const v1::RowCounters& rows) {
  return {rows.received(), rows.accepted(), rows.duplicate(),   rows.stale(), rows.invalid(), rows.trained(),
          rows.queued(),   rows.dropped(),  rows.rolled_back(), rows.aged(),  rows.waited()};
}

void FillFragments(const learner::FragmentCounters& fragments, v1::FragmentCounters* out) {
  out->set_received(fragments.received);
  out->set_accepted(fragments.accepted);
  out->set_duplicate(fragments.duplicate);
  out->set_stale(fragments.stale);
  out->set_invalid(fragments.invalid);
  out->set_rolled_back(fragments.rolled_back);
  out->set_unknown(fragments.unknown);
}

learner::FragmentCounters FragmentsOf(const v1::FragmentCounters& fragments) {
  return {fragments.received(), fragments.accepted(),    fragments.duplicate(), fragments.stale(),
          fragments.invalid(),  fragments.rolled_back(), fragments.unknown()};
}

void FillGroup(const learner::GroupRows& rows, v1::GroupRows* out) {
  out->set_group_id(rows.id.value());
  out->set_accepted(rows.accepted);
  out->set_queued(rows.queued);
  out->set_trained(rows.trained);
  out->set_aged(rows.aged);
  out->set_evicted(rows.evicted);
  out->set_uses(rows.uses);
}

learner::GroupRows GroupOf(const v1::GroupRows& told) {
  return {policy::GroupId(told.group_id()),
          told.accepted(),
          told.queued(),
          told.trained(),
          told.aged(),
          told.evicted(),
          told.uses()};
}

void FillWorker(const ConnectedWorker& connected, v1::WorkerStatus* out) {
  const learner::WorkerStatus& worker = connected.worker;
  out->set_name(connected.name);
  out->set_worker_id(worker.id.value());
  out->set_worker_epoch(worker.epoch.value());
  out->set_num_envs(worker.lanes);
  out->set_outstanding_steps(worker.outstanding_steps);
  out->set_accepted_rows(worker.accepted_rows);
  out->set_policy_lag(worker.policy_lag);
  out->set_expired_grants(worker.expired_grants);
  out->mutable_recent_episodes()->set_ended(worker.recent_episodes.ended);
  out->mutable_recent_episodes()->set_failed(worker.recent_episodes.failed);
  out->set_gets_no_work(connected.gets_no_work);
  out->set_gets_no_work_reason(worker.gets_no_work);
  out->set_last_seen_s(absl::ToDoubleSeconds(worker.since_last_seen));
}

ConnectedWorker WorkerOf(const v1::WorkerStatus& told) {
  ConnectedWorker connected;
  connected.name = told.name();
  connected.gets_no_work = told.gets_no_work();
  learner::WorkerStatus& worker = connected.worker;
  worker.id = sample::WorkerId(told.worker_id());
  worker.epoch = sample::WorkerEpoch(told.worker_epoch());
  worker.lanes = Narrow(told.num_envs());
  worker.outstanding_steps = told.outstanding_steps();
  worker.accepted_rows = told.accepted_rows();
  worker.policy_lag = told.policy_lag();
  worker.expired_grants = told.expired_grants();
  worker.recent_episodes.ended = told.recent_episodes().ended();
  worker.recent_episodes.failed = told.recent_episodes().failed();
  worker.gets_no_work = told.gets_no_work_reason();
  worker.since_last_seen = absl::Seconds(told.last_seen_s());
  return connected;
}

void FillPolicy(const PolicyStatus& policy, v1::PolicyStatus* out) {
  out->set_policy_id(policy.id.value());
  *out->mutable_version() = ToProto(policy.version);
  out->set_trains(policy.trains);
  out->set_return_count(policy.return_count);
  out->set_return_mean(policy.return_mean);
  out->set_return_min(policy.return_min);
  out->set_return_max(policy.return_max);
  FillRows(policy.rows, out->mutable_rows());
  for (const auto& [name, value] : policy.exploration) {
    v1::ExplorationScalar* const scalar = out->add_exploration();
    scalar->set_name(name);
    scalar->set_value(value);
  }
}

PolicyStatus PolicyOf(const v1::PolicyStatus& told) {
  PolicyStatus policy;
  policy.id = policy::PolicyId(told.policy_id());
  policy.version = FromProto(told.version());
  policy.trains = told.trains();
  policy.return_count = told.return_count();
  policy.return_mean = told.return_mean();
  policy.return_min = told.return_min();
  policy.return_max = told.return_max();
  policy.rows = RowsOf(told.rows());
  for (const v1::ExplorationScalar& scalar : told.exploration()) policy.exploration[scalar.name()] = scalar.value();
  return policy;
}

}  // namespace

v1::StatusReply ToProto(const RunStatus& status) {
  const learner::LearnerStatus& learner = status.learner;
  const learner::ProgressRecord& progress = learner.progress;
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
  reply.set_return_sum(progress.return_sum.value_or(kNone));
  reply.set_return_mean(progress.return_mean.value_or(kNone));
  reply.set_rewards_differ(progress.rewards_differ);
  reply.set_state(learner.state);
  reply.set_state_reason(learner.reason);
  reply.set_queue_bytes(learner.queue_bytes);
  reply.set_queue_budget_bytes(learner.queue_budget_bytes);
  reply.set_expired_grants(progress.expired_grants);
  FillRows(progress.rows, reply.mutable_rows());
  for (const learner::GroupRows& group : learner.books.groups) FillGroup(group, reply.add_groups());
  if (learner.books.groupless.accepted > 0) FillGroup(learner.books.groupless, reply.add_groups());
  FillFragments(learner.fragments, reply.mutable_fragments());
  *reply.mutable_env_counters() = ToProto(progress.env_counters);
  for (const ConnectedWorker& worker : status.workers) FillWorker(worker, reply.add_workers());
  for (const std::string& words : status.degraded) reply.add_degraded(words);
  for (const PolicyStatus& policy : status.policies) FillPolicy(policy, reply.add_policies());
  for (const DoorCount& count : status.door) {
    v1::DoorCount* const out = reply.add_door();
    out->set_what(count.what);
    out->set_count(count.count);
  }
  return reply;
}

RunStatus FromProto(const v1::StatusReply& reply) {
  RunStatus status;
  status.build_version = reply.build_version();
  status.run_name = reply.run_name();
  learner::LearnerStatus& learner = status.learner;
  learner.state = reply.state();
  learner.reason = reply.state_reason();
  learner.learner_epoch = reply.learner_epoch();
  learner.fragments = FragmentsOf(reply.fragments());
  for (const v1::GroupRows& group : reply.groups()) {
    if (group.group_id().empty()) {
      learner.books.groupless = GroupOf(group);
    } else {
      learner.books.groups.push_back(GroupOf(group));
    }
  }
  learner.queue_bytes = reply.queue_bytes();
  learner.queue_budget_bytes = reply.queue_budget_bytes();
  learner::ProgressRecord& progress = learner.progress;
  progress.updates = reply.updates();
  progress.env_steps = reply.env_steps();
  progress.agent_steps = reply.agent_steps();
  progress.episodes = reply.episodes();
  progress.wall_clock_s = reply.wall_clock_s();
  progress.env_steps_per_s = reply.env_steps_per_s();
  progress.return_sum = IfAny(reply.return_sum());
  progress.return_mean = IfAny(reply.return_mean());
  progress.rewards_differ = reply.rewards_differ();
  progress.expired_grants = reply.expired_grants();
  progress.rows = RowsOf(reply.rows());
  progress.env_counters = FromProto(reply.env_counters()).value_or(sample::EnvCounters());
  for (const v1::WorkerStatus& worker : reply.workers()) status.workers.push_back(WorkerOf(worker));
  status.degraded.assign(reply.degraded().begin(), reply.degraded().end());
  for (const v1::PolicyStatus& policy : reply.policies()) status.policies.push_back(PolicyOf(policy));
  for (const v1::DoorCount& told : reply.door()) {
    if (status.door.size() < kNumDoorReasons) status.door.push_back({told.what(), told.count()});
  }
  return status;
}

v1::PoliciesReply ToProto(const PolicyListing& listing) {
  v1::PoliciesReply reply;
  reply.set_revision(listing.revision);
  reply.mutable_agent_ids()->Add(listing.agent_ids.begin(), listing.agent_ids.end());
  for (const ListedPolicy& listed : listing.policies) {
    v1::PolicyListing* const out = reply.add_policies();
    out->set_slot(listed.slot.value());
    out->set_policy_id(listed.id.value());
    out->set_since(listed.since);
    out->set_removed(listed.removed);
    out->set_replaced(listed.replaced);
    out->set_trains(listed.trains);
    out->set_plays(listed.plays);
    out->set_policy_class(listed.policy_class);
  }
  for (const policy::MappingRule& rule : listing.mapping) {
    v1::MappingListing* const out = reply.add_mapping();
    out->set_agent_glob(rule.agent_glob);
    out->set_function(rule.function);
    for (const policy::WeightedPolicy& weighted : rule.policies) {
      v1::PolicyWeight* const choice = out->add_policies();
      choice->set_policy_id(weighted.policy.value());
      choice->set_weight(weighted.weight);
    }
  }
  return reply;
}

PoliciesAnswer FromProto(v1::PoliciesReply reply) {
  PoliciesAnswer answer;
  answer.table_json = std::move(*reply.mutable_table_json());
  answer.listing.revision = reply.revision();
  answer.listing.agent_ids.assign(reply.agent_ids().begin(), reply.agent_ids().end());
  for (const v1::PolicyListing& told : reply.policies()) {
    ListedPolicy& listed = answer.listing.policies.emplace_back();
    listed.slot = policy::PolicySlot(told.slot());
    listed.id = policy::PolicyId(told.policy_id());
    listed.since = told.since();
    listed.removed = told.removed();
    listed.replaced = told.replaced();
    listed.trains = told.trains();
    listed.plays = told.plays();
    listed.policy_class = told.policy_class();
  }
  for (const v1::MappingListing& told : reply.mapping()) {
    policy::MappingRule& rule = answer.listing.mapping.emplace_back();
    rule.agent_glob = told.agent_glob();
    rule.function = told.function();
    for (const v1::PolicyWeight& choice : told.policies()) {
      rule.policies.push_back({policy::PolicyId(choice.policy_id()), choice.weight()});
    }
  }
  return answer;
}

}  // namespace troupe::rpc
