#include "lib/rpc/control/control_service.h"

#include <stdlib.h>

#include <filesystem>
#include <string>

#include "lib/policy/testing.h"
#include "lib/rpc/control/control_client.h"
#include "lib/rpc/control/control_server.h"
#include "lib/rpc/control/monitor_client.h"
#include "lib/rpc/testing/fake_endpoint.h"
#include "lib/rpc/transport/limits.h"
#include <gtest/gtest.h>

namespace troupe::rpc {
namespace {

/// A client at a control socket, before a fake learner.
class PolicyControlTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string path = testing::TempDir() + "/control_service_XXXXXX";
    run_ = mkdtemp(path.data());
    auto server = ControlServer::Start(run_, &endpoint_, &endpoint_);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    auto client = ControlClient::Connect(socket());
    ASSERT_TRUE(client.ok()) << client.status();
    client_ = *std::move(client);
  }
  void TearDown() override {
    server_.reset();
    std::filesystem::remove_all(run_);
  }
  std::string socket() const { return run_ + "/control/control.sock"; }

  FakeEndpoint endpoint_;
  std::string run_;
  std::unique_ptr<ControlServer> server_;
  std::unique_ptr<ControlClient> client_;
};

TEST_F(PolicyControlTest, ShowsTheWholeTable) {
  const policy::PolicyTablePtr table =
      *policy::PolicyTable::Make({policy::SmallSpecForTesting()}, {true}, {{"*", {{policy::PolicyId("p")}}}}, {"x"});
  endpoint_.SetPolicies(table);
  const auto shown = MonitorClient::AtControlSocket(socket())->Policies(absl::Seconds(10));
  ASSERT_TRUE(shown.ok()) << shown.status();
  EXPECT_EQ(shown->table_json, policy::ToJson(*table));
}

TEST_F(PolicyControlTest, HandsChangesOnAndSaysTheirRevision) {
  endpoint_.SetChangeResult(7);
  const auto revision = client_->ChangePolicies(policy::RemovePolicy{policy::PolicyId("p")}, absl::Seconds(10));
  ASSERT_TRUE(revision.ok()) << revision.status();
  EXPECT_EQ(*revision, 7);
  const auto changes = endpoint_.changes();
  ASSERT_EQ(changes.size(), 1u);
  EXPECT_EQ(std::get<policy::RemovePolicy>(changes[0]).id, policy::PolicyId("p"));
}

TEST_F(PolicyControlTest, SaysWhyAChangeIsRefused) {
  endpoint_.SetChangeResult(absl::FailedPreconditionError("policy \"p\" plays"));
  const auto revision = client_->ChangePolicies(policy::RemovePolicy{policy::PolicyId("p")}, absl::Seconds(10));
  EXPECT_EQ(revision.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(std::string(revision.status().message()).find("plays"), std::string::npos);
  // What is no change does not reach the learner.
  const auto bad = client_->ChangePolicies(policy::RemovePolicy{policy::PolicyId("../p")}, absl::Seconds(10));
  EXPECT_EQ(bad.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(endpoint_.changes().size(), 1u);
}

TEST_F(PolicyControlTest, ACheckpointGoesWhereItsPathSays) {
  EXPECT_EQ(*client_->Checkpoint("/backup/a b", absl::Seconds(10)), 456);
  EXPECT_EQ(endpoint_.checkpoint_to(), "/backup/a b");
  EXPECT_TRUE(absl::IsAlreadyExists(client_->Checkpoint("/there", absl::Seconds(10)).status()));
  const std::string longest = "/" + std::string(kMaxPathBytes - 1, 'x');
  EXPECT_TRUE(client_->Checkpoint(longest, absl::Seconds(10)).ok());
  // A text that is no path does not reach the learner.
  for (const std::string& bad : {longest + "x", std::string("/a\0b", 4)}) {
    EXPECT_TRUE(absl::IsInvalidArgument(client_->Checkpoint(bad, absl::Seconds(10)).status()));
  }
  EXPECT_EQ(endpoint_.checkpoint_to(), longest);
}

TEST_F(PolicyControlTest, APruneKeepsAtLeastOne) {
  for (const int64_t keep : {int64_t{1}, kMaxKeptCheckpoints}) {
    EXPECT_EQ(*client_->PruneCheckpoints(keep, absl::Seconds(10)), keep);
  }
  const size_t heard = endpoint_.callers().size();
  for (const int64_t bad : {int64_t{0}, int64_t{-1}, kMaxKeptCheckpoints + 1}) {
    EXPECT_TRUE(absl::IsInvalidArgument(client_->PruneCheckpoints(bad, absl::Seconds(10)).status())) << bad;
  }
  EXPECT_EQ(endpoint_.callers().size(), heard);
}

TEST_F(PolicyControlTest, ReasonsOfADrainAreSafeToLog) {
  EXPECT_TRUE(client_->Drain("deploy\n", absl::Seconds(10)).ok());
  EXPECT_NE(endpoint_.drain_reason().find("deploy"), std::string::npos);
  EXPECT_EQ(endpoint_.drain_reason().find('\n'), std::string::npos) << "control characters reach the log";
}

}  // namespace
}  // namespace troupe::rpc
