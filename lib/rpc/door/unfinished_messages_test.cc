// Messages that are not whole, of many connections.

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "lib/rpc/door/testing/relay_fixture.h"
#include <gtest/gtest.h>

namespace troupe::rpc {
namespace {

class UnfinishedMessagesTest : public ConnectionRelayTest {
 protected:
  UnfinishedMessagesTest() {
    unfinished_ = {.workers = 5000, .others = 3000, .grace = absl::Seconds(2), .bytes_per_second = 100};
    Start({.total = 8, .per_host = 6, .kept = 2, .newcomers = 3, .unserved = 3});
  }
};

TEST_F(UnfinishedMessagesTest, WhoIsTheSlowestGoesWhenAllHaveTooMuch) {
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
  EXPECT_TRUE(absl::EndsWith(ReadAll(slow), "have 3001 bytes, and this connection's come in the most slowly"));
  EXPECT_TRUE(closed_);
  EXPECT_FALSE(IsClosed(large));
  EXPECT_FALSE(IsClosed(little));
  const Descriptor next = connect_with(200);
  EXPECT_FALSE(IsClosed(next)) << "what has gone no longer counts";
}

TEST_F(UnfinishedMessagesTest, AWorkersUnfinishedMessagesMayTakeLongAndHaveABudgetOfTheirOwn) {
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

TEST_F(UnfinishedMessagesTest, LargeOnesBecomeWholeOneAfterTheOtherAndSmallOnesPass) {
  unfinished_.others_in_turn = 1000;
  unfinished_.small = 100;
  Start({.total = 8, .per_host = 6, .kept = 2, .newcomers = 6, .unserved = 6});
  std::vector<Descriptor> clients;
  for (int i = 0; i < 3; ++i) {
    clients.push_back(Connect());
    Write(clients.back(), kGreeting + kCallBegins);
  }
  const std::string large = DataFrame(2000);
  const auto send = [&](size_t client, size_t begin, size_t end) {
    Write(clients[client], large.substr(begin, end - begin));
    return ReadAll(grpc_[grpc_.size() - clients.size() + client]).size();
  };
  for (size_t client = 0; client < clients.size(); ++client) send(client, 0, 0);
  EXPECT_EQ(send(0, 0, 600), 600u);
  EXPECT_EQ(send(1, 0, 600), 600u);
  EXPECT_EQ(send(1, 600, 700), 0u) << "it waits for the first one";
  Write(clients[2], DataFrame(50));
  EXPECT_EQ(ReadAll(grpc_.back()).size(), DataFrame(50).size());
  clock_.Advance(absl::Seconds(1));
  EXPECT_EQ(send(0, 600, 800), 200u);
  clock_.Advance(absl::Milliseconds(1500));
  EXPECT_EQ(send(0, 800, large.size()), large.size() - 800);
  EXPECT_EQ(ReadAll(grpc_[grpc_.size() - 2]).size(), 100u) << "its turn";
  clock_.Advance(absl::Milliseconds(1900));
  EXPECT_FALSE(IsClosed(clients[1])) << "the time that it had to wait is not its own";
  EXPECT_EQ(send(1, 700, large.size()), large.size() - 700);
}

TEST_F(UnfinishedMessagesTest, WhatComesInTurnComesAtARate) {
  unfinished_.others_in_turn = 1000;
  unfinished_.small = 100;
  unfinished_.bytes_in_turn = 300;
  Start({.total = 8, .per_host = 6, .kept = 2, .newcomers = 6, .unserved = 6});
  const Descriptor client = Connect();
  const std::string large = DataFrame(2000);
  Write(client, kGreeting + kCallBegins + large.substr(0, 1500));
  ReadAll(grpc_[0]);
  Write(client, large.substr(1500, 200));
  EXPECT_EQ(ReadAll(grpc_[0]).size(), 200u);
  Write(client, large.substr(1700, 200));
  EXPECT_EQ(ReadAll(grpc_[0]).size(), 200u);
  Write(client, large.substr(1900));
  EXPECT_EQ(ReadAll(grpc_[0]).size(), 0u) << "more than 300 bytes have come";
  clock_.Advance(absl::Milliseconds(100));
  EXPECT_EQ(ReadAll(grpc_[0]).size(), large.size() - 1900);
}

TEST_F(UnfinishedMessagesTest, WhoHasSentALargeOneWholeGoesToTheEnd) {
  unfinished_.others = 30000;
  unfinished_.others_in_turn = 1000;
  unfinished_.small = 100;
  Start({.total = 8, .per_host = 6, .kept = 2, .newcomers = 6, .unserved = 6});
  const std::string large = DataFrame(2000);
  const Descriptor first = Connect();
  Write(first, kGreeting + kCallBegins + large.substr(0, 1500));
  const Descriptor second = Connect();
  Write(second, kGreeting + kCallBegins + large.substr(0, 500));
  Write(second, large.substr(500, 100));
  ReadAll(grpc_[0]);
  const size_t before = ReadAll(grpc_[1]).size();
  // Whole, and the next one at once.
  Write(first, large.substr(1500) + large.substr(0, 500));
  Write(first, large.substr(500, 200));
  ReadAll(grpc_[0]);
  Write(second, large.substr(600));
  EXPECT_EQ(before + ReadAll(grpc_[1]).size(), kGreeting.size() + kCallBegins.size() + large.size());
}

TEST_F(UnfinishedMessagesTest, AStrangersMessageMayNotTakeForEver) {
  const Descriptor client = Connect();
  Write(client, kGreeting + kCallBegins);
  Write(grpc_[0], DataFrame(3));
  Write(client, DataFrame(2000).substr(0, kFramePrefixBytes + 150));
  clock_.Advance(absl::Seconds(2));
  EXPECT_FALSE(IsClosed(client));
  clock_.Advance(absl::Seconds(1));
  EXPECT_TRUE(absl::EndsWith(ReadAll(client), "a message comes in too slowly"));
  EXPECT_TRUE(closed_);
}

}  // namespace
}  // namespace troupe::rpc
