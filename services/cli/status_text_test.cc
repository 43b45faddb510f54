#include "services/cli/status_text.h"

#include <string>

#include "absl/strings/str_cat.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace troupe::services {
namespace {

using testing::HasSubstr;
using testing::Not;

void AddPolicy(const std::string& id, int64_t returns, double mean, v1::StatusReply* reply) {
  v1::PolicyStatus* const policy = reply->add_policies();
  policy->set_policy_id(id);
  policy->set_return_count(returns);
  policy->set_return_mean(mean);
  policy->set_return_min(mean - 2);
  policy->set_return_max(mean + 1);
}

v1::StatusReply Rivals() {
  v1::StatusReply reply;
  reply.set_return_sum(0.5);
  reply.set_return_mean(0.25);
  AddPolicy("hunter", 100, -3, &reply);
  AddPolicy("runner\x1b[2J", 100, 3.5, &reply);
  AddPolicy("newcomer", 0, 0, &reply);
  return reply;
}

TEST(StatusTextTest, WhereRewardsDifferEachPolicyHasALineInPlaceOfTheirSum) {
  v1::StatusReply reply = Rivals();
  EXPECT_THAT(StatusText(reply), HasSubstr("return of the last 100 episodes: 0.500 summed over agents, 0.250 per"));
  reply.set_rewards_differ(true);
  const std::string text = StatusText(reply);
  EXPECT_THAT(text, HasSubstr("last 100 episodes: return of an agent, by policy (least to largest)\n"
                              "  hunter  -3.00 (-5.00 to -2.00)\n"
                              "  runner\\x1b[2J  3.50 (1.50 to 4.50)\n"));
  EXPECT_THAT(text, Not(HasSubstr("summed over agents")));
  EXPECT_THAT(text, Not(HasSubstr("newcomer"))) << "has played nothing";
}

TEST(StatusTextTest, OfManyPoliciesThoseThatPlayedMostHaveNames) {
  v1::StatusReply reply;
  reply.set_rewards_differ(true);
  for (int i = 0; i < 9; ++i) AddPolicy(absl::StrCat("p", i), i == 2 ? 10 : 20 + i % 3, i, &reply);
  for (int i = 0; i < 5; ++i) AddPolicy(absl::StrCat("idle", i), 0, 0, &reply);  // they played in none of the episodes
  EXPECT_THAT(StatusText(reply), HasSubstr("  p1  1.00 (-1.00 to 2.00)\n"
                                           "  p4  4.00 (2.00 to 5.00)\n"
                                           "  p5  5.00 (3.00 to 6.00)\n"
                                           "  p7  7.00 (5.00 to 8.00)\n"
                                           "  p8  8.00 (6.00 to 9.00)\n"
                                           "  3 others  3.67 (2.00 to 6.00)\n"));
}

TEST(StatusTextTest, ALineOfProgressSpeaksOfPoliciesLikewise) {
  nlohmann::ordered_json line = {{"env_steps", 800}, {"return_sum", 0.0}, {"return_mean", 0.0}};
  EXPECT_EQ(LineText(line), "env_steps      800\nreturn_sum     0.0\nreturn_mean    0.0\n");
  line["rewards_differ"] = true;
  line["policy/hunter/return_mean"] = -1.5;
  line["policy/hunter/return_min"] = -4;
  line["policy/hunter/return_max"] = 2;
  line["policy/hunter/Loss/Value loss"] = 7;
  line["policies/rest/return_mean"] = 1;
  line["policies/rest/return_min"] = 0.5;
  line["policies/rest/return_max"] = 2;
  line["policies/rest/count"] = 12;
  EXPECT_EQ(LineText(line),
            "env_steps      800\n"
            "last 100 episodes: return of an agent, by policy (least to largest)\n"
            "  hunter  -1.50 (-4.00 to 2.00)\n"
            "  12 others  1.00 (0.50 to 2.00)\n");
  line["policies/rest/return_mean"] = nullptr;  // they trained and played nothing
  EXPECT_THAT(LineText(line), Not(HasSubstr("others")));
}

TEST(StatusTextTest, ProgramsGetReturnsByPolicy) {
  v1::StatusReply reply = Rivals();
  reply.set_rewards_differ(true);
  const nlohmann::ordered_json json = StatusJson(reply);
  EXPECT_EQ(json["rewards_differ"], true);
  EXPECT_EQ(json["policies"][0]["return_mean"], -3);
  EXPECT_EQ(json["policies"][0]["return_min"], -5);
  EXPECT_EQ(json["policies"][0]["return_max"], -2);
  EXPECT_TRUE(json["policies"][2]["return_mean"].is_null());
}

TEST(StatusTextTest, WhatWhoeverAnswersSaysIsCut) {
  const std::string endless(3'000'000, 'x');
  const std::string cut = std::string(kMaxStatusTextBytes, 'x') + "...";
  for (const auto& set : {
           +[](const std::string&text, v1::StatusReply*reply) { reply->set_state(text); },
           +[](const std::string&text, v1::StatusReply*reply) { reply->set_state_reason(text); },
           +[](const std::string&text, v1::StatusReply*reply) { reply->set_run_name(text); },
           +[](const std::string&text, v1::StatusReply*reply) { reply->set_build_version(text); },
           +[](const std::string&text, v1::StatusReply*reply) { reply->add_degraded(text); },
           +[](const std::string&text, v1::StatusReply*reply) { reply->add_workers()->set_name(text); },
           +[](const std::string&text, v1::StatusReply*reply) {
             v1::WorkerStatus* const worker = reply->add_workers();
             worker->set_gets_no_work(true);
             worker->set_gets_no_work_reason(text);
           },
           +[](const std::string&text, v1::StatusReply*reply) { AddPolicy(text, 1, 0, reply); },
       }) {
    v1::StatusReply reply;
    reply.set_rewards_differ(true);
    set(endless, &reply);
    const std::string json = StatusJson(reply).dump();
    EXPECT_LT(json.size(), 2 * kMaxStatusTextBytes);
    EXPECT_THAT(json, HasSubstr(absl::StrCat("\"", cut, "\"")));
    EXPECT_LT(StatusText(reply).size(), 3 * kMaxStatusTextBytes);
  }
}

}  // namespace
}  // namespace troupe::services
