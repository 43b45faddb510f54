#include "lib/rpc/control_service.h"

#include <unistd.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "lib/policy/testing.h"
#include "lib/rpc/control_client.h"
#include "lib/rpc/learner_server.h"
#include "lib/rpc/testing/fake_endpoint.h"
#include "lib/sample/testing/batch_maker.h"
#include <gtest/gtest.h>

namespace troupe::rpc {
namespace {

/// A client of the policies' calls, before a fake learner.
class PolicyControlTest : public testing::Test {
 protected:
  void SetUp() override {
    LearnerServerOptions options;
    const std::string address = absl::StrCat("unix-abstract:troupe-control-", getpid(), "-",
                                             testing::UnitTest::GetInstance()->current_test_info()->name());
    options.addresses = {address};
    options.schema = sample::SimpleSchema();
    auto server = LearnerServer::Start(std::move(options), &endpoint_, &endpoint_, &clock_);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    client_ = *ControlClient::Create(address, {});
  }

  base::FakeClock clock_;
  FakeEndpoint endpoint_;
  std::unique_ptr<LearnerServer> server_;
  std::unique_ptr<ControlClient> client_;
};

TEST_F(PolicyControlTest, ShowsTheTable) {
  const policy::PolicyTablePtr table =
      *policy::PolicyTable::Make({policy::SmallSpecForTesting()}, {true}, {{"*", {{policy::PolicyId("p")}}}}, {"x"});
  endpoint_.SetPolicies(table);
  const auto shown = client_->Policies(absl::Seconds(10));
  ASSERT_TRUE(shown.ok()) << shown.status();
  EXPECT_EQ(policy::ToJson(**shown), policy::ToJson(*table));
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

}  // namespace
}  // namespace troupe::rpc
