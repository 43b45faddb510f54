// Messages that are not whole or not answered, of many connections.

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "lib/rpc/door/testing/relay_fixture.h"
#include <gtest/gtest.h>

namespace troupe::rpc {
namespace {

class MessageLimitsTest : public ConnectionRelayTest {
 protected:
  MessageLimitsTest() {
    messages_ = {.workers = 5000, .others = 3000, .grace = absl::Seconds(2), .bytes_per_second = 100};
    Start({.total = 8, .per_host = 6, .kept = 2, .newcomers = 3, .unserved = 3});
  }
};

TEST_F(MessageLimitsTest, WhoIsTheSlowestGoesWhenAllHaveTooMuch) {
  const auto connect_with = [this](size_t bytes) {
    Descriptor client = Connect();
    Write(client, kGreeting + kCallBegins + DataFrame(4000).substr(0, kFramePrefixBytes + bytes));
    return client;
  };
  const Descriptor slow = connect_with(400);
  clock_.Advance(absl::Seconds(2));
  const Descriptor large = connect_with(2400);
  EXPECT_FALSE(IsClosed(slow));
  const Descriptor little = connect_with(201);
  EXPECT_TRUE(absl::EndsWith(ReadAll(slow), "have 3001 bytes, and this connection's take the longest"));
  EXPECT_TRUE(closed_);
  EXPECT_FALSE(IsClosed(large));
  EXPECT_FALSE(IsClosed(little));
  const Descriptor next = connect_with(200);
  EXPECT_FALSE(IsClosed(next)) << "what has gone no longer counts";
  EXPECT_EQ(counts_.Get(DoorReason::kMessages), 1);
}

TEST_F(MessageLimitsTest, AWorkersUnfinishedMessagesMayTakeLongAndHaveABudgetOfTheirOwn) {
  std::vector<Descriptor> workers;
  for (int i = 0; i < 3; ++i) {
    workers.push_back(Connect());
    Write(workers.back(), kGreeting + kCallBegins);
    Write(grpc_.back(), DataFrame(3));
    peers_.NoteWorker(NameOf(grpc_.back()));
    Write(workers.back(), DataFrame(4000).substr(0, kFramePrefixBytes + 1600));
    clock_.Advance(absl::Milliseconds(100));
    relay_->Step();
  }
  clock_.Advance(absl::Seconds(60));
  for (const Descriptor& worker : workers) EXPECT_FALSE(IsClosed(worker));
  Write(workers[1], "xxx");
  EXPECT_FALSE(IsClosed(workers[1]));
  Write(workers[1], std::string(300, 'x'));
  EXPECT_TRUE(IsClosed(workers[0])) << "the slowest";
  EXPECT_FALSE(IsClosed(workers[1]));
}

// gRPC renews the connection's window whether or not somebody reads.
TEST_F(MessageLimitsTest, WhoseRequestsAreNotAnsweredGetsNoMoreWindow) {
  messages_.others = 1 << 20;
  messages_.window = 65535;
  messages_.windows = 50000;
  Start({.total = 8, .per_host = 6, .kept = 2, .newcomers = 6, .unserved = 6});
  const Descriptor client = Connect();
  Write(client, kGreeting + kCallBegins + DataFrame(40000));
  ReadAll(grpc_[0]);
  Write(grpc_[0], Frame(4, 0, 0) + WindowFrame(40000));
  EXPECT_EQ(ReadAll(client), Frame(4, 0, 0) + WindowFrame(40000)) << "what all share";
  Write(client, DataFrame(60000));
  Write(grpc_[0], WindowFrame(60014));
  EXPECT_EQ(ReadAll(client), "") << "10,000 are left, which are not worth a frame";
  Write(client, Frame(8, 0, 1, "more") + Frame(6, 0, 0, "12345678"));
  EXPECT_TRUE(absl::EndsWith(ReadAll(grpc_[0]), "more" + Frame(6, 0, 0, "12345678"))) << "all else goes on";
  Write(grpc_[0], Frame(1, 4, 1, "ok") + DataFrame(3) + DataFrame(3));
  EXPECT_TRUE(absl::EndsWith(ReadAll(client), WindowFrame(60014)));
}

TEST_F(MessageLimitsTest, WhoSendsMoreThanItsWindowIsClosed) {
  const Descriptor client = Connect();
  Write(client, kGreeting + kCallBegins);
  Write(grpc_[0], Frame(4, 0, 0));
  Write(client, Frame(0, 0, 1, std::string(70000, 'x')));
  EXPECT_TRUE(absl::EndsWith(ReadAll(client), "more data than the connection's window"));
  EXPECT_TRUE(closed_);
}

TEST_F(MessageLimitsTest, WhereTheWindowsAreUsedUpOneMessageAfterTheOtherBecomesWhole) {
  messages_.others = 1 << 20;
  messages_.window = 65535;
  messages_.windows = 0;
  Start({.total = 8, .per_host = 6, .kept = 2, .newcomers = 6, .unserved = 6});
  const std::string large = DataFrame(100000);
  const auto part = [&large](size_t from, size_t to) { return Frame(0, 0, 1, large.substr(9 + from, to - from)); };
  std::vector<Descriptor> clients;
  for (int i = 0; i < 2; ++i) {
    clients.push_back(Connect());
    Write(clients[i], kGreeting + kCallBegins + part(0, 65000));
    Write(grpc_[i], Frame(4, 0, 0) + WindowFrame(65000));
    clock_.Advance(absl::Milliseconds(100));
  }
  const std::string settings = Frame(4, 0, 0);
  EXPECT_EQ(ReadAll(clients[0]), settings + WindowFrame(34470)) << "with the 535 it has, as much as its message lacks";
  EXPECT_EQ(ReadAll(clients[1]), settings);
  Write(clients[0], part(65000, 100005));
  clock_.Advance(absl::Milliseconds(100));
  EXPECT_EQ(ReadAll(clients[1]), WindowFrame(34470)) << "its turn";
  clock_.Advance(absl::Seconds(1.9));
  EXPECT_FALSE(IsClosed(clients[1])) << "the time that it had to wait is not its own";
}

TEST_F(MessageLimitsTest, WhoIsNotAnsweredGoesForWhoWaitsForAWindow) {
  messages_.others = 1 << 20;
  messages_.window = 65535;
  messages_.windows = 100000;
  messages_.bytes_per_second = 0;
  Start({.total = 8, .per_host = 6, .kept = 2, .newcomers = 6, .unserved = 6});
  const Descriptor reads_nothing = Connect();
  Write(reads_nothing, kGreeting + kCallBegins + DataFrame(60000));
  Write(grpc_[0], Frame(4, 0, 0) + WindowFrame(130000));
  ReadAll(reads_nothing);
  Write(reads_nothing, DataFrame(60000));
  const Descriptor answered = Connect();
  Write(answered, kGreeting + kCallBegins + DataFrame(60000));
  Write(grpc_[1], Frame(4, 0, 0) + WindowFrame(60000));
  for (int i = 0; i < 70; ++i) {
    Write(grpc_[1], Frame(0, 0, 1, ""));
    clock_.Advance(absl::Milliseconds(100));
    EXPECT_TRUE(i != 30 || !IsClosed(reads_nothing));
    if (i % 10 == 0) Write(grpc_[1], DataFrame(3));
    relay_->Step();
  }
  EXPECT_TRUE(IsClosed(reads_nothing));
  EXPECT_FALSE(IsClosed(answered));
}

TEST_F(MessageLimitsTest, AWorkerGetsWhatGrpcGives) {
  messages_.window = 65535;
  messages_.windows = 0;
  Start({.total = 8, .per_host = 6, .kept = 2, .newcomers = 6, .unserved = 6});
  const Descriptor worker = Connect();
  Write(worker, kGreeting + kCallBegins);
  Write(grpc_[0], Frame(4, 0, 0) + WindowFrame(1 << 20));
  EXPECT_EQ(ReadAll(worker), Frame(4, 0, 0));
  peers_.NoteWorker(NameOf(grpc_[0]));
  clock_.Advance(absl::Milliseconds(100));
  EXPECT_EQ(ReadAll(worker), WindowFrame(1 << 20));
  Write(grpc_[0], WindowFrame(1 << 10));
  EXPECT_EQ(ReadAll(worker), WindowFrame(1 << 10));
}

TEST_F(MessageLimitsTest, AStrangersMessageMayNotTakeForEver) {
  const Descriptor client = Connect();
  Write(client, kGreeting + kCallBegins);
  Write(grpc_[0], DataFrame(3));
  Write(client, DataFrame(2000).substr(0, kFramePrefixBytes + 150));
  clock_.Advance(absl::Seconds(2));
  EXPECT_FALSE(IsClosed(client));
  clock_.Advance(absl::Seconds(1));
  EXPECT_TRUE(absl::EndsWith(ReadAll(client), "a message comes in too slowly"));
  EXPECT_EQ(counts_.Get(DoorReason::kTooSlow), 1);
  EXPECT_TRUE(closed_);
}

}  // namespace
}  // namespace troupe::rpc
