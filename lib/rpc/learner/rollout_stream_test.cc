#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/base/await.h"
#include "lib/config/permits.h"
#include "lib/rpc/codec/fragment_codec.h"
#include "lib/rpc/learner/learner_server.h"
#include "lib/rpc/testing/fake_endpoint.h"
#include "lib/rpc/testing/scripted_peer.h"
#include "lib/rpc/transport/limits.h"
#include "lib/sample/testing/batch_maker.h"
#include "proto/troupe/v1/query.grpc.pb.h"
#include <google/protobuf/unknown_field_set.h>
#include <grpcpp/create_channel.h>
#include <gtest/gtest.h>

namespace troupe::rpc {
namespace {

/// A server on a socket of its own, before a fake learner.
class RolloutStreamTest : public testing::Test {
 protected:
  void SetUp() override {
    address_ = absl::StrCat("unix-abstract:troupe-test-", getpid(), "-",
                            testing::UnitTest::GetInstance()->current_test_info()->name());
    LearnerServerOptions options;
    options.addresses = {address_};
    options.schema = schema_;
    options.config_yaml = "seed: 1\n";
    auto server = LearnerServer::Start(std::move(options), &endpoint_, &endpoint_, &clock_);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }

  std::string FragmentBytes(uint64_t sequence) const {
    std::string bytes;
    const auto encoded = EncodeFragment(sequence, sample::MakeBatch(schema_, {}, 4, 25));
    const auto list = SliceList::From(encoded->message);
    for (const grpc::Slice& slice : list->slices())
      bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
    return bytes;
  }
  void AwaitStreams(int64_t count) {
    base::AwaitPolling(absl::Milliseconds(1), base::Deadline::After(absl::Seconds(10)),
                       [&] { return server_->num_streams() >= count; });
    ASSERT_EQ(server_->num_streams(), count);
  }
  /// The server still takes a worker and its samples.
  void ExpectServes() {
    ScriptedPeer peer(address_);
    peer.Send(ScriptedPeer::Hello());
    ASSERT_TRUE(peer.Receive()->has_welcome());
    peer.Send(FragmentBytes(1));
    const auto ack = peer.Receive();
    ASSERT_TRUE(ack.ok()) << ack.status();
    EXPECT_EQ(ack->ack().disposition(), v1::DISPOSITION_ACCEPTED);
  }

  static void SetPermits(const std::vector<uint64_t>& permits, v1::WorkerMessage& hello) {
    hello.mutable_hello()->mutable_permits()->Assign(permits.begin(), permits.end());
    hello.mutable_hello()->set_permits_digest(config::CombineDigests(permits));
  }

  const sample::BatchSchema schema_ = sample::SimpleSchema();
  base::FakeClock clock_;
  FakeEndpoint endpoint_;
  std::string address_;
  std::unique_ptr<LearnerServer> server_;
};

TEST_F(RolloutStreamTest, WelcomeComesFirstAndSaysEverything) {
  ScriptedPeer peer(address_);
  peer.Send(ScriptedPeer::Hello());
  const auto message = peer.Receive();
  ASSERT_TRUE(message.ok()) << message.status();
  ASSERT_TRUE(message->has_welcome()) << message->DebugString();
  EXPECT_EQ(message->welcome().worker_id(), 1u);
  EXPECT_EQ(message->welcome().worker_epoch(), 1u);
  EXPECT_EQ(message->welcome().learner_epoch(), 1u);
  EXPECT_EQ(message->welcome().spec_hash(), schema_.Hash());
  EXPECT_EQ(message->welcome().config_yaml(), "seed: 1\n");
  EXPECT_GT(message->welcome().credit_bytes(), 0u);
  EXPECT_EQ(message->welcome().protocol().major(), kProtocolMajor);
}

TEST_F(RolloutStreamTest, GrantsAcksAndDrainReachTheWorkerInOrder) {
  ScriptedPeer peer(address_);
  peer.Send(ScriptedPeer::Hello());
  ASSERT_TRUE(peer.Receive()->has_welcome());
  const auto port = endpoint_.worker(1).port;
  port->SendGrant(sample::MakeGrant(3, 25, {1, 4}));
  port->SendAck({.sequence = 7, .watermark = 6, .disposition = sample::Disposition::kStale, .reason = "too old"});
  port->SendGrantOver(sample::GrantId(31));
  port->SendDrain("done");
  const auto grant = peer.Receive();
  ASSERT_TRUE(grant->has_grant());
  EXPECT_EQ(grant->grant().lanes_size(), 3);
  EXPECT_EQ(grant->grant().min_version().n(), 4);
  const auto ack = peer.Receive();
  EXPECT_EQ(ack->ack().sequence(), 7u);
  EXPECT_EQ(ack->ack().watermark(), 6u);
  EXPECT_EQ(ack->ack().disposition(), v1::DISPOSITION_STALE);
  EXPECT_EQ(ack->ack().reason(), "too old");
  EXPECT_EQ(peer.Receive()->grant_over().grant_id(), 31u);
  EXPECT_EQ(peer.Receive()->drain().reason(), "done");
}

TEST_F(RolloutStreamTest, AGoodbyeEndsTheStreamWithOk) {
  ScriptedPeer peer(address_);
  peer.Send(ScriptedPeer::Hello());
  ASSERT_TRUE(peer.Receive()->has_welcome());
  v1::WorkerMessage goodbye;
  goodbye.mutable_goodbye()->set_reason("drained");
  peer.Send(goodbye.SerializeAsString(), /*last=*/true);
  EXPECT_TRUE(peer.AwaitEnd().ok()) << peer.AwaitEnd();
  ASSERT_TRUE(endpoint_.Await([](const auto& workers, const auto&) { return workers.at(1).leaves == 1; }));
  EXPECT_EQ(endpoint_.worker(1).left_because, "drained");
}

TEST_F(RolloutStreamTest, ALostConnectionIsALeave) {
  {
    ScriptedPeer peer(address_);
    peer.Send(ScriptedPeer::Hello());
    ASSERT_TRUE(peer.Receive()->has_welcome());
  }
  ASSERT_TRUE(endpoint_.Await([](const auto& workers, const auto&) { return workers.at(1).leaves == 1; }));
  ExpectServes();
}

TEST_F(RolloutStreamTest, OtherProtocolVersionIsRefusedInWords) {
  // A worker of an earlier release, whose fragments have other columns, and one of a later.
  for (const uint32_t major : {1u, 3u}) {
    ScriptedPeer peer(address_);
    v1::WorkerMessage hello = ScriptedPeer::Hello();
    hello.mutable_hello()->mutable_protocol()->set_major(major);
    peer.Send(hello);
    const auto message = peer.Receive();
    ASSERT_TRUE(message.ok()) << message.status();
    EXPECT_EQ(message->refusal().reason(), v1::REFUSAL_REASON_PROTOCOL);
    EXPECT_EQ(message->refusal().message(),
              absl::StrCat("protocol ", major,
                           ".0 is not spoken here, expected 2.0: use builds of the same release on both ends"));
    EXPECT_EQ(peer.AwaitEnd().code(), absl::StatusCode::kFailedPrecondition);
    ExpectServes();
  }
}

TEST_F(RolloutStreamTest, OtherMinorVersionIsFine) {
  ScriptedPeer peer(address_);
  v1::WorkerMessage hello = ScriptedPeer::Hello();
  hello.mutable_hello()->mutable_protocol()->set_minor(99);
  peer.Send(hello);
  EXPECT_TRUE(peer.Receive()->has_welcome());
}

TEST_F(RolloutStreamTest, WrongSpecHashIsRefusedInWords) {
  ScriptedPeer peer(address_);
  v1::WorkerMessage hello = ScriptedPeer::Hello();
  hello.mutable_hello()->set_spec_hash(schema_.Hash() + 1);
  peer.Send(hello);
  const auto message = peer.Receive();
  ASSERT_TRUE(message.ok()) << message.status();
  EXPECT_EQ(message->refusal().reason(), v1::REFUSAL_REASON_SPEC_HASH);
  EXPECT_EQ(peer.AwaitEnd().code(), absl::StatusCode::kFailedPrecondition);
  ExpectServes();
}

TEST_F(RolloutStreamTest, TheRightSpecHashIsWelcome) {
  ScriptedPeer peer(address_);
  v1::WorkerMessage hello = ScriptedPeer::Hello();
  hello.mutable_hello()->set_spec_hash(schema_.Hash());
  peer.Send(hello);
  EXPECT_TRUE(peer.Receive()->has_welcome());
}

TEST_F(RolloutStreamTest, AHelloOutOfRangeIsRefused) {
  for (int what = 0; what < 8; ++what) {
    ScriptedPeer peer(address_);
    v1::WorkerMessage hello = ScriptedPeer::Hello();
    if (what == 0) hello.mutable_hello()->set_incarnation(0);
    if (what == 1) hello.mutable_hello()->set_next_sequence(0);
    if (what == 2) hello.mutable_hello()->set_first_unacked(2);
    if (what == 3) hello.mutable_hello()->set_name(std::string(129, 'x'));
    if (what == 4) SetPermits(std::vector<uint64_t>(257, 7), hello);
    if (what == 5) SetPermits({9, 8}, hello);
    if (what == 6) hello.mutable_hello()->set_permits_digest(1);
    if (what == 7) hello.mutable_hello()->add_permits(1);
    peer.Send(hello);
    EXPECT_EQ(peer.Receive()->refusal().reason(), v1::REFUSAL_REASON_BAD_HELLO) << what;
    EXPECT_EQ(peer.AwaitEnd().code(), absl::StatusCode::kInvalidArgument) << what;
  }
  ExpectServes();
}

TEST_F(RolloutStreamTest, AHelloOfSequencesThatCannotBeIsRefusedInWords) {
  constexpr uint64_t kFar = uint64_t{1} << 40;
  const auto refused = [this](uint64_t worker_id, uint64_t first_unacked) {
    ScriptedPeer peer(address_);
    v1::WorkerMessage hello = ScriptedPeer::Hello();
    hello.mutable_hello()->set_worker_id(worker_id);
    hello.mutable_hello()->set_first_unacked(first_unacked);
    hello.mutable_hello()->set_next_sequence(kFar);
    peer.Send(hello);
    const auto refusal = peer.Receive();
    EXPECT_EQ(refusal->refusal().reason(), v1::REFUSAL_REASON_BAD_HELLO);
    EXPECT_EQ(peer.AwaitEnd().code(), absl::StatusCode::kInvalidArgument);
    return refusal->refusal().message();
  };
  // Who never had an id has sent nothing.
  EXPECT_EQ(
      refused(0, kFar),
      "Hello has worker_id 0 and first_unacked 1099511627776, expected first_unacked 1 of a worker that never had "
      "an id");
  EXPECT_EQ(refused(7, kFar - 65537),
            "Hello has first_unacked 1099511562239 and next_sequence 1099511627776, expected at most 65536 fragments "
            "without an ack");
  EXPECT_NE(refused(0, 1).find("expected at most 65536 fragments without an ack"), std::string::npos);
  ExpectServes();
}

TEST_F(RolloutStreamTest, WhatAWorkerPermitsReachesTheLearner) {
  for (const std::vector<uint64_t>& permits : {std::vector<uint64_t>{}, {7}, std::vector<uint64_t>(256, 7)}) {
    ScriptedPeer peer(address_);
    v1::WorkerMessage hello = ScriptedPeer::Hello();
    SetPermits(permits, hello);
    peer.Send(hello);
    const auto message = peer.Receive();
    ASSERT_TRUE(message.ok() && message->has_welcome()) << permits.size();
    EXPECT_EQ(endpoint_.worker(message->welcome().worker_id()).request.permits, permits);
  }
}

TEST_F(RolloutStreamTest, ALearnerThatDrainsSaysSo) {
  endpoint_.set_join_status(absl::UnavailableError("the run is over"));
  ScriptedPeer peer(address_);
  peer.Send(ScriptedPeer::Hello());
  EXPECT_EQ(peer.Receive()->refusal().reason(), v1::REFUSAL_REASON_DRAINING);
  EXPECT_EQ(peer.AwaitEnd().code(), absl::StatusCode::kUnavailable);
}

TEST_F(RolloutStreamTest, MessagesOutOfOrderEndTheStream) {
  {
    ScriptedPeer peer(address_);
    peer.Send(FragmentBytes(1));  // before Hello
    EXPECT_EQ(peer.AwaitEnd().code(), absl::StatusCode::kInvalidArgument);
  }
  {
    // A Hello that nobody knows yet, with more in it than a Hello has.
    ScriptedPeer peer(address_);
    v1::WorkerMessage hello = ScriptedPeer::Hello();
    google::protobuf::UnknownFieldSet* const fields = hello.GetReflection()->MutableUnknownFields(&hello);
    for (int i = 0; i < 20; ++i) fields->AddLengthDelimited(14, "");
    peer.Send(hello);
    const absl::Status end = peer.AwaitEnd();
    EXPECT_EQ(end.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(end.message().find("has more than 16 elements and texts"), std::string::npos) << end;
  }
  {
    ScriptedPeer peer(address_);
    peer.Send(ScriptedPeer::Hello());
    ASSERT_TRUE(peer.Receive()->has_welcome());
    peer.Send(ScriptedPeer::Hello());
    EXPECT_EQ(peer.AwaitEnd().code(), absl::StatusCode::kInvalidArgument);
  }
  {
    ScriptedPeer peer(address_);
    peer.Send(ScriptedPeer::Hello());
    ASSERT_TRUE(peer.Receive()->has_welcome());
    peer.Send(std::string("\xff\xff\xff\xff"));
    EXPECT_EQ(peer.AwaitEnd().code(), absl::StatusCode::kInvalidArgument);
  }
  {
    ScriptedPeer peer(address_);
    peer.Send(ScriptedPeer::Hello());
    ASSERT_TRUE(peer.Receive()->has_welcome());
    peer.Send(FragmentBytes(0));  // there is no sequence 0
    EXPECT_EQ(peer.AwaitEnd().code(), absl::StatusCode::kInvalidArgument);
  }
  {
    // Half a million policies of nothing.
    ScriptedPeer peer(address_);
    peer.Send(ScriptedPeer::Hello());
    ASSERT_TRUE(peer.Receive()->has_welcome());
    v1::WorkerMessage flood;
    google::protobuf::UnknownFieldSet* const fields =
        flood.mutable_fragment()->GetReflection()->MutableUnknownFields(flood.mutable_fragment());
    for (int i = 0; i < 500000; ++i) fields->AddLengthDelimited(11, "");
    peer.Send(flood);
    const absl::Status end = peer.AwaitEnd();
    EXPECT_EQ(end.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(end.message().find("has more than 20480 elements and texts"), std::string::npos) << end;
  }
  ExpectServes();
}

TEST_F(RolloutStreamTest, AMessageBeyondTheLimitIsRefusedByTheTransport) {
  ScriptedPeer peer(address_);
  peer.Send(ScriptedPeer::Hello());
  ASSERT_TRUE(peer.Receive()->has_welcome());
  peer.Send(std::string(kMaxMessageBytes + 1, 'x'));
  EXPECT_EQ(peer.AwaitEnd().code(), absl::StatusCode::kResourceExhausted);
  ExpectServes();
}

TEST_F(RolloutStreamTest, AnUndecodableFragmentIsInvalidAndTheStreamGoesOn) {
  ScriptedPeer peer(address_);
  peer.Send(ScriptedPeer::Hello());
  ASSERT_TRUE(peer.Receive()->has_welcome());
  std::string spoiled = FragmentBytes(1);
  spoiled.back() = static_cast<char>(spoiled.back() ^ 1);
  peer.Send(spoiled);
  const auto invalid = peer.Receive();
  EXPECT_EQ(invalid->ack().disposition(), v1::DISPOSITION_INVALID);
  EXPECT_NE(invalid->ack().reason().find("CRC-32C"), std::string::npos) << invalid->ack().reason();
  peer.Send(FragmentBytes(2));
  EXPECT_EQ(peer.Receive()->ack().disposition(), v1::DISPOSITION_ACCEPTED);
}

TEST_F(RolloutStreamTest, HeartbeatsAreHeard) {
  ScriptedPeer peer(address_);
  peer.Send(ScriptedPeer::Hello());
  ASSERT_TRUE(peer.Receive()->has_welcome());
  v1::WorkerMessage heartbeat;
  heartbeat.mutable_heartbeat();
  peer.Send(heartbeat);
  EXPECT_TRUE(endpoint_.Await([](const auto& workers, const auto&) { return workers.at(1).heartbeats == 1; }));
}

TEST_F(RolloutStreamTest, HeartbeatsBringEnvCounters) {
  ScriptedPeer peer(address_);
  peer.Send(ScriptedPeer::Hello());
  ASSERT_TRUE(peer.Receive()->has_welcome());
  v1::WorkerMessage heartbeat;
  heartbeat.mutable_heartbeat()->mutable_env_counters()->set_errors(3);
  heartbeat.mutable_heartbeat()->mutable_env_counters()->set_process_restarts(2);
  peer.Send(heartbeat);
  EXPECT_TRUE(endpoint_.Await([](const auto& workers, const auto&) { return workers.at(1).heartbeats == 1; }));
  EXPECT_EQ(endpoint_.worker(1).env_counters, (sample::EnvCounters{.errors = 3, .process_restarts = 2}));
  heartbeat.mutable_heartbeat()->mutable_env_counters()->set_timeouts(-1);
  peer.Send(heartbeat);
  const absl::Status end = peer.AwaitEnd();
  EXPECT_EQ(end.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(end.message().find("env_timeouts is -1"), std::string::npos) << end;
}

TEST_F(RolloutStreamTest, HeartbeatsBringIncidentsWithinLimits) {
  ScriptedPeer peer(address_);
  peer.Send(ScriptedPeer::Hello());
  ASSERT_TRUE(peer.Receive()->has_welcome());
  v1::WorkerMessage message;
  v1::Heartbeat* const heartbeat = message.mutable_heartbeat();
  heartbeat->mutable_env_counters()->set_errors(3);
  heartbeat->mutable_recent_episodes()->set_ended(100);
  heartbeat->mutable_recent_episodes()->set_failed(100);
  heartbeat->set_fails_from_the_start(true);
  v1::EnvIncident* const incident = heartbeat->add_env_incidents();
  incident->set_what(v1::ENV_INCIDENT_KIND_FAILURE);
  incident->set_kind(std::string(1000, 'k'));
  incident->set_text(std::string(100'000, 't'));
  heartbeat->add_env_incidents()->set_what(static_cast<v1::EnvIncidentKind>(77));
  v1::TrackedTotal* const tracked = heartbeat->add_tracked();
  tracked->set_name(std::string(base::kMaxTrackedNameBytes, 'x'));
  tracked->set_sum(-base::kMaxTrackedSum);
  tracked->set_episodes(base::kMaxTrackedEpisodes);
  peer.Send(message);
  EXPECT_TRUE(endpoint_.Await([](const auto& workers, const auto&) { return workers.at(1).heartbeats == 1; }));
  const FakeEndpoint::Worker worker = endpoint_.worker(1);
  EXPECT_EQ(worker.recent_episodes, (sample::RecentEpisodes{100, 100}));
  EXPECT_TRUE(worker.fails_from_the_start);
  ASSERT_EQ(worker.incidents.size(), 1u) << "what a later release may tell is no error";
  EXPECT_EQ(worker.incidents[0].kind, std::string(256, 'k'));
  EXPECT_EQ(worker.incidents[0].text, std::string(4096, 't'));
}

TEST_F(RolloutStreamTest, HeartbeatsBeyondLimitsEndTheirStream) {
  const std::vector<std::pair<std::function<void(v1::Heartbeat*)>, std::string>> cases = {
      {[](v1::Heartbeat* heartbeat) { heartbeat->mutable_recent_episodes()->set_ended(101); }, "0 failed of 101"},
      {[](v1::Heartbeat* heartbeat) { heartbeat->mutable_recent_episodes()->set_failed(1); }, "1 failed of 0"},
      {[](v1::Heartbeat* heartbeat) { heartbeat->mutable_recent_episodes()->set_failed(-1); }, "-1 failed of 0"},
      {[](v1::Heartbeat* heartbeat) {
         for (int i = 0; i < 17; ++i) heartbeat->add_env_incidents()->set_what(v1::ENV_INCIDENT_KIND_FAILURE);
       },
       "17 env_incidents, expected at most 16"},
      {[](v1::Heartbeat* heartbeat) {
         for (int i = 0; i < 257; ++i) heartbeat->add_tracked()->set_name(absl::StrCat(i));
       },
       "257 tracked names, expected at most 256"},
      {[](v1::Heartbeat* heartbeat) { heartbeat->add_tracked(); }, "a name of 1 to 128 printable characters"},
      {[](v1::Heartbeat* heartbeat) { heartbeat->add_tracked()->set_name("a\nb"); }, "a sum of at most 1e+100"},
      {[](v1::Heartbeat* heartbeat) { heartbeat->add_tracked()->set_name(std::string(129, 'x')); }, "tracked \"xxx"},
      {[](v1::Heartbeat* heartbeat) {
         heartbeat->add_tracked()->set_name("a");
         heartbeat->mutable_tracked(0)->set_sum(std::numeric_limits<double>::infinity());
       },
       "tracked \"a\": inf over 0 episodes"},
      {[](v1::Heartbeat* heartbeat) {
         heartbeat->add_tracked()->set_name("a");
         heartbeat->mutable_tracked(0)->set_sum(-2e100);
       },
       "tracked \"a\": -2e+100 over 0 episodes"},
      {[](v1::Heartbeat* heartbeat) {
         heartbeat->add_tracked()->set_name("a");
         heartbeat->mutable_tracked(0)->set_episodes((int64_t{1} << 40) + 1);
       },
       "0 to 1099511627776 episodes"},
      {[](v1::Heartbeat* heartbeat) {
         heartbeat->add_tracked()->set_name("a");
         heartbeat->mutable_tracked(0)->set_episodes(-1);
       },
       "0 over -1 episodes"}};
  for (const auto& [spoil, text] : cases) {
    ScriptedPeer peer(address_);
    peer.Send(ScriptedPeer::Hello());
    ASSERT_TRUE(peer.Receive()->has_welcome());
    v1::WorkerMessage message;
    message.mutable_heartbeat()->mutable_env_counters();
    spoil(message.mutable_heartbeat());
    peer.Send(message);
    const absl::Status end = peer.AwaitEnd();
    EXPECT_EQ(end.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(end.message().find(text), std::string::npos) << end;
  }
}

TEST_F(RolloutStreamTest, ASecondRegistrationEndsTheFirstStream) {
  ScriptedPeer first(address_);
  first.Send(ScriptedPeer::Hello());
  ASSERT_TRUE(first.Receive()->has_welcome());
  ScriptedPeer second(address_);
  v1::WorkerMessage hello = ScriptedPeer::Hello();
  hello.mutable_hello()->set_worker_id(1);
  second.Send(hello);
  EXPECT_EQ(second.Receive()->welcome().worker_epoch(), 2u);
  EXPECT_EQ(first.AwaitEnd().code(), absl::StatusCode::kAborted);
}

TEST_F(RolloutStreamTest, AStreamWithoutHelloEndsInTime) {
  ScriptedPeer peer(address_);
  AwaitStreams(1);
  server_->Tick();
  EXPECT_EQ(server_->num_streams(), 1);
  clock_.Advance(kHandshakeTimeout);
  server_->Tick();
  EXPECT_EQ(peer.AwaitEnd().code(), absl::StatusCode::kDeadlineExceeded);
}

TEST_F(RolloutStreamTest, ShutdownEndsEveryStreamAndReturns) {
  ScriptedPeer joined(address_);
  joined.Send(ScriptedPeer::Hello());
  ASSERT_TRUE(joined.Receive()->has_welcome());
  ScriptedPeer silent(address_);
  AwaitStreams(2);
  server_->Shutdown(absl::Seconds(5));
  EXPECT_EQ(joined.AwaitEnd().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(silent.AwaitEnd().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(server_->num_streams(), 0);
}

TEST_F(RolloutStreamTest, AnAddressInUseIsAClearError) {
  LearnerServerOptions options;
  options.addresses = {address_};
  options.schema = schema_;
  const auto second = LearnerServer::Start(options, &endpoint_, &endpoint_, &clock_);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_NE(second.status().message().find("in use"), std::string::npos) << second.status();
  options.addresses = {"127.0.0.1:0"};
  const auto tcp = LearnerServer::Start(options, &endpoint_, &endpoint_, &clock_);
  ASSERT_TRUE(tcp.ok()) << tcp.status();
  options.addresses = (*tcp)->addresses();
  EXPECT_EQ(LearnerServer::Start(options, &endpoint_, &endpoint_, &clock_).status().code(),
            absl::StatusCode::kAlreadyExists);
  ExpectServes();
}

TEST_F(RolloutStreamTest, ASocketFileThatAKilledServerLeftIsTakenOver) {
  const std::string path = absl::StrCat(testing::TempDir(), "troupe-", getpid(), ".sock");
  LearnerServerOptions options;
  options.addresses = {"unix:" + path};
  options.schema = schema_;
  {
    auto first = LearnerServer::Start(options, &endpoint_, &endpoint_, &clock_);
    ASSERT_TRUE(first.ok()) << first.status();
    EXPECT_EQ(LearnerServer::Start(options, &endpoint_, &endpoint_, &clock_).status().code(),
              absl::StatusCode::kAlreadyExists);
  }
  // As after kill -9: a socket in the file system that nobody listens at.
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  path.copy(name.sun_path, sizeof(name.sun_path) - 1);
  const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  unlink(path.c_str());
  ASSERT_EQ(bind(fd, reinterpret_cast<const sockaddr*>(&name), sizeof(name)), 0);
  close(fd);
  EXPECT_TRUE(LearnerServer::Start(options, &endpoint_, &endpoint_, &clock_).ok());
}

TEST_F(RolloutStreamTest, PlainTextOnTheNetworkNeedsItsFlag) {
  LearnerServerOptions options;
  options.addresses = {"0.0.0.0:0"};
  options.schema = schema_;
  EXPECT_EQ(LearnerServer::Start(options, &endpoint_, &endpoint_, &clock_).status().code(),
            absl::StatusCode::kFailedPrecondition);
  options.security.insecure_plaintext_network = true;
  EXPECT_TRUE(LearnerServer::Start(options, &endpoint_, &endpoint_, &clock_).ok());
}

TEST_F(RolloutStreamTest, CompressedMessagesAreRefusedUnread) {
  // A peer that keeps to no settings of ours. One MiB of zeros would become a GiB in ten steps like this.
  const auto stub = v1::Query::NewStub(grpc::CreateChannel(address_, grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  context.set_compression_algorithm(GRPC_COMPRESS_GZIP);
  v1::ComputeActionsRequest request;
  request.add_policies()->set_obs(std::string(1 << 20, '\0'));
  v1::ComputeActionsReply reply;
  const grpc::Status status = stub->ComputeActions(&context, request, &reply);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNIMPLEMENTED);
  EXPECT_NE(status.error_message().find("ompression"), std::string::npos) << status.error_message();
  ExpectServes();
}

}  // namespace
}  // namespace troupe::rpc
