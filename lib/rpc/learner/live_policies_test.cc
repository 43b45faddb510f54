// Policies that change under a worker: tables, grants, weights and fragments over real gRPC.

#include <unistd.h>

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/policy/parameter_layout.h"
#include "lib/policy/policy_spec.h"
#include "lib/rpc/learner/learner_server.h"
#include "lib/rpc/testing/fake_endpoint.h"
#include "lib/rpc/worker/worker_client.h"
#include "lib/sample/testing/batch_maker.h"
#include <gtest/gtest.h>

namespace troupe::rpc {
namespace {

using policy::PolicyId;
using policy::PolicySlot;
using policy::PolicyTablePtr;

class LivePoliciesTest : public testing::Test {
 protected:
  void SetUp() override {
    LearnerServerOptions server_options;
    server_options.addresses = {address_};
    server_options.schema = schema_;
    auto server = LearnerServer::Start(std::move(server_options), &endpoint_, &endpoint_, &base::Clock::Real());
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    WorkerClientOptions options;
    options.address = address_;
    options.incarnation = 81;
    options.backoff = {.initial = absl::Milliseconds(5), .max = absl::Milliseconds(50)};
    client_ = *WorkerClient::Create(std::move(options), &base::Clock::Real());
    io_thread_ = std::thread([this] { client_->Run(); });
    ASSERT_TRUE(client_->AwaitWelcome(absl::Seconds(10)).ok());
    std::vector<policy::MappingRule> rules{{"*", {{schema_.policies[PolicySlot(0)].id, 1.0}}}};
    first_ = *policy::PolicyTable::Make(schema_.policies.values(), std::vector<bool>(schema_.policies.size(), true),
                                        std::move(rules), schema_.agent_ids);
    BeforePolicies();
    client_->SetPolicies(schema_.policies, schema_.Hash());
  }
  /// What comes while the worker still reads its configuration.
  virtual void BeforePolicies() {}
  void TearDown() override {
    client_->Close();
    io_thread_.join();
  }
  policy::PolicySpec Spec(const std::string& id, int64_t hidden = 16) const {
    policy::PolicySpec spec = schema_.policies[PolicySlot(0)];
    spec.id = PolicyId(id);
    spec.actor.hidden_sizes = {hidden};
    return spec;
  }
  void Publish(int32_t slot, const policy::PolicySpec& spec, int64_t n, float value) {
    auto snapshot = std::make_shared<policy::WeightSnapshot>();
    snapshot->id = spec.id;
    snapshot->version = {1, n};
    snapshot->actor.assign(static_cast<size_t>(policy::ParameterLayout::For(spec).acting_size()), value);
    server_->weights().Publish(PolicySlot(slot), std::move(snapshot));
  }
  void SendGrant(PolicyTablePtr policies) {
    sample::Grant grant = sample::MakeGrant(4, 25, {1, 0});
    grant.policies = std::move(policies);
    endpoint_.worker(1).port->SendGrant(grant);
  }
  /// The revision of the next grant's table; -1: it has none.
  int64_t NextRevision() {
    const auto grant = client_->AwaitGrant(absl::Seconds(10));
    EXPECT_TRUE(grant.ok()) << grant.status();
    if (!grant.ok() || !grant->has_value()) return -2;
    return (*grant)->policies == nullptr ? -1 : (*grant)->policies->revision();
  }
  float FirstWeight(int32_t slot, int64_t n) {
    const auto weights = client_->AwaitWeights(PolicySlot(slot), {1, n}, absl::Seconds(10));
    EXPECT_TRUE(weights.ok()) << weights.status();
    return weights.ok() ? weights->snapshot->actor[0] : -1;
  }

  const sample::BatchSchema schema_ = sample::SimpleSchema();
  const std::string address_ = absl::StrCat("unix-abstract:troupe-live-", getpid(), "-",
                                            testing::UnitTest::GetInstance()->current_test_info()->name());
  FakeEndpoint endpoint_;
  std::unique_ptr<LearnerServer> server_;
  std::unique_ptr<WorkerClient> client_;
  std::thread io_thread_;
  PolicyTablePtr first_;
};

TEST_F(LivePoliciesTest, ATableComesBeforeTheFirstGrantByItAndOnce) {
  SendGrant(nullptr);
  SendGrant(first_);
  EXPECT_EQ(NextRevision(), -1);
  EXPECT_EQ(NextRevision(), -1) << "the configuration says what revision 0 is";
  const PolicyTablePtr one = *first_->Add(Spec("second"), true);
  const PolicyTablePtr two = *one->Add(Spec("third"), true);
  for (const PolicyTablePtr& table : {one, one, two, one}) SendGrant(table);
  EXPECT_EQ(NextRevision(), 1);
  EXPECT_EQ(NextRevision(), 1);
  EXPECT_EQ(NextRevision(), 2);
  EXPECT_EQ(NextRevision(), 2) << "grants of two threads may cross: the newest table counts";
}

TEST_F(LivePoliciesTest, WeightsFollowTheSlots) {
  Publish(0, schema_.policies[PolicySlot(0)], 0, 0.5f);
  server_->weights().AnnounceVersion({1, 0});
  EXPECT_EQ(FirstWeight(0, 0), 0.5f);
  client_->Subscribe(PolicySlot(1));
  // Weights of a policy that the worker has not heard of yet are dropped, and asked for again with its table.
  const policy::PolicySpec second = Spec("second");
  PolicyTablePtr table = *first_->Add(second, true);
  server_->weights().SetPolicies(table);
  Publish(1, second, 0, 0.25f);
  SendGrant(table);
  EXPECT_EQ(NextRevision(), 1);
  EXPECT_EQ(FirstWeight(1, 0), 0.25f);
  // Another policy in its slot, of another shape.
  table = *table->Remove(second.id);
  const PolicySlot freed[] = {PolicySlot(1)};
  table = *table->Release(freed);
  const policy::PolicySpec third = Spec("third", 24);
  table = *table->Add(third, true);
  server_->weights().SetPolicies(table);
  Publish(1, third, 0, 0.75f);
  SendGrant(table);
  EXPECT_EQ(NextRevision(), table->revision());
  EXPECT_EQ(FirstWeight(1, 0), 0.75f);
  EXPECT_EQ(FirstWeight(0, 0), 0.5f) << "the others stay";
}

/// A worker that is started into a run whose policies have changed.
class LateWorkerTest : public LivePoliciesTest {
 protected:
  void BeforePolicies() override {
    table_ = *first_->Add(second_, true);
    server_->weights().SetPolicies(table_);
    SendGrant(table_);
    EXPECT_EQ(NextRevision(), 1);
  }

  const policy::PolicySpec second_ = Spec("second");
  PolicyTablePtr table_;
};

TEST_F(LateWorkerTest, GetsWeightsOfATableThatCameBeforeItsConfigurationWasRead) {
  client_->Subscribe(PolicySlot(1));
  Publish(1, second_, 0, 0.25f);
  EXPECT_EQ(FirstWeight(1, 0), 0.25f);
}

TEST_F(LivePoliciesTest, AGrantWhosePolicyIsGoneIsOver) {
  const PolicyTablePtr first = *first_->Add(Spec("second"), true);
  server_->weights().SetPolicies(first);
  SendGrant(first);
  EXPECT_EQ(NextRevision(), 1);
  const auto in_time = client_->AwaitWeights(PolicySlot(1), {1, 0}, absl::Milliseconds(1));
  EXPECT_EQ(in_time.status().code(), absl::StatusCode::kDeadlineExceeded);
  // While its weights are waited for the slot gets another policy.
  const PolicySlot freed[] = {PolicySlot(1)};
  const PolicyTablePtr without = *(*first->Remove(PolicyId("second")))->Release(freed);
  const PolicyTablePtr other = *without->Add(Spec("third"), true);
  server_->weights().SetPolicies(other);
  Publish(1, Spec("third"), 0, 0.75f);
  SendGrant(other);
  const auto gone = client_->AwaitWeights(PolicySlot(1), {1, 0}, absl::Seconds(10));
  EXPECT_EQ(gone.status().code(), absl::StatusCode::kAborted) << gone.status();
  EXPECT_EQ(NextRevision(), other->revision());
  EXPECT_EQ(FirstWeight(1, 0), 0.75f);
}

TEST_F(LivePoliciesTest, WhatDidNotChangeIsCurrentAsOfTheAnnouncement) {
  Publish(0, schema_.policies[PolicySlot(0)], 0, 0.5f);
  server_->weights().AnnounceVersion({1, 0});
  EXPECT_EQ(FirstWeight(0, 0), 0.5f);
  server_->weights().AnnounceVersion({1, 7});
  const auto weights = client_->AwaitWeights(PolicySlot(0), {1, 7}, absl::Seconds(10));
  ASSERT_TRUE(weights.ok()) << weights.status();
  EXPECT_EQ(weights->snapshot->version, (policy::WeightVersion{1, 0}));
  EXPECT_EQ(weights->version, (policy::WeightVersion{1, 7}));
  EXPECT_FALSE(client_->AwaitWeights(PolicySlot(0), {1, 8}, absl::Milliseconds(1)).ok());
}

TEST_F(LivePoliciesTest, WhatIsUnsubscribedIsDroppedAndComesBackNew) {
  Publish(0, schema_.policies[PolicySlot(0)], 0, 0.5f);
  server_->weights().AnnounceVersion({1, 0});
  EXPECT_EQ(FirstWeight(0, 0), 0.5f);
  client_->Unsubscribe(PolicySlot(0));
  Publish(0, schema_.policies[PolicySlot(0)], 3, 0.75f);
  server_->weights().AnnounceVersion({1, 3});
  EXPECT_EQ(FirstWeight(0, 3), 0.75f);
  for (int i = 0; i < 50; ++i) {
    client_->Unsubscribe(PolicySlot(0));
    client_->Subscribe(PolicySlot(0));
  }
  EXPECT_EQ(FirstWeight(0, 3), 0.75f) << "changes that cancel each other out";
}

TEST_F(LivePoliciesTest, FragmentsOfNewPoliciesAreTaken) {
  PolicyTablePtr table = *first_->Add(Spec("second"), true);
  server_->weights().SetPolicies(table);
  SendGrant(table);
  EXPECT_EQ(NextRevision(), 1);
  sample::BatchSchema grown = schema_;
  grown.policies = table->Specs();
  auto batch = std::make_shared<sample::MultiAgentBatch>(*sample::MakeBatch(grown, {}, 4, 25));
  batch->policies_revision = 1;
  batch->oldest_revision = 1;
  ASSERT_TRUE(client_->Submit(batch).ok());
  ASSERT_TRUE(endpoint_.AwaitArrivals(1));
  const auto arrivals = endpoint_.arrivals();
  ASSERT_NE(arrivals[0].batch, nullptr) << arrivals[0].why;
  EXPECT_EQ(arrivals[0].batch->policies_revision, 1);
  EXPECT_EQ(arrivals[0].batch->oldest_revision, 1);
  // A revision that cannot be.
  auto bad = std::make_shared<sample::MultiAgentBatch>(*batch);
  bad->oldest_revision = 2;
  ASSERT_TRUE(client_->Submit(bad).ok());
  ASSERT_TRUE(endpoint_.AwaitArrivals(2));
  EXPECT_EQ(endpoint_.arrivals()[1].batch, nullptr);
  EXPECT_NE(std::string(endpoint_.arrivals()[1].why.message()).find("oldest_revision"), std::string::npos);
}

TEST_F(LivePoliciesTest, WhoHadASlotBeforeIsTheLearnersToJudge) {
  const auto with_revision = [this](int64_t revision) {
    auto batch = std::make_shared<sample::MultiAgentBatch>(*sample::MakeBatch(schema_, {}, 4, 25));
    batch->policies_revision = batch->oldest_revision = revision;
    return batch;
  };
  // Slot 0 is freed, then taken by a policy of another observation.
  policy::PolicySpec other = Spec("other");
  PolicyTablePtr table = *(*first_->Add(other, true))->SetMapping({{"*", {{other.id, 1.0}}}});
  table = *table->Remove(schema_.policies[PolicySlot(0)].id);
  const PolicySlot freed[] = {PolicySlot(0)};
  table = *table->Release(freed);
  server_->weights().SetPolicies(table);
  ASSERT_TRUE(client_->Submit(with_revision(0)).ok());
  ASSERT_TRUE(endpoint_.AwaitArrivals(1));
  EXPECT_NE(endpoint_.arrivals()[0].batch, nullptr) << endpoint_.arrivals()[0].why;
  other.id = PolicyId("wider");
  other.observation_space = *space::Space::Box(-1, 1, {40});
  table = *table->Add(other, true);
  server_->weights().SetPolicies(table);
  ASSERT_TRUE(client_->Submit(with_revision(0)).ok());
  ASSERT_TRUE(client_->Submit(with_revision(table->revision())).ok());
  ASSERT_TRUE(endpoint_.AwaitArrivals(3));
  EXPECT_NE(endpoint_.arrivals()[1].batch, nullptr) << "made by an older table: " << endpoint_.arrivals()[1].why;
  EXPECT_EQ(endpoint_.arrivals()[2].batch, nullptr) << "no policy of this table has rows like these";
}

}  // namespace
}  // namespace troupe::rpc
