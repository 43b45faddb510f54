#include "lib/rollout/actor_map.h"

#include <algorithm>
#include <random>
#include <set>
#include <string>
#include <utility>

#include "lib/policy/testing.h"
#include "lib/policy/testing/slots.h"
#include <gtest/gtest.h>

namespace troupe::rollout {
namespace {

using policy::PolicySlot;

std::unique_ptr<ResidentActor> SomeActor() {
  return std::make_unique<ResidentActor>(
      ResidentActor{.actor = nullptr, .bounds = inference::ActionBounds(policy::SmallSpecForTesting())});
}

TEST(ActorMapTest, WhatIsHeldStaysBeyondTheCapacity) {
  ActorMap map(1);
  for (int32_t slot = 0; slot < 5; ++slot) map.Insert(PolicySlot(slot), SomeActor());
  std::vector<PolicySlot> dropped;
  map.Trim(dropped);
  EXPECT_TRUE(dropped.empty()) << "what is made is about to be used";
  map.BeginHolding();
  for (const int32_t slot : {1, 3, 4}) map.Hold(PolicySlot(slot));
  map.Trim(dropped);
  EXPECT_EQ(dropped, policy::SlotsForTesting({0})) << "of those used last at one time the lower slot is older";
  EXPECT_EQ(map.Find(PolicySlot(0)), nullptr);
  EXPECT_EQ(map.Find(policy::kNoPolicy), nullptr);
  EXPECT_EQ(map.Find(PolicySlot(99)), nullptr);
}

struct FakeActor final : inference::PolicyActor {
  absl::Status SetWeights(policy::WeightSnapshotPtr) override { return absl::OkStatus(); }
  bool TakeOver(const policy::PolicySpec& spec) override {
    if (able) id = spec.id.value();
    return able;
  }
  absl::Status Act(const inference::ActInput&, space::ActionWord*, float*) override { return absl::OkStatus(); }

  bool able = true;
  std::string id = "first";
};

TEST(ActorMapTest, WhatIsDroppedIsUsedAgainForItsShape) {
  policy::PolicySpec spec = policy::SmallSpecForTesting();
  spec.id = policy::PolicyId("second");
  ActorMap map(0);
  FakeActor* fakes[4];
  for (int32_t slot = 0; slot < 4; ++slot) {
    auto actor = std::make_unique<FakeActor>();
    actor->able = slot != 2;
    fakes[slot] = actor.get();
    ResidentActor& resident = map.Insert(PolicySlot(slot), SomeActor());
    resident.actor = std::move(actor);
    resident.shape = slot == 3 ? -1 : slot / 2;
    resident.last_used = static_cast<uint64_t>(slot);
    resident.adopted_in = 7;
  }
  EXPECT_EQ(map.TakeSpare(0, spec), nullptr) << "nothing was dropped yet";
  map.BeginHolding();
  std::vector<PolicySlot> dropped;
  map.Trim(dropped);
  ASSERT_EQ(dropped, policy::SlotsForTesting({0, 1, 2, 3}));
  EXPECT_TRUE(map.resident().empty());
  const std::unique_ptr<ResidentActor> last = map.TakeSpare(0, spec);
  ASSERT_NE(last, nullptr);
  EXPECT_EQ(last->actor.get(), fakes[1]) << "the one dropped last";
  EXPECT_EQ(fakes[1]->id, "second");
  EXPECT_EQ(last->last_used, 0U) << "of what the other policy did nothing is left";
  EXPECT_EQ(last->adopted_in, 0);
  const std::unique_ptr<ResidentActor> first = map.TakeSpare(0, spec);
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(first->actor.get(), fakes[0]);
  EXPECT_EQ(map.TakeSpare(0, spec), nullptr);
  EXPECT_EQ(map.TakeSpare(1, spec), nullptr) << "an actor that cannot is left alone";
  EXPECT_EQ(map.TakeSpare(-1, spec), nullptr);
}

TEST(ActorMapTest, KeepsSoManySparesAndNoMore) {
  ActorMap map(0);
  const auto count = static_cast<int32_t>(ActorMap::kMaxSpares) + 10;
  for (int32_t slot = 0; slot < count; ++slot) {
    ResidentActor& resident = map.Insert(PolicySlot(slot), SomeActor());
    resident.actor = std::make_unique<FakeActor>();
    resident.shape = 0;
  }
  map.BeginHolding();
  std::vector<PolicySlot> dropped;
  map.Trim(dropped);
  EXPECT_EQ(dropped.size(), static_cast<size_t>(count));
  size_t spares = 0;
  while (map.TakeSpare(0, policy::SmallSpecForTesting()) != nullptr) ++spares;
  EXPECT_EQ(spares, ActorMap::kMaxSpares);
}

// A plain model beside the map: the same ones leave, in every history.
TEST(ActorMapTest, TheLeastRecentlyUsedOnesLeave) {
  for (uint32_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const auto below = [&random](uint32_t bound) { return static_cast<int32_t>(random() % bound); };
    const int64_t capacity = 1 + below(5);
    ActorMap map(capacity);
    std::vector<std::pair<uint64_t, PolicySlot>> model;  // when it was used, slot; resident ones
    for (uint64_t round = 1; round < 100; ++round) {
      std::set<PolicySlot> held;
      for (int i = below(4); i >= 0; --i) held.emplace(below(12));
      map.BeginHolding();
      for (const PolicySlot slot : held) map.Hold(slot);
      std::vector<PolicySlot> dropped, expected;
      map.Trim(dropped);
      std::sort(model.begin(), model.end());
      int64_t idle =
          std::count_if(model.begin(), model.end(), [&](const auto& m) { return held.count(m.second) == 0; });
      for (auto it = model.begin(); it != model.end() && idle > capacity;) {
        if (held.count(it->second) > 0) {
          ++it;
          continue;
        }
        expected.push_back(it->second);
        it = model.erase(it);
        --idle;
      }
      ASSERT_EQ(dropped, expected);
      for (const PolicySlot slot : held) {
        ResidentActor* actor = map.Find(slot);
        const auto known = std::find_if(model.begin(), model.end(), [slot](const auto& m) { return m.second == slot; });
        ASSERT_EQ(actor != nullptr, known != model.end());
        if (actor == nullptr) {
          actor = &map.Insert(slot, SomeActor());
          model.emplace_back(round, slot);
        } else {
          known->first = round;
        }
        actor->last_used = round;
      }
      ASSERT_EQ(map.resident().size(), model.size());
    }
  }
}

}  // namespace
}  // namespace troupe::rollout
