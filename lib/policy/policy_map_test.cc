#include "lib/policy/policy_map.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <set>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "lib/base/philox.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::policy {
namespace {

using Access = PolicyMapCore::Access;

struct Number {
  int64_t value = 0;
};

/// Keeps numbers; breaks where it is told to. Thread-safe.
class FakeTier final : public PolicyTier {
 public:
  absl::StatusOr<Value> Load(PolicySlot slot) override {
    base::MutexLock lock(&mutex_);
    ++loads_;
    if (broken_loads_.count(slot.value()) > 0) return absl::DataLossError(absl::StrCat("slot ", slot.value()));
    const auto found = kept_.find(slot.value());
    if (found == kept_.end()) return absl::NotFoundError(absl::StrCat("slot ", slot.value()));
    auto number = std::make_shared<Number>();
    number->value = found->second;
    return Value(std::move(number));
  }
  absl::Status Store(PolicySlot slot, const Value& value) override {
    base::MutexLock lock(&mutex_);
    if (broken_stores_) return absl::ResourceExhaustedError("disk full");
    kept_[slot.value()] = static_cast<const Number*>(value.get())->value;
    return absl::OkStatus();
  }
  int64_t Bytes(const Value&) const override { return 8; }

  void Keep(int32_t slot, int64_t value) {
    base::MutexLock lock(&mutex_);
    kept_[slot] = value;
  }
  void BreakLoads(int32_t slot, bool broken) {
    base::MutexLock lock(&mutex_);
    if (broken) {
      broken_loads_.insert(slot);
    } else {
      broken_loads_.erase(slot);
    }
  }
  void BreakStores(bool broken) {
    base::MutexLock lock(&mutex_);
    broken_stores_ = broken;
  }
  int64_t kept(int32_t slot) const {
    base::MutexLock lock(&mutex_);
    return kept_.at(slot);
  }
  int64_t loads() const {
    base::MutexLock lock(&mutex_);
    return loads_;
  }

 private:
  mutable base::Mutex mutex_;
  std::map<int32_t, int64_t> kept_ ABSL_GUARDED_BY(mutex_);
  std::set<int32_t> broken_loads_ ABSL_GUARDED_BY(mutex_);
  bool broken_stores_ ABSL_GUARDED_BY(mutex_) = false;
  int64_t loads_ ABSL_GUARDED_BY(mutex_) = 0;
};

std::vector<PolicySlot> Slots(const std::vector<int32_t>& values) {
  return std::vector<PolicySlot>(values.begin(), values.end());
}

/// A map of `policies` policies in the tier, none resident, policy p worth 100 p; and one reader.
struct Fixture {
  explicit Fixture(int64_t capacity, int32_t policies = 8, int64_t max_leaving = 4) {
    PolicyMapCore::Options options;
    options.capacity = capacity;
    options.max_slots = 32;
    options.max_leaving = max_leaving;
    map = *PolicyMap<Number>::Make(options, &tier, &base::Clock::Real());
    for (int32_t p = 0; p < policies; ++p) {
      tier.Keep(p, 100 * p);
      EXPECT_TRUE(map->core().Add(PolicySlot(p)).ok());
    }
    reader = std::make_unique<PolicyMap<Number>::Reader>(map.get());
  }
  absl::StatusOr<PolicyMap<Number>::Batch> Acquire(const std::vector<int32_t>& slots, Access access = Access::kRead) {
    return reader->Acquire(Slots(slots), access);
  }
  std::vector<int32_t> Resident() const {
    std::vector<int32_t> slots;
    for (int32_t s = 0; s < 32; ++s) {
      if (map->core().ResidentForTesting(PolicySlot(s))) slots.push_back(s);
    }
    return slots;
  }

  FakeTier tier;
  std::unique_ptr<PolicyMap<Number>> map;
  std::unique_ptr<PolicyMap<Number>::Reader> reader;
};

TEST(PolicyMapTest, OptionsAreChecked) {
  FakeTier tier;
  PolicyMapCore::Options options;
  options.capacity = 0;
  const auto map = PolicyMapCore::Make(options, &tier, &base::Clock::Real());
  EXPECT_EQ(map.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(map.status().message()), testing::HasSubstr("policy_map_capacity is 0"));
}

TEST(PolicyMapTest, TheLeastRecentlyUsedOneMakesRoom) {
  Fixture f(3);
  ASSERT_TRUE(f.Acquire({0, 1, 2}).ok());
  ASSERT_TRUE(f.Acquire({0}).ok());
  ASSERT_TRUE(f.Acquire({5}).ok());
  EXPECT_EQ(f.Resident(), (std::vector<int32_t>{0, 2, 5}));
  ASSERT_TRUE(f.Acquire({6}).ok());
  EXPECT_EQ(f.Resident(), (std::vector<int32_t>{0, 5, 6}));
  const PolicyMapStats stats = f.map->core().Stats();
  EXPECT_EQ(stats.hits, 1);
  EXPECT_EQ(stats.misses, 5);
  EXPECT_EQ(stats.evictions, 2);
  EXPECT_EQ(stats.writes, 0);
  EXPECT_EQ(stats.resident_bytes, 24);
}

TEST(PolicyMapTest, TheUsesOfAReaderThatIsGoneCount) {
  Fixture f(3);
  ASSERT_TRUE(f.Acquire({0, 1, 2}).ok());
  {
    PolicyMap<Number>::Reader passing(f.map.get());
    ASSERT_TRUE(passing.Acquire(Slots({1}), Access::kRead).ok());
    ASSERT_TRUE(passing.Acquire(Slots({0}), Access::kRead).ok());
  }
  ASSERT_TRUE(f.Acquire({5}).ok());
  EXPECT_EQ(f.Resident(), (std::vector<int32_t>{0, 1, 5})) << "2 was used before the others";
  ASSERT_TRUE(f.Acquire({6}).ok());
  EXPECT_EQ(f.Resident(), (std::vector<int32_t>{0, 5, 6})) << "then 1";
}

TEST(PolicyMapTest, ChangedValuesComeBackAsTheyLeft) {
  Fixture f(1);
  {
    auto batch = f.Acquire({3}, Access::kWrite);
    ASSERT_TRUE(batch.ok());
    (*batch)[0].value = 7;
  }
  ASSERT_TRUE(f.Acquire({4}).ok());
  EXPECT_EQ(f.map->core().Stats().leaving, 1);
  EXPECT_EQ(f.tier.kept(3), 300);
  EXPECT_TRUE(f.map->core().StepWriteBack());
  EXPECT_FALSE(f.map->core().StepWriteBack());
  EXPECT_EQ(f.tier.kept(3), 7);
  const auto batch = f.Acquire({3});
  ASSERT_TRUE(batch.ok());
  EXPECT_EQ((*batch)[0].value, 7);
}

TEST(PolicyMapTest, PinnedValuesStay) {
  Fixture f(2);
  auto held = f.Acquire({0});
  ASSERT_TRUE(held.ok());
  Number* const where = &(*held)[0];
  for (const int32_t slot : {1, 2, 3, 4}) ASSERT_TRUE(f.Acquire({slot}).ok());
  EXPECT_EQ(where->value, 0);
  const auto again = f.Acquire({0});
  EXPECT_EQ(&(*again)[0], where);
}

TEST(PolicyMapTest, AWrongBatchPinsNothing) {
  Fixture f(2);
  EXPECT_EQ(f.Acquire({0, 1, 2}).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(f.Acquire({0, 20}).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(f.Acquire({0, 32}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(f.Acquire({-1}).status().code(), absl::StatusCode::kInvalidArgument);
  f.tier.BreakLoads(1, true);
  EXPECT_EQ(f.Acquire({0, 1}).status().code(), absl::StatusCode::kDataLoss);
  for (const int32_t slot : {0, 1, 2, 3}) EXPECT_TRUE(f.map->core().Remove(PolicySlot(slot)).ok());
}

TEST(PolicyMapTest, ABrokenPolicyIsTheOnlyOneThatSuffers) {
  Fixture f(4);
  f.tier.BreakLoads(1, true);
  EXPECT_EQ(f.Acquire({0, 1, 2}).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_TRUE(f.Acquire({0, 2, 3}).ok());
  f.tier.BreakLoads(1, false);
  EXPECT_TRUE(f.Acquire({1}).ok());
  EXPECT_EQ(f.map->core().Stats().load_failures, 1);
}

TEST(PolicyMapTest, WhatCannotBeWrittenStays) {
  Fixture f(1);
  f.tier.BreakStores(true);
  (*f.Acquire({3}, Access::kWrite))[0].value = 7;
  ASSERT_TRUE(f.Acquire({4}).ok());
  EXPECT_TRUE(f.map->core().StepWriteBack());
  EXPECT_EQ(f.map->core().Stats().write_failures, 1);
  ASSERT_TRUE(f.Acquire({5}).ok());
  const auto batch = f.Acquire({3});
  ASSERT_TRUE(batch.ok());
  EXPECT_EQ((*batch)[0].value, 7);
  EXPECT_EQ(f.tier.kept(3), 300);
}

TEST(PolicyMapTest, AFailedWriteIsTriedAgain) {
  Fixture f(1);
  f.tier.BreakStores(true);
  (*f.Acquire({3}, Access::kWrite))[0].value = 7;
  ASSERT_TRUE(f.Acquire({4}).ok());
  f.map->core().StepWriteBack();
  f.tier.BreakStores(false);
  for (int i = 0; i < 1000 && f.tier.kept(3) != 7; ++i) {
    ASSERT_TRUE(f.Acquire({4 + i % 2}).ok());
    f.map->core().StepWriteBack();
  }
  EXPECT_EQ(f.tier.kept(3), 7);
  EXPECT_EQ(f.Resident().size(), 1u);
}

TEST(PolicyMapTest, WhatStayedBeyondTheCapacityLeavesThoughNothingMisses) {
  Fixture f(2, 6);
  f.tier.BreakStores(true);
  for (int32_t p = 0; p < 6; ++p) {
    (*f.Acquire({p}, Access::kWrite))[0].value = 7 + p;
    while (f.map->core().StepWriteBack()) {
    }
  }
  ASSERT_EQ(f.Resident().size(), 6u) << "there is nobody whose miss would ask for room";
  f.tier.BreakStores(false);
  for (int i = 0; i < 1000 && f.Resident().size() > 2; ++i) {
    const auto batch = f.Acquire({i % 6});
    ASSERT_TRUE(batch.ok());
    EXPECT_EQ((*batch)[0].value, 7 + i % 6);
    f.map->core().StepWriteBack();
  }
  EXPECT_EQ(f.Resident().size(), 2u);
}

TEST(PolicyMapTest, InsertedAndRemoved) {
  Fixture f(2, 2);
  ASSERT_TRUE(f.Acquire({0, 1}).ok());
  ASSERT_TRUE(f.map->Insert(PolicySlot(9), std::make_shared<Number>(Number{9})).ok());
  EXPECT_EQ(f.Resident(), (std::vector<int32_t>{1, 9}));
  EXPECT_EQ(f.map->Insert(PolicySlot(9), std::make_shared<Number>()).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(f.map->core().Add(PolicySlot(0)).code(), absl::StatusCode::kAlreadyExists);
  {
    const auto held = f.Acquire({9});
    EXPECT_EQ(f.map->core().Remove(PolicySlot(9)).code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_EQ((*held)[0].value, 9);
  }
  EXPECT_TRUE(f.map->core().Remove(PolicySlot(9)).ok());
  EXPECT_EQ(f.map->core().Remove(PolicySlot(9)).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(f.Acquire({9}).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(f.map->core().Stats().resident_bytes, 8);
}

TEST(PolicyMapTest, TurnsBeginWithWhatIsThere) {
  Fixture f(2);
  ASSERT_TRUE(f.Acquire({3, 6}).ok());
  const auto turns = f.map->core().SplitInTurns(Slots({1, 3, 1, 5, 6}));
  ASSERT_EQ(turns.size(), 2u);
  EXPECT_EQ(turns[0], Slots({3, 6}));
  EXPECT_EQ(turns[1], Slots({1, 5}));
  EXPECT_TRUE(f.map->core().SplitInTurns({}).empty());
}

/// What the map must be like: plain containers, nothing clever.
class Model {
 public:
  explicit Model(int64_t capacity) : capacity_(capacity) {}
  std::map<int32_t, int64_t> values;  ///< of all policies, the newest
  std::vector<int32_t> by_age;        ///< residents, the oldest first

  bool Resident(int32_t slot) const { return std::find(by_age.begin(), by_age.end(), slot) != by_age.end(); }
  void Touch(std::set<int32_t> batch, const std::set<int32_t>& pinned) {
    int64_t missing = 0;
    for (const int32_t slot : batch) missing += Resident(slot) ? 0 : 1;
    for (const int32_t slot : batch) by_age.erase(std::remove(by_age.begin(), by_age.end(), slot), by_age.end());
    // The batch's own stay; of the others the oldest that nobody holds go.
    const auto stay = static_cast<int64_t>(batch.size());
    while (static_cast<int64_t>(by_age.size()) + stay > capacity_ && missing > 0) {
      const auto victim =
          std::find_if(by_age.begin(), by_age.end(), [&](int32_t slot) { return pinned.count(slot) == 0; });
      by_age.erase(victim);
    }
    by_age.insert(by_age.end(), batch.begin(), batch.end());
  }

 private:
  const int64_t capacity_;
};

/// One map and its model, to which the same operations happen.
class History {
 public:
  explicit History(int history)
      : random_(base::PhiloxKey::Make(static_cast<uint64_t>(history), base::RandomStream::kTest), {}),
        capacity_(1 + Below(6)),
        fixture_(capacity_, 0, /*max_leaving=*/1000),
        model_(capacity_),
        core_(fixture_.map->core()) {}

  void Operate(int32_t number) {
    const int32_t kind = Below(20);
    const int32_t slot = Below(kSlots);
    if (kind < 12) {
      Acquire();
    } else if (kind < 14) {
      if (!held_.empty()) held_.erase(held_.begin() + Below(static_cast<uint32_t>(held_.size())));
    } else if (kind < 16) {
      core_.StepWriteBack();
    } else if (kind < 18) {
      Insert(slot, number);
    } else {
      Remove(slot);
    }
    std::vector<int32_t> expected = model_.by_age;
    std::sort(expected.begin(), expected.end());
    ASSERT_EQ(fixture_.Resident(), expected);
  }

  /// What the map counted in all, when nothing is held any more.
  void End(PolicyMapStats* stats) {
    held_.clear();
    WriteBack();
    *stats = core_.Stats();
    ASSERT_EQ(stats->resident, static_cast<int64_t>(model_.by_age.size()));
    ASSERT_EQ(stats->resident_bytes, 8 * stats->resident);
  }

 private:
  static constexpr uint32_t kSlots = 12;

  int32_t Below(uint32_t limit) { return static_cast<int32_t>(random_.Below(limit)); }
  std::set<int32_t> Pinned() const {
    std::set<int32_t> all;
    for (const auto& [slots, batch] : held_) all.insert(slots.begin(), slots.end());
    return all;
  }
  void WriteBack() {
    while (core_.StepWriteBack()) {
    }
  }

  void Acquire() {
    std::set<int32_t> batch;
    const int32_t size = 1 + Below(static_cast<uint32_t>(capacity_));
    for (int32_t i = 0; i < size; ++i) batch.insert(Below(kSlots));
    std::set<int32_t> together = Pinned();
    together.insert(batch.begin(), batch.end());
    if (static_cast<int64_t>(together.size()) > capacity_) return;  // it would wait for us
    WriteBack();
    const Access access = Below(2) == 0 ? Access::kRead : Access::kWrite;
    auto got = fixture_.Acquire({batch.begin(), batch.end()}, access);
    const bool all_known =
        std::all_of(batch.begin(), batch.end(), [&](int32_t s) { return model_.values.count(s) > 0; });
    ASSERT_EQ(got.ok(), all_known) << got.status();
    if (!all_known) {
      ASSERT_EQ(got.status().code(), absl::StatusCode::kNotFound);
      // A refused batch counts as a use, too: forget that by using what is there.
      for (const int32_t s : std::vector<int32_t>(model_.by_age)) ASSERT_TRUE(fixture_.Acquire({s}).ok());
      return;
    }
    model_.Touch(batch, Pinned());
    size_t i = 0;
    for (const int32_t s : batch) {
      ASSERT_EQ((*got)[i].value, model_.values[s]);
      if (access == Access::kWrite) model_.values[s] = (*got)[i].value = Below(1000000);
      ++i;
    }
    if (Below(4) == 0) held_.emplace_back(batch, *std::move(got));
  }

  void Insert(int32_t slot, int32_t value) {
    if (static_cast<int64_t>(Pinned().size()) >= capacity_) return;
    const bool fresh = model_.values.count(slot) == 0;
    const absl::Status status = fixture_.map->Insert(PolicySlot(slot), std::make_shared<Number>(Number{value}));
    ASSERT_EQ(status.ok(), fresh) << status;
    if (!fresh) return;
    model_.values[slot] = value;
    model_.Touch({slot}, Pinned());
  }

  void Remove(int32_t slot) {
    WriteBack();
    const absl::Status status = core_.Remove(PolicySlot(slot));
    if (model_.values.count(slot) == 0) {
      ASSERT_EQ(status.code(), absl::StatusCode::kNotFound);
    } else if (Pinned().count(slot) > 0) {
      ASSERT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    } else {
      ASSERT_TRUE(status.ok()) << status;
      model_.values.erase(slot);
      model_.by_age.erase(std::remove(model_.by_age.begin(), model_.by_age.end(), slot), model_.by_age.end());
    }
  }

  base::PhiloxSequence random_;
  const int64_t capacity_;
  Fixture fixture_;
  Model model_;
  PolicyMapCore& core_;
  std::vector<std::pair<std::set<int32_t>, PolicyMap<Number>::Batch>> held_;
};

TEST(PolicyMapTest, EqualsThePlainModelInRandomHistories) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  constexpr int kHistories = 1000;
#else
  constexpr int kHistories = 10000;
#endif
  constexpr int kOperations = 200;
  int64_t evictions = 0, writes = 0;
  for (int number = 0; number < kHistories; ++number) {
    History history(number);
    for (int operation = 0; operation < kOperations; ++operation) {
      SCOPED_TRACE(testing::Message() << "history " << number << ", operation " << operation);
      ASSERT_NO_FATAL_FAILURE(history.Operate(operation));
    }
    PolicyMapStats stats;
    ASSERT_NO_FATAL_FAILURE(history.End(&stats));
    evictions += stats.evictions;
    writes += stats.writes;
  }
  EXPECT_GT(evictions, kHistories);
  EXPECT_GT(writes, kHistories);
}

/// Threads that read, write and wait for each other; a value that somebody lost or saw half-written shows.
void Hammer(int threads, int64_t capacity, int rounds) {
  constexpr int32_t kPolicies = 24;
  Fixture f(capacity, kPolicies);
  f.reader.reset();
  PolicyMapCore& core = f.map->core();
  for (int32_t p = 0; p < kPolicies; ++p) f.tier.Keep(p, 0);
  std::thread writer([&core] {
    while (core.AwaitWriteBack()) core.StepWriteBack();
  });
  std::vector<std::atomic<int>> inside(kPolicies);
  std::vector<std::atomic<int64_t>> added(kPolicies);
  std::vector<std::thread> workers;
  for (int t = 0; t < threads; ++t) {
    workers.emplace_back([&, t] {
      PolicyMap<Number>::Reader reader(f.map.get());
      base::PhiloxSequence random(base::PhiloxKey::Make(static_cast<uint64_t>(t), base::RandomStream::kTest), {});
      for (int round = 0; round < rounds; ++round) {
        std::vector<PolicySlot> batch;
        const uint32_t size = 1 + random.Below(static_cast<uint32_t>(std::min<int64_t>(capacity, 3)));
        for (uint32_t i = 0; i < size; ++i) batch.emplace_back(static_cast<int32_t>(random.Below(kPolicies)));
        auto got = reader.Acquire(batch, Access::kWrite);
        ASSERT_TRUE(got.ok()) << got.status();
        for (size_t i = 0; i < batch.size(); ++i) {
          const int32_t slot = batch[i].value();
          // The map shares values between holders; who changes one keeps others out, as a learner's update thread does.
          while (inside[slot].exchange(1, std::memory_order_acquire) != 0) std::this_thread::yield();
          (*got)[i].value += 1;
          added[slot].fetch_add(1, std::memory_order_relaxed);
          inside[slot].store(0, std::memory_order_release);
        }
      }
    });
  }
  for (std::thread& worker : workers) worker.join();
  {
    PolicyMap<Number>::Reader reader(f.map.get());
    for (int32_t p = 0; p < kPolicies; ++p) {
      const auto got = reader.Acquire({PolicySlot(p)}, Access::kRead);
      ASSERT_TRUE(got.ok());
      EXPECT_EQ((*got)[0].value, added[p].load()) << "policy " << p;
    }
  }
  core.Close();
  writer.join();
  const PolicyMapStats stats = core.Stats();
  EXPECT_EQ(stats.resident_bytes, 8 * stats.resident);
  EXPECT_LE(stats.resident, capacity);
}

TEST(PolicyMapTest, OneThreadLosesNothing) { Hammer(1, 3, 2000); }
TEST(PolicyMapTest, FourThreadsLoseNothing) { Hammer(4, 4, 2000); }
TEST(PolicyMapTest, SixteenThreadsLoseNothing) { Hammer(16, 5, 500); }

// Remove looked at the pins only after it had hidden the value: whoever was past its own lookup then found nothing.
TEST(PolicyMapTest, ARemovalThatIsRefusedIsSeenByNobody) {
  Fixture f(2, 8);
  std::atomic<bool> stop{false};
  std::thread remover([&] {
    while (!stop) {
      if (!f.map->core().Remove(PolicySlot(0)).ok()) continue;
      EXPECT_TRUE(f.map->core().Add(PolicySlot(0)).ok());
    }
  });
  int got = 0;
  for (int i = 0; i < 100000; ++i) {
    const auto batch = f.Acquire({0, 1 + i % 7});
    if (!batch.ok()) {
      EXPECT_EQ(batch.status().code(), absl::StatusCode::kNotFound);
      continue;
    }
    EXPECT_EQ((*batch)[0].value, 0);
    ++got;
  }
  stop = true;
  remover.join();
  EXPECT_GT(got, 0);
}

TEST(PolicyMapTest, OneLoadServesAllWhoWaitForIt) {
  Fixture f(8);
  f.reader.reset();
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&f] {
      PolicyMap<Number>::Reader reader(f.map.get());
      ASSERT_TRUE(reader.Acquire(Slots({0, 1, 2, 3}), Access::kRead).ok());
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(f.tier.loads(), 4);
}

}  // namespace
}  // namespace troupe::policy
