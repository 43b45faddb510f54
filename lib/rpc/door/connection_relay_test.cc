#include "lib/rpc/door/connection_relay.h"

#include <sys/socket.h>

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "lib/rpc/door/testing/relay_fixture.h"
#include <gtest/gtest.h>

namespace troupe::rpc {
namespace {

TEST(RelayBuffersTest, AreSmallOnceManyAreLent) {
  RelayBuffers buffers;
  std::vector<RelayBuffers::Buffer> lent;
  for (size_t i = 0; i < RelayBuffers::kMaxLent; ++i) {
    lent.push_back(buffers.Take());
    ASSERT_EQ(lent.back().size, RelayBuffers::kBytes);
  }
  RelayBuffers::Buffer small = buffers.Take();
  EXPECT_EQ(small.size, RelayBuffers::kSmallBytes);
  buffers.Give(std::move(small));
  EXPECT_EQ(buffers.Take().size, RelayBuffers::kSmallBytes);
  buffers.Give(std::move(lent.back()));
  EXPECT_EQ(buffers.Take().size, RelayBuffers::kBytes);
}

TEST_F(ConnectionRelayTest, BytesPassBothWays) {
  const Descriptor client = Connect();
  EXPECT_TRUE(grpc_.empty()) << "a silent client is none of gRPC's business";
  Write(client, kGreeting + kCallBegins);
  ASSERT_EQ(grpc_.size(), 1u);
  EXPECT_EQ(ReadAll(grpc_[0]), kGreeting + kCallBegins);
  Write(grpc_[0], Frame(4, 0, 0));
  EXPECT_EQ(ReadAll(client), Frame(4, 0, 0));
}

// What is not read is not taken from the other side for ever: memory for a connection is bounded.
TEST_F(ConnectionRelayTest, ASideThatDoesNotReadHoldsTheOtherUp) {
  messages_.windows = uint64_t{1} << 30;
  Start({.total = 8, .per_host = 6, .kept = 2, .newcomers = 3, .unserved = 3});
  const Descriptor client = Connect();
  Write(client, kGreeting + kCallBegins);
  Write(grpc_[0], Frame(4, 0, 0) + WindowFrame(1 << 29));
  const std::string data = DataFrame(1 << 20);
  size_t sent = 0;
  for (int turn = 0; turn < 10000; ++turn) {
    const size_t at = sent % data.size();
    const ssize_t now = send(client.fd(), data.data() + at, data.size() - at, MSG_NOSIGNAL);
    if (now > 0) sent += static_cast<size_t>(now);
    relay_->Step();
  }
  EXPECT_LT(sent, size_t{16} << 20);
  // Then everything arrives as it was sent.
  const std::string arrived = ReadAll(grpc_[0]).substr(kGreeting.size() + kCallBegins.size());
  EXPECT_EQ(arrived.size(), sent);
  for (size_t i = 0; i < arrived.size(); ++i) ASSERT_EQ(arrived[i], data[i % data.size()]) << i;
}

TEST_F(ConnectionRelayTest, TheEndOfEitherSideIsTheEndOfBoth) {
  Descriptor client = Connect();
  Write(client, kGreeting);
  client.Close();
  EXPECT_EQ(ReadAll(grpc_[0]), kGreeting);
  EXPECT_TRUE(closed_);
  grpc_[0].Close();
  relay_->Step();
  EXPECT_EQ(relay_->num_connections(), 0);

  const Descriptor other = Connect();
  Write(other, kGreeting);
  EXPECT_EQ(ReadAll(grpc_[1]), kGreeting);
  Write(grpc_[1], Frame(4, 0, 0));
  grpc_[1].Close();
  EXPECT_EQ(ReadAll(other), Frame(4, 0, 0));
  EXPECT_TRUE(closed_);
}

TEST_F(ConnectionRelayTest, WhoBreaksALimitOfFormIsToldAndClosed) {
  const Descriptor client = Connect();
  Write(client, kGreeting + Frame(4, 0, 0));
  EXPECT_EQ(ReadAll(grpc_[0]), kGreeting + Frame(4, 0, 0));
  Write(client, kBadHeaders);
  EXPECT_EQ(ReadAll(grpc_[0]), "");
  EXPECT_TRUE(closed_);
  const std::string told = ReadAll(client);
  EXPECT_TRUE(absl::EndsWith(told, std::string("\0\0\0\x0b", 4) + "headers with padding")) << told;
  EXPECT_TRUE(closed_);
  EXPECT_EQ(counts_.Get(DoorReason::kForm), 1);
  EXPECT_EQ(counts_.num_closed(), 1);
}

TEST_F(ConnectionRelayTest, ARefusedCallIsAnsweredBetweenTheServersFrames) {
  const Descriptor client = Connect();
  Write(client, kGreeting + Frame(1, 4, 1, "headers") + Frame(1, 4, 3, "headers") + Frame(1, 4, 5, "headers"));
  EXPECT_EQ(ReadAll(grpc_[0]),
            kGreeting + Frame(1, 4, 1, "headers") + Frame(1, 4, 3, "headers") + Frame(1, 4, 4, "headers"));
  EXPECT_EQ(ReadAll(client), "") << "the server begins";
  const std::string settings = Frame(4, 0, 0), large = Frame(0, 0, 1, std::string(1000, 'x'));
  Write(grpc_[0], settings + large);
  const std::string got = ReadAll(client);
  EXPECT_TRUE(absl::StartsWith(got, settings));
  EXPECT_TRUE(absl::StrContains(got, "this connection has 2 open calls, at most 2"));
  EXPECT_TRUE(absl::EndsWith(got, large));
  Write(grpc_[0], large.substr(0, 20));
  Write(client, Frame(1, 4, 7, "headers"));
  EXPECT_EQ(ReadAll(client), large.substr(0, 20)) << "not inside of a frame";
  Write(grpc_[0], large.substr(20));
  EXPECT_TRUE(absl::StartsWith(ReadAll(client), large.substr(20)));
  EXPECT_FALSE(closed_);
  EXPECT_EQ(counts_.Get(DoorReason::kOpenCalls), 2);
  EXPECT_EQ(counts_.num_refused(), 2);
  EXPECT_EQ(counts_.num_closed(), 0);
}

TEST_F(ConnectionRelayTest, ARefusedCallIsAnsweredThoughNothingElseHappens) {
  const Descriptor client = Connect();
  Write(client, kGreeting + Frame(1, 4, 1, "headers") + Frame(1, 4, 3, "headers"));
  Write(grpc_[0], Frame(4, 0, 0));
  // A worker's connection is read until nothing is left, so that no second look comes by itself.
  peers_.NoteWorker(NameOf(grpc_[0]));
  Write(client, DataFrame(100).substr(0, 50));
  clock_.Advance(absl::Milliseconds(100));
  ReadAll(client);
  Write(client, DataFrame(100).substr(50) + Frame(1, 4, 5, "headers"));
  EXPECT_TRUE(absl::StrContains(ReadAll(client), "this connection has 2 open calls, at most 2"));
}

TEST_F(ConnectionRelayTest, HeldResetsGoOnByThemselvesOnceTheirTimeHasCome) {
  const Descriptor client = Connect();
  Write(client, kGreeting);
  const auto reset = [](uint32_t stream) { return Frame(3, 0, stream, std::string("\0\0\0\x8", 4)); };
  std::string bytes, expected;
  for (uint32_t stream = 1; stream < 19; stream += 2) bytes += Frame(1, 4, stream, "headers") + reset(stream);
  Write(client, bytes);
  const std::string passed = ReadAll(grpc_[0]);
  EXPECT_EQ(passed.size(), kGreeting.size() + bytes.size() - reset(17).size());
  EXPECT_EQ(ReadAll(grpc_[0]), "");
  clock_.Advance(absl::Milliseconds(200));
  EXPECT_EQ(ReadAll(grpc_[0]), reset(17));
}

TEST_F(ConnectionRelayTest, WhoReadsNothingOfItsAnswersIsClosedAndAWorkerIsNot) {
  for (const bool is_worker : {false, true}) {
    const Descriptor client = Connect();
    Write(client, kGreeting + kCallBegins + DataFrame(3));
    if (is_worker) peers_.NoteWorker(NameOf(grpc_.back()));
    const std::string answer = Frame(0, 0, 1, std::string(100000, 'x'));
    for (int turn = 0; turn < 1000; ++turn) {
      if (send(grpc_.back().fd(), answer.data(), answer.size(), MSG_NOSIGNAL) < static_cast<ssize_t>(answer.size()))
        break;
      for (int step = 0; step < 9; ++step) relay_->Step();
    }
    clock_.Advance(absl::Seconds(9));
    relay_->Step();
    const int64_t before = relay_->num_connections();
    for (int i = 0; i < 4; ++i) {
      clock_.Advance(absl::Seconds(2));
      relay_->Step();
    }
    EXPECT_EQ(relay_->num_connections(), is_worker ? before : before - 1);
    EXPECT_EQ(counts_.Get(DoorReason::kUnread), 1);
  }
}

TEST_F(ConnectionRelayTest, ATooLargeMessageDoesNotReachGrpc) {
  const Descriptor client = Connect();
  Write(client, kGreeting + kCallBegins);
  ReadAll(grpc_[0]);
  Write(grpc_[0], Frame(4, 0, 0) + WindowFrame(5 << 20));
  ReadAll(client);
  Write(client, DataFrame((4 << 20) + 1).substr(0, 100000));
  EXPECT_EQ(ReadAll(grpc_[0]), "");
  EXPECT_TRUE(closed_);
  const std::string told = ReadAll(client);
  EXPECT_TRUE(absl::StartsWith(told, Frame(3, 0, 1, std::string("\0\0\0\x0b", 4)))) << "RST_STREAM of that call";
  EXPECT_TRUE(absl::StrContains(told, "a message of 4194305 bytes, at most 4194304"));
}

TEST_F(ConnectionRelayTest, WhoMakesNoValidCallIsClosed) {
  const Descriptor silent = Connect();
  const Descriptor refused = Connect();
  const Descriptor served = Connect();
  for (const Descriptor* client : {&refused, &served}) Write(*client, kGreeting + kCallBegins + DataFrame(3));
  Write(grpc_[0], Frame(1, 5, 1, "UNIMPLEMENTED"));
  Write(grpc_[1], Frame(1, 4, 1, "ok") + DataFrame(3));
  EXPECT_EQ(relay_->num_unproven(), 2);
  clock_.Advance(absl::Seconds(9));
  EXPECT_FALSE(IsClosed(silent));
  clock_.Advance(absl::Seconds(2));
  EXPECT_TRUE(IsClosed(silent));
  EXPECT_TRUE(IsClosed(refused));
  EXPECT_FALSE(IsClosed(served));
  EXPECT_EQ(counts_.Get(DoorReason::kNoCall), 2);
}

// A policy may think longer than that.
TEST_F(ConnectionRelayTest, WhoseFirstCallIsStillBeingAnsweredStays) {
  const Descriptor asking = Connect();
  Write(asking, kGreeting + kCallBegins + DataFrame(3));
  const Descriptor stalling = Connect();
  Write(stalling, kGreeting + kCallBegins + DataFrame(3).substr(0, 12));
  clock_.Advance(absl::Seconds(11));
  EXPECT_FALSE(IsClosed(asking));
  EXPECT_TRUE(IsClosed(stalling)) << "half a request";
}

TEST_F(ConnectionRelayTest, AFloodOfConnectionsIsBoundedAndLeavesTheServedAlone) {
  const Descriptor served = Connect();
  Write(served, kGreeting + kCallBegins + DataFrame(3));
  Write(grpc_[0], DataFrame(3));
  std::vector<Descriptor> flood;
  for (int i = 0; i < 50; ++i) flood.push_back(Connect());
  EXPECT_EQ(relay_->num_connections(), 4);
  EXPECT_TRUE(IsClosed(flood[0]));
  EXPECT_FALSE(IsClosed(flood.back()));
  EXPECT_FALSE(IsClosed(served));
}

TEST_F(ConnectionRelayTest, ANewcomerWithoutAPlaceHearsWhy) {
  std::vector<Descriptor> served;
  for (int i = 0; i < 6; ++i) {
    served.push_back(Connect());
    Write(served.back(), kGreeting + kCallBegins + DataFrame(3));
    Write(grpc_.back(), DataFrame(3));
  }
  const Descriptor newcomer = Connect();
  const std::string told = ReadAll(newcomer);
  EXPECT_TRUE(closed_);
  EXPECT_TRUE(absl::StartsWith(told, Frame(4, 0, 0))) << "a server's first frame";
  EXPECT_TRUE(absl::EndsWith(told, "no place: there are 6 connections, at most 8, and 6 of one address")) << told;
  EXPECT_EQ(counts_.Get(DoorReason::kNoPlace), 1);
}

TEST_F(ConnectionRelayTest, GrpcGetsSoManyNewcomersASecondAndTheOthersWait) {
  hand_overs_ = {.burst = 1, .per_second = 20};
  Start({.total = 8, .per_host = 6, .kept = 2, .newcomers = 6, .unserved = 6});
  std::vector<Descriptor> clients;
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(relay_->wants_newcomers(), i < 3) << i;
    clients.push_back(Connect());
    // The last one is silent: that costs gRPC nothing.
    if (i < 3) Write(clients.back(), kGreeting);
  }
  EXPECT_EQ(grpc_.size(), 1u);
  EXPECT_FALSE(relay_->wants_newcomers());
  EXPECT_EQ(relay_->UntilNextStep(), absl::Milliseconds(50));
  clock_.Advance(absl::Milliseconds(50));
  EXPECT_EQ(ReadAll(clients[1]), "");
  ASSERT_EQ(grpc_.size(), 2u);
  EXPECT_TRUE(relay_->wants_newcomers());
  EXPECT_EQ(ReadAll(grpc_[1]), kGreeting) << "the first of those who waited";
  // Who leaves or breaks a limit never gets there.
  const Descriptor rude = Connect();
  Write(rude, kGreeting + kBadHeaders);
  EXPECT_TRUE(absl::EndsWith(ReadAll(rude), "headers with padding"));
  clients[2].Close();
  for (int i = 0; i < 60; ++i) {
    clock_.Advance(absl::Milliseconds(50));
    relay_->Step();
  }
  EXPECT_EQ(grpc_.size(), 2u);
  EXPECT_EQ(relay_->num_connections(), 3) << "two that gRPC has, and the silent one";
}

TEST_F(ConnectionRelayTest, WhoHasMadeNoCallGoesForTheNextAfterItsStay) {
  Start({.total = 20, .per_host = 16, .kept = 2, .newcomers = 16, .unserved = 2});
  std::vector<Descriptor> clients;
  for (int i = 0; i < 3; ++i) {
    clients.push_back(Connect());
    Write(clients.back(), kGreeting);
    clock_.Advance(absl::Milliseconds(10));
  }
  relay_->Step();
  EXPECT_EQ(grpc_.size(), 2u);
  EXPECT_EQ(relay_->UntilNextStep(), absl::Milliseconds(20)) << "50 ms after the first of them was handed over";
  clock_.Advance(absl::Milliseconds(20));
  relay_->Step();
  ASSERT_EQ(grpc_.size(), 3u);
  EXPECT_TRUE(IsClosed(clients[0]));
  EXPECT_FALSE(IsClosed(clients[1]));
  // An answer makes a place at once.
  clients.push_back(Connect());
  Write(clients.back(), kGreeting);
  EXPECT_EQ(grpc_.size(), 3u);
  Write(clients[2], kCallBegins + DataFrame(3));
  Write(grpc_[2], DataFrame(3));
  EXPECT_EQ(grpc_.size(), 4u);
  EXPECT_FALSE(IsClosed(clients[1]));
}

TEST_F(ConnectionRelayTest, WhoWaitsForAnAnswerAsAWorkerOrForLongIsNotTheOneToGo) {
  Start({.total = 20, .per_host = 16, .kept = 2, .newcomers = 16, .unserved = 2});
  const Descriptor worker = Connect();
  Write(worker, kGreeting + kCallBegins + DataFrame(3));
  peers_.NoteWorker(NameOf(grpc_[0]));
  const Descriptor patient = Connect();
  Write(patient, kGreeting + kCallBegins + DataFrame(3));
  clock_.Advance(absl::Seconds(11));
  relay_->Step();
  std::vector<Descriptor> others;
  for (int i = 0; i < 3; ++i) {
    others.push_back(Connect());
    Write(others.back(), kGreeting);
    clock_.Advance(absl::Milliseconds(100));
    relay_->Step();
  }
  EXPECT_EQ(grpc_.size(), 5u);
  EXPECT_FALSE(IsClosed(worker));
  EXPECT_FALSE(IsClosed(patient));
  EXPECT_TRUE(IsClosed(others[0]));
}

TEST_F(ConnectionRelayTest, AWorkerThatIsLetInMakesPlace) {
  Start({.total = 20, .per_host = 16, .kept = 2, .newcomers = 16, .unserved = 2});
  std::vector<Descriptor> workers;
  for (int i = 0; i < 4; ++i) {
    workers.push_back(Connect());
    Write(workers.back(), kGreeting + kCallBegins + DataFrame(3));
    ASSERT_EQ(grpc_.size(), static_cast<size_t>(i + 1));
    peers_.NoteWorker(NameOf(grpc_.back()));
    clock_.Advance(absl::Milliseconds(60));
  }
  for (const Descriptor& each : workers) EXPECT_FALSE(IsClosed(each));
}

TEST_F(ConnectionRelayTest, WhoCrowdsTheWaitIsClosedAndOthersJoinIt) {
  hand_overs_ = {.burst = 1, .per_second = 20};
  Start({.total = 20, .per_host = 16, .kept = 2, .newcomers = 16, .unserved = 16});
  std::vector<Descriptor> crowd;
  for (int i = 0; i < 4; ++i) {
    crowd.push_back(Connect("10.0.0.1"));
    Write(crowd.back(), kGreeting);
  }
  EXPECT_TRUE(absl::EndsWith(ReadAll(crowd[3]), "too many newcomers at once"));
  EXPECT_TRUE(closed_) << "unwanted, and its host has all of those who wait";
  const Descriptor other = Connect("10.0.0.2");
  Write(other, kGreeting);
  EXPECT_FALSE(IsClosed(other));
  clock_.Advance(absl::Milliseconds(50));
  relay_->Step();
  EXPECT_EQ(grpc_.size(), 2u) << "in the order in which they came";
  clock_.Advance(absl::Milliseconds(50));
  relay_->Step();
  clock_.Advance(absl::Milliseconds(50));
  relay_->Step();
  ASSERT_EQ(grpc_.size(), 4u);
  Write(other, kCallBegins);
  EXPECT_EQ(ReadAll(grpc_[3]), kGreeting + kCallBegins);
}

TEST_F(ConnectionRelayTest, AGreetingThatIsThereAlreadyCountsAtOnce) {
  Start({.total = 8, .per_host = 6, .kept = 2, .newcomers = 2, .unserved = 2});
  std::vector<Descriptor> clients;
  for (int i = 0; i < 3; ++i) {
    int ends[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
    clients.emplace_back(ends[0]);
    const size_t said = i > 0 ? kGreeting.size() : 0;
    ASSERT_EQ(send(ends[0], kGreeting.data(), said, 0), static_cast<ssize_t>(said));
    Peer peer;
    peer.host = "10.0.0.1";
    // No Step between them: a batch of newcomers, of which the first is silent.
    relay_->Accept(Descriptor(ends[1]), peer);
  }
  EXPECT_TRUE(IsClosed(clients[0]));
  EXPECT_FALSE(IsClosed(clients[1])) << "it has greeted, so it is not the first to go";
  EXPECT_FALSE(IsClosed(clients[2]));
}

TEST_F(ConnectionRelayTest, TheProcessItselfNeedNotWaitForGrpc) {
  hand_overs_ = {.burst = 1, .per_second = 0.001};
  Start({.total = 8, .per_host = 6, .kept = 2, .newcomers = 6, .unserved = 6});
  std::vector<Descriptor> clients;
  for (int i = 0; i < 3; ++i) {
    clients.push_back(Connect());
    Write(clients.back(), kGreeting);
  }
  ASSERT_EQ(grpc_.size(), 1u);
  peers_.ExpectOwnDial(4321);
  const Descriptor own = Connect("", 4321);
  Write(own, kGreeting);
  ASSERT_EQ(grpc_.size(), 2u);
  EXPECT_EQ(ReadAll(grpc_[1]), kGreeting);
}

TEST_F(ConnectionRelayTest, GrpcsNameLeadsToThePeer) {
  Descriptor client = Connect("10.0.0.9", 4321);
  Write(client, kGreeting);
  const std::string name = NameOf(grpc_[0]);
  ASSERT_TRUE(peers_.Find(name).has_value()) << name;
  EXPECT_EQ(peers_.Find(name)->ToString(), "10.0.0.9:4321");
  client.Close();
  grpc_[0].Close();
  relay_->Step();
  EXPECT_FALSE(peers_.Find(name).has_value());
}

TEST_F(ConnectionRelayTest, AWorkerThatReturnsFindsAPlaceAndLosesItIfItIsNone) {
  Start({.total = 4, .per_host = 4, .kept = 2, .newcomers = 4, .unserved = 4});
  std::vector<Descriptor> served;
  for (int i = 0; i < 2; ++i) {
    served.push_back(Connect("10.0.0.1"));
    Write(served.back(), kGreeting + kCallBegins);
    Write(grpc_.back(), DataFrame(3));
  }
  peers_.NoteWorker(NameOf(grpc_[1]));
  const Descriptor stranger = Connect("10.0.0.2");
  EXPECT_TRUE(IsClosed(stranger)) << "what is left is kept for workers";
  const Descriptor returning = Connect("10.0.0.1");
  EXPECT_FALSE(IsClosed(returning));
  Write(returning, kGreeting + kCallBegins);
  Write(grpc_.back(), DataFrame(3));
  clock_.Advance(absl::Seconds(11));
  EXPECT_TRUE(IsClosed(returning)) << "a call, but no worker";
  EXPECT_FALSE(IsClosed(served[1]));
}

class IdleConnectionsTest : public ConnectionRelayTest {
 protected:
  IdleConnectionsTest() { Start({.total = 10, .per_host = 3, .kept = 2, .newcomers = 3, .unserved = 3}); }

  /// A connection whose one call is over, or still open.
  Descriptor ConnectAndCall(bool ends, const std::string& host = "10.0.0.1") {
    Descriptor client = Connect(host);
    Write(client, kGreeting + kCallBegins + DataFrame(3));
    Write(grpc_.back(), DataFrame(3));
    if (ends) Write(grpc_.back(), Frame(1, 5, 1, "trailers"));
    return client;
  }
};

// Whoever made one call and held the connection kept others of its address away for good: all users of a machine are
// 127.0.0.1.
TEST_F(IdleConnectionsTest, WhoIsIdleForTheLongestTimeGoesWhereNoPlaceIsFree) {
  std::vector<Descriptor> idle;
  for (int i = 0; i < 3; ++i) {
    idle.push_back(ConnectAndCall(true));
    clock_.Advance(absl::Milliseconds(100));
  }
  EXPECT_FALSE(IsClosed(Connect("10.0.0.2"))) << "another host has its own places";
  EXPECT_TRUE(IsClosed(Connect())) << "nobody is idle so far";
  clock_.Advance(absl::Milliseconds(750));
  Write(idle[0], Frame(1, 4, 3, "headers"));
  Write(grpc_[0], Frame(1, 5, 3, "trailers"));
  EXPECT_TRUE(IsClosed(Connect())) << "the oldest has just made a call, the others are idle for less than a second";
  clock_.Advance(absl::Milliseconds(100));
  const Descriptor newcomer = Connect();
  EXPECT_FALSE(IsClosed(newcomer));
  const std::string goodbye = ReadAll(idle[1]);
  EXPECT_TRUE(absl::EndsWith(goodbye, std::string("\0\0\0\0", 4) + "it was idle, and there are many"))
      << "GOAWAY, no error";
  EXPECT_TRUE(closed_) << "idle for the longest time";
  EXPECT_FALSE(IsClosed(idle[0]));
  EXPECT_FALSE(IsClosed(idle[2]));
}

TEST_F(IdleConnectionsTest, AnOpenCallStaysForLongerAndAWorkerForEver) {
  Start({.total = 4, .per_host = 3, .kept = 0, .newcomers = 3, .unserved = 3});
  const Descriptor worker = ConnectAndCall(true);
  peers_.NoteWorker(NameOf(grpc_.back()));
  const Descriptor watching = ConnectAndCall(false);
  const Descriptor thinking = ConnectAndCall(false);
  clock_.Advance(absl::Seconds(50));
  Write(grpc_.back(), DataFrame(3));
  EXPECT_TRUE(IsClosed(Connect("10.0.0.1", 2000)));
  clock_.Advance(absl::Seconds(11));
  Connect("10.0.0.1", 2001);
  EXPECT_TRUE(IsClosed(watching)) << "a call on which nothing has happened for a minute";
  EXPECT_FALSE(IsClosed(thinking));
  EXPECT_FALSE(IsClosed(worker));
}

// One subscription with nothing in it made a connection a worker's, and its host one of workers.
TEST_F(IdleConnectionsTest, ASubscriberIsAWorkerOnlyWhereOneHasRegistered) {
  const Descriptor subscriber = ConnectAndCall(false);
  const std::string name = NameOf(grpc_.back());
  peers_.NoteSubscriber(name);
  EXPECT_FALSE(peers_.IsWorker(name));
  EXPECT_FALSE(peers_.IsHostOfWorker("10.0.0.1"));
  const Descriptor worker = ConnectAndCall(false);
  peers_.NoteWorker(NameOf(grpc_.back()));
  peers_.NoteSubscriber(name);
  EXPECT_TRUE(peers_.IsWorker(name));
}

// 7,000 connections that were held took 137 MiB.
TEST_F(IdleConnectionsTest, WhereThereAreManyTheIdleGoThoughPlacesAreFree) {
  many_ = 4;
  Start({.total = 100, .per_host = 50, .kept = 2, .newcomers = 10, .unserved = 10});
  std::vector<Descriptor> idle;
  for (int i = 0; i < 3; ++i) idle.push_back(ConnectAndCall(true));
  const Descriptor alone = ConnectAndCall(true, "10.0.0.2");
  clock_.Advance(absl::Seconds(2));
  const Descriptor newcomer = Connect("10.0.0.2");
  EXPECT_EQ(relay_->num_connections(), 4);
  int closed = 0;
  for (const Descriptor& client : idle) closed += IsClosed(client) ? 1 : 0;
  EXPECT_EQ(closed, 1) << "of the host with the most";
  EXPECT_FALSE(IsClosed(alone));
  EXPECT_FALSE(IsClosed(newcomer));
}

TEST_F(IdleConnectionsTest, AFloodOfNewcomersReplacesItselfAndNotTheIdle) {
  Start({.total = 240, .per_host = 120, .kept = 2, .newcomers = 100, .unserved = 100});
  std::vector<Descriptor> idle, flood;
  for (int i = 0; i < 50; ++i) idle.push_back(ConnectAndCall(true));
  clock_.Advance(absl::Seconds(2));
  for (int i = 0; i < 300; ++i) flood.push_back(Connect());
  int closed = 0;
  for (const Descriptor& client : idle) closed += IsClosed(client) ? 1 : 0;
  EXPECT_EQ(closed, 0);
  EXPECT_EQ(relay_->num_connections(), 120);
}

TEST_F(ConnectionRelayTest, DrainPassesOnTheLastBytes) {
  const Descriptor client = Connect();
  Write(client, kGreeting);
  const std::string last = DataFrame(5000);
  ASSERT_EQ(send(grpc_[0].fd(), last.data(), last.size(), 0), static_cast<ssize_t>(last.size()));
  grpc_[0].Close();
  relay_->Drain(absl::Seconds(10));
  EXPECT_EQ(relay_->num_connections(), 0);
  EXPECT_EQ(ReadAll(client), last);
  EXPECT_TRUE(closed_);
}

}  // namespace
}  // namespace troupe::rpc
