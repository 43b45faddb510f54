// Query over a Unix socket: a policy server's and a learner's, with the real engine behind it.

#include "lib/rpc/serve/query_service.h"

#include <unistd.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <future>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "lib/base/clock.h"
#include "lib/base/mutex.h"
#include "lib/rpc/learner/learner_server.h"
#include "lib/rpc/serve/query_client.h"
#include "lib/rpc/serve/query_codec.h"
#include "lib/rpc/serve/query_server.h"
#include "lib/rpc/testing/fake_endpoint.h"
#include "lib/rpc/testing/peak_memory.h"
#include "lib/rpc/testing/raw_call.h"
#include "lib/rpc/transport/limits.h"
#include "lib/sample/testing/batch_maker.h"
#include "lib/serving/query_engine.h"
#include "lib/serving/testing/query_builder.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::rpc {
namespace {

using serving::MakeRows;
using serving::MakeSpec;
using serving::OwnedRows;
using space::Space;

constexpr absl::Duration kTimeout = absl::Seconds(20);

std::string Address(const char* what = "") {
  return absl::StrCat("unix-abstract:troupe-query-", getpid(), "-", what,
                      testing::UnitTest::GetInstance()->current_test_info()->name());
}

std::vector<policy::PolicySpec> Specs() {
  policy::PolicySpec masked = MakeSpec("masked", *Space::Box(-1, 1, {4}), *Space::MultiDiscrete({3, 2}));
  masked.has_action_mask = true;
  masked.agent_id_size = 3;
  return {MakeSpec("arm", *Space::Box(-1, 1, {3}), *Space::Box(-0.2, 0.2, {2})),
          MakeSpec("image", *Space::Box(0, 255, {2, 2}, tensor::DType::kUint8), *Space::Discrete(3)), masked};
}

/// What the server at `address` says to `bytes` as a request.
absl::StatusOr<std::string> SendRaw(const std::string& bytes, const std::string& address = Address()) {
  return RawCall(address, "/troupe.v1.Query/ComputeActions", bytes);
}

void ExpectSameWords(const std::vector<space::ActionWord>& a, const std::vector<space::ActionWord>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) EXPECT_EQ(a[i].i32, b[i].i32) << "word " << i;
}

class QueryServiceTest : public testing::Test {
 protected:
  QueryServiceTest() : specs_(Specs()) {
    engine_ = *serving::QueryEngine::Create(specs_, {});
    for (const auto& spec : specs_) EXPECT_EQ(engine_->SetWeights(serving::MakeWeights(spec, 3)), absl::OkStatus());
    server_ = *QueryServer::Start({Address()}, {}, engine_.get());
    client_ = *QueryClient::Create(Address(), {});
  }

  const std::vector<policy::PolicySpec> specs_;
  const OwnedRows good_ = MakeRows(specs_[0], 2);
  std::unique_ptr<serving::QueryEngine> engine_;
  std::unique_ptr<QueryServer> server_;
  std::unique_ptr<QueryClient> client_;
};

TEST_F(QueryServiceTest, DescribesThePoliciesToWhoeverMayAskThem) {
  const std::vector<std::string> agents = {"a", "b", "c"};
  ASSERT_EQ(engine_->SetPolicies(**policy::PolicyTable::Make(
                specs_, {false, false, false}, {{"a", {{specs_[2].id, 1.0}}}, {"*", {{specs_[0].id, 1.0}}}}, agents)),
            absl::OkStatus());
  const auto described = client_->DescribePolicies({}, kTimeout);
  ASSERT_TRUE(described.ok()) << described.status();
  EXPECT_EQ(described->agent_ids, agents);
  const serving::PolicyDescriptions expected = *engine_->DescribePolicies({});
  ASSERT_EQ(described->policies.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    const serving::PolicyDescription& got = described->policies[i];
    const serving::PolicyDescription& want = expected.policies[i];
    EXPECT_EQ(got.policy_id, want.policy_id);
    EXPECT_EQ(got.version, (policy::WeightVersion{1, 3}));
    EXPECT_EQ(got.observation_space, want.observation_space);
    EXPECT_EQ(got.action_space, want.action_space);
    EXPECT_EQ(got.obs_dtype, want.obs_dtype);
    EXPECT_EQ(got.observation_size, want.observation_size);
    EXPECT_EQ(got.mask_size, want.mask_size);
    EXPECT_EQ(got.word_dtypes, want.word_dtypes);
    EXPECT_EQ(got.needs_agent_slots, want.needs_agent_slots);
    EXPECT_EQ(got.agent_slots, want.agent_slots);
  }
  EXPECT_EQ(client_->DescribePolicies({specs_[1].id}, kTimeout)->policies.size(), 1u);
  EXPECT_EQ(client_->DescribePolicies({policy::PolicyId("nobody")}, kTimeout).status().code(),
            absl::StatusCode::kNotFound);
}

TEST_F(QueryServiceTest, ADescriptionHoldsNothingOfAPolicysCode) {
  policy::PolicySpec hosted = MakeSpec("hosted", *Space::Box(-1, 1, {3}), *Space::Discrete(2));
  hosted.policy_class = *policy::ParsePolicyClass("python:canary_module:canary_name");
  const policy::PolicyTablePtr table =
      *policy::PolicyTable::Make({hosted}, {false}, {{"*", {}, "python:canary_module:canary_name"}}, {"agent"});
  ASSERT_EQ(engine_->SetPolicies(*table), absl::OkStatus());
  const std::string reply = *RawCall(Address(), "/troupe.v1.Query/DescribePolicies", "");
  EXPECT_NE(reply.find("hosted"), std::string::npos);
  EXPECT_EQ(reply.find("canary"), std::string::npos);
}

TEST_F(QueryServiceTest, BytesThatAskForNoDescriptionEndTheCallOnly) {
  const auto ask = [](const std::string& bytes) {
    return RawCall(Address(), "/troupe.v1.Query/DescribePolicies", bytes).status().code();
  };
  EXPECT_NE(ask(std::string(100, '\xff')), absl::StatusCode::kOk);
  v1::DescribePoliciesRequest request;
  for (int i = 0; i < 1025; ++i) request.add_policy_ids("arm");
  EXPECT_EQ(ask(request.SerializeAsString()), absl::StatusCode::kResourceExhausted);
  request.clear_policy_ids();
  request.add_policy_ids("../arm");
  EXPECT_EQ(ask(request.SerializeAsString()), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ask(""), absl::StatusCode::kOk) << "all of them";
}

// Over TCP the message is cut off before gRPC takes memory for it; the code is the one that gRPC would give.
TEST_F(QueryServiceTest, OverTcpATooLargeRequestIsResourceExhausted) {
  const std::unique_ptr<QueryServer> server = *QueryServer::Start({"127.0.0.1:0"}, {}, engine_.get());
  const std::unique_ptr<QueryClient> client = *QueryClient::Create(server->addresses()[0], {});
  EXPECT_TRUE(client->ComputeActions(serving::Ask({&good_}, true), kTimeout).ok());
  const absl::Status refused = SendRaw(std::string(kMaxMessageBytes + 1, 'x'), server->addresses()[0]).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted) << refused;
  EXPECT_TRUE(client->ComputeActions(serving::Ask({&good_}, true), kTimeout).ok()) << "other connections go on";
}

TEST_F(QueryServiceTest, StandardHealthCheckSaysServing) {
  const absl::StatusOr<std::string> reply = RawCall(Address(), "/grpc.health.v1.Health/Check", "");
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(*reply, std::string("\x08\x01", 2));  // HealthCheckResponse{status SERVING}
}

TEST_F(QueryServiceTest, AnswersAsTheEngine) {
  std::vector<OwnedRows> rows;
  std::vector<const OwnedRows*> pointers;
  for (const auto& spec : specs_) rows.push_back(MakeRows(spec, 5));
  for (const OwnedRows& owned : rows) pointers.push_back(&owned);
  const auto answer = client_->ComputeActions(serving::Ask(pointers, true), kTimeout);
  ASSERT_TRUE(answer.ok()) << answer.status();
  const auto expected = engine_->Compute(serving::Ask(pointers, true));
  ASSERT_EQ(answer->size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    const serving::PolicyActions& got = (*answer)[i];
    const serving::PolicyActions& want = (*expected)[i];
    EXPECT_EQ(got.policy_id, want.policy_id);
    EXPECT_EQ(got.version, (policy::WeightVersion{1, 3}));
    EXPECT_EQ(got.rows, 5);
    EXPECT_EQ(got.word_dtypes, want.word_dtypes);
    ExpectSameWords(got.actions, want.actions);
    ExpectSameWords(got.sampled_actions, want.sampled_actions);
    EXPECT_EQ(got.logp, want.logp);
  }
}

TEST_F(QueryServiceTest, SamplesUnlessToldOtherwise) {
  const v1::ComputeActionsRequest request = ToProto(serving::Ask({&good_}, false));
  v1::ComputeActionsReply first, second;
  ASSERT_TRUE(first.ParseFromString(*SendRaw(request.SerializeAsString())));
  ASSERT_TRUE(second.ParseFromString(*SendRaw(request.SerializeAsString())));
  EXPECT_NE(first.policies(0).action_logp(0), second.policies(0).action_logp(0));
}

TEST_F(QueryServiceTest, RefusesBadQueriesAndGoesOn) {
  struct Case {
    const char* what;
    std::function<void(v1::QueryRows&)> spoil;
    absl::StatusCode code;
  };
  const auto invalid = absl::StatusCode::kInvalidArgument;
  const Case cases[] = {
      {"unknown policy", [](auto& r) { r.set_policy_id("nobody"); }, absl::StatusCode::kNotFound},
      {"empty id", [](auto& r) { r.clear_policy_id(); }, invalid},
      {"id of a path", [](auto& r) { r.set_policy_id("../masked"); }, invalid},
      {"long id", [](auto& r) { r.set_policy_id(std::string(200, 'm')); }, invalid},
      {"no rows", [](auto& r) { r.set_rows(0); }, invalid},
      {"more rows than obs", [](auto& r) { r.set_rows(3); }, invalid},
      {"too many rows", [](auto& r) { r.set_rows(0xffffffffu); }, absl::StatusCode::kResourceExhausted},
      {"no dtype", [](auto& r) { r.clear_obs_dtype(); }, invalid},
      {"another dtype", [](auto& r) { r.set_obs_dtype(v1::DTYPE_FLOAT64); }, invalid},
      {"a dtype that is float32 in its last byte", [](auto& r) { r.set_obs_dtype(static_cast<v1::DType>(257)); },
       invalid},
      {"odd bytes", [](auto& r) { r.mutable_obs()->pop_back(); }, invalid},
      {"not finite", [](auto& r) { std::memset(&(*r.mutable_obs())[4], 0xff, 4); }, invalid},
      {"mask of another shape", [](auto& r) { r.mutable_action_mask()->push_back(1); }, invalid},
      {"mask that forbids all", [](auto& r) { r.set_action_mask(std::string(10, '\0')); }, invalid},
      {"slots missing", [](auto& r) { r.clear_agent_slots(); }, invalid},
      {"slot out of range", [](auto& r) { r.set_agent_slots(1, -1); }, invalid},
  };
  const OwnedRows masked = MakeRows(specs_[2], 2);
  for (const Case& test : cases) {
    v1::ComputeActionsRequest request = ToProto(serving::Ask({&masked, &masked}, true));
    test.spoil(*request.mutable_policies(1));
    const absl::Status status = SendRaw(request.SerializeAsString()).status();
    EXPECT_EQ(status.code(), test.code) << test.what << ": " << status;
  }
  OwnedRows unknown = masked;
  unknown.policy_id = "nobody";
  const absl::Status status = client_->ComputeActions(serving::Ask({&unknown}, true), kTimeout).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_NE(status.message().find(absl::StrCat("server at ", Address(), ": there is no policy \"nobody\"")),
            std::string::npos)
      << status;
  EXPECT_EQ(client_->ComputeActions(serving::Ask({&masked}, true), kTimeout).status(), absl::OkStatus());
}

TEST_F(QueryServiceTest, PoliciesComeAndGoWhileTheServerAnswers) {
  const policy::PolicySpec late = MakeSpec("late", *Space::Box(-1, 1, {3}), *Space::Discrete(2));
  const OwnedRows rows = MakeRows(late, 1);
  const auto ask = [&] { return client_->ComputeActions(serving::Ask({&rows}, true), kTimeout).status().code(); };
  EXPECT_EQ(ask(), absl::StatusCode::kNotFound);
  policy::PolicyTablePtr table =
      *policy::PolicyTable::Make(specs_, {false, false, false}, {{"*", {{specs_[0].id, 1.0}}}}, {"agent"});
  table = *table->Add(late, false);
  ASSERT_EQ(engine_->SetPolicies(*table), absl::OkStatus());
  EXPECT_EQ(ask(), absl::StatusCode::kUnavailable) << "no weights yet";
  ASSERT_EQ(engine_->SetWeights(serving::MakeWeights(late, 1)), absl::OkStatus());
  EXPECT_EQ(ask(), absl::StatusCode::kOk);
  ASSERT_EQ(engine_->SetPolicies(**table->Remove(late.id)), absl::OkStatus());
  EXPECT_EQ(ask(), absl::StatusCode::kNotFound);
  EXPECT_EQ(client_->ComputeActions(serving::Ask({&good_}, true), kTimeout).status(), absl::OkStatus());
}

/// A checkpoint whose policy "arm" is damaged.
class DamagedSource final : public serving::WeightSource {
 public:
  absl::StatusOr<policy::WeightSnapshotPtr> Load(const policy::PolicySpec& spec) override {
    if (spec.id.value() == "arm") return absl::DataLossError("the weights of policy \"arm\" fail their checksum");
    return serving::MakeWeights(spec, 3);
  }
};

TEST(QueryServerTest, APolicyWhoseWeightsAreLostFailsAlone) {
  const std::vector<policy::PolicySpec> specs = Specs();
  DamagedSource source;
  const auto engine = *serving::QueryEngine::Create(specs, {.policy_map_capacity = 1, .source = &source});
  const auto server = *QueryServer::Start({Address()}, {}, engine.get());
  const auto client = *QueryClient::Create(Address(), {});
  for (const size_t p : {1, 0, 2, 0}) {
    const OwnedRows rows = MakeRows(specs[p], 1);
    const absl::Status status = client->ComputeActions(serving::Ask({&rows}, true), kTimeout).status();
    EXPECT_EQ(status.code(), p == 0 ? absl::StatusCode::kDataLoss : absl::StatusCode::kOk) << status;
  }
}

TEST_F(QueryServiceTest, BytesThatAreNoRequestEndTheCallOnly) {
  EXPECT_FALSE(SendRaw(std::string(100, '\xff')).ok());
  EXPECT_EQ(SendRaw("").status().code(), absl::StatusCode::kInvalidArgument) << "an empty request asks nobody";
  EXPECT_EQ(SendRaw(std::string(6 << 20, '\0')).status().code(), absl::StatusCode::kResourceExhausted) << "above 5 MiB";
  const std::string bytes = ToProto(serving::Ask({&good_}, false)).SerializeAsString();
  for (size_t size = 1; size < bytes.size(); ++size) EXPECT_FALSE(SendRaw(bytes.substr(0, size)).ok()) << size;
  EXPECT_EQ(SendRaw(bytes).status(), absl::OkStatus());
}

// Two bytes on the wire, an empty element or a field that nobody knows, took a hundred in memory: 500 MiB for 5 MB.
TEST_F(QueryServiceTest, MessagesOfEmptyElementsAreRefusedUnread) {
  const PeakMemory peak;
  for (const char* const method : {"/troupe.v1.Query/ComputeActions", "/troupe.v1.Query/DescribePolicies"}) {
    for (const std::string& piece :
         {std::string("\x0a\x00", 2), std::string("\x78\x00", 2), std::string("\x7a\x00", 2)}) {
      std::string flood;
      while (flood.size() < kMaxMessageBytes - 2) flood += piece;
      const absl::Status refused = RawCall(Address(), method, flood).status();
      EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted) << method << ": " << refused;
      EXPECT_THAT(std::string(refused.message()),
                  testing::HasSubstr(" elements and texts, which are all that it needs"))
          << method;
    }
  }
  EXPECT_LT(peak.growth_bytes(), (int64_t{64} << 20) + kKeptBySanitizerBytes) << "this process is the client, too";
  EXPECT_TRUE(client_->ComputeActions(serving::Ask({&good_}, true), kTimeout).ok());
}

TEST_F(QueryServiceTest, ALearnerAnswersWhereItHasAnEngine) {
  FakeEndpoint endpoint;
  base::FakeClock clock;
  for (serving::ActionQueries* queries :
       {static_cast<serving::ActionQueries*>(engine_.get()), static_cast<serving::ActionQueries*>(nullptr)}) {
    LearnerServerOptions options;
    options.addresses = {Address("learner")};
    options.schema = sample::SimpleSchema();
    options.queries = queries;
    auto server = LearnerServer::Start(std::move(options), &endpoint, &endpoint, &clock);
    ASSERT_TRUE(server.ok()) << server.status();
    const auto client = *QueryClient::Create(Address("learner"), {});
    EXPECT_EQ(client->ComputeActions(serving::Ask({&good_}, true), kTimeout).status().code(),
              queries == nullptr ? absl::StatusCode::kUnimplemented : absl::StatusCode::kOk);
    EXPECT_EQ(client->DescribePolicies({}, kTimeout).status().code(),
              queries == nullptr ? absl::StatusCode::kUnimplemented : absl::StatusCode::kOk);
    (*server)->Shutdown(absl::Seconds(1));
  }
}

/// Answers when it is told to, from another thread.
class SlowQueries final : public serving::ActionQueries {
 public:
  GiveUp ComputeActions(const serving::ActionQuery&, Done done) override {
    asked_.set_value(std::move(done));
    return nullptr;
  }
  absl::StatusOr<serving::PolicyDescriptions> DescribePolicies(const std::vector<policy::PolicyId>&) override {
    return absl::UnimplementedError("");
  }
  serving::PolicyDescriptions ListPolicies() override { return {}; }
  std::promise<Done> asked_;
};

TEST(QueryServerTest, ShutdownAnswersWhatItHolds) {
  SlowQueries slow;
  auto server = *QueryServer::Start({Address()}, {}, &slow);
  absl::StatusOr<serving::ActionAnswer> answer = absl::UnknownError("");
  std::thread asker([&] {
    const auto client = *QueryClient::Create(Address(), {});
    serving::ActionQuery query;
    query.policies.emplace_back().policy_id = policy::PolicyId("late");
    answer = client->ComputeActions(query, kTimeout);
  });
  const auto done = slow.asked_.get_future().get();
  std::thread ender([&] { server->Shutdown(kTimeout); });
  serving::PolicyActions actions;
  actions.policy_id = policy::PolicyId("late");
  done(serving::ActionAnswer{actions});
  ender.join();
  asker.join();
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ((*answer)[0].policy_id.value(), "late");
}

/// Answers from another thread, at the same time as it says that it has not yet.
class RacingQueries final : public serving::ActionQueries {
 public:
  ~RacingQueries() override {
    for (std::thread& thread : threads_) thread.join();
  }
  GiveUp ComputeActions(const serving::ActionQuery& /*query*/, Done done) override {
    base::MutexLock lock(&mutex_);
    threads_.emplace_back([done = std::move(done)] {
      serving::PolicyActions actions;
      actions.policy_id = policy::PolicyId("racing");
      done(serving::ActionAnswer{actions});
    });
    if (threads_.size() % 2 == 0) std::this_thread::yield();
    return [] {};
  }
  absl::StatusOr<serving::PolicyDescriptions> DescribePolicies(const std::vector<policy::PolicyId>&) override {
    return absl::UnimplementedError("");
  }
  serving::PolicyDescriptions ListPolicies() override { return {}; }

 private:
  base::Mutex mutex_;
  std::vector<std::thread> threads_ ABSL_GUARDED_BY(mutex_);
};

TEST(QueryServerTest, AnAnswerThatComesWhileTheCallBeginsIsGivenOnce) {
  RacingQueries racing;
  const auto server = *QueryServer::Start({Address()}, {}, &racing);
  std::vector<std::thread> askers;
  std::atomic<int> answered{0};
  for (int i = 0; i < 4; ++i) {
    askers.emplace_back([&] {
      const auto client = *QueryClient::Create(Address(), {});
      serving::ActionQuery query;
      query.policies.emplace_back().policy_id = policy::PolicyId("racing");
      for (int call = 0; call < 50; ++call) answered += client->ComputeActions(query, kTimeout).ok() ? 1 : 0;
    });
  }
  for (std::thread& asker : askers) asker.join();
  EXPECT_EQ(answered, 200);
}

TEST(QueryServerTest, WhatAPolicyRemembersGoesThereAndBack) {
  const policy::PolicySpec walker = serving::WithCore(
      MakeSpec("walker", *Space::Box(-1, 1, {3}), *Space::Box(-0.2, 0.2, {2})), policy::CoreKind::kLstm);
  const policy::PolicySpec plain = Specs()[0];
  const auto engine = *serving::QueryEngine::Create({walker, plain}, {});
  for (const auto& spec : {walker, plain}) {
    ASSERT_EQ(engine->SetWeights(serving::MakeWeights(spec, 3)), absl::OkStatus());
  }
  const auto server = *QueryServer::Start({Address()}, {}, engine.get());
  const auto client = *QueryClient::Create(Address(), {});
  const auto described = client->DescribePolicies({}, kTimeout);
  ASSERT_TRUE(described.ok()) << described.status();
  EXPECT_EQ(described->policies[0].state_size, 0);
  EXPECT_EQ(described->policies[1].state_size, 10);

  OwnedRows rows = MakeRows(walker, 2);
  const OwnedRows of_plain = MakeRows(plain, 1);
  std::vector<std::vector<float>> states;
  for (int step = 0; step < 3; ++step) {
    const auto answer = client->ComputeActions(serving::Ask({&of_plain, &rows}, true), kTimeout);
    ASSERT_TRUE(answer.ok()) << answer.status();
    EXPECT_TRUE((*answer)[0].state_out.empty());
    EXPECT_EQ(serving::Values((*answer)[1]), serving::Values((*engine->Compute(serving::Ask({&rows}, true)))[0]));
    ASSERT_EQ((*answer)[1].state_out.size(), 20u);
    states.push_back((*answer)[1].state_out);
    rows.state_in = states.back();
  }
  EXPECT_NE(states[0], states[1]);
  EXPECT_NE(states[1], states[2]);

  const std::function<void(v1::QueryRows&)> faults[] = {
      [](auto& r) { r.mutable_state_in()->pop_back(); },
      [](auto& r) { r.mutable_state_in()->append(4, '\0'); },
      [](auto& r) { r.set_rows(1); },
      [](auto& r) { std::memset(&(*r.mutable_state_in())[76], 0xff, 4); },
      [](auto& r) { r.set_policy_id("arm"); },
  };
  for (const auto& spoil : faults) {
    v1::ComputeActionsRequest request = ToProto(serving::Ask({&rows}, true));
    spoil(*request.mutable_policies(0));
    EXPECT_EQ(SendRaw(request.SerializeAsString()).status().code(), absl::StatusCode::kInvalidArgument)
        << request.DebugString();
  }
  EXPECT_TRUE(client->ComputeActions(serving::Ask({&rows}, true), kTimeout).ok());
}

TEST(QueryServerTest, RefusesBadAddresses) {
  SlowQueries queries;
  const auto code = [&](const std::vector<std::string>& addresses) {
    return QueryServer::Start(addresses, {}, &queries).status().code();
  };
  EXPECT_EQ(code({}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({"nonsense"}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({"0.0.0.0:0"}), absl::StatusCode::kFailedPrecondition);
  const auto server = *QueryServer::Start({"127.0.0.1:0"}, {}, &queries);
  EXPECT_EQ(code({server->addresses()[0]}), absl::StatusCode::kAlreadyExists);
}

TEST(QueryCodecTest, AnswersThatDoNotFitTheQueryAreRefused) {
  serving::ActionQuery query;
  serving::QueryRows rows;
  rows.policy_id = policy::PolicyId("p");
  rows.rows = 2;
  query.policies = {rows};
  const auto good = [] {
    v1::ComputeActionsReply reply;
    v1::QueryActions* policy = reply.add_policies();
    policy->set_policy_id("p");
    policy->set_rows(2);
    policy->add_action_dtypes(v1::DTYPE_INT32);
    policy->set_actions(std::string(8, 'a'));
    policy->set_sampled_actions(std::string(8, 'a'));
    policy->add_action_logp(0);
    policy->add_action_logp(0);
    policy->set_state_out(std::string(8, '\0'));
    return reply;
  };
  EXPECT_EQ(FromProto(good(), query).status(), absl::OkStatus());
  const std::vector<float> state(2);
  query.policies[0].state_in = absl::MakeConstSpan(reinterpret_cast<const std::byte*>(state.data()), 8);
  EXPECT_EQ(FromProto(good(), query)->at(0).state_out, state);
  v1::ComputeActionsReply wider = good();
  wider.mutable_policies(0)->set_state_out(std::string(16, '\0'));
  EXPECT_EQ(FromProto(wider, query).status().code(), absl::StatusCode::kInvalidArgument);
  query.policies[0].state_in = {};
  EXPECT_EQ(FromProto(wider, query)->at(0).state_out.size(), 4u) << "the first decision: as wide as the policy says";
  const std::function<void(v1::ComputeActionsReply&)> faults[] = {
      [](auto& r) { r.clear_policies(); },
      [](auto& r) { r.add_policies(); },
      [](auto& r) { r.mutable_policies(0)->set_policy_id("q"); },
      [](auto& r) { r.mutable_policies(0)->set_rows(3); },
      [](auto& r) { r.mutable_policies(0)->mutable_actions()->pop_back(); },
      [](auto& r) { r.mutable_policies(0)->mutable_sampled_actions()->push_back('a'); },
      [](auto& r) { r.mutable_policies(0)->clear_action_logp(); },
      [](auto& r) { r.mutable_policies(0)->clear_action_dtypes(); },
      [](auto& r) { r.mutable_policies(0)->set_action_dtypes(0, v1::DTYPE_INT64); },
      [](auto& r) { r.mutable_policies(0)->mutable_state_out()->pop_back(); },
      [](auto& r) { r.mutable_policies(0)->mutable_state_out()->append(4, '\0'); },
  };
  for (const auto& fault : faults) {
    v1::ComputeActionsReply reply = good();
    fault(reply);
    EXPECT_EQ(FromProto(reply, query).status().code(), absl::StatusCode::kInvalidArgument) << reply.DebugString();
  }
}

TEST(QueryCodecTest, DescriptionsThatMakeNoSenseAreRefused) {
  const auto good = [] {
    v1::DescribePoliciesReply reply;
    reply.add_agent_ids("a");
    v1::PolicyDescription* policy = reply.add_policies();
    policy->add_action_dtypes(v1::DTYPE_INT32);
    policy->add_agent_slots(0);
    return reply;
  };
  EXPECT_EQ(FromProto(good()).status(), absl::OkStatus());
  const std::function<void(v1::PolicyDescription&)> faults[] = {
      [](auto& p) { p.set_agent_slots(0, 1); },
      [](auto& p) { p.set_agent_slots(0, -1); },
      [](auto& p) { p.set_action_dtypes(0, v1::DTYPE_INT64); },
  };
  for (const auto& fault : faults) {
    v1::DescribePoliciesReply reply = good();
    fault(*reply.mutable_policies(0));
    EXPECT_EQ(FromProto(reply).status().code(), absl::StatusCode::kInvalidArgument) << reply.DebugString();
  }
}

TEST(QueryClientTest, NobodyThereIsUnavailable) {
  const auto client = *QueryClient::Create(Address(), {});
  EXPECT_EQ(client->ComputeActions(serving::ActionQuery(), absl::Seconds(2)).status().code(),
            absl::StatusCode::kUnavailable);
  EXPECT_EQ(QueryClient::Create("192.0.2.1:1", {}).status().code(), absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace troupe::rpc
