#include "lib/rpc/episode/policy_files.h"

#include "lib/policy/parameter_layout.h"
#include "lib/policy/policy_spec.h"
#include "lib/rpc/transport/limits.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::rpc {
namespace {

using testing::HasSubstr;

env::EnvSpec CartWorld() {
  env::EnvSpec spec;
  spec.name = "external";
  spec.possible_agents.push_back({base::AgentId("cart"), *space::Space::Box(-1, 1, {2}), *space::Space::Discrete(2)});
  return spec;
}

class PolicyFilesTest : public testing::Test {
 protected:
  explicit PolicyFilesTest(std::vector<int64_t> hidden_sizes = {64, 64}) {
    spec_.id = policy::PolicyId("main");
    spec_.observation_space = world_.possible_agents[0].observation_space;
    spec_.action_space = world_.possible_agents[0].action_space;
    spec_.actor.hidden_sizes = std::move(hidden_sizes);
    acting_.Begin(policy::PolicyTable::Make({spec_}, {false}, {{"*", {{spec_.id}}}}, {"cart"}));
  }
  void SetWeights(int64_t n) {
    auto weights = std::make_shared<policy::WeightSnapshot>();
    weights->id = spec_.id;
    weights->version = {1, n};
    weights->actor.resize(static_cast<size_t>(policy::ParameterLayout::For(spec_).acting_size()));
    acting_.SetWeights(policy::PolicySlot(0), std::move(weights), {1, n});
  }

  const env::EnvSpec world_ = CartWorld();
  policy::PolicySpec spec_;
  outside::ActingPolicies acting_{world_};
  PolicyFiles files_{&acting_};
};

TEST_F(PolicyFilesTest, TheNewestAndTheOneBeforeAreKept) {
  EXPECT_EQ(files_.Read(0, 0)->image, nullptr) << "there is none yet";
  SetWeights(1);
  const std::shared_ptr<const PolicyImage> first = files_.Read(0, 0)->image;
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(first->weights, acting_.number());
  ASSERT_EQ(first->files.size(), 2u);
  EXPECT_EQ(first->files[0].second + first->files[1].second, first->bytes.size());
  EXPECT_EQ(files_.Read(0, 0)->image, first) << "made once";
  SetWeights(2);
  const std::shared_ptr<const PolicyImage> second = files_.Read(0, 0)->image;
  EXPECT_EQ(second->weights, first->weights + 1);
  EXPECT_EQ(files_.Read(first->weights, 8)->image, first) << "somebody is about to read it";
  SetWeights(3);
  EXPECT_EQ(files_.Read(second->weights, 8)->image, second);
  EXPECT_NE(files_.Read(0, 0)->image, second);
  EXPECT_EQ(files_.Read(first->weights, 8).status().code(), absl::StatusCode::kAborted);
  EXPECT_EQ(files_.Read(second->weights, second->bytes.size())->offset, second->bytes.size());
  EXPECT_EQ(files_.Read(second->weights, second->bytes.size() + 1).status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(files_.Read(0, 8).status().code(), absl::StatusCode::kOutOfRange) << "of which it is the rest nobody knows";
}

TEST_F(PolicyFilesTest, CallsAtOnceAreLimitedAndThoseOfAnAddress) {
  for (int64_t i = 0; i < kMaxPolicyCallsOfAddress; ++i) EXPECT_TRUE(files_.Enter("10.0.0.7").ok());
  EXPECT_EQ(files_.Enter("10.0.0.7").code(), absl::StatusCode::kResourceExhausted);
  for (int64_t i = kMaxPolicyCallsOfAddress; i < kMaxPolicyCalls; ++i) EXPECT_TRUE(files_.Enter("").ok());
  EXPECT_EQ(files_.Enter("10.0.0.8").code(), absl::StatusCode::kResourceExhausted);
  files_.Leave("10.0.0.7");
  EXPECT_TRUE(files_.Enter("10.0.0.7").ok());
  files_.Leave("");
  EXPECT_TRUE(files_.Enter("").ok()) << "by Unix sockets the user's own come, who share all there is";
  EXPECT_EQ(files_.Enter("").code(), absl::StatusCode::kResourceExhausted);
}

class LargePolicyFilesTest : public PolicyFilesTest {
 protected:
  LargePolicyFilesTest() : PolicyFilesTest({4096, 4096}) {}
};

TEST_F(LargePolicyFilesTest, WhatHasTooManyBytesIsNotMade) {
  SetWeights(1);
  const absl::Status large = files_.Read(0, 0).status();
  EXPECT_EQ(large.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(large.message()), HasSubstr("expected at most 67108864; ask GetActions"));
}

}  // namespace
}  // namespace troupe::rpc
