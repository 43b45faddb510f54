// Learn groups that are fed otherwise than others, in one run: each has a clock of its own, and is trained as if it
// were alone.

#include <algorithm>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "lib/learner/learner.h"
#include "lib/learner/testing/test_run.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::learner {
namespace {

using policy::GroupId;
using policy::PolicySlot;
using testing::ElementsAre;
using Kind = StepOutcome::Kind;

/// Three iterations at a time, once and whole.
class ThirdsSource final : public BatchSource {
 public:
  explicit ThirdsSource(int64_t first) : next_(first) {}

  std::vector<KeptFragmentPtr> Accept(KeptFragmentPtr fragment) override {
    kept_.push_back(std::move(fragment));
    return {};
  }
  int64_t NumReady(int64_t first_incomplete) const override { return (first_incomplete - next_) / 3; }
  Selection Select(int64_t /*first_incomplete*/) override {
    next_ += 3;
    Selection selection;
    selection.iteration = next_ - 1;
    const auto is_later = [this](const KeptFragmentPtr& kept) { return kept->batch().iteration >= next_; };
    const auto later = std::stable_partition(kept_.begin(), kept_.end(), is_later);
    for (auto kept = later; kept != kept_.end(); ++kept)
      selection.picks.push_back({std::move(*kept), {}, /*last=*/true});
    kept_.erase(later, kept_.end());
    return selection;
  }
  int64_t Done(int64_t first_incomplete) const override { return std::min(first_incomplete, next_ + 2); }
  bool AnyKept(absl::FunctionRef<bool(const KeptFragment&)> is_one) const override {
    return std::any_of(kept_.begin(), kept_.end(), [&](const KeptFragmentPtr& kept) { return is_one(*kept); });
  }

 private:
  int64_t next_;
  std::vector<KeptFragmentPtr> kept_;
};

enum class Fed { kAllAlike, kTeamByThirds, kAllByThirds };

/// RandomSchema's four policies, of which the first two are a group, "team".
struct FeedsRun {
  explicit FeedsRun(Fed fed, uint64_t learner_epoch = 1) {
    config.schema = sample::RandomSchema(3);
    for (int64_t i = 0; i < config.schema.num_info_columns; ++i) config.info_columns.push_back("info");
    config.options.num_envs = 4;
    config.options.train_batch_size = 40;
    config.options.num_workers = 1;
    config.learner_epoch = learner_epoch;
    rollout = std::make_unique<sample::FakeRollout>(config.schema, sample::RandomRolloutOptions(config.schema, 3));
    trainer = std::make_unique<FakeTrainer>(config.schema.policies);
    trainer->KeepGroup({GroupId("team"), "fake", {PolicySlot(0), PolicySlot(1)}});
    FeedSpec thirds{.name = "thirds", .groups = {GroupId("team")}};
    thirds.make_source = [](int64_t iteration) { return std::make_unique<ThirdsSource>(iteration); };
    if (fed == Fed::kAllByThirds) {
      for (const int32_t p : {2, 3}) thirds.groups.insert(GroupId(config.schema.policies[PolicySlot(p)].id.value()));
    }
    if (fed != Fed::kAllAlike) trainer->TakeFeed(thirds);
    LearnerDeps deps;
    deps.trainer = trainer.get();
    deps.publisher = &publisher;
    deps.progress = &listener;
    learner = *Learner::Create(config, deps);
  }
  void Start() {
    ASSERT_TRUE(learner->Start().ok());
    ticket = *learner->Join({}, port);
  }
  /// So many iterations arrive, and what is ready then is trained on.
  void Train(int iterations) {
    for (int i = 0; i < iterations; ++i) {
      auto grant = port->TryTakeGrant();
      ASSERT_TRUE(grant.has_value());
      for (auto& fragment : rollout->Play(*grant, publisher.version())) {
        if (marks_rows) MarkRows(*fragment);
        ASSERT_EQ(learner->Submit(ticket, ++sequence, fragment)->disposition, sample::Disposition::kAccepted);
      }
      while (learner->Step(absl::ZeroDuration()).kind == Kind::kUpdated) {
        ASSERT_EQ(CheckConservation(learner->Status().books), absl::OkStatus());
        contexts.push_back(trainer->last_context());
      }
    }
  }
  /// Each row's log-probability is the version that it was made with.
  static void MarkRows(sample::MultiAgentBatch& fragment) {
    for (const sample::PolicyRows& rows : fragment.policies) {
      const absl::Span<const sample::Index> segment = rows.segment.As<sample::Index>();
      for (size_t r = 0; r < segment.size(); ++r) {
        const int32_t* const words = rows.segments.As<int32_t>().data() + segment[r] * sample::kSegmentFields;
        sample::MutableColumn<float>(rows.action_logp)[r] =
            -static_cast<float>(rows.version.n - words[sample::kSegmentVersionLag]);
      }
    }
  }
  std::vector<float> ParametersOf(int32_t slot) const { return (*trainer->ExportState(PolicySlot(slot))).parameters(); }

  LearnerConfig config;
  std::unique_ptr<sample::FakeRollout> rollout;
  std::unique_ptr<FakeTrainer> trainer;
  FakePublisher publisher;
  FakeListener listener;
  std::unique_ptr<Learner> learner;
  std::shared_ptr<FakeWorkerPort> port = std::make_shared<FakeWorkerPort>();
  WorkerTicket ticket;
  uint64_t sequence = 0;
  std::vector<UpdateContext> contexts;  ///< by update
  bool marks_rows = false;
};

// Computes ages from the batch alone, without the assembler: each row tells its version, and each update tells which
// policies it trains and what it is published as.
TEST(FeedsTest, NoRowThatTrainsIsOlderThanItsFeedAllowsUnlessItWaited) {
  FeedsRun run(Fed::kTeamByThirds);
  run.marks_rows = true;
  std::map<int32_t, std::vector<int64_t>> versions;  // of a policy's updates
  int64_t older = 0, rows_seen = 0;
  run.trainer->OnBatch([&](const TrainBatch& batch, const UpdateContext& context) {
    for (const PolicyTrainBatch& rows : batch.policies) {
      if (!rows.train) continue;
      std::vector<int64_t>& of_policy = versions[rows.policy.value()];
      for (const float logp : rows.action_logp) {
        const auto version = static_cast<int64_t>(-logp);
        const auto later =
            std::count_if(of_policy.begin(), of_policy.end(), [version](int64_t v) { return v > version; });
        older += later > 0 ? 1 : 0;  // both feeds allow no lag
        ++rows_seen;
      }
      of_policy.push_back(context.next_version.n);
    }
  });
  run.Start();
  run.Train(12);
  EXPECT_GT(rows_seen, 500);
  EXPECT_GT(older, 0);
  int64_t waited = 0;
  for (const policy::PolicySlot slot : run.learner->Status().policy_rows.ids()) {
    waited += run.learner->Status().policy_rows[slot].waited;
  }
  EXPECT_EQ(older, waited);
}

TEST(FeedsTest, EachGroupIsTrainedAsIfItWereAlone) {
  FeedsRun both(Fed::kTeamByThirds), alike(Fed::kAllAlike), thirds(Fed::kAllByThirds);
  for (FeedsRun* run : {&both, &alike, &thirds}) {
    run->Start();
    run->Train(9);
  }
  EXPECT_EQ(alike.trainer->updates(), 9);
  EXPECT_EQ(thirds.trainer->updates(), 3);
  EXPECT_EQ(both.trainer->updates(), 12);
  for (const int32_t p : {2, 3}) EXPECT_EQ(both.ParametersOf(p), alike.ParametersOf(p)) << p;
  for (const int32_t p : {0, 1}) {
    EXPECT_EQ(both.ParametersOf(p), thirds.ParametersOf(p)) << p;
    EXPECT_NE(both.ParametersOf(p), alike.ParametersOf(p)) << p;
  }
  // Versions count all publications; each clock its own updates.
  std::vector<int64_t> updates, versions;
  for (const UpdateContext& context : both.contexts) {
    updates.push_back(context.iteration);
    versions.push_back(context.next_version.n);
  }
  EXPECT_THAT(updates, ElementsAre(0, 1, 0, 2, 3, 4, 1, 5, 6, 7, 2, 8));
  EXPECT_THAT(versions, ElementsAre(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12));
  EXPECT_EQ(both.learner->Status().progress.env_steps, 9 * 40) << "each env step counts once";
  EXPECT_EQ(thirds.learner->Status().progress.env_steps, 9 * 40);
}

TEST(FeedsTest, RowsHaveTheFateOfTheirGroupsFeed) {
  FeedsRun run(Fed::kTeamByThirds);
  run.Start();
  run.Train(2);
  const auto group = [&run](const char* id) {
    for (const GroupRows& rows : run.learner->Status().books.groups) {
      if (rows.id == GroupId(id)) return rows;
    }
    return GroupRows();
  };
  EXPECT_EQ(group("team").trained, 0);
  EXPECT_EQ(group("team").queued, group("team").accepted);
  EXPECT_EQ(group(run.config.schema.policies[PolicySlot(2)].id.value().c_str()).queued, 0);
  run.Train(1);
  EXPECT_EQ(group("team").queued, 0);
  EXPECT_EQ(run.learner->Status().queue_bytes, 0) << "nobody keeps a fragment";
}

TEST(FeedsTest, AResumedRunHasItsClocks) {
  FeedsRun whole(Fed::kTeamByThirds);
  whole.Start();
  whole.Train(3);
  const LearnerState saved = whole.learner->SnapshotState()->state;
  EXPECT_EQ(saved.iteration, 4) << "updates";
  EXPECT_EQ(saved.sampled_iterations(), 3);
  EXPECT_EQ(saved.published_version(), 4);
  EXPECT_EQ(saved.updates_of(""), 3);
  EXPECT_EQ(saved.updates_of("thirds"), 1);
  FeedsRun resumed(Fed::kTeamByThirds, /*learner_epoch=*/2);
  ASSERT_TRUE(resumed.learner->Restore(saved).ok());
  resumed.Start();
  resumed.Train(3);
  std::vector<int64_t> updates;
  for (const UpdateContext& context : resumed.contexts) updates.push_back(context.iteration);
  EXPECT_THAT(updates, ElementsAre(3, 4, 1, 5));
  EXPECT_EQ(resumed.learner->Status().progress.env_steps, 6 * 40);
  EXPECT_EQ(resumed.publisher.version().n, 8);
  const absl::Status other = FeedsRun(Fed::kAllAlike, /*learner_epoch=*/2).learner->Restore(saved);
  EXPECT_EQ(other.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(other.message().find("feeds [\"\", \"thirds\"], this run has [\"\"]; expected the same algorithms"),
            absl::string_view::npos)
      << other;
}

}  // namespace
}  // namespace troupe::learner
