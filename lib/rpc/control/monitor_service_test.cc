// What every address of a learner serves, and what it does not.

#include "lib/rpc/control/monitor_service.h"

#include <unistd.h>

#include <future>
#include <string>

#include "absl/strings/str_cat.h"
#include "lib/policy/testing.h"
#include "lib/rpc/control/monitor_client.h"
#include "lib/rpc/learner/learner_server.h"
#include "lib/rpc/testing/fake_endpoint.h"
#include "lib/rpc/testing/peak_memory.h"
#include "lib/rpc/testing/raw_call.h"
#include "lib/rpc/transport/limits.h"
#include "lib/sample/testing/batch_maker.h"
#include "proto/troupe/v1/control.pb.h"
#include "proto/troupe/v1/monitor.pb.h"
#include <gtest/gtest.h>

namespace troupe::rpc {
namespace {

constexpr char kCanary[] = "canary-4711";

/// A fake learner at a TCP port and at a Unix socket.
class MonitorServiceTest : public testing::Test {
 protected:
  void SetUp() override {
    LearnerServerOptions options;
    options.addresses = {"127.0.0.1:0", absl::StrCat("unix-abstract:troupe-monitor-", getpid(), "-",
                                                     testing::UnitTest::GetInstance()->current_test_info()->name())};
    options.schema = sample::SimpleSchema();
    auto server = LearnerServer::Start(std::move(options), &endpoint_, &endpoint_, &clock_);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }

  base::FakeClock clock_;
  FakeEndpoint endpoint_;
  std::unique_ptr<LearnerServer> server_;
};

TEST_F(MonitorServiceTest, NoAddressHasTheControlService) {
  for (const std::string& address : server_->addresses()) {
    for (const char* method : {"ChangePolicies", "Drain", "Checkpoint", "PruneCheckpoints", "Status", "Policies"}) {
      EXPECT_EQ(RawCall(address, absl::StrCat("/troupe.v1.Control/", method), "").status().code(),
                absl::StatusCode::kUnimplemented)
          << method << " at " << address;
    }
  }
  EXPECT_TRUE(endpoint_.callers().empty());
  EXPECT_TRUE(endpoint_.changes().empty());
  EXPECT_EQ(endpoint_.drain_reason(), "");
}

TEST_F(MonitorServiceTest, StatusWithoutWhatIsNotForStrangers) {
  RunStatus status;
  status.run_name = "run";
  status.learner.progress.env_steps = 123;
  status.learner.state = "failed";
  status.learner.reason = absl::StrCat("/home/", kCanary, ": no such file");
  status.workers.emplace_back().name = absl::StrCat(kCanary, ":17");
  endpoint_.SetStatus(status);
  for (const std::string& address : server_->addresses()) {
    const auto told = (*MonitorClient::Create(address, {}))->Status(absl::Seconds(10));
    ASSERT_TRUE(told.ok()) << told.status();
    EXPECT_EQ(told->run_name, "run");
    EXPECT_EQ(told->learner.progress.env_steps, 123);
    EXPECT_EQ(told->learner.state, "failed");
    EXPECT_EQ(told->workers.size(), 1u);
    const auto bytes = RawCall(address, "/troupe.v1.Monitor/Status", "");
    ASSERT_TRUE(bytes.ok()) << bytes.status();
    v1::StatusReply reply;
    ASSERT_TRUE(reply.ParseFromString(*bytes));
    EXPECT_EQ(reply.protocol().major(), kProtocolMajor);
    EXPECT_EQ(bytes->find(kCanary), std::string::npos) << reply.DebugString();
  }
}

TEST_F(MonitorServiceTest, PoliciesAsAList) {
  policy::PolicySpec spec = policy::SmallSpecForTesting();
  spec.policy_class.kind = policy::PolicyClass::Kind::kCheckpoint;
  spec.policy_class.path = kCanary;
  endpoint_.SetPolicies(*policy::PolicyTable::Make({spec}, {false}, {{"*", {{spec.id}}}}, {"x"}));
  for (const std::string& address : server_->addresses()) {
    const auto reply = (*MonitorClient::Create(address, {}))->Policies(absl::Seconds(10));
    ASSERT_TRUE(reply.ok()) << reply.status();
    ASSERT_EQ(reply->listing.policies.size(), 1u);
    EXPECT_EQ(reply->listing.policies[0].policy_class, "checkpoint");
    EXPECT_EQ(reply->table_json, "");
    const auto bytes = RawCall(address, "/troupe.v1.Monitor/Policies", "");
    ASSERT_TRUE(bytes.ok()) << bytes.status();
    EXPECT_EQ(bytes->find(kCanary), std::string::npos) << *bytes;
  }
}

TEST_F(MonitorServiceTest, HandlersAreToldWhoAsks) {
  for (const std::string& address : server_->addresses()) {
    EXPECT_TRUE((*MonitorClient::Create(address, {}))->Status(absl::Seconds(10)).ok());
  }
  const std::vector<Caller> callers = endpoint_.callers();
  ASSERT_EQ(callers.size(), 2u);
  EXPECT_EQ(callers[0].kind, Caller::Kind::kNetwork);
  EXPECT_EQ(callers[0].peer.find("127.0.0.1:"), 0u) << callers[0].peer;
  EXPECT_EQ(callers[1].kind, Caller::Kind::kUnixSocket);
}

TEST_F(MonitorServiceTest, StandardHealthCheckSaysServing) {
  const std::string serving("\x08\x01", 2);  // HealthCheckResponse{status SERVING}
  for (const std::string& address : server_->addresses()) {
    const auto reply = RawCall(address, "/grpc.health.v1.Health/Check", "");
    ASSERT_TRUE(reply.ok()) << reply.status();
    EXPECT_EQ(*reply, serving);
    // HealthCheckRequest{service "nobody"}
    EXPECT_EQ(RawCall(address, "/grpc.health.v1.Health/Check", "\x0a\x06nobody").status().code(),
              absl::StatusCode::kNotFound);
    const std::string name(1 << 20, 'x');
    EXPECT_EQ(RawCall(address, "/grpc.health.v1.Health/Check", "\x0a\x80\x80\x40" + name).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
}

TEST_F(MonitorServiceTest, WhatComesWithAQuestionIsNotRead) {
  const policy::PolicySpec spec = policy::SmallSpecForTesting();
  endpoint_.SetPolicies(*policy::PolicyTable::Make({spec}, {false}, {{"*", {{spec.id}}}}, {"x"}));
  std::string flood;
  while (flood.size() < kMaxMessageBytes - 2) flood += std::string("\x7a\x00", 2);
  const PeakMemory peak;
  for (const std::string& address : server_->addresses()) {
    for (const char* const method : {"/troupe.v1.Monitor/Status", "/troupe.v1.Monitor/Policies"}) {
      const auto reply = RawCall(address, method, flood);
      EXPECT_TRUE(reply.ok()) << address << method << reply.status();
    }
  }
  EXPECT_LT(peak.growth_bytes(), (int64_t{64} << 20) + kKeptBySanitizerBytes) << "this process is the client, too";
}

TEST_F(MonitorServiceTest, OfNobodySaysWho) {
  auto client = MonitorClient::Create("unix-abstract:troupe-nobody", {});
  ASSERT_TRUE(client.ok());
  const auto status = (*client)->Status(absl::Seconds(5));
  EXPECT_EQ(status.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(status.status().message().find("unix-abstract:troupe-nobody"), std::string::npos);
}

}  // namespace
}  // namespace troupe::rpc
