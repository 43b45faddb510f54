#include "lib/cli/status_text.h"

#include <string>

#include "absl/strings/str_cat.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace troupe::cli {
namespace {

using testing::HasSubstr;
using testing::Not;

void AddPolicy(const std::string& id, int64_t returns, double mean, rpc::RunStatus* status) {
  rpc::PolicyStatus& policy = status->policies.emplace_back();
  policy.id = policy::PolicyId(id);
  policy.return_count = returns;
  policy.return_mean = mean;
  policy.return_min = mean - 2;
  policy.return_max = mean + 1;
}

rpc::RunStatus Rivals() {
  rpc::RunStatus status;
  status.learner.progress.return_sum = 0.5;
  status.learner.progress.return_mean = 0.25;
  AddPolicy("hunter", 100, -3, &status);
  AddPolicy("runner\x1b[2J", 100, 3.5, &status);
  AddPolicy("newcomer", 0, 0, &status);
  return status;
}

TEST(StatusTextTest, WhereRewardsDifferEachPolicyHasALineInPlaceOfTheirSum) {
  rpc::RunStatus status = Rivals();
  EXPECT_THAT(StatusText(status), HasSubstr("return of the last 100 episodes: 0.500 summed over agents, 0.250 per"));
  status.learner.progress.rewards_differ = true;
  const std::string text = StatusText(status);
  EXPECT_THAT(text, HasSubstr("last 100 episodes: return of an agent, by policy (least to largest)\n"
                              "  hunter  -3.00 (-5.00 to -2.00)\n"
                              "  runner\\x1b[2J  3.50 (1.50 to 4.50)\n"));
  EXPECT_THAT(text, Not(HasSubstr("summed over agents")));
  EXPECT_THAT(text, Not(HasSubstr("newcomer"))) << "has played nothing";
}

TEST(StatusTextTest, WhatTheDoorClosedAndRefusedHasALineForEachReason) {
  rpc::RunStatus status;
  EXPECT_THAT(StatusText(status), Not(HasSubstr("closed")));
  status.door = {{"connections closed: no place", 1234}, {"calls refused: too many on one connection", 5}};
  EXPECT_THAT(StatusText(status), HasSubstr("connections closed: no place: 1,234\n"
                                            "calls refused: too many on one connection: 5\n"));
  EXPECT_EQ(StatusJson(status)["door"][0]["what"], "connections closed: no place");
  EXPECT_EQ(StatusJson(status)["door"][1]["count"], 5);
}

TEST(StatusTextTest, AWorkerThatGetsNoMoreWorkIsCalledAsElsewhere) {
  rpc::RunStatus status;
  rpc::ConnectedWorker& worker = status.workers.emplace_back();
  worker.gets_no_work = true;
  worker.worker.id = sample::WorkerId((uint64_t{1} << 32) + 2);
  const std::string text = StatusText(status);
  EXPECT_THAT(text, HasSubstr("no more work (env.max_failed_share): worker 1.2\n"));
  EXPECT_THAT(text, Not(HasSubstr("4294967298")));
}

TEST(StatusTextTest, OfManyPoliciesThoseThatPlayedMostHaveNames) {
  rpc::RunStatus status;
  status.learner.progress.rewards_differ = true;
  for (int i = 0; i < 9; ++i) AddPolicy(absl::StrCat("p", i), i == 2 ? 10 : 20 + i % 3, i, &status);
  for (int i = 0; i < 5; ++i) AddPolicy(absl::StrCat("idle", i), 0, 0, &status);  // they played in none of the episodes
  EXPECT_THAT(StatusText(status), HasSubstr("  p1  1.00 (-1.00 to 2.00)\n"
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
  rpc::RunStatus status = Rivals();
  status.learner.progress.rewards_differ = true;
  status.policies[0].exploration = {{"epsilon", 0.5}};
  const nlohmann::ordered_json json = StatusJson(status);
  EXPECT_EQ(json["rewards_differ"], true);
  EXPECT_EQ(json["policies"][0]["return_mean"], -3);
  EXPECT_EQ(json["policies"][0]["return_min"], -5);
  EXPECT_EQ(json["policies"][0]["return_max"], -2);
  EXPECT_TRUE(json["policies"][2]["return_mean"].is_null());
  EXPECT_EQ(json["policies"][0]["exploration"], nlohmann::ordered_json({{"epsilon", 0.5}}));
  EXPECT_EQ(json["policies"][1]["exploration"], nlohmann::ordered_json::object());
}

TEST(StatusTextTest, DroppedRowsAreToldByCauseAndPolicy) {
  rpc::RunStatus status = Rivals();
  status.learner.progress.rows.dropped = 1200;
  status.learner.progress.rows.aged = 1100;
  status.policies[0].rows.trained = 50;
  status.policies[0].rows.dropped = 1200;
  status.policies[0].rows.aged = 1100;
  EXPECT_THAT(StatusText(status), HasSubstr("1,200 dropped (1,100 too old), "));
  const nlohmann::ordered_json json = StatusJson(status);
  EXPECT_EQ(json["rows"]["aged"], 1100);
  EXPECT_EQ(json["policies"][0]["rows_trained"], 50);
  EXPECT_EQ(json["policies"][0]["rows_dropped"], 1200);
  EXPECT_EQ(json["policies"][0]["rows_aged"], 1100);
  EXPECT_EQ(json["policies"][1]["rows_aged"], 0);
}

TEST(StatusTextTest, ProgramsGetRowsByLearnGroup) {
  rpc::RunStatus status;
  EXPECT_EQ(StatusJson(status)["groups"], nlohmann::ordered_json::array());
  status.learner.books.groups = {{policy::GroupId("team"), 20, 1, 16, 1, 2, 30}};
  status.learner.books.groupless = {policy::GroupId(), 5, 2, 3, 0, 0, 3};
  const nlohmann::ordered_json groups = StatusJson(status)["groups"];
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[0].dump(),
            R"({"group_id":"team","accepted":20,"queued":1,"trained":16,"aged":1,"evicted":2,"uses":30})");
  EXPECT_EQ(groups[1]["group_id"], "");
  EXPECT_EQ(groups[1]["queued"], 2);
}

TEST(StatusTextTest, WhatWhoeverAnswersSaysIsCut) {
  const std::string endless(3'000'000, 'x');
  const std::string cut = std::string(kMaxStatusTextBytes, 'x') + "...";
  for (const auto& set : {
           +[](const std::string&text, rpc::RunStatus*status) { status->learner.state = text; },
           +[](const std::string&text, rpc::RunStatus*status) { status->learner.reason = text; },
           +[](const std::string&text, rpc::RunStatus*status) { status->run_name = text; },
           +[](const std::string&text, rpc::RunStatus*status) { status->build_version = text; },
           +[](const std::string&text, rpc::RunStatus*status) { status->degraded.push_back(text); },
           +[](const std::string&text, rpc::RunStatus*status) { status->workers.emplace_back().name = text; },
           +[](const std::string&text, rpc::RunStatus*status) {
             rpc::ConnectedWorker& worker = status->workers.emplace_back();
             worker.gets_no_work = true;
             worker.worker.gets_no_work = text;
           },
           +[](const std::string&text, rpc::RunStatus*status) { AddPolicy(text, 1, 0, status); },
           +[](const std::string&text, rpc::RunStatus*status) {
             status->learner.books.groups.emplace_back().id = policy::GroupId(text);
           },
       }) {
    rpc::RunStatus status;
    status.learner.progress.rewards_differ = true;
    set(endless, &status);
    const std::string json = StatusJson(status).dump();
    EXPECT_LT(json.size(), 2 * kMaxStatusTextBytes);
    EXPECT_THAT(json, HasSubstr(absl::StrCat("\"", cut, "\"")));
    EXPECT_LT(StatusText(status).size(), 3 * kMaxStatusTextBytes);
  }
}

}  // namespace
}  // namespace troupe::cli
