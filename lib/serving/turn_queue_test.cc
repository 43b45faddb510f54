#include "lib/serving/turn_queue.h"

#include <atomic>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/base/philox.h"

namespace troupe::serving {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Key = TurnQueue::Key;

/// Writes down what happens to it.
class NotedWork final : public TurnQueue::Work {
 public:
  using Body = std::function<std::optional<Key>()>;
  NotedWork(std::string name, std::vector<std::string>* notes, Body body = nullptr)
      : name_(std::move(name)), notes_(*notes), body_(std::move(body)) {}

  std::optional<Key> Run() override {
    notes_.push_back(name_);
    return body_ == nullptr ? std::nullopt : body_();
  }
  void Refuse(const absl::Status& why) override {
    notes_.push_back(name_ + " " + absl::StatusCodeToString(why.code()));
  }

 private:
  const std::string name_;
  std::vector<std::string>& notes_;
  const Body body_;
};

class TurnQueueTest : public testing::Test {
 protected:
  std::shared_ptr<NotedWork> Work(const std::string& name, NotedWork::Body body = nullptr) {
    return std::make_shared<NotedWork>(name, &notes_, std::move(body));
  }
  absl::Status Push(Key key, const std::string& name, int64_t bytes = 1, NotedWork::Body body = nullptr) {
    return queue_.Push(Work(name, std::move(body)), key, bytes);
  }
  void RunAll() {
    while (queue_.Step()) {
    }
  }

  std::vector<std::string> notes_;
  TurnQueue queue_{{.count = 5, .count_per_key = 3, .bytes = 100, .bytes_per_key = 60}};
};

TEST_F(TurnQueueTest, KeysTakeTurnsAndTheirPiecesComeInOrder) {
  EXPECT_FALSE(queue_.Step());
  for (const char* name : {"a1", "a2", "a3"}) EXPECT_EQ(Push(1, name), absl::OkStatus());
  for (const char* name : {"b1", "b2"}) EXPECT_EQ(Push(2, name), absl::OkStatus());
  EXPECT_EQ(queue_.count(), 5);
  RunAll();
  EXPECT_THAT(notes_, ElementsAre("a1", "b1", "a2", "b2", "a3"));
  EXPECT_EQ(queue_.count(), 0);
}

TEST_F(TurnQueueTest, AKeyThatIsRunWaitsAndOthersDoNot) {
  // While a1 runs, another thread would find b1 and then nothing.
  const auto others = [this] {
    RunAll();
    notes_.push_back("a1 ends");
    return std::nullopt;
  };
  EXPECT_EQ(Push(1, "a1", 1, others), absl::OkStatus());
  EXPECT_EQ(Push(1, "a2"), absl::OkStatus());
  EXPECT_EQ(Push(2, "b1"), absl::OkStatus());
  RunAll();
  EXPECT_THAT(notes_, ElementsAre("a1", "b1", "a1 ends", "a2"));
}

TEST_F(TurnQueueTest, WhatIsOneTooManyIsRefusedInWords) {
  for (int i = 0; i < 3; ++i) EXPECT_EQ(Push(1, "a"), absl::OkStatus());
  const absl::Status fourth = Push(1, "a");
  EXPECT_EQ(fourth.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(fourth.message()), AllOf(HasSubstr("its queries that wait or are being answered are 3 of 3"),
                                                   HasSubstr("expected at most 3 of 60 with this one")));
  for (const Key key : {2, 3}) EXPECT_EQ(Push(key, "b"), absl::OkStatus());
  const absl::Status sixth = Push(4, "c");
  EXPECT_EQ(sixth.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(sixth.message()), HasSubstr("queries of all policies in Python that wait"));
  EXPECT_EQ(queue_.PushUncounted(Work("ours"), 1), absl::OkStatus());
  RunAll();
  EXPECT_EQ(notes_.size(), 6u);
  EXPECT_EQ(Push(1, "a"), absl::OkStatus()) << "there is room again";
}

TEST_F(TurnQueueTest, BytesAreBoundedToo) {
  EXPECT_EQ(Push(1, "a", 60), absl::OkStatus());
  EXPECT_EQ(Push(1, "a", 1).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(Push(2, "b", 40), absl::OkStatus());
  EXPECT_EQ(Push(3, "c", 1).code(), absl::StatusCode::kResourceExhausted);
  RunAll();
  EXPECT_EQ(Push(3, "c", 60), absl::OkStatus());
}

TEST_F(TurnQueueTest, WhatRunsIsCounted) {
  EXPECT_EQ(Push(1, "a", 60,
                 [this] {
                   EXPECT_EQ(queue_.count(), 1);
                   EXPECT_EQ(Push(1, "b").code(), absl::StatusCode::kResourceExhausted);
                   return std::nullopt;
                 }),
            absl::OkStatus());
  RunAll();
  EXPECT_EQ(queue_.count(), 0);
}

TEST_F(TurnQueueTest, APieceGoesFromKeyToKey) {
  std::vector<Key> way = {2, 2, 3};
  EXPECT_EQ(Push(1, "a", 1,
                 [&way]() -> std::optional<Key> {
                   if (way.empty()) return std::nullopt;
                   const Key next = way.front();
                   way.erase(way.begin());
                   return next;
                 }),
            absl::OkStatus());
  EXPECT_EQ(Push(2, "b"), absl::OkStatus());
  RunAll();
  EXPECT_THAT(notes_, ElementsAre("a", "b", "a", "a", "a"));
  EXPECT_EQ(queue_.count(), 0);
}

TEST_F(TurnQueueTest, AKeyThatHasEnoughRefusesWhatComesFromAnother) {
  EXPECT_EQ(Push(1, "a", 1, [] { return 2; }), absl::OkStatus());
  for (int i = 0; i < 3; ++i) EXPECT_EQ(Push(2, "b"), absl::OkStatus());
  EXPECT_TRUE(queue_.Step());
  EXPECT_THAT(notes_, ElementsAre("a", "a RESOURCE_EXHAUSTED"));
  EXPECT_EQ(queue_.count(), 3);
}

TEST_F(TurnQueueTest, WhatWaitsCanBeTakenBack) {
  const auto waits = Work("waits");
  bool removed_itself = true;
  const auto runs = Work("runs", [&] {
    removed_itself = queue_.Remove(waits.get());
    return std::nullopt;
  });
  EXPECT_EQ(queue_.Push(waits, 1, 60), absl::OkStatus());
  EXPECT_TRUE(queue_.Remove(waits.get()));
  EXPECT_FALSE(queue_.Remove(waits.get()));
  EXPECT_EQ(queue_.count(), 0);
  EXPECT_FALSE(queue_.Step()) << "it is nobody's turn";
  EXPECT_EQ(queue_.Push(runs, 1, 1), absl::OkStatus());
  EXPECT_EQ(queue_.Push(waits, 1, 1), absl::OkStatus());
  RunAll();
  EXPECT_TRUE(removed_itself) << "from within another's turn";
  EXPECT_THAT(notes_, ElementsAre("runs"));
  EXPECT_EQ(Push(1, "again", 60), absl::OkStatus());
}

TEST_F(TurnQueueTest, ClosedItRefusesWhatWaitsAndWhatComes) {
  EXPECT_EQ(Push(1, "a", 1,
                 [this] {
                   queue_.Close();
                   return 2;
                 }),
            absl::OkStatus());
  EXPECT_EQ(Push(1, "b"), absl::OkStatus());
  EXPECT_TRUE(queue_.Await());
  EXPECT_TRUE(queue_.Step());
  EXPECT_THAT(notes_, ElementsAre("a", "b CANCELLED", "a CANCELLED"));
  EXPECT_FALSE(queue_.Await());
  EXPECT_FALSE(queue_.Step());
  EXPECT_EQ(Push(1, "c").code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(queue_.PushUncounted(Work("c"), 1).code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(queue_.count(), 0);
}

/// Wanders over keys, and sees that nobody else is where it is.
class Wanderer final : public TurnQueue::Work {
 public:
  Wanderer(uint32_t number, std::vector<std::atomic<int>>* inside, std::atomic<int>* through)
      : random_(base::PhiloxKey::Make(7, base::RandomStream::kTest), {number, 0, 0, 0}),
        key_(static_cast<Key>(random_.Below(static_cast<uint32_t>(inside->size())))),
        inside_(*inside),
        through_(*through) {}
  Key key() const { return key_; }
  std::optional<Key> Run() override {
    std::atomic<int>& here = inside_[static_cast<size_t>(key_)];
    EXPECT_EQ(here.fetch_add(1), 0);
    std::this_thread::yield();
    here.fetch_sub(1);
    if (random_.Below(4) == 0) {
      ++through_;
      return std::nullopt;
    }
    key_ = static_cast<Key>(random_.Below(static_cast<uint32_t>(inside_.size())));
    return key_;
  }
  void Refuse(const absl::Status& /*why*/) override { ++through_; }

 private:
  base::PhiloxSequence random_;
  Key key_;
  std::vector<std::atomic<int>>& inside_;
  std::atomic<int>& through_;
};

TEST(TurnQueueThreadsTest, EveryPieceEndsOnceAndNoneMeetsAnotherOfItsKey) {
  TurnQueue queue({.count = 100, .count_per_key = 30, .bytes = 1000, .bytes_per_key = 1000});
  std::vector<std::atomic<int>> inside(5);
  std::atomic<int> through = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&queue] {
      while (queue.Await()) queue.Step();
    });
  }
  int pushed = 0;
  for (uint32_t i = 0; i < 3000; ++i) {
    const auto wanderer = std::make_shared<Wanderer>(i, &inside, &through);
    if (queue.Push(wanderer, wanderer->key(), 1).ok()) ++pushed;
    if (i % 7 == 0 && queue.Remove(wanderer.get())) --pushed;
    if (i % 50 == 0) {
      while (queue.count() > 20) std::this_thread::yield();
    }
  }
  queue.Close();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(through.load(), pushed);
  EXPECT_GT(pushed, 1000);
  EXPECT_EQ(queue.count(), 0);
}

}  // namespace
}  // namespace troupe::serving
