// Sources behind one Ingest: the iterations of on-policy groups, and what a replay will be, against a model that keeps
// books of its own.

#include "lib/learner/batch_source.h"

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "lib/base/philox.h"
#include "lib/learner/grant_scheduler.h"
#include "lib/learner/ingest.h"
#include "lib/learner/iteration_source.h"
#include "lib/policy/policy_spec.h"
#include "lib/sample/testing/batch_maker.h"
#include <gtest/gtest.h>

namespace troupe::learner {
namespace {

using policy::GroupId;
using sample::WorkerId;

/// Keeps the last `capacity` fragments; each batch is segments of some of them, drawn with a seed, whoever had them
/// before.
class FakeReplay final : public BatchSource {
 public:
  FakeReplay(size_t capacity, uint64_t seed)
      : capacity_(capacity), random_(base::PhiloxKey::Make(seed, base::RandomStream::kTest), {1}) {}

  std::vector<KeptFragmentPtr> Accept(KeptFragmentPtr fragment) override {
    kept_.push_back(std::move(fragment));
    std::vector<KeptFragmentPtr> let_go;
    if (kept_.size() > capacity_) {
      let_go.push_back(std::move(kept_.front()));
      kept_.pop_front();
    }
    return let_go;
  }
  int64_t NumReady(int64_t /*first_incomplete*/) const override { return kept_.empty() ? 0 : 1; }
  Selection Select(int64_t /*first_incomplete*/) override {
    Selection selection;
    for (const KeptFragmentPtr& fragment : kept_) {
      selection.iteration = fragment->batch().iteration;
      if (random_.Below(2) == 0) continue;
      Pick pick{fragment};
      const std::vector<sample::PolicyRows>& policies = fragment->batch().policies;
      for (size_t place = 0; place < policies.size(); ++place) {
        const int64_t segments = policies[place].num_segments;
        const int64_t first = random_.Below(static_cast<uint32_t>(segments));
        pick.ranges.push_back({place, first, 1 + random_.Below(static_cast<uint32_t>(segments - first))});
      }
      selection.picks.push_back(std::move(pick));
    }
    return selection;
  }
  int64_t Done(int64_t first_incomplete) const override { return first_incomplete; }
  bool AnyKept(absl::FunctionRef<bool(const KeptFragment&)> is_one) const override {
    return std::any_of(kept_.begin(), kept_.end(), [&](const KeptFragmentPtr& fragment) { return is_one(*fragment); });
  }

 private:
  const size_t capacity_;
  base::PhiloxSequence random_;
  std::deque<KeptFragmentPtr> kept_;
};

/// Of a segment: its rows, and how often a batch of its group had them.
struct ModelOfSegment {
  int64_t rows = 0;
  int64_t uses = 0;
};
/// Of a fragment that was accepted: by policy slot, and segment.
struct ModelOfFragment {
  std::map<int32_t, std::vector<ModelOfSegment>> policies;
  std::weak_ptr<const sample::MultiAgentBatch> memory;
  bool seen = false;  ///< in a selection
};

/// A plan of one worker, an Ingest over some feeds, and the model. Policy 0 is in group "on", policy 1 in group "off",
/// the others in none.
class SourcesWorld {
 public:
  /// `keeps`: by policy slot, of how many fragments, the last ones, its source keeps the rows; of others all.
  SourcesWorld(uint64_t seed, std::vector<Feed> feeds, std::map<int32_t, size_t> keeps)
      : schema_(sample::RandomSchema(seed)), keeps_(std::move(keeps)) {
    GrantScheduler::Options options;
    options.num_envs = 2;
    options.train_batch_size = 24;
    plan_ = std::make_unique<GrantScheduler>(options, 1, 0, std::vector<LaneState>{});
    policy::GroupOfSlot group_of(schema_.policies.size());
    group_of[policy::PolicySlot(0)] = GroupId("on");
    group_of[policy::PolicySlot(1)] = GroupId("off");
    accounting_ = std::make_unique<Accounting>(static_cast<int32_t>(group_of.size()));
    accounting_->SetGroups(group_of);
    ingest_ = std::make_unique<Ingest>(int64_t{1} << 30, plan_.get(), accounting_.get(), std::move(feeds));
    plan_->AddWorker(WorkerId(1), absl::ZeroDuration());
    sample::FakeRolloutOptions rollout_options = sample::RandomRolloutOptions(schema_, seed);
    rollout_options.max_ticks_per_fragment = 4;
    rollout_ = std::make_unique<sample::FakeRollout>(schema_, rollout_options);
  }

  /// A whole iteration arrives.
  void Sample() {
    plan_->SetPublished(iteration_, iteration_);
    const auto orders = plan_->Schedule(absl::ZeroDuration());
    ASSERT_EQ(orders.size(), 1u);
    for (auto& fragment : rollout_->Play(orders[0].grant, policy::WeightVersion{1, iteration_})) {
      ModelOfFragment model;
      for (const sample::PolicyRows& rows : fragment->policies) {
        std::vector<ModelOfSegment>& segments = model.policies[rows.policy.value()];
        segments.resize(static_cast<size_t>(rows.num_segments));
        for (const sample::Index segment : rows.segment.As<sample::Index>()) ++segments[segment].rows;
      }
      model.memory = fragment;
      place_[fragment.get()] = models_.size();
      models_.push_back(std::move(model));
      const auto ack = ingest_->Offer(WorkerId(1), sequences_, ++sequence_, CheckFragment(fragment, schema_, {}));
      ASSERT_TRUE(ack.ok()) << ack.status();
      ASSERT_EQ(ack->disposition, sample::Disposition::kAccepted) << ack->reason;
    }
    ingest_->TakeLetGo();
    ++iteration_;
    Check();
  }

  /// A batch of the feed is trained on; `groups`: which policies it is of, beside those in no group.
  void Train(size_t feed, const std::set<int32_t>& groups) {
    if (ingest_->NumReady(feed) <= 0) return;
    const Selection selection = ingest_->Select(feed);
    for (const Pick& pick : selection.picks) {
      ModelOfFragment& model = models_[place_.at(&pick.fragment->batch())];
      const std::vector<sample::PolicyRows>& rows = pick.fragment->batch().policies;
      const auto use = [&](size_t place, int64_t first, int64_t end) {
        const int32_t policy = rows[place].policy.value();
        if (policy < 2 && groups.count(policy) == 0) return;
        for (int64_t s = first; s < end; ++s) ++model.policies.at(policy)[static_cast<size_t>(s)].uses;
      };
      for (const SegmentRange& range : pick.ranges) use(range.place, range.first, range.first + range.segments);
      for (size_t place = 0; place < rows.size() && pick.ranges.empty(); ++place) {
        use(place, 0, rows[place].num_segments);
      }
      EXPECT_EQ(pick.first, !std::exchange(model.seen, true));
    }
    accounting_->BookBatch(ingest_->Release(feed, selection, {}));
  }

  void Check() {
    std::map<int32_t, GroupRows> expected;
    for (size_t i = 0; i < models_.size(); ++i) {
      for (const auto& [policy, segments] : models_[i].policies) {
        GroupRows& rows = expected[std::min(policy, 2)];
        const auto keeps = keeps_.find(policy);
        const bool kept = keeps == keeps_.end() || i + keeps->second >= models_.size();
        for (const ModelOfSegment& segment : segments) {
          rows.accepted += segment.rows;
          rows.uses += segment.rows * segment.uses;
          (segment.uses > 0 ? rows.trained : kept ? rows.queued : rows.evicted) += segment.rows;
        }
      }
    }
    const RowBooks books = accounting_->Books();
    ASSERT_EQ(CheckConservation(books), absl::OkStatus());
    ASSERT_EQ(books.groups.size(), 2u);
    expected[0].id = GroupId("on");
    expected[1].id = GroupId("off");
    EXPECT_EQ(books.groups[0], expected[1]);
    EXPECT_EQ(books.groups[1], expected[0]);
    EXPECT_EQ(books.groupless, expected[2]);
  }

  /// How many accepted fragments are still in memory.
  int64_t alive() const {
    return std::count_if(models_.begin(), models_.end(),
                         [](const ModelOfFragment& one) { return !one.memory.expired(); });
  }
  size_t accepted() const { return models_.size(); }
  const Ingest& ingest() const { return *ingest_; }
  RowBooks books() const { return accounting_->Books(); }

 private:
  const sample::BatchSchema schema_;
  std::unique_ptr<GrantScheduler> plan_;
  std::unique_ptr<Accounting> accounting_;
  std::unique_ptr<Ingest> ingest_;
  std::unique_ptr<sample::FakeRollout> rollout_;
  SequenceTracker sequences_;
  uint64_t sequence_ = 0;
  int64_t iteration_ = 0;
  const std::map<int32_t, size_t> keeps_;
  std::vector<ModelOfFragment> models_;                     ///< in order of arrival
  std::map<const sample::MultiAgentBatch*, size_t> place_;  ///< of the newest at the address
};

TEST(BatchSourceTest, AReplayCountsUsesApartFromFates) {
  int64_t again = 0;
  int64_t evicted = 0;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(seed);
    std::vector<Feed> feeds(1);
    feeds[0].source = std::make_unique<FakeReplay>(5, seed);
    SourcesWorld world(seed, std::move(feeds), {{0, 5}, {1, 5}, {2, 5}, {3, 5}});
    for (int i = 0; i < 12; ++i) {
      world.Sample();
      for (int batch = 0; batch < 2; ++batch) {
        world.Train(0, {0, 1});
        world.Check();
      }
      if (testing::Test::HasFailure()) return;
      EXPECT_LE(world.alive(), 5);
    }
    for (const GroupRows& rows : world.books().groups) {
      again += rows.uses - rows.trained;
      evicted += rows.evicted;
    }
    EXPECT_GT(world.ingest().held_bytes(), 0);
  }
  EXPECT_GT(again, 1000);
  EXPECT_GT(evicted, 100);
}

/// Group "off" is trained from a replay, group "on" in iterations: of the same fragments.
TEST(BatchSourceTest, AFragmentIsReleasedWhenNoSourceKeepsIt) {
  int held = 0;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(seed);
    std::vector<Feed> feeds(2);
    feeds[0].source = std::make_unique<IterationSource>(0);
    feeds[1].source = std::make_unique<FakeReplay>(3, seed);
    feeds[1].groups = {GroupId("off")};
    SourcesWorld world(seed, std::move(feeds), {{1, 3}});
    for (int i = 0; i < 12; ++i) {
      world.Sample();
      EXPECT_GE(world.ingest().NumReady(0), 1);
      held += world.ingest().Holds(policy::PolicySlot(0)) ? 1 : 0;
      // Every other time two iterations wait.
      if (i % 2 == 0) continue;
      world.Train(0, {0});
      world.Train(0, {0});
      world.Train(1, {1});
      world.Check();
      if (testing::Test::HasFailure()) return;
      EXPECT_EQ(world.ingest().NumReady(0), 0);
      EXPECT_EQ(world.alive(), std::min<int64_t>(3, static_cast<int64_t>(world.accepted())));
    }
  }
  EXPECT_GE(held, 25 * 12) << "of some seeds the fragments have no rows of the policy";
}

TEST(BatchSourceTest, IterationsComeOnceWholeAndInOrder) {
  const sample::BatchSchema schema = sample::SimpleSchema(2, 3);
  IterationSource source(4);
  const auto offer = [&](int64_t iteration) {
    const auto batch = sample::MakeBatch(schema, {}, 1, 3, {1, iteration});
    EXPECT_EQ(batch->iteration, iteration);
    EXPECT_TRUE(
        source.Accept(std::make_shared<KeptFragment>(CheckFragment(batch, schema, {}), batch->iteration)).empty());
    return batch.get();
  };
  const auto* const fifth = offer(5);
  const auto* const fourth = offer(4);
  const auto* const fifth_too = offer(5);
  EXPECT_EQ(source.NumReady(4), 0);
  EXPECT_EQ(source.NumReady(6), 2);
  Selection selection = source.Select(1);
  EXPECT_EQ(selection.iteration, 4);
  ASSERT_EQ(selection.picks.size(), 1u);
  EXPECT_EQ(&selection.picks[0].fragment->batch(), fourth);
  EXPECT_TRUE(selection.picks[0].last);
  EXPECT_TRUE(selection.picks[0].ranges.empty());
  EXPECT_EQ(source.NumReady(6), 1);
  selection = source.Select(1);
  EXPECT_EQ(selection.iteration, 5);
  ASSERT_EQ(selection.picks.size(), 2u);
  EXPECT_EQ(&selection.picks[0].fragment->batch(), fifth) << "in order of arrival";
  EXPECT_EQ(&selection.picks[1].fragment->batch(), fifth_too);
  EXPECT_FALSE(source.AnyKept([](const KeptFragment&) { return true; }));
}

}  // namespace
}  // namespace troupe::learner
