#include "lib/rollout/actor_map.h"

#include <algorithm>
#include <random>
#include <set>
#include <utility>

#include "lib/policy/testing.h"
#include <gtest/gtest.h>

namespace troupe::rollout {
namespace {

std::unique_ptr<ResidentActor> SomeActor() {
  return std::make_unique<ResidentActor>(
      ResidentActor{.actor = nullptr, .bounds = inference::ActionBounds(policy::SmallSpecForTesting())});
}

TEST(ActorMapTest, WhatIsHeldStaysBeyondTheCapacity) {
  ActorMap map(1);
  for (int32_t slot = 0; slot < 5; ++slot) map.Insert(slot, SomeActor());
  std::vector<int32_t> dropped;
  map.Trim(dropped);
  EXPECT_TRUE(dropped.empty()) << "what is made is about to be used";
  map.BeginHolding();
  for (const int32_t slot : {1, 3, 4}) map.Hold(slot);
  map.Trim(dropped);
  EXPECT_EQ(dropped, std::vector<int32_t>({0})) << "of those used last at one time the lower slot is older";
  EXPECT_EQ(map.Find(0), nullptr);
  EXPECT_EQ(map.Find(-1), nullptr);
  EXPECT_EQ(map.Find(99), nullptr);
}

// A plain model beside the map: the same ones leave, in every history.
TEST(ActorMapTest, TheLeastRecentlyUsedOnesLeave) {
  for (uint32_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const auto below = [&random](uint32_t bound) { return static_cast<int32_t>(random() % bound); };
    const int64_t capacity = 1 + below(5);
    ActorMap map(capacity);
    std::vector<std::pair<uint64_t, int32_t>> model;  // when it was used, slot; resident ones
    for (uint64_t round = 1; round < 100; ++round) {
      std::set<int32_t> held;
      for (int i = below(4); i >= 0; --i) held.insert(below(12));
      map.BeginHolding();
      for (const int32_t slot : held) map.Hold(slot);
      std::vector<int32_t> dropped, expected;
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
      for (const int32_t slot : held) {
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
