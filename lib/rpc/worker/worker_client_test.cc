#include "lib/rpc/worker/worker_client.h"

#include <unistd.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/base/await.h"
#include "lib/policy/parameter_layout.h"
#include "lib/policy/policy_spec.h"
#include "lib/rpc/learner/learner_server.h"
#include "lib/rpc/testing/fake_endpoint.h"
#include "lib/rpc/testing/lying_learner.h"
#include "lib/rpc/transport/convert.h"
#include "lib/rpc/transport/limits.h"
#include "lib/sample/testing/batch_maker.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::rpc {
namespace {

using policy::PolicySlot;

/// A client with its I/O thread, and a server that can go and come back.
class WorkerClientTest : public testing::Test {
 protected:
  ~WorkerClientTest() override { StopClient(); }

  /// Lives as long as the test: streams tell it when they end.
  FakeEndpoint& NewEndpoint(uint64_t learner_epoch) {
    return *endpoints_.emplace_back(std::make_unique<FakeEndpoint>(learner_epoch));
  }
  void StartServer(FakeEndpoint* endpoint, int64_t credit_bytes = 16 << 20) {
    LearnerServerOptions options;
    options.addresses = {address_};
    options.schema = schema_;
    options.config_yaml = "seed: 1\n";
    options.credit_bytes = credit_bytes;
    auto server = LearnerServer::Start(std::move(options), endpoint, endpoint, &base::Clock::Real());
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  void StartClient(absl::Duration reconnect_timeout = absl::Minutes(1)) {
    WorkerClientOptions options;
    options.address = address_;
    options.name = "test";
    options.incarnation = 81;
    options.backoff = {.initial = absl::Milliseconds(5), .max = absl::Milliseconds(50)};
    options.reconnect_timeout = reconnect_timeout;
    options.tell_away_after = absl::Milliseconds(100);
    options.on_first_accepted = [this] { ++told_of_first_accepted_; };
    options.check_config = check_config_;
    auto client = WorkerClient::Create(std::move(options), &base::Clock::Real());
    ASSERT_TRUE(client.ok()) << client.status();
    client_ = *std::move(client);
    io_thread_ = std::thread([this] { client_->Run(); });
  }
  void StopClient() {
    if (client_ != nullptr) client_->Close();
    if (io_thread_.joinable()) io_thread_.join();
  }
  sample::MultiAgentBatchPtr Batch() const { return sample::MakeBatch(schema_, {}, 4, 25); }
  std::shared_ptr<policy::WeightSnapshot> Snapshot(policy::WeightVersion version, float value) const {
    auto snapshot = std::make_shared<policy::WeightSnapshot>();
    snapshot->id = schema_.policies[PolicySlot(0)].id;
    snapshot->version = version;
    snapshot->actor.assign(
        static_cast<size_t>(policy::ParameterLayout::For(schema_.policies[PolicySlot(0)]).acting_size()), value);
    return snapshot;
  }
  template <typename Condition>
  static bool Await(Condition condition) {
    return base::AwaitPolling(absl::Milliseconds(1), base::Deadline::After(absl::Seconds(10)), condition);
  }

  const sample::BatchSchema schema_ = sample::SimpleSchema();
  const std::string address_ = absl::StrCat("unix-abstract:troupe-client-", getpid(), "-",
                                            testing::UnitTest::GetInstance()->current_test_info()->name());
  std::vector<std::unique_ptr<FakeEndpoint>> endpoints_;
  std::function<absl::Status(const std::string&)> check_config_;
  std::unique_ptr<LearnerServer> server_;
  std::atomic<int> told_of_first_accepted_{0};
  std::unique_ptr<WorkerClient> client_;
  std::thread io_thread_;
};

TEST_F(WorkerClientTest, EnvReportsComeBeforeTheNextFragmentAndAgainToAnotherLearner) {
  const sample::EnvCounters counters = {.errors = 4, .exceptions = 3, .process_deaths = 1};
  FakeEndpoint& endpoint = NewEndpoint(1);
  StartServer(&endpoint);
  StartClient();
  ASSERT_TRUE(client_->AwaitWelcome(absl::Seconds(10)).ok());
  client_->SetPolicies(schema_.policies, schema_.Hash());
  const sample::EnvIncident broke = {sample::EnvIncident::What::kFailure, "it broke", "episode 1: it broke"};
  const sample::EnvIncident burned = {sample::EnvIncident::What::kFailure, "it burned", "episode 1: it burned"};
  client_->ReportEnvs({.counters = {.errors = 1}, .recent = {5, 1}, .incidents = {broke}});
  ASSERT_TRUE(endpoint.Await([](const auto& workers, const auto&) { return workers.at(1).incidents.size() == 1; }));
  EXPECT_FALSE(endpoint.worker(1).fails_from_the_start);
  client_->ReportEnvs({.counters = counters, .recent = {9, 4}, .fails_from_the_start = true, .incidents = {burned}});
  ASSERT_TRUE(client_->Submit(Batch()).ok());
  ASSERT_TRUE(endpoint.AwaitArrivals(1));
  EXPECT_EQ(endpoint.worker(1).env_counters, counters);
  EXPECT_EQ(endpoint.worker(1).recent_episodes, (sample::RecentEpisodes{9, 4}));
  EXPECT_TRUE(endpoint.worker(1).fails_from_the_start);
  EXPECT_THAT(endpoint.worker(1).incidents, testing::ElementsAre(broke, burned)) << "each is told once";

  FakeEndpoint& next = NewEndpoint(2);
  server_ = nullptr;
  StartServer(&next);
  EXPECT_TRUE(next.Await([&](const auto& workers, const auto&) {
    const auto worker = workers.find(1);
    return worker != workers.end() && worker->second.env_counters == counters;
  }));
  EXPECT_THAT(next.worker(1).incidents, testing::ElementsAre(broke, burned));
}

TEST_F(WorkerClientTest, TheWholePath) {
  FakeEndpoint& endpoint = NewEndpoint(1);
  StartServer(&endpoint);
  StartClient();
  const auto welcome = client_->AwaitWelcome(absl::Seconds(10));
  ASSERT_TRUE(welcome.ok()) << welcome.status();
  EXPECT_EQ(welcome->config_yaml, "seed: 1\n");
  EXPECT_EQ(welcome->spec_hash, schema_.Hash());
  client_->SetPolicies(schema_.policies, welcome->spec_hash);

  server_->weights().Publish(PolicySlot(0), Snapshot({1, 0}, 0.5f));
  const auto weights = client_->AwaitWeights(PolicySlot(0), {1, 0}, absl::Seconds(10));
  ASSERT_TRUE(weights.ok()) << weights.status();
  EXPECT_EQ(weights->snapshot->actor[0], 0.5f);

  endpoint.worker(1).port->SendGrant(sample::MakeGrant(4, 25, {1, 0}));
  const auto grant = client_->AwaitGrant(absl::Seconds(10));
  ASSERT_TRUE(grant.ok()) << grant.status();
  ASSERT_TRUE(grant->has_value());
  EXPECT_EQ((*grant)->lanes.size(), 4u);

  for (int i = 0; i < 3; ++i) ASSERT_TRUE(client_->Submit(Batch()).ok());
  ASSERT_TRUE(endpoint.AwaitArrivals(3));
  const auto arrivals = endpoint.arrivals();
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(arrivals[i].sequence, i + 1);
    ASSERT_NE(arrivals[i].batch, nullptr) << arrivals[i].why;
    EXPECT_EQ(arrivals[i].batch->num_env_steps, 100);
  }
  EXPECT_TRUE(Await([&] { return client_->acks().accepted == 3 && client_->unacked_fragments() == 0; }));

  endpoint.worker(1).port->SendDrain("done");
  EXPECT_TRUE(Await([&] { return absl::IsCancelled(client_->AwaitGrant(absl::ZeroDuration()).status()); }));
  EXPECT_TRUE(client_->Drain(absl::Seconds(10)).ok());
  ASSERT_TRUE(endpoint.Await([](const auto& workers, const auto&) { return workers.at(1).leaves == 1; }));
  EXPECT_EQ(endpoint.worker(1).left_because, "done");
}

TEST_F(WorkerClientTest, AGrantThatIsOverIsGivenUp) {
  FakeEndpoint& endpoint = NewEndpoint(1);
  StartServer(&endpoint);
  StartClient();
  ASSERT_TRUE(client_->AwaitWelcome(absl::Seconds(10)).ok());
  client_->SetPolicies(schema_.policies, schema_.Hash());
  const auto port = endpoint.worker(1).port;
  std::vector<sample::Grant> grants;
  for (const uint64_t id : {11, 12, 13}) {
    grants.push_back(sample::MakeGrant(4, 25, {1, 7}));
    grants.back().id = sample::GrantId(id);
    port->SendGrant(grants.back());
  }
  const auto take = [&]() -> uint64_t {
    const auto grant = client_->AwaitGrant(absl::Seconds(10));
    return grant.ok() && grant->has_value() ? (*grant)->id.value() : 0;
  };
  const auto fragment_of = [this](uint64_t grant) {
    auto fragment = std::make_shared<sample::MultiAgentBatch>(*Batch());
    fragment->grant = sample::GrantId(grant);
    return fragment;
  };
  ASSERT_EQ(take(), 11u);
  port->SendGrantOver(sample::GrantId(11));  // it was taken
  port->SendGrantOver(sample::GrantId(12));  // it waits
  // Its weights are waited for no longer.
  EXPECT_TRUE(Await([&] {
    return absl::IsAborted(client_->AwaitWeights(PolicySlot(0), {1, 7}, absl::ZeroDuration()).status());
  }));
  // What was sampled for it is handed in, so that the learner sees who lives; the rest need not be.
  EXPECT_TRUE(absl::IsAborted(client_->Submit(fragment_of(11))));
  ASSERT_TRUE(endpoint.AwaitArrivals(1));
  EXPECT_EQ(endpoint.arrivals()[0].batch->grant, sample::GrantId(11));
  ASSERT_TRUE(Await([&] { return client_->acks().accepted == 1; })) << "what was sent before the ack is known, too";
  EXPECT_EQ(take(), 13u) << "12 was over before it was begun";
  EXPECT_TRUE(client_->Submit(fragment_of(13)).ok());
  EXPECT_TRUE(absl::IsDeadlineExceeded(client_->AwaitWeights(PolicySlot(0), {1, 7}, absl::ZeroDuration()).status()));
  port->SendGrantOver(sample::GrantId(999));  // of nobody's
  port->SendGrant(grants[0]);
  EXPECT_EQ(take(), 11u);
}

TEST_F(WorkerClientTest, TheFirstAcceptedFragmentIsToldOnce) {
  FakeEndpoint& endpoint = NewEndpoint(1);
  StartServer(&endpoint);
  StartClient();
  ASSERT_TRUE(client_->AwaitWelcome(absl::Seconds(10)).ok());
  EXPECT_TRUE(client_->joined());
  client_->SetPolicies(schema_.policies, schema_.Hash());
  endpoint.set_auto_ack(false);
  ASSERT_TRUE(client_->Submit(Batch()).ok());
  ASSERT_TRUE(endpoint.AwaitArrivals(1));
  endpoint.worker(1).port->SendAck({1, 1, sample::Disposition::kStale, "too old"});
  ASSERT_TRUE(Await([&] { return client_->acks().stale == 1; }));
  EXPECT_EQ(told_of_first_accepted_, 0) << "a stale fragment is no accepted one";
  endpoint.set_auto_ack(true);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(client_->Submit(Batch()).ok());
  ASSERT_TRUE(Await([&] { return client_->acks().accepted == 3; }));
  ASSERT_TRUE(Await([&] { return told_of_first_accepted_ > 0; }));
  EXPECT_EQ(told_of_first_accepted_, 1);
  server_ = nullptr;
  EXPECT_TRUE(Await([&] { return !client_->joined(); }));
}

TEST_F(WorkerClientTest, OnlyTheLatestWeightsArePromised) {
  FakeEndpoint& endpoint = NewEndpoint(1);
  StartServer(&endpoint);
  StartClient();
  ASSERT_TRUE(client_->AwaitWelcome(absl::Seconds(10)).ok());
  client_->SetPolicies(schema_.policies, schema_.Hash());
  for (int n = 0; n <= 200; ++n) server_->weights().Publish(PolicySlot(0), Snapshot({1, n}, static_cast<float>(n)));
  server_->weights().Publish(PolicySlot(0), Snapshot({1, 7}, -1));  // older: ignored
  const auto weights = client_->AwaitWeights(PolicySlot(0), {1, 200}, absl::Seconds(10));
  ASSERT_TRUE(weights.ok()) << weights.status();
  EXPECT_EQ(weights->snapshot->version.n, 200);
  EXPECT_EQ(weights->snapshot->actor[3], 200.0f);
  EXPECT_EQ(client_->AwaitWeights(PolicySlot(0), {1, 201}, absl::Milliseconds(1)).status().code(),
            absl::StatusCode::kDeadlineExceeded);
}

TEST_F(WorkerClientTest, SubmitWaitsForCreditAndOneFragmentAlwaysFits) {
  FakeEndpoint& endpoint = NewEndpoint(1);
  endpoint.set_auto_ack(false);
  StartServer(&endpoint, /*credit_bytes=*/1);
  StartClient();
  ASSERT_TRUE(client_->AwaitWelcome(absl::Seconds(10)).ok());
  ASSERT_TRUE(client_->Submit(Batch()).ok());
  std::atomic<bool> second_done = false;
  std::thread submitter([&] {
    EXPECT_TRUE(client_->Submit(Batch()).ok());
    second_done = true;
  });
  ASSERT_TRUE(endpoint.AwaitArrivals(1));
  EXPECT_FALSE(second_done);
  endpoint.worker(1).port->SendAck({.sequence = 1, .watermark = 1});
  ASSERT_TRUE(endpoint.AwaitArrivals(2));
  submitter.join();
  EXPECT_TRUE(second_done);
}

TEST_F(WorkerClientTest, ARestartedLearnerGetsWhatWasNotAcknowledged) {
  FakeEndpoint& before = NewEndpoint(1);
  before.set_auto_ack(false);
  StartServer(&before);
  StartClient();
  ASSERT_TRUE(client_->AwaitWelcome(absl::Seconds(10)).ok());
  client_->SetPolicies(schema_.policies, schema_.Hash());
  server_->weights().Publish(PolicySlot(0), Snapshot({1, 5}, 1));
  ASSERT_TRUE(client_->AwaitWeights(PolicySlot(0), {1, 5}, absl::Seconds(10)).ok());
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(client_->Submit(Batch()).ok());
  ASSERT_TRUE(before.AwaitArrivals(3));
  before.worker(1).port->SendAck({.sequence = 1, .watermark = 1});
  ASSERT_TRUE(Await([&] { return client_->unacked_fragments() == 2; }));
  before.worker(1).port->SendGrant(sample::MakeGrant(4, 25, {1, 5}));

  server_.reset();
  // While nobody is there, sampling goes on.
  ASSERT_TRUE(client_->Submit(Batch()).ok());
  FakeEndpoint& after = NewEndpoint(2);
  StartServer(&after);
  ASSERT_TRUE(after.AwaitArrivals(3));
  const auto arrivals = after.arrivals();
  EXPECT_EQ(arrivals[0].sequence, 2u);
  EXPECT_EQ(arrivals[1].sequence, 3u);
  EXPECT_EQ(arrivals[2].sequence, 4u);
  const FakeEndpoint::Worker worker = after.worker(1);
  EXPECT_EQ(worker.request.worker_id.value(), 1u);
  EXPECT_EQ(worker.request.incarnation, 81u);
  EXPECT_EQ(worker.request.first_unacked, 2u);
  // The fourth was handed in while the client tried to connect: before it wrote its Hello, or after.
  EXPECT_GE(worker.request.next_sequence, 4u);
  EXPECT_LE(worker.request.next_sequence, 5u);
  EXPECT_TRUE(Await([&] { return client_->unacked_fragments() == 0; }));
  EXPECT_EQ(client_->reconnects(), 1);
  EXPECT_FALSE((*client_->AwaitGrant(absl::ZeroDuration())).has_value())
      << "a grant of the earlier learner epoch is left";
  // And newer weights of the new epoch, although fewer updates were done.
  server_->weights().Publish(PolicySlot(0), Snapshot({2, 3}, 2));
  const auto weights = client_->AwaitWeights(PolicySlot(0), {2, 3}, absl::Seconds(10));
  ASSERT_TRUE(weights.ok()) << weights.status();
  EXPECT_EQ(weights->snapshot->actor[0], 2.0f);
}

TEST_F(WorkerClientTest, WhatTheWatermarkCoversIsNotSentAgain) {
  FakeEndpoint& endpoint = NewEndpoint(1);
  endpoint.set_auto_ack(false);
  StartServer(&endpoint);
  StartClient();
  ASSERT_TRUE(client_->AwaitWelcome(absl::Seconds(10)).ok());
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(client_->Submit(Batch()).ok());
  ASSERT_TRUE(endpoint.AwaitArrivals(3));
  // Accepted, but the acks are lost with the connection.
  endpoint.set_watermark(1, 2);
  server_.reset();
  StartServer(&endpoint);
  ASSERT_TRUE(endpoint.AwaitArrivals(4));
  EXPECT_EQ(endpoint.arrivals()[3].sequence, 3u);
  EXPECT_EQ(client_->unacked_fragments(), 1);
}

TEST_F(WorkerClientTest, AnUnreachableLearnerIsNamed) {
  StartClient();
  const auto welcome = client_->AwaitWelcome(absl::Milliseconds(300));
  EXPECT_EQ(welcome.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(welcome.status().message().find(address_), std::string::npos) << welcome.status();
  EXPECT_NE(welcome.status().message().find("unreachable"), std::string::npos) << welcome.status();
}

TEST_F(WorkerClientTest, AWorkerWithoutALearnerSaysSoOnceAndWhenItIsThere) {
  testing::internal::CaptureStdout();
  StartClient();
  EXPECT_FALSE(client_->AwaitWelcome(absl::Milliseconds(500)).ok());
  StartServer(&NewEndpoint(7));
  EXPECT_TRUE(client_->AwaitWelcome(absl::Seconds(10)).ok());
  server_.reset();
  const auto grant = client_->AwaitGrant(absl::Milliseconds(500));
  EXPECT_TRUE(grant.ok() && !grant->has_value()) << "nobody is there to grant";
  StopClient();
  const std::string log = testing::internal::GetCapturedStdout();
  const std::string line = absl::StrCat("no learner, trying again learner=", address_, " reason=");
  const size_t first = log.find(line), there = log.find("the learner is there learner_epoch=7");
  const size_t again = log.find(line, there);
  ASSERT_TRUE(first < there && there < again && again != std::string::npos) << log;
  EXPECT_EQ(log.find(line, first + 1), again) << "once each time";
  EXPECT_EQ(log.rfind(" for_s=", there), std::string::npos) << "before the first Welcome others decide: " << log;
  EXPECT_NE(log.find(" for_s=59", again), std::string::npos) << log;
}

TEST_F(WorkerClientTest, ALearnerThatIsGoneForGoodEndsEverything) {
  FakeEndpoint& endpoint = NewEndpoint(1);
  StartServer(&endpoint);
  StartClient(absl::Milliseconds(100));
  ASSERT_TRUE(client_->AwaitWelcome(absl::Seconds(10)).ok());
  server_.reset();
  ASSERT_TRUE(Await([&] { return client_->ended(); }));
  EXPECT_EQ(client_->AwaitGrant(absl::Seconds(1)).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(client_->Submit(Batch()).code(), absl::StatusCode::kUnavailable);
}

TEST_F(WorkerClientTest, AWorkerThatWasGivenUpRegistersAgainAndLosesNothing) {
  FakeEndpoint& endpoint = NewEndpoint(1);
  StartServer(&endpoint);
  StartClient();
  ASSERT_TRUE(client_->AwaitWelcome(absl::Seconds(10)).ok());
  endpoint.GiveUp(1);
  ASSERT_TRUE(client_->Submit(Batch()).ok());
  ASSERT_TRUE(endpoint.AwaitJoins(1, 2));
  ASSERT_TRUE(endpoint.AwaitArrivals(1));
  EXPECT_EQ(endpoint.arrivals()[0].sequence, 1u);
  EXPECT_TRUE(Await([&] { return client_->acks().accepted == 1; }));
}

TEST_F(WorkerClientTest, ARefusalIsNotTriedAgain) {
  FakeEndpoint& endpoint = NewEndpoint(1);
  endpoint.set_join_status(absl::FailedPreconditionError("no worker of that kind"));
  StartServer(&endpoint);
  StartClient();
  const auto welcome = client_->AwaitWelcome(absl::Seconds(10));
  EXPECT_EQ(welcome.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(welcome.status().message().find("no worker of that kind"), std::string::npos) << welcome.status();
}

TEST_F(WorkerClientTest, ARunThatIsOverIsADrain) {
  FakeEndpoint& endpoint = NewEndpoint(1);
  StartServer(&endpoint);
  StartClient();
  ASSERT_TRUE(client_->AwaitWelcome(absl::Seconds(10)).ok());
  endpoint.set_join_status(absl::UnavailableError("the run has reached its end"));
  server_.reset();
  StartServer(&endpoint);
  ASSERT_TRUE(Await([&] { return client_->ended(); }));
  const absl::Status status = client_->AwaitGrant(absl::Seconds(1)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled);
  EXPECT_NE(status.message().find("reached its end"), std::string::npos) << status;
}

TEST_F(WorkerClientTest, AnotherSpecIsRefusedOnRejoin) {
  FakeEndpoint& endpoint = NewEndpoint(1);
  StartServer(&endpoint);
  StartClient();
  ASSERT_TRUE(client_->AwaitWelcome(absl::Seconds(10)).ok());
  client_->SetPolicies(schema_.policies, schema_.Hash() + 1);
  server_.reset();
  StartServer(&endpoint);
  ASSERT_TRUE(Await([&] { return client_->ended(); }));
  EXPECT_EQ(client_->AwaitGrant(absl::Seconds(1)).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(WorkerClientTest, AnotherLearnerWithAnotherSpecIsLeft) {
  FakeEndpoint& endpoint = NewEndpoint(1);
  StartServer(&endpoint);
  StartClient();
  ASSERT_TRUE(client_->AwaitWelcome(absl::Seconds(10)).ok());
  client_->SetPolicies(schema_.policies, schema_.Hash());
  server_.reset();
  const LyingLearner liar(address_, {LyingLearner::Welcome(schema_.Hash() + 1)});
  ASSERT_TRUE(Await([&] { return client_->ended(); }));
  EXPECT_EQ(client_->AwaitGrant(absl::Seconds(1)).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(WorkerClientTest, WhatACheckRefusesEndsTheClientBeforeAnythingIsMadeOfIt) {
  std::vector<std::string> asked;
  check_config_ = [&asked](const std::string& yaml) {
    asked.push_back(yaml);
    return asked.size() < 3 ? absl::OkStatus() : absl::PermissionDeniedError("not mine");
  };
  FakeEndpoint& endpoint = NewEndpoint(1);
  StartServer(&endpoint);
  StartClient();
  ASSERT_TRUE(client_->AwaitWelcome(absl::Seconds(10)).ok());
  for (const uint64_t epoch : {2u, 3u}) {
    server_.reset();
    StartServer(&NewEndpoint(epoch));
    ASSERT_TRUE(Await([&] { return client_->reconnects() == 1 && (epoch == 2 || client_->ended()); }));
  }
  EXPECT_EQ(asked, std::vector<std::string>(3, "seed: 1\n")) << "every Welcome is looked at";
  EXPECT_EQ(client_->AwaitGrant(absl::Seconds(1)).status(), absl::PermissionDeniedError("not mine"));
  EXPECT_EQ(client_->reconnects(), 1) << "a refused Welcome is no registration";
}

TEST_F(WorkerClientTest, CloseWakesEveryoneWhoWaits) {
  FakeEndpoint& endpoint = NewEndpoint(1);
  StartServer(&endpoint);
  StartClient();
  ASSERT_TRUE(client_->AwaitWelcome(absl::Seconds(10)).ok());
  client_->SetPolicies(schema_.policies, schema_.Hash());
  absl::Status grants, weights;
  std::thread a([&] { grants = client_->AwaitGrant(absl::InfiniteDuration()).status(); });
  std::thread b([&] { weights = client_->AwaitWeights(PolicySlot(0), {1, 0}, absl::InfiniteDuration()).status(); });
  client_->Close();
  a.join();
  b.join();
  EXPECT_EQ(grants.code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(weights.code(), absl::StatusCode::kCancelled);
}

}  // namespace
}  // namespace troupe::rpc
