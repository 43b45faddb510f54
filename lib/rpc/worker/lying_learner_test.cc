// Whoever answers at the learner's address may say anything: a worker's client refuses what is no protocol in words,
// keeps no more than its limits say, and waits no longer than its owner wants.

#include "lib/rpc/testing/lying_learner.h"

#include <unistd.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "lib/base/await.h"
#include "lib/base/clock.h"
#include "lib/config/run_config.h"
#include "lib/policy/policy_spec.h"
#include "lib/policy/policy_table.h"
#include "lib/rpc/transport/limits.h"
#include "lib/rpc/worker/worker_client.h"
#include "lib/sample/testing/batch_maker.h"
#include <gmock/gmock.h>
#include <google/protobuf/unknown_field_set.h>
#include <gtest/gtest.h>

namespace troupe::rpc {
namespace {

using testing::HasSubstr;

class LyingLearnerTest : public testing::Test {
 protected:
  ~LyingLearnerTest() override {
    if (client_ != nullptr) client_->Close();
    if (io_thread_.joinable()) io_thread_.join();
  }
  void Meet(const std::vector<v1::LearnerMessage>& script,
            LyingLearner::Ending ending = LyingLearner::Ending::kSilence) {
    learner_.reset();  // it has the address
    learner_ = std::make_unique<LyingLearner>(address_, script, ending);
    WorkerClientOptions options;
    options.address = address_;
    options.incarnation = 81;
    client_ = *WorkerClient::Create(std::move(options), &base::Clock::Real());
    io_thread_ = std::thread([this] { client_->Run(); });
  }
  /// What ends the client.
  absl::Status End() {
    const bool ended = base::AwaitPolling(absl::Milliseconds(1), base::Deadline::After(absl::Seconds(20)),
                                          [this] { return client_->ended(); });
    return ended ? client_->AwaitGrant(absl::ZeroDuration()).status() : absl::OkStatus();
  }
  void ExpectEnd(const std::string& words) {
    const absl::Status end = End();
    EXPECT_EQ(end.code(), absl::StatusCode::kInvalidArgument) << end;
    EXPECT_THAT(std::string(end.message()), HasSubstr(words));
  }
  v1::LearnerMessage Welcome() const { return LyingLearner::Welcome(schema_.Hash()); }
  static v1::LearnerMessage Grant(uint64_t id, int lanes = 1) {
    v1::LearnerMessage message;
    message.mutable_grant()->set_id(id);
    for (int env = 0; env < lanes; ++env) {
      v1::Lane* const lane = message.mutable_grant()->add_lanes();
      lane->set_env_id(static_cast<uint32_t>(env));
      lane->set_env_steps(1);
    }
    return message;
  }
  v1::LearnerMessage Table(int64_t revision) const {
    const policy::PolicyTablePtr table =
        *policy::PolicyTable::Make(schema_.policies.values(), std::vector<bool>(schema_.policies.size(), true),
                                   {{"*", {{schema_.policies[policy::PolicySlot(0)].id}}}}, {"a"});
    const std::string json = policy::ToJson(*table->AtLeast(revision));
    v1::LearnerMessage message;
    message.mutable_policy_table()->set_revision(revision);
    message.mutable_policy_table()->set_total_bytes(json.size());
    message.mutable_policy_table()->set_json(json);
    return message;
  }

  const sample::BatchSchema schema_ = sample::SimpleSchema();
  const std::string address_ = absl::StrCat("unix-abstract:troupe-liar-", getpid(), "-",
                                            testing::UnitTest::GetInstance()->current_test_info()->name());
  std::unique_ptr<LyingLearner> learner_;
  std::unique_ptr<WorkerClient> client_;
  std::thread io_thread_;
};

TEST_F(LyingLearnerTest, ASecondWelcomeOnOneStream) {
  Meet({Welcome(), Welcome()});
  ExpectEnd("got a second Welcome on one stream, expected one");
}

TEST_F(LyingLearnerTest, AWelcomeOfAnotherProtocol) {
  v1::LearnerMessage welcome = Welcome();
  welcome.mutable_welcome()->mutable_protocol()->set_major(1);
  Meet({welcome});
  const absl::Status end = End();
  EXPECT_EQ(end.code(), absl::StatusCode::kFailedPrecondition) << end;
  EXPECT_THAT(std::string(end.message()), HasSubstr("protocol 1.0 is not spoken here, expected 2.0"));
}

TEST_F(LyingLearnerTest, WhatComesBeforeTheWelcome) {
  v1::LearnerMessage ack, over;
  ack.mutable_ack()->set_disposition(v1::DISPOSITION_ACCEPTED);
  over.mutable_grant_over();
  for (const v1::LearnerMessage& first : {Grant(1), Table(1), ack, over}) {
    Meet({first, Welcome()});
    ExpectEnd("expected Welcome or Refusal");
    client_->Close();
    io_thread_.join();
  }
}

TEST_F(LyingLearnerTest, BytesThatAreNoMessage) {
  v1::LearnerMessage broken;
  broken.GetReflection()->MutableUnknownFields(&broken)->AddLengthDelimited(1, "\xff");  // a Welcome that is none
  Meet({broken});
  ExpectEnd("the learner's words: got 3 bytes that are no LearnerMessage");
}

TEST_F(LyingLearnerTest, AConfigurationLargerThanAnyThatThereIs) {
  Meet({LyingLearner::Welcome(schema_.Hash(), std::string(config::kMaxConfigBytes + 1, '#'))});
  ExpectEnd("the learner's configuration has 1048577 bytes, expected at most 1048576");
}

TEST_F(LyingLearnerTest, GrantsWithoutEnd) {
  Meet({Welcome(), Grant(1)}, LyingLearner::Ending::kAgainAndAgain);
  ExpectEnd(absl::StrCat("grant 1: with it ", kMaxWaitingGrants + 1, " grants wait"));
}

TEST_F(LyingLearnerTest, GrantsOfAMillionEnvironments) {
  constexpr int kLanes = 200000;
  Meet({Welcome(), Grant(1, kLanes)}, LyingLearner::Ending::kAgainAndAgain);
  ExpectEnd(absl::StrCat("6 grants wait, of ", 6 * kLanes, " environments"));
}

TEST_F(LyingLearnerTest, AGrantOfMillionsOfEmptyEnvironments) {
  v1::LearnerMessage flood = Grant(1);
  google::protobuf::UnknownFieldSet* const fields =
      flood.mutable_grant()->GetReflection()->MutableUnknownFields(flood.mutable_grant());
  for (int i = 0; i < 2000000; ++i) fields->AddLengthDelimited(5, "");
  Meet({Welcome(), flood});
  ExpectEnd("would take more than 33554432 bytes of memory");
}

TEST_F(LyingLearnerTest, ATableForEveryGrant) {
  std::vector<v1::LearnerMessage> script = {Welcome()};
  for (uint64_t id = 1; id <= kMaxWaitingTables + 1; ++id) {
    script.push_back(Table(static_cast<int64_t>(id)));
    script.push_back(Grant(id));
  }
  Meet(script);
  ExpectEnd(absl::StrCat("grant ", kMaxWaitingTables + 1, ": with it ", kMaxWaitingTables + 1, " grants wait"));
}

TEST_F(LyingLearnerTest, FragmentsWithoutAnAckAreBoundedInBytesWhateverTheCredit) {
  v1::LearnerMessage welcome = Welcome();
  welcome.mutable_welcome()->set_credit_bytes(UINT64_MAX);
  Meet({welcome});
  ASSERT_TRUE(client_->AwaitWelcome(absl::Seconds(20)).ok());
  const sample::MultiAgentBatchPtr fragment = sample::MakeBatch(schema_, {}, 4, 1000);
  const auto encoded = EncodeFragment(1, fragment);
  ASSERT_TRUE(encoded.ok());
  const auto bytes = static_cast<int64_t>(encoded->message.Length());
  ASSERT_GT(bytes, kMaxUnackedBytes / static_cast<int64_t>(kMaxUnackedFragments)) << "bytes are what ends it";
  const int64_t room = kMaxUnackedBytes / (bytes + 16);  // sequence numbers take some
  for (int64_t i = 0; i < room; ++i) ASSERT_TRUE(client_->Submit(fragment).ok());
  client_->Hurry(absl::ZeroDuration());
  const absl::Status refused = client_->Submit(fragment);
  EXPECT_EQ(refused.code(), absl::StatusCode::kCancelled);
  EXPECT_THAT(std::string(refused.message()), HasSubstr(absl::StrCat("has not acknowledged ", room, " fragments")));
}

TEST_F(LyingLearnerTest, FragmentsWithoutAnAckAreBoundedInNumberWhateverTheCredit) {
  v1::LearnerMessage welcome = Welcome();
  welcome.mutable_welcome()->set_credit_bytes(UINT64_MAX);
  Meet({welcome});
  ASSERT_TRUE(client_->AwaitWelcome(absl::Seconds(20)).ok());
  const sample::MultiAgentBatchPtr fragment = sample::MakeBatch(schema_, {}, 1, 1);
  for (size_t i = 0; i < kMaxUnackedFragments; ++i) ASSERT_TRUE(client_->Submit(fragment).ok());
  client_->Hurry(absl::ZeroDuration());
  const absl::Status refused = client_->Submit(fragment);
  EXPECT_EQ(refused.code(), absl::StatusCode::kCancelled);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("has not acknowledged 1024 fragments"));
}

TEST_F(LyingLearnerTest, WhoIsInAHurryWaitsForNoAck) {
  v1::LearnerMessage welcome = Welcome();
  welcome.mutable_welcome()->set_credit_bytes(1);
  Meet({welcome});
  ASSERT_TRUE(client_->AwaitWelcome(absl::Seconds(20)).ok());
  const sample::MultiAgentBatchPtr fragment = sample::MakeBatch(schema_, {}, 4, 25);
  ASSERT_TRUE(client_->Submit(fragment).ok());
  absl::Status blocked;
  std::thread submitter([&] { blocked = client_->Submit(fragment); });  // waits without end, but for the next line
  client_->Hurry(absl::Milliseconds(100));
  submitter.join();
  EXPECT_EQ(blocked.code(), absl::StatusCode::kCancelled) << blocked;
  const absl::Duration begun = base::Clock::Real().SteadyNow();
  const absl::Status drained = client_->Drain(absl::Minutes(10));
  EXPECT_LT(base::Clock::Real().SteadyNow() - begun, absl::Seconds(60));
  EXPECT_EQ(drained.code(), absl::StatusCode::kDeadlineExceeded) << drained;
  EXPECT_THAT(std::string(drained.message()), HasSubstr("1 fragments were not acknowledged within"));
}

TEST_F(LyingLearnerTest, AHeartbeatEveryMillisecondIsNotSent) {
  v1::LearnerMessage welcome = Welcome();
  welcome.mutable_welcome()->set_heartbeat_interval_ms(1);
  const absl::Duration begun = base::Clock::Real().SteadyNow();
  Meet({welcome});
  while (learner_->messages() < 11) {
    ASSERT_LT(base::Clock::Real().SteadyNow() - begun, absl::Seconds(60));
    std::this_thread::yield();
  }
  // A Hello, and ten heartbeats.
  EXPECT_GE(base::Clock::Real().SteadyNow() - begun, 9 * kMinHeartbeatInterval);
}

}  // namespace
}  // namespace troupe::rpc
