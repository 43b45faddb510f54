// Policies in Python that do not answer: what hangs is their own queries, and nothing else of the server.

#include <unistd.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "lib/base/clock.h"
#include "lib/rpc/control/monitor_client.h"
#include "lib/rpc/learner/learner_server.h"
#include "lib/rpc/serve/query_client.h"
#include "lib/rpc/serve/query_server.h"
#include "lib/rpc/testing/fake_endpoint.h"
#include "lib/rpc/testing/scripted_peer.h"
#include "lib/sample/testing/batch_maker.h"
#include "lib/serving/query_engine.h"
#include "lib/serving/testing/hanging_host.h"
#include "lib/serving/testing/hosted_threads.h"
#include "lib/serving/testing/query_builder.h"

namespace troupe::rpc {
namespace {

using serving::MakeRows;
using serving::OwnedRows;

/// Of what must be answered while others hang; a machine that is busy elsewhere takes its time.
constexpr absl::Duration kTimeout = absl::Seconds(20);
/// Of what hangs.
constexpr absl::Duration kForever = absl::Minutes(10);

policy::PolicySpec Python(const std::string& id) {
  policy::PolicySpec spec = serving::MakeSpec(id, *space::Space::Box(-1, 1, {3}), *space::Space::Discrete(2));
  spec.actor = policy::DefaultActor();
  spec.learner_networks = {policy::DefaultCritic()};
  spec.policy_class = *policy::ParsePolicyClass("python:mine:act");
  return spec;
}

/// As a learner's query service and its threads are.
class QueryHangTest : public testing::TestWithParam<int> {
 protected:
  QueryHangTest()
      : specs_({Python("hangs"), Python("hangs_too"), Python("answers"),
                serving::MakeSpec("native", *space::Space::Box(-1, 1, {3}), *space::Space::Discrete(2))}) {
    // A map of one place: what hangs must not keep it.
    engine_ = *serving::QueryEngine::Create(specs_, {.policy_map_capacity = 1, .actor_host = host_});
    EXPECT_EQ(engine_->SetWeights(serving::MakeWeights(specs_[3], 1)), absl::OkStatus());
    threads_ = std::make_unique<serving::HostedThreads>(engine_.get());
    LearnerServerOptions options;
    options.addresses = {address_};
    options.schema = sample::SimpleSchema();
    options.queries = engine_.get();
    server_ = *LearnerServer::Start(std::move(options), &endpoint_, &endpoint_, &clock_);
  }
  ~QueryHangTest() override {
    host_->Release();
    for (std::thread& asker : askers_) asker.join();
    server_->Shutdown(kTimeout);
  }

  absl::Status Ask(const std::vector<std::string>& ids, absl::Duration timeout) {
    const auto client = *QueryClient::Create(address_, {});
    std::vector<OwnedRows> rows;
    std::vector<const OwnedRows*> pointers;
    for (const std::string& id : ids) {
      rows.push_back(MakeRows(specs_[0], 2));
      rows.back().policy_id = id;
    }
    for (const OwnedRows& owned : rows) pointers.push_back(&owned);
    return client->ComputeActions(serving::Ask(pointers, true), timeout).status();
  }
  /// `count` queries of policies that hang, from clients of their own, and the first of them has begun to.
  void Hang(int count, const std::string& id) {
    for (int i = 0; i < count; ++i) askers_.emplace_back([this, id] { Ask({id}, kForever).IgnoreError(); });
    while (host_->calls(id) == 0) absl::SleepFor(absl::Milliseconds(1));
  }

  const std::string address_ =
      absl::StrCat("unix-abstract:troupe-hang-", getpid(), "-", reinterpret_cast<uintptr_t>(this));
  const std::vector<policy::PolicySpec> specs_;
  std::shared_ptr<serving::HangingHost> host_ = std::make_shared<serving::HangingHost>();
  std::unique_ptr<serving::QueryEngine> engine_;
  std::unique_ptr<serving::HostedThreads> threads_;
  FakeEndpoint endpoint_;
  base::FakeClock clock_;
  std::unique_ptr<LearnerServer> server_;
  std::vector<std::thread> askers_;
};

TEST_P(QueryHangTest, OnlyQueriesOfThePolicyThatHangsWait) {
  Hang(GetParam(), "hangs");
  const auto monitor = *MonitorClient::Create(address_, {});
  EXPECT_EQ(monitor->Status(kTimeout).status(), absl::OkStatus());
  EXPECT_EQ(Ask({"native"}, kTimeout), absl::OkStatus());
  EXPECT_EQ(Ask({"answers"}, kTimeout), absl::OkStatus());
  Hang(GetParam(), "hangs_too");
  EXPECT_EQ(monitor->Status(kTimeout).status(), absl::OkStatus());
  ScriptedPeer worker(address_);
  worker.Send(ScriptedPeer::Hello());
  const absl::StatusOr<v1::LearnerMessage> welcome = worker.Receive();
  ASSERT_TRUE(welcome.ok()) << welcome.status();
  EXPECT_TRUE(welcome->has_welcome()) << "Rollout goes on";
  EXPECT_EQ(Ask({"native", "answers"}, kTimeout), absl::OkStatus());
}

INSTANTIATE_TEST_SUITE_P(Queries, QueryHangTest, testing::Values(1, 4, 20));

class HangingQueryTest : public QueryHangTest {};

TEST_F(HangingQueryTest, ThatRunsOutOfTimeWhileItWaitsIsNotAsked) {
  Hang(1, "hangs");
  EXPECT_EQ(Ask({"hangs"}, absl::Milliseconds(200)).code(), absl::StatusCode::kDeadlineExceeded);
  // The server learns of it a little later than its client.
  while (engine_->num_hosted_queries() > 1) absl::SleepFor(absl::Milliseconds(1));
  host_->Release();
  EXPECT_EQ(Ask({"hangs"}, kTimeout), absl::OkStatus());
  EXPECT_EQ(host_->calls("hangs"), 2);
}

TEST_F(HangingQueryTest, ThatIsOneTooManyIsRefusedInWords) {
  Hang(32, "hangs");
  while (engine_->num_hosted_queries() < 32) absl::SleepFor(absl::Milliseconds(1));
  const absl::Status refused = Ask({"hangs"}, kTimeout);
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted) << refused;
  EXPECT_NE(refused.message().find("policy \"hangs\": its queries that wait or are being answered are 32"),
            std::string::npos)
      << refused;
  EXPECT_EQ(Ask({"answers"}, kTimeout), absl::OkStatus());
}

TEST_F(HangingQueryTest, IsAnsweredByAShutdownThatDoesNotWaitForIt) {
  Hang(4, "hangs");
  server_->Shutdown(absl::ZeroDuration());
  for (std::thread& asker : askers_) asker.join();
  askers_.clear();
  EXPECT_EQ(host_->hanging(), 1) << "the policy itself still does";
  threads_.reset();
  EXPECT_EQ(host_->hanging(), 0);
}

}  // namespace
}  // namespace troupe::rpc
