// Queries of one policy that come while it computes: what has queued is computed together, and costs nobody anything.

#include <atomic>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "lib/base/mutex.h"
#include "lib/serving/query_engine.h"
#include "lib/serving/testing/query_builder.h"
#include <gtest/gtest.h>

namespace troupe::serving {
namespace {

using policy::PolicySpec;
using space::Space;

/// Weights that come when they are released: whoever asks first leads the policy's lane until then.
class HeldSource final : public WeightSource {
 public:
  absl::StatusOr<policy::WeightSnapshotPtr> Load(const PolicySpec& spec) override {
    base::MutexLock lock(&mutex_);
    begun_ = true;
    changed_.NotifyAll();
    while (!released_) changed_.Wait(&mutex_);
    return MakeWeights(spec, 1);
  }
  void AwaitBegun() {
    base::MutexLock lock(&mutex_);
    while (!begun_) changed_.Wait(&mutex_);
  }
  void Release() {
    base::MutexLock lock(&mutex_);
    released_ = true;
    changed_.NotifyAll();
  }

 private:
  base::Mutex mutex_;
  base::CondVar changed_;
  bool begun_ ABSL_GUARDED_BY(mutex_) = false;
  bool released_ ABSL_GUARDED_BY(mutex_) = false;
};

/// An engine whose policy "busy" is being asked by a thread of its own, until Finish.
class BusyEngine {
 public:
  explicit BusyEngine(const PolicySpec& spec, QueryEngine::Options options = {}) : rows_(MakeRows(spec, 1)) {
    options.source = &source_;
    engine_ = *QueryEngine::Create({spec}, options);
    leader_ = std::thread([this] {
      engine_->ComputeActions(query_, [this](const absl::StatusOr<ActionAnswer>& answer) { led_ = answer.ok(); });
    });
    source_.AwaitBegun();
  }
  ~BusyEngine() { Finish(); }
  QueryEngine& operator*() { return *engine_; }
  QueryEngine* operator->() { return engine_.get(); }
  void Finish() {
    source_.Release();
    if (leader_.joinable()) leader_.join();
  }
  bool led() const { return led_; }

 private:
  const OwnedRows rows_;
  const ActionQuery query_ = Ask({&rows_}, true);
  HeldSource source_;
  std::unique_ptr<QueryEngine> engine_;
  std::atomic<bool> led_{false};
  std::thread leader_;
};

/// A query, and what came of it.
struct QueuedQuery {
  explicit QueuedQuery(OwnedRows asked, bool deterministic = true)
      : rows(std::move(asked)), query(Ask({&rows}, deterministic)) {}
  void Send(QueryEngine& engine) {
    give_up = engine.ComputeActions(query, [this](absl::StatusOr<ActionAnswer> got) { answer = std::move(got); });
  }
  OwnedRows rows;
  ActionQuery query;
  ActionQueries::GiveUp give_up;
  absl::StatusOr<ActionAnswer> answer = absl::UnknownError("none yet");
};

PolicySpec Busy() { return MakeSpec("busy", *Space::Box(-1, 1, {3}), *Space::Discrete(4)); }

/// What an idle engine says.
PolicyActions Alone(const PolicySpec& spec, const ActionQuery& query) {
  const auto engine = *QueryEngine::Create({spec}, {});
  EXPECT_EQ(engine->SetWeights(MakeWeights(spec, 1)), absl::OkStatus());
  const auto answer = engine->Compute(query);
  EXPECT_TRUE(answer.ok()) << answer.status();
  return (*answer)[0];
}

PolicySpec Everything() {
  PolicySpec spec =
      WithCore(MakeSpec("busy", *Space::Box(-1, 1, {3}), *Space::Tuple({*Space::Discrete(3), *Space::Box(-2, 2, {2})})),
               policy::CoreKind::kGru);
  spec.has_action_mask = true;
  spec.agent_id_size = 3;
  return spec;
}

TEST(QueryEngineBatchTest, WhatHasQueuedIsComputedTogetherAndAnsweredAsAlone) {
  for (const PolicySpec& spec : {Busy(), Everything()}) {
    BusyEngine engine(spec);
    std::vector<std::unique_ptr<QueuedQuery>> asked;
    for (int64_t rows : {1, 3, 2, 5}) {
      asked.push_back(std::make_unique<QueuedQuery>(MakeRows(spec, rows)));
      QueuedQuery& last = *asked.back();
      if (rows == 2) last.rows.action_mask.clear();
      if (rows == 3) last.rows.state_in.assign(static_cast<size_t>(rows * spec.actor_state_size()), 0.25f);
      last.query = Ask({&last.rows}, true);
      last.query.outputs = rows == 5 ? OutputNamesOf(spec, false) : std::vector<std::string>();
      last.Send(*engine);
      EXPECT_NE(last.give_up, nullptr);
      EXPECT_EQ(last.answer.status().code(), absl::StatusCode::kUnknown) << "the policy is busy";
    }
    EXPECT_EQ(engine->num_waiting(), 4);
    engine.Finish();
    EXPECT_TRUE(engine.led());
    EXPECT_EQ(engine->batch_stats().batches, 2);
    EXPECT_EQ(engine->batch_stats().queries, 5);
    for (const auto& each : asked) {
      ASSERT_TRUE(each->answer.ok()) << each->answer.status();
      const PolicyActions& got = (*each->answer)[0];
      const PolicyActions expected = Alone(spec, each->query);
      EXPECT_EQ(got.rows, expected.rows);
      EXPECT_EQ(Values(got), Values(expected));
      EXPECT_EQ(got.logits, expected.logits);
      EXPECT_EQ(got.mean, expected.mean);
    }
    EXPECT_EQ(engine->num_waiting(), 0);
  }
}

TEST(QueryEngineBatchTest, SeedsAreKeptApart) {
  const PolicySpec spec = Busy();
  BusyEngine engine(spec);
  std::vector<std::unique_ptr<QueuedQuery>> asked;
  for (const std::optional<uint64_t>& seed : {std::optional<uint64_t>(3), std::optional<uint64_t>(4),
                                              std::optional<uint64_t>(3), std::optional<uint64_t>()}) {
    asked.push_back(std::make_unique<QueuedQuery>(MakeRows(spec, 40), /*deterministic=*/!seed.has_value()));
    asked.back()->query.seed = seed;
    asked.back()->Send(*engine);
  }
  engine.Finish();
  EXPECT_EQ(engine->batch_stats().batches, 4) << "the leader's, two seeds', the one without";
  std::vector<std::vector<float>> values;
  for (const auto& each : asked) {
    ASSERT_TRUE(each->answer.ok()) << each->answer.status();
    values.push_back(Values((*each->answer)[0]));
    EXPECT_EQ(values.back(), Values(Alone(spec, each->query)));
  }
  EXPECT_EQ(values[0], values[2]);
  EXPECT_NE(values[0], values[1]);
}

TEST(QueryEngineBatchTest, ModesAreKeptApartWithoutSeeds) {
  const PolicySpec spec = Busy();
  BusyEngine engine(spec);
  QueuedQuery sampled(MakeRows(spec, 40), /*deterministic=*/false), mode(MakeRows(spec, 40), /*deterministic=*/true);
  sampled.Send(*engine);
  mode.Send(*engine);
  engine.Finish();
  EXPECT_EQ(engine->batch_stats().batches, 3);
  ASSERT_TRUE(mode.answer.ok() && sampled.answer.ok());
  EXPECT_EQ(Values((*mode.answer)[0]), Values(Alone(spec, mode.query)));
}

TEST(QueryEngineBatchTest, AVersionThatIsGoneWhenItsTurnComesIsNotAnsweredByAnother) {
  const PolicySpec spec = Busy();
  BusyEngine engine(spec);
  ASSERT_EQ(engine->SetWeights(MakeWeights(spec, 1)), absl::OkStatus());
  QueuedQuery exact(MakeRows(spec, 2));
  exact.rows.version = "1";
  exact.query = Ask({&exact.rows}, true);
  exact.Send(*engine);
  EXPECT_EQ(exact.answer.status().code(), absl::StatusCode::kUnknown) << "it waits";
  ASSERT_EQ(engine->SetWeights(MakeWeights(spec, 2)), absl::OkStatus());
  engine.Finish();
  EXPECT_EQ(exact.answer.status().code(), absl::StatusCode::kNotFound) << exact.answer.status();
}

TEST(QueryEngineBatchTest, AQueryThatFailsFailsAlone) {
  PolicySpec spec = MakeSpec("busy", *Space::Box(-1, 1, {3}), *Space::Box(-1, 1, {1}));
  spec.actor.activation = policy::Activation::kRelu;
  BusyEngine engine(spec);
  QueuedQuery good(MakeRows(spec, 2)), bad(MakeRows(spec, 1)), last(MakeRows(spec, 1));
  bad.rows.obs.assign(3, std::numeric_limits<float>::max());  // overflows in the network
  bad.query = Ask({&bad.rows}, true);
  for (QueuedQuery* each : {&good, &bad, &last}) each->Send(*engine);
  engine.Finish();
  EXPECT_EQ(bad.answer.status().code(), absl::StatusCode::kInternal) << bad.answer.status();
  ASSERT_TRUE(good.answer.ok()) << good.answer.status();
  EXPECT_EQ(Values((*good.answer)[0]), Values(Alone(spec, good.query)));
  EXPECT_TRUE(last.answer.ok()) << last.answer.status();
}

TEST(QueryEngineBatchTest, WhoGivesUpCostsNothing) {
  const PolicySpec spec = Busy();
  BusyEngine engine(spec);
  QueuedQuery gone(MakeRows(spec, 2)), stays(MakeRows(spec, 2));
  gone.Send(*engine);
  stays.Send(*engine);
  gone.give_up();
  EXPECT_EQ(gone.answer.status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(engine->num_waiting(), 1);
  gone.give_up();
  engine.Finish();
  EXPECT_TRUE(stays.answer.ok());
  EXPECT_EQ(engine->batch_stats().queries, 2) << "the leader's, and the one that stayed";
  stays.give_up();
}

TEST(QueryEngineBatchTest, WhatIsOneTooManyIsRefused) {
  const PolicySpec spec = Busy();
  BusyEngine engine(spec, {.queue_limits = {.count = 2, .bytes = int64_t{1} << 20}});
  QueuedQuery first(MakeRows(spec, 1)), second(MakeRows(spec, 1)), third(MakeRows(spec, 1));
  for (QueuedQuery* each : {&first, &second, &third}) each->Send(*engine);
  EXPECT_EQ(third.answer.status().code(), absl::StatusCode::kResourceExhausted) << third.answer.status();
  EXPECT_EQ(third.give_up, nullptr);
  engine.Finish();
  EXPECT_TRUE(first.answer.ok());
  EXPECT_TRUE(second.answer.ok());
}

TEST(QueryEngineBatchTest, RowsOfOnePolicyInOneQueryShareAForward) {
  const PolicySpec spec = Busy();
  const auto engine = *QueryEngine::Create({spec}, {});
  ASSERT_EQ(engine->SetWeights(MakeWeights(spec, 1)), absl::OkStatus());
  const OwnedRows rows = MakeRows(spec, 2);
  absl::StatusOr<ActionAnswer> answer;
  const ActionQuery query = Ask({&rows, &rows, &rows}, true);
  EXPECT_EQ(engine->ComputeActions(query, [&](absl::StatusOr<ActionAnswer> got) { answer = std::move(got); }), nullptr);
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->size(), 3u);
  EXPECT_EQ(Values((*answer)[0]), Values((*answer)[2]));
  EXPECT_EQ(engine->batch_stats().batches, 1);
}

TEST(QueryEngineBatchTest, ManyThreadsAreAllAnswered) {
  const std::vector<PolicySpec> specs = {Busy(), MakeSpec("other", *Space::Box(-1, 1, {3}), *Space::Discrete(4))};
  const auto engine = *QueryEngine::Create(specs, {});
  for (const PolicySpec& spec : specs) ASSERT_EQ(engine->SetWeights(MakeWeights(spec, 1)), absl::OkStatus());
  std::atomic<int> answered{0};
  constexpr int kThreads = 4, kCalls = 300;
  {
    std::vector<std::vector<std::unique_ptr<QueuedQuery>>> asked(kThreads);
    std::vector<std::thread> threads;
    for (auto& mine : asked) {
      threads.emplace_back([&] {
        for (int call = 0; call < kCalls; ++call) {
          mine.push_back(std::make_unique<QueuedQuery>(MakeRows(specs[static_cast<size_t>(call % 2)], 1)));
          QueuedQuery& each = *mine.back();
          engine->ComputeActions(each.query, [&answered](const absl::StatusOr<ActionAnswer>& got) {
            if (got.ok()) ++answered;
          });
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  EXPECT_EQ(answered, kThreads * kCalls) << "who led has led to the end";
  EXPECT_EQ(engine->batch_stats().queries, kThreads * kCalls);
}

}  // namespace
}  // namespace troupe::serving
