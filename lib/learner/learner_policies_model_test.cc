// Random changes of the policies under workers that lag, die, come back with what they hold, and deliver out of order.

#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/learner/learner.h"
#include "lib/learner/testing/expected_iterations.h"
#include "lib/learner/testing/fake_trainer.h"
#include "lib/learner/testing/fake_worker.h"
#include "lib/policy/parameter_layout.h"
#include "lib/policy/policy_entry.h"
#include <gtest/gtest.h>

namespace troupe::learner {
namespace {

using policy::PolicyEntry;
using policy::PolicyId;
using policy::PolicySlot;
using policy::PolicyTablePtr;
using sample::Disposition;

struct SentFragment {
  uint64_t sequence;
  sample::MultiAgentBatchPtr batch;
};

struct SimWorker {
  std::shared_ptr<FakeWorkerPort> port = std::make_shared<FakeWorkerPort>();
  std::unique_ptr<sample::FakeRollout> rollout;
  WorkerTicket ticket;
  uint64_t next_sequence = 1;
  std::vector<SentFragment> outbox;
};

/// What all histories together reached.
struct Reached {
  int64_t changes = 0;
  int64_t reused = 0;      ///< slots that a second policy got
  int64_t other_form = 0;  ///< of them, with another observation
  int64_t released = 0;
  int64_t partly_stale = 0;
  int64_t groupless = 0;  ///< rows, at each look
  std::map<Disposition, int64_t> fragments;
  int64_t dropped = 0;
  int64_t updates = 0;
};

class World {
 public:
  World(uint64_t seed, Reached* reached)
      : reached_(*reached), random_(base::PhiloxKey::Make(seed, base::RandomStream::kTest), {}) {
    config_.schema = sample::RandomSchema(seed);
    for (int64_t i = 0; i < config_.schema.num_info_columns; ++i) config_.info_columns.push_back("info");
    config_.options.num_envs = 1 + static_cast<int32_t>(random_.Below(7));
    config_.options.train_batch_size = 1 + random_.Below(60);
    config_.options.max_policy_lag = random_.Below(3);
    config_.options.complete_episodes = random_.Below(3) == 0;
    config_.learner_epoch = 1 + random_.Below(2);
    iterations_ = std::make_unique<ExpectedIterations>(config_.options);
    rollout_options_ = sample::RandomRolloutOptions(config_.schema, seed);
    first_ = config_.schema.policies;
    const auto table = policy::PolicyTable::Make(first_.values(), std::vector<bool>(first_.size(), true),
                                                 {{"scout_*", {{PolicyId("scouts")}, {PolicyId("scouts_2")}}},
                                                  {"eye_0", {{PolicyId("eye")}}},
                                                  {"arm_0", {{PolicyId("arm")}}}},
                                                 config_.schema.agent_ids);
    EXPECT_TRUE(table.ok()) << table.status();
    config_.policies = *table;
    trainer_ = std::make_unique<FakeTrainer>(first_);
    LearnerDeps deps;
    deps.trainer = trainer_.get();
    deps.publisher = &publisher_;
    deps.clock = &clock_;
    auto made = Learner::Create(config_, deps);
    EXPECT_TRUE(made.ok()) << made.status();
    learner_ = *std::move(made);
    EXPECT_TRUE(learner_->Start().ok());
  }

  void Act() {
    switch (random_.Below(14)) {
      case 0:
        if (workers_.size() < 5) Join();
        break;
      case 1:
        if (workers_.size() > 1 && random_.Below(3) == 0) Die();
        break;
      case 2:
        if (!workers_.empty() && random_.Below(2) == 0) Rejoin();
        break;
      case 3:
      case 4:
      case 5:
        Change();
        break;
      case 6:
      case 7:
        Update();
        break;
      default:
        if (workers_.empty()) break;
        // Sampling and delivering apart: grants and fragments wait while the policies change.
        if (random_.Below(2) == 0) Sample(Any());
        if (random_.Below(3) > 0) Deliver(Any(), random_.Below(5) == 0);
    }
    Check();
  }

  /// Everybody honest and no further change: the run goes on, and nothing of what was removed stays.
  void Settle() {
    const int64_t target = learner_->Status().progress.updates + 3;
    const auto settled = [&] {
      if (learner_->Status().progress.updates < target) return false;
      for (const auto& entry : learner_->Policies()->entries()) {
        if (entry.has_value() && !entry->active()) return false;
      }
      return true;
    };
    for (int round = 0; round < 400 && !settled(); ++round) {
      if (workers_.size() < 2) Join();
      for (const auto& worker : workers_) {
        Sample(*worker);
        while (!worker->outbox.empty() && Deliver(*worker, false)) {
        }
      }
      while (Update()) {
      }
      Check();
      if (testing::Test::HasFailure()) return;
    }
    EXPECT_TRUE(settled()) << learner_->Status().progress.updates << " of " << target << " updates";
    const PolicyTablePtr table = learner_->Policies();
    for (size_t p = 0; p < policy::PolicyTable::kMaxPolicies; ++p) {
      const PolicySlot slot(static_cast<int32_t>(p));
      EXPECT_EQ(trainer_->Has(slot), table->Find(slot) != nullptr) << "slot " << p;
    }
    CheckCheckpoint();
    const RowCounters& rows = learner_->Status().progress.rows;
    EXPECT_EQ(rows.invalid, 0);
    reached_.dropped += rows.dropped;
    reached_.updates += trainer_->updates();
  }

 private:
  SimWorker& Any() { return *workers_[random_.Below(static_cast<uint32_t>(workers_.size()))]; }

  void Join() {
    auto worker = std::make_unique<SimWorker>();
    worker->rollout = std::make_unique<sample::FakeRollout>(config_.schema, rollout_options_);
    const auto ticket = learner_->Join({}, worker->port);
    ASSERT_TRUE(ticket.ok());
    worker->ticket = *ticket;
    workers_.push_back(std::move(worker));
  }
  void Die() {
    const size_t i = random_.Below(static_cast<uint32_t>(workers_.size()));
    learner_->Leave(workers_[i]->ticket);
    workers_.erase(workers_.begin() + static_cast<std::ptrdiff_t>(i));
  }
  /// Comes again as it is: with its episodes, and with fragments that it will send now.
  void Rejoin() {
    SimWorker& worker = Any();
    worker.port = std::make_shared<FakeWorkerPort>();
    uint64_t oldest = worker.next_sequence;
    for (const SentFragment& fragment : worker.outbox) oldest = std::min(oldest, fragment.sequence);
    const auto ticket = learner_->Join({worker.ticket.worker_id, oldest}, worker.port);
    ASSERT_TRUE(ticket.ok());
    worker.ticket = *ticket;
  }

  void Sample(SimWorker& worker) {
    while (auto grant = worker.port->TryTakeGrant()) {
      const PolicyTablePtr table = learner_->Policies();
      EXPECT_EQ(publisher_.version(), Newest());
      if (grant->policies == nullptr) {
        EXPECT_EQ(config_.learner_epoch, 1u);
      } else {
        CheckPublished(*grant->policies, *table);
      }
      for (auto& fragment : worker.rollout->Play(*grant, Newest())) {
        worker.outbox.push_back({worker.next_sequence++, fragment});
      }
    }
  }

  policy::WeightVersion Newest() const { return {config_.learner_epoch, trainer_->updates()}; }

  /// Whoever has a grant finds the weights of every policy in it that is still there.
  void CheckPublished(const policy::PolicyTable& granted, const policy::PolicyTable& now) {
    for (const PolicySlot slot : granted.entries().ids()) {
      const PolicyEntry* const entry = granted.Find(slot);
      const PolicyEntry* const present = now.Find(slot);
      if (entry == nullptr || present == nullptr || present->since != entry->since) continue;
      ASSERT_NE(publisher_.Newest(slot.value()), nullptr);
      EXPECT_EQ(publisher_.Newest(slot.value())->id, entry->spec.id);
      EXPECT_FALSE(Newest() < publisher_.Newest(slot.value())->version) << "what an update left alone is older";
    }
  }

  bool Deliver(SimWorker& worker, bool reorder) {
    if (worker.outbox.empty()) return false;
    const size_t i = reorder ? random_.Below(static_cast<uint32_t>(worker.outbox.size())) : 0;
    const SentFragment fragment = worker.outbox[i];
    const RowCounters before = learner_->Status().progress.rows;
    const auto ack = learner_->Submit(worker.ticket, fragment.sequence, fragment.batch);
    if (!ack.ok()) {
      ADD_FAILURE() << ack.status();
      return false;
    }
    worker.outbox.erase(worker.outbox.begin() + static_cast<std::ptrdiff_t>(i));
    EXPECT_NE(ack->disposition, Disposition::kInvalid) << ack->reason;
    ++reached_.fragments[ack->disposition];
    const RowCounters after = learner_->Status().progress.rows;
    int64_t rows = 0;
    for (const auto& policy_rows : fragment.batch->policies) rows += policy_rows.rows;
    EXPECT_EQ(after.received - before.received, rows) << "every row has its fate";
    if (ack->disposition == Disposition::kAccepted) {
      arrived_[iterations_->Next(*fragment.batch)] += fragment.batch->num_env_steps;
      if (after.stale > before.stale) ++reached_.partly_stale;
    }
    return true;
  }

  bool Update() {
    const int64_t before = trainer_->updates();
    const PolicyTablePtr table = learner_->Policies();
    const StepOutcome outcome = learner_->Step(absl::ZeroDuration());
    EXPECT_NE(outcome.kind, StepOutcome::Kind::kFailed) << outcome.status;
    const PolicyTablePtr now = learner_->Policies();
    for (const PolicySlot slot : table->entries().ids()) {
      if (table->Find(slot) == nullptr || now->Find(slot) != nullptr) continue;
      EXPECT_FALSE(table->Find(slot)->active()) << "only removed ones are released";
      released_.insert(slot.value());
      forms_[slot.value()] = table->Find(slot)->spec.observation_size();
      ++reached_.released;
    }
    if (outcome.kind != StepOutcome::Kind::kUpdated) return false;
    EXPECT_EQ(trainer_->updates(), before + 1);
    EXPECT_EQ(trainer_->last_env_steps(), arrived_[before]);
    return true;
  }

  /// One of the policies that are there, as often mapped as not.
  PolicyId AnyId() {
    std::vector<PolicyId> ids;
    for (const PolicyId& id : learner_->Policies()->ActiveIds()) {
      if (!id.value().empty()) ids.push_back(id);
    }
    return ids[random_.Below(static_cast<uint32_t>(ids.size()))];
  }

  void Change() {
    const PolicyTablePtr now = learner_->Policies();
    absl::StatusOr<PolicyTablePtr> next = now;
    PolicySlot like = *now->FindSlot(AnyId());
    switch (random_.Below(6)) {
      case 0: {
        if (now->num_slots() > 12) return;
        policy::PolicySpec spec = now->Find(like)->spec;
        spec.id = PolicyId(absl::StrCat("p", ++names_));
        next = now->Add(std::move(spec), random_.Below(2) == 0);
        break;
      }
      case 1:
        if (now->num_slots() > 14) return;
        next = now->Replace(now->Find(like)->spec);
        break;
      case 2:
      case 3:
        next = now->Remove(AnyId());
        if (!next.ok()) return;  // it plays
        break;
      case 4:
        next = now->SetTrains(AnyId(), random_.Below(2) == 0);
        break;
      default:
        next = now->SetMapping(AnyMapping(*now));
        break;
    }
    ASSERT_TRUE(next.ok()) << next.status();
    std::vector<NewPolicy> added;
    for (const PolicySlot slot : (*next)->entries().ids()) {
      if ((*next)->Find(slot) == nullptr || now->Find(slot) != nullptr) continue;
      NewPolicy fresh{slot, {}, like};
      const policy::PolicySpec& spec = (*next)->Find(slot)->spec;
      const auto size = static_cast<size_t>(policy::ParameterLayout::For(spec).size());
      fresh.state.Set(policy::kParameters, std::vector<float>(size, 0.25f));
      added.push_back(std::move(fresh));
      if (released_.count(slot.value()) > 0) {
        ++reached_.reused;
        if (forms_[slot.value()] != spec.observation_size()) ++reached_.other_form;
      }
    }
    const bool fails = !added.empty() && random_.Below(8) == 0;
    if (fails) trainer_->FailNext(absl::InternalError("no memory"));
    const absl::Status changed = learner_->ChangePolicies(*next, {std::move(added)});
    EXPECT_EQ(changed.ok(), !fails) << changed;
    EXPECT_EQ(learner_->Policies(), fails ? now : *next);
    reached_.changes += changed.ok() ? 1 : 0;
  }

  /// Agents of one form played by any of the policies of that form, weighted.
  std::vector<policy::MappingRule> AnyMapping(const policy::PolicyTable& table) {
    std::vector<policy::MappingRule> rules = {{"scout_*", {}}, {"eye_0", {}}, {"arm_0", {}}};
    const int64_t sizes[] = {first_[PolicySlot(0)].observation_size(), 12, 3};
    for (size_t rule = 0; rule < 3; ++rule) {
      for (const auto& entry : table.entries()) {
        const bool fits = entry.has_value() && entry->active() && entry->spec.observation_size() == sizes[rule] &&
                          entry->spec.action_space == first_[PolicySlot(static_cast<int32_t>(rule))].action_space;
        if (fits && random_.Below(2) == 0) rules[rule].policies.push_back({entry->spec.id, 1.0 + random_.Below(3)});
      }
      if (rules[rule].policies.empty()) return table.rules();
    }
    return rules;
  }

  void Check() {
    const LearnerStatus status = learner_->Status();
    ASSERT_EQ(CheckConservation(status.books), absl::OkStatus());
    // Exactly the policies that are trained now have a group each.
    std::set<std::string> trained;
    for (const std::optional<PolicyEntry>& entry : learner_->Policies()->entries()) {
      if (entry.has_value() && entry->trains) trained.insert(entry->spec.id.value());
    }
    std::set<std::string> groups;
    for (const GroupRows& group : status.books.groups) {
      groups.insert(group.id.value());
      EXPECT_EQ(group.uses, group.trained) << group.id;
    }
    EXPECT_EQ(groups, trained);
    reached_.groupless += status.books.groupless.accepted;
    ASSERT_EQ(status.policy_rows.size(), learner_->Policies()->num_slots());
    for (const RowCounters& policy : status.policy_rows) {
      ASSERT_TRUE(CheckConservation(policy).ok()) << CheckConservation(policy);
    }
    ASSERT_NE(status.state, "failed") << status.reason;
  }

  /// The next learner begins where this one is.
  void CheckCheckpoint() {
    const auto saved = learner_->SnapshotState();
    ASSERT_TRUE(saved.ok()) << saved.status();
    LearnerConfig config = config_;
    config.learner_epoch = config_.learner_epoch + 1;
    config.policies = saved->state.table;
    FakeTrainer trainer(saved->state.table->Specs());
    FakePublisher publisher;
    LearnerDeps deps;
    deps.trainer = &trainer;
    deps.publisher = &publisher;
    const auto next = Learner::Create(config, deps);
    ASSERT_TRUE(next.ok()) << next.status();
    ASSERT_TRUE((*next)->Restore(saved->state).ok());
    ASSERT_TRUE((*next)->Start().ok());
    EXPECT_GT((*next)->Policies()->revision(), learner_->Policies()->revision());
    EXPECT_EQ((*next)->Policies()->ActiveIds().values(), learner_->Policies()->ActiveIds().values());
  }

  Reached& reached_;
  base::PhiloxSequence random_;
  sample::FakeRolloutOptions rollout_options_;
  policy::BySlot<policy::PolicySpec> first_;
  LearnerConfig config_;
  base::FakeClock clock_;
  FakePublisher publisher_;
  std::unique_ptr<FakeTrainer> trainer_;
  std::unique_ptr<Learner> learner_;
  std::vector<std::unique_ptr<SimWorker>> workers_;
  std::map<int64_t, int64_t> arrived_;  ///< env steps by iteration
  std::unique_ptr<ExpectedIterations> iterations_;
  std::set<int32_t> released_;
  std::map<int32_t, int64_t> forms_;  ///< observation size of the policy a slot was released by
  int names_ = 0;
};

TEST(LearnerPoliciesModelTest, RandomChanges) {
  Reached reached;
  for (uint64_t seed = 1; seed <= 150; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    World world(seed, &reached);
    for (int i = 0; i < 300; ++i) {
      world.Act();
      if (testing::Test::HasFailure()) return;
    }
    world.Settle();
    if (testing::Test::HasFailure()) return;
  }
  // The histories reached what they are meant to reach.
  EXPECT_GT(reached.changes, 3000);
  EXPECT_GT(reached.released, 500);
  EXPECT_GT(reached.reused, 300);
  EXPECT_GT(reached.other_form, 100);
  EXPECT_GT(reached.fragments[Disposition::kAccepted], 1000);
  EXPECT_GT(reached.fragments[Disposition::kStale], 200);
  EXPECT_GT(reached.partly_stale, 50);
  EXPECT_GT(reached.dropped, 100);
  EXPECT_GT(reached.groupless, 1000);
  EXPECT_GT(reached.updates, 400);
}

}  // namespace
}  // namespace troupe::learner
