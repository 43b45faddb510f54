#include "lib/cli/query_agents.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

serving::PolicyDescription Policy(const std::string& id, bool needs_slots, std::vector<int32_t> slots) {
  serving::PolicyDescription policy;
  policy.policy_id = policy::PolicyId(id);
  policy.needs_agent_slots = needs_slots;
  policy.agent_slots = std::move(slots);
  return policy;
}

/// The hunters share a policy that sees which one it plays; the prey has one of its own, or an older one.
serving::PolicyDescriptions Tag() {
  return {{"hunter_0", "hunter_1", "prey"},
          {Policy("hunters", true, {0, 1}), Policy("old", false, {2}), Policy("prey", false, {2}),
           Policy("spare", true, {})}};
}

std::string Error(const std::string& policy, const std::vector<std::string>& agents, int64_t rows) {
  return std::string(ResolveAgents(Tag(), policy, agents, rows).status().message());
}

TEST(QueryAgentsTest, SlotsFollowFromTheAgents) {
  EXPECT_EQ(ResolveAgents(Tag(), "", {"hunter_1"}, 3)->policy_id.value(), "hunters");
  EXPECT_THAT(ResolveAgents(Tag(), "", {"hunter_1"}, 3)->agent_slots, ElementsAre(1, 1, 1));
  EXPECT_THAT(ResolveAgents(Tag(), "hunters", {"hunter_1", "hunter_0"}, 2)->agent_slots, ElementsAre(1, 0));
  EXPECT_THAT(ResolveAgents(Tag(), "prey", {"prey"}, 2)->agent_slots, IsEmpty()) << "it takes none";
  EXPECT_THAT(ResolveAgents(Tag(), "prey", {}, 2)->agent_slots, IsEmpty());
  EXPECT_EQ(ResolveAgents({{"a"}, {Policy("shared", false, {0})}}, "", {}, 1)->policy_id.value(), "shared");
}

TEST(QueryAgentsTest, ErrorsSayWhoIsThere) {
  EXPECT_THAT(Error("", {"hunter_2"}, 1), HasSubstr("there is no agent \"hunter_2\"; the nearest is \"hunter_0\""));
  EXPECT_THAT(Error("huntres", {"hunter_0"}, 1),
              HasSubstr("there is no policy \"huntres\"; the nearest is \"hunters\""));
  EXPECT_THAT(Error("prey", {"hunter_0"}, 1), HasSubstr("policy \"prey\" does not play hunter_0; its agents are prey"));
  EXPECT_THAT(Error("spare", {"prey"}, 1), HasSubstr("nobody is mapped to it"));
  EXPECT_THAT(Error("", {"prey"}, 1), HasSubstr("--policy with one of those that may play prey: old, prey"));
  EXPECT_THAT(Error("", {}, 1), HasSubstr("--policy with one of those that there are: hunters, old, prey, spare"));
  EXPECT_THAT(Error("", {"hunter_0", "prey"}, 2), HasSubstr("no policy plays hunter_0, prey"));
  EXPECT_THAT(Error("", {"hunter_0", "hunter_1"}, 3), HasSubstr("2 agents, expected one for all rows, or 3"));
}

}  // namespace
}  // namespace troupe::cli
