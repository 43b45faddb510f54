// What a query may ask for beside rows goes over the wire and back.

#include <unistd.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "lib/rpc/serve/query_client.h"
#include "lib/rpc/serve/query_codec.h"
#include "lib/rpc/serve/query_server.h"
#include "lib/rpc/testing/raw_call.h"
#include "lib/serving/query_engine.h"
#include "lib/serving/testing/query_builder.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::rpc {
namespace {

using serving::OwnedRows;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr absl::Duration kPatience = absl::Seconds(20);

class QueryAskingTest : public testing::Test {
 protected:
  QueryAskingTest() {
    walker_ = serving::WithCore(
        serving::MakeSpec("walker", *space::Space::Box(-1, 1, {3}),
                          *space::Space::Tuple({*space::Space::Discrete(3), *space::Space::Box(-1, 1, {2})})),
        policy::CoreKind::kGru);
    engine_ = *serving::QueryEngine::Create({walker_}, {});
    EXPECT_EQ(
        engine_->SetPolicies(**policy::PolicyTable::Make({walker_}, {false}, {{"*", {{walker_.id, 1.0}}}}, {"a", "b"})),
        absl::OkStatus());
    EXPECT_EQ(engine_->SetWeights(serving::MakeWeights(walker_, 3)), absl::OkStatus());
    EXPECT_EQ(engine_->SetLabel("best", {{"walker", {{1, 2}, serving::MakeWeights(walker_, 2)}}}), absl::OkStatus());
    server_ = *QueryServer::Start({address_}, {}, engine_.get());
    client_ = *QueryClient::Create(address_, {});
    rows_ = serving::MakeRows(walker_, 2);
  }
  absl::StatusOr<serving::PolicyActions> AskServer(const serving::ActionQuery& query) {
    absl::StatusOr<serving::ActionAnswer> answer = client_->ComputeActions(query, kPatience);
    if (!answer.ok()) return answer.status();
    return std::move((*answer)[0]);
  }

  const std::string address_ = absl::StrCat("unix-abstract:troupe-asking-", getpid(), "-",
                                            testing::UnitTest::GetInstance()->current_test_info()->name());
  policy::PolicySpec walker_;
  OwnedRows rows_;
  std::unique_ptr<serving::QueryEngine> engine_;
  std::unique_ptr<QueryServer> server_;
  std::unique_ptr<QueryClient> client_;
};

TEST_F(QueryAskingTest, EverythingAtOnce) {
  rows_.policy_id = "";
  rows_.agent_ids = {"b", "a"};
  rows_.version = "best";
  rows_.min_version = {1, 2};
  serving::ActionQuery query = serving::Ask({&rows_}, false);
  query.seed = 0;
  query.outputs = {"action", "log_prob", "logits", "mean", "state_out"};
  const auto got = AskServer(query);
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(got->policy_id.value(), "walker");
  EXPECT_EQ(got->version.n, 2);
  EXPECT_TRUE(got->sampled_actions.empty());
  EXPECT_EQ(got->logits.size(), 6u);
  EXPECT_EQ(got->mean.size(), 4u);
  EXPECT_NE(got->state_tag, 0u);
  const serving::PolicyActions expected = (*engine_->Compute(query))[0];
  EXPECT_EQ(serving::Values(*got), serving::Values(expected));
  EXPECT_EQ(got->logits, expected.logits);
  EXPECT_EQ(got->mean, expected.mean);
  EXPECT_EQ(got->state_tag, expected.state_tag);
  EXPECT_EQ(serving::Values(*AskServer(query)), serving::Values(*got)) << "the same seed";

  rows_.state_in = got->state_out;
  rows_.state_tag = got->state_tag + 1;
  const absl::Status refused = AskServer(serving::Ask({&rows_}, false)).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("state_in is of another policy or network"));
  rows_.version = "";
  rows_.state_tag = got->state_tag;
  rows_.min_version = {1, 9};
  EXPECT_EQ(AskServer(serving::Ask({&rows_}, false)).status().code(), absl::StatusCode::kUnavailable);
}

TEST_F(QueryAskingTest, WhatThereIsIsListedAndDescribed) {
  const auto listed = client_->ListPolicies(kPatience);
  ASSERT_TRUE(listed.ok()) << listed.status();
  ASSERT_EQ(listed->policies.size(), 1u);
  EXPECT_EQ(listed->policies[0].policy_id.value(), "walker");
  EXPECT_EQ(listed->policies[0].version.n, 3);
  ASSERT_EQ(listed->policies[0].versions.size(), 1u);
  EXPECT_EQ(listed->policies[0].versions[0].label, "best");
  const serving::PolicyDescription described = client_->DescribePolicies({}, kPatience)->policies[0];
  EXPECT_EQ(described.network, "mlp+gru [16, 16] tanh, gru of 1 x 5, then []");
  EXPECT_THAT(described.outputs, ElementsAre("action", "sampled_action", "log_prob", "state_out", "logits", "mean"));
  EXPECT_EQ(described.logits_size, 3);
  EXPECT_EQ(described.mean_size, 2);
  EXPECT_EQ(described.versions[0].version.n, 2);
}

TEST_F(QueryAskingTest, ClientsOfTodayAreAnsweredAsToday) {
  // policies [{policy_id, rows 1, obs_dtype FLOAT32, obs}], deterministic: no field that is new.
  std::string rows = std::string("\x0a\x06walker\x10\x01\x18\x01\x22\x0c", 14) + std::string(12, '\0');
  const std::string request = std::string("\x0a") + static_cast<char>(rows.size()) + rows + std::string("\x10\x01", 2);
  const auto answer = RawCall(address_, "/troupe.v1.Query/ComputeActions", request);
  ASSERT_TRUE(answer.ok()) << answer.status();
  v1::ComputeActionsReply reply;
  ASSERT_TRUE(reply.ParseFromString(*answer));
  EXPECT_EQ(reply.policies(0).actions().size(), 12u);
  EXPECT_EQ(reply.policies(0).sampled_actions().size(), 12u);
  EXPECT_EQ(reply.policies(0).action_logp_size(), 1);
  EXPECT_EQ(reply.policies(0).state_out().size(), 20u);
  EXPECT_TRUE(reply.policies(0).logits().empty());
}

TEST_F(QueryAskingTest, AnAnswerOfAnotherShapeIsRefused) {
  serving::ActionQuery query = serving::Ask({&rows_}, true);
  query.outputs = {"action", "logits"};
  v1::ComputeActionsReply good;
  ToProto(*engine_->Compute(query), &good);
  EXPECT_EQ(FromProto(good, query).status(), absl::OkStatus());
  const auto refused = [&](const std::function<void(v1::QueryActions&)>& spoil) {
    v1::ComputeActionsReply reply = good;
    spoil(*reply.mutable_policies(0));
    return FromProto(reply, query).status().code() == absl::StatusCode::kInvalidArgument;
  };
  EXPECT_TRUE(refused([](auto& r) { r.mutable_logits()->pop_back(); }));
  EXPECT_TRUE(refused([](auto& r) { r.set_mean("abc"); }));
  EXPECT_TRUE(refused([](auto& r) { r.set_sampled_actions(r.actions()); })) << "nobody asked for it";
  EXPECT_TRUE(refused([](auto& r) { r.clear_actions(); }));
  EXPECT_TRUE(refused([](auto& r) { r.add_values(1); })) << "nobody asked for it";
  query.outputs = {"action", "value"};
  EXPECT_TRUE(refused([](auto&) {})) << "asked for, and not there";
  for (const float value : {2.5f, -1.0f}) good.mutable_policies(0)->add_values(value);
  EXPECT_EQ((*FromProto(good, query))[0].values, (std::vector<float>{2.5, -1.0}));
  good.mutable_policies(0)->clear_values();
  rows_.policy_id = "";
  rows_.agent_ids = {"a"};
  query = serving::Ask({&rows_}, true);
  query.outputs = {"action", "logits"};
  EXPECT_EQ(FromProto(good, query).status(), absl::OkStatus());
  EXPECT_TRUE(refused([](auto& r) { r.set_policy_id("../walker"); }));
}

}  // namespace
}  // namespace troupe::rpc
