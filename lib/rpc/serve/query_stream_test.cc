// StreamActions over a Unix socket, with the real engine behind it.

#include "lib/rpc/serve/query_stream.h"

#include <unistd.h>

#include <atomic>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "lib/base/await.h"
#include "lib/base/process_memory.h"
#include "lib/rpc/door/address.h"
#include "lib/rpc/serve/query_client.h"
#include "lib/rpc/serve/query_codec.h"
#include "lib/rpc/serve/query_server.h"
#include "lib/rpc/testing/byte_stream.h"
#include "lib/rpc/testing/peak_memory.h"
#include "lib/rpc/transport/convert.h"
#include "lib/serving/query_engine.h"
#include "lib/serving/testing/query_builder.h"
#include <gmock/gmock.h>
#include <grpcpp/create_channel.h>
#include <gtest/gtest.h>

namespace troupe::rpc {
namespace {

using serving::OwnedRows;
using testing::HasSubstr;

constexpr absl::Duration kStreamTimeout = absl::Seconds(20);
constexpr char kMethod[] = "/troupe.v1.Query/StreamActions";

/// A stream of queries, or another method of Query.
class RawStream final : public ByteStream {
 public:
  explicit RawStream(const std::string& address, const std::string& method = kMethod) : ByteStream(address, method) {}
  explicit RawStream(const std::shared_ptr<grpc::Channel>& channel) : ByteStream(channel, kMethod) {}
  using ByteStream::Write;
  bool Write(const serving::ActionQuery& query) { return Write(ToProto(query).SerializeAsString()); }
};

class QueryStreamTest : public testing::Test {
 protected:
  QueryStreamTest()
      : spec_(serving::MakeSpec("p", *space::Space::Box(-1, 1, {3}), *space::Space::Discrete(4))),
        rows_(serving::MakeRows(spec_, 2)),
        query_(serving::Ask({&rows_}, true)) {
    engine_ = *serving::QueryEngine::Create({spec_}, {});
    EXPECT_EQ(engine_->SetWeights(serving::MakeWeights(spec_, 1)), absl::OkStatus());
    Start({});
  }
  void Start(const QueryStreamLimits& limits) {
    server_.reset();
    server_ = *QueryServer::Start({address_}, {}, engine_.get(), limits);
    client_ = *QueryClient::Create(address_, {});
  }
  /// Whether the server has so many streams, soon.
  bool HasStreams(size_t count) {
    const base::Deadline deadline = base::Deadline::After(kStreamTimeout);
    while (server_->num_streams() != count && !deadline.passed()) absl::SleepFor(absl::Milliseconds(1));
    return server_->num_streams() == count;
  }

  const std::string address_ = absl::StrCat("unix-abstract:troupe-stream-", getpid(), "-",
                                            testing::UnitTest::GetInstance()->current_test_info()->name());
  const policy::PolicySpec spec_;
  const OwnedRows rows_;
  const serving::ActionQuery query_;
  std::unique_ptr<serving::QueryEngine> engine_;
  std::unique_ptr<QueryServer> server_;
  std::unique_ptr<QueryClient> client_;
};

TEST_F(QueryStreamTest, AnswersAsACallDoesAndARefusalEndsNothing) {
  const auto stream = client_->OpenStream();
  const std::vector<float> expected = serving::Values((*client_->ComputeActions(query_, kStreamTimeout))[0]);
  OwnedRows bad = rows_;
  bad.policy_id = "nobody";
  for (int i = 0; i < 3; ++i) {
    const auto answer = stream->ComputeActions(query_, kStreamTimeout);
    ASSERT_TRUE(answer.ok()) << answer.status();
    EXPECT_EQ(serving::Values((*answer)[0]), expected);
    const absl::Status refused = stream->ComputeActions(serving::Ask({&bad}, true), kStreamTimeout).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kNotFound);
    EXPECT_THAT(std::string(refused.message()), HasSubstr("there is no policy \"nobody\""));
  }
  EXPECT_EQ(server_->num_streams(), 1u);
}

TEST_F(QueryStreamTest, RequestsThatWaitAreAnsweredInTheirOrder) {
  RawStream stream(address_);
  for (int64_t rows = 1; rows <= 20; ++rows) {
    const OwnedRows owned = serving::MakeRows(spec_, rows);
    ASSERT_TRUE(stream.Write(serving::Ask({&owned}, true)));
  }
  ASSERT_TRUE(stream.HalfClose());
  v1::ComputeActionsReply reply;
  for (uint32_t rows = 1; rows <= 20; ++rows) {
    ASSERT_TRUE(stream.Read(&reply));
    EXPECT_EQ(reply.policies(0).rows(), rows);
  }
  EXPECT_FALSE(stream.Read(&reply));
  EXPECT_EQ(stream.Finish(), absl::OkStatus());
  EXPECT_TRUE(HasStreams(0));
}

TEST_F(QueryStreamTest, BytesThatAreNoRequestEndItAndNothingElse) {
  for (const auto& [bytes, code] : {std::pair(std::string(100, '\xff'), absl::StatusCode::kInvalidArgument),
                                    std::pair(std::string(1 << 20, '\x0a'), absl::StatusCode::kInvalidArgument),
                                    std::pair(std::string(6 << 20, 'x'), absl::StatusCode::kResourceExhausted)}) {
    RawStream stream(address_);
    v1::ComputeActionsReply reply;
    ASSERT_TRUE(stream.Write(query_));
    ASSERT_TRUE(stream.Read(&reply));
    stream.Write(bytes);
    EXPECT_FALSE(stream.Read(&reply));
    const absl::Status status = stream.Finish();
    EXPECT_EQ(status.code(), code) << status;
  }
  std::string flood;
  while (flood.size() < kMaxMessageBytes - 2) flood += std::string("\x0a\x00", 2);
  RawStream stream(address_);
  v1::ComputeActionsReply reply;
  stream.Write(flood);
  EXPECT_FALSE(stream.Read(&reply));
  EXPECT_EQ(stream.Finish().code(), absl::StatusCode::kResourceExhausted) << "elements without end";
  EXPECT_TRUE(client_->ComputeActions(query_, kStreamTimeout).ok());
  EXPECT_TRUE(HasStreams(0));
}

TEST_F(QueryStreamTest, StreamsThatWaitHoldNoMemoryOfTheirLargestRequest) {
  v1::ComputeActionsRequest large = ToProto(query_);
  large.mutable_policies(0)->set_action_mask(std::string(4 << 20, '\x01'));  // the policy has none
  const std::string bytes = large.SerializeAsString();
  std::vector<std::unique_ptr<RawStream>> streams;
  const auto ask = [&] {
    streams.push_back(std::make_unique<RawStream>(address_));
    v1::ComputeActionsReply reply;
    EXPECT_TRUE(streams.back()->Write(bytes));
    EXPECT_TRUE(streams.back()->Read(&reply));
    EXPECT_EQ(reply.error().code(), static_cast<int>(absl::StatusCode::kInvalidArgument));
  };
  // What one request takes while it is answered, and gRPC at its first, is none of what streams hold.
  for (int i = 0; i < 3; ++i) ask();
  streams.clear();
  ASSERT_TRUE(HasStreams(0));
  const PeakMemory peak;
  for (int i = 0; i < 30; ++i) ask();
  EXPECT_LT(peak.growth_bytes(), (int64_t{80} << 20) + kKeptBySanitizerBytes) << "this process is the clients, too";
}

TEST_F(QueryStreamTest, OneTooManyIsRefusedAndTheOthersGoOn) {
  Start({.open = 2});
  const auto first = client_->OpenStream();
  EXPECT_TRUE(first->ComputeActions(query_, kStreamTimeout).ok());
  {
    const auto second = client_->OpenStream();
    EXPECT_TRUE(second->ComputeActions(query_, kStreamTimeout).ok());
    const absl::Status refused = client_->OpenStream()->ComputeActions(query_, kStreamTimeout).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted) << refused;
    EXPECT_THAT(std::string(refused.message()), HasSubstr("streams of queries are 2, expected at most 2"));
  }
  EXPECT_TRUE(first->ComputeActions(query_, kStreamTimeout).ok());
  ASSERT_TRUE(HasStreams(1));
  EXPECT_TRUE(client_->OpenStream()->ComputeActions(query_, kStreamTimeout).ok()) << "the second has left";
}

TEST_F(QueryStreamTest, OneAddressHasAShareOfTheStreamsAndOthersTheRest) {
  server_.reset();
  server_ = *QueryServer::Start({address_, "127.0.0.1:0"}, {}, engine_.get(), {.open = 4, .open_of_address = 2});
  const auto open = [this](const std::string& address) {
    auto stream = (*QueryClient::Create(address, {}))->OpenStream();
    const absl::Status status = stream->ComputeActions(query_, kStreamTimeout).status();
    return std::pair(std::move(stream), status);
  };
  const auto first = open(address_);
  EXPECT_EQ(first.second, absl::OkStatus());
  {
    const auto second = open(address_);
    EXPECT_EQ(second.second, absl::OkStatus());
    const absl::Status refused = open(address_).second;
    EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted) << refused;
    EXPECT_THAT(std::string(refused.message()),
                HasSubstr("streams of queries of unix socket are 2, expected at most 2"));
    const auto by_tcp = open(server_->addresses()[1]);
    EXPECT_EQ(by_tcp.second, absl::OkStatus()) << "who comes by another address has a share of its own";
    const auto by_tcp_too = open(server_->addresses()[1]);
    EXPECT_EQ(by_tcp_too.second, absl::OkStatus());
    EXPECT_THAT(std::string(open(server_->addresses()[1]).second.message()),
                HasSubstr("streams of queries are 4, expected at most 4"));
  }
  ASSERT_TRUE(HasStreams(1));
  EXPECT_EQ(open(address_).second, absl::OkStatus()) << "those who left have given back what they had";
}

TEST_F(QueryStreamTest, WhoDoesNotReadItsAnswerIsCancelledAndWhoReadsHasItWhole) {
  policy::PolicySpec wide = serving::MakeSpec("wide", *space::Space::Box(-1, 1, {3}), *space::Space::Box(-1, 1, {400}));
  const auto engine = *serving::QueryEngine::Create({wide}, {});
  ASSERT_EQ(engine->SetWeights(serving::MakeWeights(wide, 1)), absl::OkStatus());
  const OwnedRows rows = serving::MakeRows(wide, 1024);  // an answer of 3 MiB, which no buffer on the way holds
  const std::string address = address_ + "-wide";
  const auto server = *QueryServer::Start({address}, {}, engine.get(), {.idle = absl::Milliseconds(100)});
  // No client of ours, whose window takes 10 MiB; 64 KiB, and that for good.
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  const auto channel = [&] {
    return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
  };
  RawStream silent(channel());
  v1::ComputeActionsReply reply;
  {
    RawStream reading(channel());
    for (RawStream* stream : {&reading, &silent}) {
      ASSERT_TRUE(stream->Write(serving::Ask({&rows}, true)));
    }
    while (engine->batch_stats().queries < 2) absl::SleepFor(absl::Milliseconds(1));
    ASSERT_TRUE(reading.Read(&reply));
    EXPECT_EQ(reply.policies(0).rows(), 1024u);
  }
  EXPECT_TRUE(base::AwaitPolling(absl::Milliseconds(5), base::Deadline::After(kStreamTimeout), [&] {
    server->Tick();
    return server->num_streams() == 0;
  })) << "its answer is held no longer";
  while (silent.Read(&reply)) {
  }
  EXPECT_EQ(silent.Finish().code(), absl::StatusCode::kCancelled) << "not ended as one without a request is";
}

TEST_F(QueryStreamTest, WithoutARequestForTooLongItEnds) {
  Start({.idle = absl::Milliseconds(50)});
  RawStream silent(address_);
  ASSERT_TRUE(HasStreams(1));
  server_->Tick();
  EXPECT_EQ(server_->num_streams(), 1u) << "not yet";
  absl::SleepFor(absl::Milliseconds(60));
  server_->Tick();
  v1::ComputeActionsReply reply;
  EXPECT_FALSE(silent.Read(&reply));
  const absl::Status status = silent.Finish();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
  EXPECT_TRUE(HasStreams(0));
}

/// Answers when it is told to.
class HeldQueries final : public serving::ActionQueries {
 public:
  GiveUp ComputeActions(const serving::ActionQuery& /*query*/, Done done) override {
    if (asked_once_.exchange(true)) {
      done(absl::CancelledError("one is held"));
      return nullptr;
    }
    asked_.set_value(std::move(done));
    return [this] { given_up_.set_value(); };
  }
  absl::StatusOr<serving::PolicyDescriptions> DescribePolicies(const std::vector<policy::PolicyId>&) override {
    return absl::UnimplementedError("");
  }
  serving::PolicyDescriptions ListPolicies() override { return {}; }
  std::atomic<bool> asked_once_{false};
  std::promise<Done> asked_;
  std::promise<void> given_up_;
};

TEST_F(QueryStreamTest, WhoCancelsGivesTheQueryUp) {
  HeldQueries held;
  const std::string address = address_ + "-held";
  const auto server = *QueryServer::Start({address}, {}, &held);
  RawStream stream(address);
  ASSERT_TRUE(stream.Write(query_));
  const auto done = held.asked_.get_future().get();
  stream.Cancel();
  held.given_up_.get_future().get();
  done(absl::CancelledError("given up"));
  const base::Deadline deadline = base::Deadline::After(kStreamTimeout);
  while (server->num_streams() > 0 && !deadline.passed()) absl::SleepFor(absl::Milliseconds(1));
  EXPECT_EQ(server->num_streams(), 0u);
}

TEST_F(QueryStreamTest, ShutdownAnswersWhatItHoldsAndEndsTheRest) {
  HeldQueries held;
  const std::string address = address_ + "-held";
  const auto server = *QueryServer::Start({address}, {}, &held);
  RawStream asking(address), silent(address);
  ASSERT_TRUE(asking.Write(query_));
  const auto done = held.asked_.get_future().get();
  // One that comes to a server that is going down hears CANCELLED, of gRPC.
  ASSERT_TRUE(base::AwaitPolling(absl::Milliseconds(1), base::Deadline::After(kStreamTimeout),
                                 [&] { return server->num_streams() == 2; }));
  std::thread ender([&] { server->Shutdown(kStreamTimeout); });
  v1::ComputeActionsReply reply;
  EXPECT_FALSE(silent.Read(&reply));
  EXPECT_EQ(silent.Finish().code(), absl::StatusCode::kUnavailable);
  // A stream that holds on keeps no door open for others.
  const auto late = *QueryClient::Create(address, {});
  EXPECT_TRUE(base::AwaitPolling(absl::Milliseconds(1), base::Deadline::After(kStreamTimeout / 2), [&] {
    return absl::IsUnavailable(late->ComputeActions(query_, absl::Seconds(1)).status());
  }));
  serving::PolicyActions actions;
  actions.policy_id = policy::PolicyId("late");
  done(serving::ActionAnswer{actions});
  ASSERT_TRUE(asking.Read(&reply));
  EXPECT_EQ(reply.policies(0).policy_id(), "late");
  EXPECT_FALSE(asking.Read(&reply));
  EXPECT_EQ(asking.Finish().code(), absl::StatusCode::kUnavailable);
  ender.join();
}

TEST_F(QueryStreamTest, ADeadlineEndsTheStreamOfItsClient) {
  HeldQueries held;
  const std::string address = address_ + "-held";
  const auto server = *QueryServer::Start({address}, {}, &held);
  const auto client = *QueryClient::Create(address, {});
  const auto stream = client->OpenStream();
  EXPECT_EQ(stream->ComputeActions(query_, absl::Milliseconds(100)).status().code(),
            absl::StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(stream->over());
  EXPECT_EQ(stream->ComputeActions(query_, kStreamTimeout).status().code(), absl::StatusCode::kUnavailable);
  held.given_up_.get_future().get();
  held.asked_.get_future().get()(absl::CancelledError("given up"));
}

TEST_F(QueryStreamTest, AThousandClientsThatVanishLeaveNothing) {
  const auto vanish = [this](int count) {
    for (int i = 0; i < count; ++i) {
      RawStream stream(address_, i % 2 == 0 ? kMethod : "/troupe.v1.Query/ComputeActions");
      ASSERT_TRUE(stream.Write(query_));
      stream.Cancel();  // maybe before the answer, maybe after
    }
    EXPECT_TRUE(HasStreams(0));
  };
  vanish(200);  // what gRPC keeps for good
  // In use, not resident: this process is the clients, too, and on a busy machine many of them are there at once. A
  // sanitizer's allocator does not say, and finds what leaks by itself.
  const int64_t before = base::ProcessMemory::Now().heap_bytes;
  vanish(1000);
  const auto growth = [before] { return base::ProcessMemory::Now().heap_bytes - before; };
  // gRPC closes connections in its own time.
  EXPECT_TRUE(base::AwaitPolling(absl::Milliseconds(5), base::Deadline::After(absl::Seconds(30)),
                                 [&] { return growth() < (int64_t{1} << 20); }))
      << growth() << " bytes more";
  EXPECT_EQ(engine_->num_waiting(), 0);
  EXPECT_TRUE(client_->OpenStream()->ComputeActions(query_, kStreamTimeout).ok());
}

TEST_F(QueryStreamTest, WeightsAreReloadedUnderLoadAndNoCallFails) {
  std::atomic<bool> over{false};
  std::atomic<int64_t> calls{0}, failures{0}, went_back{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, by_stream = i % 2 == 0] {
      const auto client = *QueryClient::Create(address_, {});
      const auto stream = client->OpenStream();
      int64_t last = 0;
      while (!over) {
        const auto answer =
            by_stream ? stream->ComputeActions(query_, kStreamTimeout) : client->ComputeActions(query_, kStreamTimeout);
        ++calls;
        if (!answer.ok()) {
          ++failures;
        } else if (const int64_t version = (*answer)[0].version.n; version < last) {
          ++went_back;
        } else {
          last = version;
        }
      }
    });
  }
  for (int64_t version = 2; version <= 21; ++version) {
    // Answers of each version: fifty calls are some milliseconds.
    const int64_t before = calls;
    EXPECT_TRUE(base::AwaitPolling(absl::Milliseconds(1), base::Deadline::After(absl::Seconds(30)),
                                   [&] { return calls >= before + 50; }));
    EXPECT_EQ(engine_->SetWeights(serving::MakeWeights(spec_, version)), absl::OkStatus());
    EXPECT_EQ(engine_->SetLabel("best", {{"p", {{1, version}, serving::MakeWeights(spec_, version)}}}),
              absl::OkStatus());
  }
  over = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures, 0);
  EXPECT_EQ(went_back, 0);
  EXPECT_GT(calls, 1000);
}

}  // namespace
}  // namespace troupe::rpc
