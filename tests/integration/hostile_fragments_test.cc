// Malformed and late fragments against the real learner over a real stream: each gets its exact disposition, and the
// learner goes on.

#include <functional>
#include <limits>
#include <string>

#include "lib/policy/testing/slots.h"
#include "lib/rpc/codec/fragment_codec.h"
#include "lib/rpc/testing/scripted_peer.h"
#include "lib/sample/testing/batch_maker.h"
#include "tests/integration/learner_fixture.h"
#include <gtest/gtest.h>

namespace troupe::integration {
namespace {

constexpr int32_t kLanes = 4;
constexpr int32_t kSteps = 25;

std::string Bytes(const grpc::ByteBuffer& buffer) {
  std::string bytes;
  const auto list = rpc::SliceList::From(buffer);
  for (const grpc::Slice& slice : list->slices())
    bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  return bytes;
}

/// One worker that has joined and got its grant.
class HostileFragmentsTest : public testing::Test {
 protected:
  HostileFragmentsTest() : schema_(sample::SimpleSchema()), rollout_(schema_, {}) {
    learner::LearnerConfig config;
    config.schema = schema_;
    config.options.num_workers = 1;
    config.options.num_envs = kLanes;
    config.options.train_batch_size = kLanes * kSteps;
    learner_ = std::make_unique<ServedLearner>(
        std::move(config), SocketFor(testing::UnitTest::GetInstance()->current_test_info()->name()));
    TROUPE_CHECK(learner_->learner().Start().ok());
    peer_ = Join();
  }

  std::unique_ptr<rpc::ScriptedPeer> Join() {
    auto peer = std::make_unique<rpc::ScriptedPeer>(learner_->address());
    peer->Send(rpc::ScriptedPeer::Hello());
    return peer;
  }
  /// Reads on to the next grant.
  sample::Grant NextGrant(rpc::ScriptedPeer& peer) {
    while (true) {
      const auto message = peer.Receive();
      TROUPE_CHECK(message.ok());
      if (message->has_grant()) return *rpc::FromProto(message->grant());
    }
  }
  /// Reads on to the next ack.
  v1::Ack NextAck(rpc::ScriptedPeer& peer) {
    while (true) {
      const auto message = peer.Receive();
      TROUPE_CHECK(message.ok());
      if (message->has_ack()) return message->ack();
    }
  }
  std::shared_ptr<sample::MultiAgentBatch> Play(const sample::Grant& grant) {
    const auto fragments = rollout_.Play(grant, grant.min_version);
    TROUPE_CHECK(fragments.size() == 1);
    return fragments[0];
  }
  static std::string Encode(uint64_t sequence, const std::shared_ptr<sample::MultiAgentBatch>& batch) {
    return Bytes(rpc::EncodeFragment(sequence, batch)->message);
  }
  void ExpectConserved() {
    const learner::LearnerStatus status = learner_->learner().Status();
    const absl::Status conserved = learner::CheckConservation(status.progress.rows);
    EXPECT_TRUE(conserved.ok()) << conserved;
    const learner::FragmentCounters& fragments = status.fragments;
    EXPECT_EQ(fragments.received, fragments.accepted + fragments.duplicate + fragments.stale + fragments.invalid);
  }

  const sample::BatchSchema schema_;
  sample::FakeRollout rollout_;
  std::unique_ptr<ServedLearner> learner_;
  std::unique_ptr<rpc::ScriptedPeer> peer_;
};

struct Spoiler {
  const char* name;
  std::function<void(sample::MultiAgentBatch&)> before;  ///< the batch, then encoded as it is
  std::function<void(v1::WorkerMessage&)> after;         ///< or its message
  v1::Disposition disposition;
  const char* words;
};

std::vector<Spoiler> Spoilers() {
  using sample::MutableColumn;
  const auto rows = [](v1::WorkerMessage& m) { return m.mutable_fragment()->mutable_policies(0); };
  return {
      {"wrong shape",
       {},
       [=](auto& m) { rows(m)->mutable_obs()->set_row_elements(9); },
       v1::DISPOSITION_INVALID,
       "obs"},
      {"wrong dtype",
       {},
       [=](auto& m) { rows(m)->mutable_obs()->set_dtype(v1::DTYPE_INT32); },
       v1::DISPOSITION_INVALID,
       "obs"},
      {"wrong length",
       {},
       [](auto& m) { m.mutable_payload()->append(64, '\0'); },
       v1::DISPOSITION_INVALID,
       "header says"},
      {"unknown policy", {}, [=](auto& m) { rows(m)->set_policy_slot(9); }, v1::DISPOSITION_INVALID, "policy"},
      {"absurd size",
       {},
       [=](auto& m) { rows(m)->mutable_obs()->set_rows(int64_t{1} << 60); },
       v1::DISPOSITION_INVALID,
       "shape"},
      {"bad checksum", {}, [](auto& m) { m.mutable_payload()->back() ^= 1; }, v1::DISPOSITION_INVALID, "CRC-32C"},
      {"NaN observation",
       [](auto& b) { MutableColumn<float>(b.policies[0].obs)[7] = std::numeric_limits<float>::quiet_NaN(); },
       {},
       v1::DISPOSITION_INVALID,
       "finite"},
      {"infinite reward",
       [](auto& b) { MutableColumn<float>(b.policies[0].rewards)[1] = std::numeric_limits<float>::infinity(); },
       {},
       v1::DISPOSITION_INVALID,
       "expected -1e+12 to 1e+12 (env.max_abs_return)"},
      {"action outside its space",
       [](auto& b) { MutableColumn<uint8_t>(b.policies[0].actions)[0] = 5; },
       {},
       v1::DISPOSITION_INVALID,
       "action"},
      {"segment that is not there",
       [](auto& b) { MutableColumn<sample::Index>(b.policies[0].segment)[0] = 999; },
       {},
       v1::DISPOSITION_INVALID,
       "segment"},
      {"environment of nobody",
       [](auto& b) { b.episodes[0].env_id = base::EnvId(999); },
       {},
       v1::DISPOSITION_INVALID,
       ""},
      {"return beyond belief",
       [](auto& b) {
         b.finished.push_back(
             {b.episodes[0].env_id, b.episodes[0].episode, 9, {1e38f, 0, 0}, policy::SlotsForTesting({0, 0, 0}), {}});
       },
       {},
       v1::DISPOSITION_INVALID,
       "env.max_abs_return"},
      {"rows without an env step",
       {},
       [](auto& m) { m.mutable_fragment()->set_num_env_steps(0); },
       v1::DISPOSITION_INVALID,
       "num_env_steps is 0"},
      {"columns that overlap",
       {},
       [=](auto& m) { rows(m)->mutable_rewards()->set_offset(rows(m)->obs().offset()); },
       v1::DISPOSITION_INVALID,
       "expected columns that do not overlap"},
      {"grant that never was", [](auto& b) { b.grant = sample::GrantId(999'999); }, {}, v1::DISPOSITION_STALE, "grant"},
      {"weights of another learner epoch",
       [](auto& b) {
         b.policies[0].version = {77, 0};
       },
       {},
       v1::DISPOSITION_STALE,
       ""},
  };
}

TEST_F(HostileFragmentsTest, EachGetsItsDispositionAndTheLearnerGoesOn) {
  uint64_t sequence = 0;
  int64_t updates = 0;
  sample::Grant grant = NextGrant(*peer_);
  for (const Spoiler& spoiler : Spoilers()) {
    SCOPED_TRACE(spoiler.name);
    const auto batch = Play(grant);
    if (spoiler.before) spoiler.before(*batch);
    std::string bytes = Encode(++sequence, batch);
    if (spoiler.after) {
      v1::WorkerMessage message;
      ASSERT_TRUE(message.ParseFromString(bytes));
      spoiler.after(message);
      bytes = message.SerializeAsString();
    }
    peer_->Send(bytes);
    // Refused: the learner grants the steps again, before or after its ack.
    std::optional<v1::Ack> ack;
    std::optional<sample::Grant> again;
    while (!ack.has_value() || !again.has_value()) {
      const auto message = peer_->Receive();
      ASSERT_TRUE(message.ok()) << message.status() << (ack.has_value() ? ", ack came" : ", no ack");
      if (message->has_ack()) ack = message->ack();
      if (message->has_grant()) again = *rpc::FromProto(message->grant());
      // A grant that was not used up by what was refused stays as it is.
      if (ack.has_value() && spoiler.disposition == v1::DISPOSITION_STALE && !again.has_value()) break;
    }
    EXPECT_EQ(ack->sequence(), sequence);
    EXPECT_EQ(ack->watermark(), sequence);
    EXPECT_EQ(ack->disposition(), spoiler.disposition) << ack->reason();
    EXPECT_FALSE(ack->reason().empty());
    EXPECT_NE(ack->reason().find(spoiler.words), std::string::npos) << ack->reason();
    if (again.has_value()) grant = *again;

    // And a good one is still taken, trained on, and followed by the next grant.
    peer_->Send(Encode(++sequence, Play(grant)));
    const v1::Ack accepted = NextAck(*peer_);
    EXPECT_EQ(accepted.disposition(), v1::DISPOSITION_ACCEPTED) << accepted.reason();
    ASSERT_TRUE(learner_->StepTo(++updates));
    grant = NextGrant(*peer_);
    ExpectConserved();
  }
  const learner::LearnerStatus status = learner_->learner().Status();
  const auto spoilers = static_cast<int64_t>(Spoilers().size());
  EXPECT_EQ(status.fragments.accepted, spoilers);
  EXPECT_EQ(status.fragments.invalid + status.fragments.stale, spoilers);
  EXPECT_EQ(status.progress.rows.trained, spoilers * kLanes * kSteps * 3);
}

TEST_F(HostileFragmentsTest, ARepeatedSequenceIsADuplicateAndCountsOnce) {
  const std::string bytes = Encode(1, Play(NextGrant(*peer_)));
  peer_->Send(bytes);
  EXPECT_EQ(NextAck(*peer_).disposition(), v1::DISPOSITION_ACCEPTED);
  peer_->Send(bytes);
  const v1::Ack repeated = NextAck(*peer_);
  EXPECT_EQ(repeated.disposition(), v1::DISPOSITION_DUPLICATE);
  EXPECT_EQ(repeated.watermark(), 1u);
  ASSERT_TRUE(learner_->StepTo(1));
  EXPECT_EQ(learner_->learner().Status().progress.rows.trained, kLanes * kSteps * 3);
  EXPECT_EQ(learner_->learner().Status().fragments.duplicate, 1);
  ExpectConserved();
}

TEST_F(HostileFragmentsTest, ASequenceNumberOfNoHonestWorkerEndsTheStream) {
  const auto batch = Play(NextGrant(*peer_));
  peer_->Send(Encode(uint64_t{1} << 40, batch));
  EXPECT_EQ(peer_->AwaitEnd().code(), absl::StatusCode::kInvalidArgument);
  // The grant is there for the next worker.
  const auto next = Join();
  next->Send(Encode(1, Play(NextGrant(*next))));
  EXPECT_EQ(NextAck(*next).disposition(), v1::DISPOSITION_ACCEPTED);
  ExpectConserved();
}

TEST_F(HostileFragmentsTest, WhatASupersededRegistrationSendsIsNotTaken) {
  NextGrant(*peer_);
  auto second = std::make_unique<rpc::ScriptedPeer>(learner_->address());
  v1::WorkerMessage hello = rpc::ScriptedPeer::Hello();
  hello.mutable_hello()->set_worker_id(learner_->learner().Status().workers[0].id.value());
  second->Send(hello);
  const sample::Grant grant = NextGrant(*second);
  EXPECT_EQ(peer_->AwaitEnd().code(), absl::StatusCode::kAborted);
  second->Send(Encode(1, Play(grant)));
  EXPECT_EQ(NextAck(*second).disposition(), v1::DISPOSITION_ACCEPTED);
  ExpectConserved();
}

TEST_F(HostileFragmentsTest, AnotherProcessUnderATakenIdIsAWorkerOfItsOwn) {
  NextGrant(*peer_);
  const uint64_t taken = learner_->learner().Status().workers[0].id.value();
  auto other = std::make_unique<rpc::ScriptedPeer>(learner_->address());
  v1::WorkerMessage hello = rpc::ScriptedPeer::Hello();
  hello.mutable_hello()->set_worker_id(taken);
  hello.mutable_hello()->set_incarnation(hello.hello().incarnation() + 1);
  other->Send(hello);
  const auto welcome = other->Receive();
  ASSERT_TRUE(welcome.ok()) << welcome.status();
  EXPECT_NE(welcome->welcome().worker_id(), taken);
  EXPECT_EQ(learner_->learner().Status().workers.size(), 2u) << "the first was fenced off";
}

TEST_F(HostileFragmentsTest, WhatADeadWorkerOwedIsGrantedToTheNext) {
  const sample::Grant lost = NextGrant(*peer_);
  peer_.reset();
  const auto next = Join();
  const sample::Grant grant = NextGrant(*next);
  ASSERT_EQ(grant.lanes.size(), lost.lanes.size());
  for (size_t i = 0; i < grant.lanes.size(); ++i) {
    EXPECT_TRUE(grant.lanes[i].fresh);
    EXPECT_GT(grant.lanes[i].next_episode, lost.lanes[i].next_episode)
        << "an episode that may have begun is begun again";
  }
  next->Send(Encode(1, Play(grant)));
  EXPECT_EQ(NextAck(*next).disposition(), v1::DISPOSITION_ACCEPTED);
  ASSERT_TRUE(learner_->StepTo(1));
  ExpectConserved();
}

}  // namespace
}  // namespace troupe::integration
