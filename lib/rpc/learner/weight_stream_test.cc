// The Weights stream over real gRPC, message by message.

#include <unistd.h>

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "lib/base/await.h"
#include "lib/policy/parameter_layout.h"
#include "lib/policy/policy_spec.h"
#include "lib/rpc/learner/learner_server.h"
#include "lib/rpc/testing/fake_endpoint.h"
#include "lib/rpc/transport/client_link.h"
#include "lib/rpc/transport/convert.h"
#include "lib/rpc/transport/limits.h"
#include "lib/sample/testing/batch_maker.h"
#include <grpcpp/create_channel.h>
#include <gtest/gtest.h>

namespace troupe::rpc {
namespace {

using policy::PolicySlot;

/// A subscriber that says exactly what a test tells it to.
class Subscriber final : private LinkOwner {
 public:
  explicit Subscriber(const std::string& address) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    arguments.SetMaxSendMessageSize(-1);
    channel_ = grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
    link_ = MakeLink();
    link_->Start(channel_, "/troupe.v1.Weights/Subscribe", /*wait_for_ready=*/false);
  }
  ~Subscriber() override {
    link_->Cancel();
    link_.reset();
    AwaitLinksGone();
  }
  void Send(const v1::SubscribeRequest& request, bool last = false) {
    {
      base::MutexLock lock(&mutex_);
      outbox_.push_back({Serialize(request), last});
    }
    link_->Kick();
  }
  /// Asks for `add`, no longer for `remove`.
  void Change(const std::vector<int32_t>& add, const std::vector<int32_t>& remove = {}) {
    v1::SubscribeRequest request;
    *request.mutable_protocol() = OurProtocol();
    request.set_number(++number_);
    for (const int32_t slot : add) request.add_add(slot);
    for (const int32_t slot : remove) request.add_remove(slot);
    Send(request);
  }
  /// The next message as text: "slot@version" of weights, "number=version" of an announcement, "end CODE".
  std::string Next() {
    base::MutexLock lock(&mutex_);
    const bool came =
        base::Await(changed_, &mutex_, base::Deadline::After(absl::Seconds(10)),
                    [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !inbox_.empty() || end_.has_value(); });
    if (!came) return "nothing came";
    if (inbox_.empty()) return absl::StrCat("end ", absl::StatusCodeToString(end_->code()));
    const v1::WeightUpdate update = std::move(inbox_.front());
    inbox_.pop_front();
    if (update.has_announcement()) return absl::StrCat(update.announcement().number(), "=", update.version().n());
    return absl::StrCat(update.policy_slot(), "@", update.version().n());
  }
  std::vector<std::string> Next(size_t count) {
    std::vector<std::string> texts;
    for (size_t i = 0; i < count; ++i) texts.push_back(Next());
    return texts;
  }

 private:
  std::optional<Outgoing> NextMessage(const ClientLink*) override {
    base::MutexLock lock(&mutex_);
    if (outbox_.empty()) return std::nullopt;
    std::optional<Outgoing> next(std::move(outbox_.front()));
    outbox_.pop_front();
    return next;
  }
  void OnMessage(const ClientLink*, const grpc::ByteBuffer& message) override {
    const auto list = SliceList::From(message);
    SliceInputStream stream(*list);
    v1::WeightUpdate parsed;
    parsed.ParseFromZeroCopyStream(&stream);
    base::MutexLock lock(&mutex_);
    inbox_.push_back(std::move(parsed));
    changed_.NotifyAll();
  }
  void OnLinkDone(const ClientLink*, const absl::Status& status) override {
    base::MutexLock lock(&mutex_);
    end_ = status;
    changed_.NotifyAll();
  }

  std::shared_ptr<grpc::Channel> channel_;
  std::shared_ptr<ClientLink> link_;
  uint64_t number_ = 0;
  base::Mutex mutex_;
  base::CondVar changed_;
  std::deque<Outgoing> outbox_ ABSL_GUARDED_BY(mutex_);
  std::deque<v1::WeightUpdate> inbox_ ABSL_GUARDED_BY(mutex_);
  std::optional<absl::Status> end_ ABSL_GUARDED_BY(mutex_);
};

class WeightStreamTest : public testing::Test {
 protected:
  void SetUp() override {
    schema_ = sample::SimpleSchema();
    const policy::PolicySpec spec = schema_.policies[PolicySlot(0)];
    schema_.policies.clear();
    for (int i = 0; i < 5; ++i) {
      schema_.policies.push_back(spec);
      schema_.policies.back().id = policy::PolicyId(absl::StrCat("p", i));
    }
    address_ = absl::StrCat("unix-abstract:troupe-weights-", getpid(), "-",
                            testing::UnitTest::GetInstance()->current_test_info()->name());
    LearnerServerOptions options;
    options.addresses = {address_};
    options.schema = schema_;
    auto server = LearnerServer::Start(std::move(options), &endpoint_, &endpoint_, &clock_);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  void Publish(int32_t slot, int64_t n, const std::string& id = "") {
    auto snapshot = std::make_shared<policy::WeightSnapshot>();
    const policy::PolicySpec& spec = schema_.policies[PolicySlot(0)];
    snapshot->id = policy::PolicyId(id.empty() ? absl::StrCat("p", slot) : id);
    snapshot->version = {1, n};
    snapshot->actor.assign(static_cast<size_t>(policy::ParameterLayout::For(spec).acting_size()), 0.5f);
    server_->weights().Publish(PolicySlot(slot), std::move(snapshot));
  }
  void Announce(int64_t n) { server_->weights().AnnounceVersion({1, n}); }

  using Texts = std::vector<std::string>;
  sample::BatchSchema schema_;
  base::FakeClock clock_;
  FakeEndpoint endpoint_;
  std::string address_;
  std::unique_ptr<LearnerServer> server_;
};

TEST_F(WeightStreamTest, OnlyWhatIsAskedForComesAndThenTheAnnouncement) {
  for (int slot = 0; slot < 5; ++slot) Publish(slot, 1);
  Announce(1);
  Subscriber subscriber(address_);
  subscriber.Change({1, 3});
  EXPECT_EQ(subscriber.Next(3), Texts({"1@1", "3@1", "1=1"}));
  Publish(0, 2);
  Publish(3, 2);
  Announce(2);
  EXPECT_EQ(subscriber.Next(2), Texts({"3@2", "1=2"})) << "so policy 1 of version 1 is current as of 2";
  subscriber.Change({0}, {3});
  EXPECT_EQ(subscriber.Next(2), Texts({"0@2", "2=2"}));
  Publish(3, 3);
  Announce(3);
  EXPECT_EQ(subscriber.Next(), "2=3");
}

TEST_F(WeightStreamTest, WhatIsAskedForAgainIsSentAgain) {
  Publish(2, 1);
  Announce(1);
  Subscriber subscriber(address_);
  subscriber.Change({2});
  EXPECT_EQ(subscriber.Next(2), Texts({"2@1", "1=1"}));
  subscriber.Change({}, {2});
  EXPECT_EQ(subscriber.Next(), "2=1");
  subscriber.Change({2});
  EXPECT_EQ(subscriber.Next(2), Texts({"2@1", "3=1"}));
}

TEST_F(WeightStreamTest, AFreeSlotIsRememberedAndGetsThePolicyThatComes) {
  Announce(1);
  Subscriber subscriber(address_);
  subscriber.Change({5});
  EXPECT_EQ(subscriber.Next(), "1=1");
  auto table = policy::PolicyTable::Make(schema_.policies.values(), std::vector<bool>(5, true),
                                         {{"*", {{policy::PolicyId("p0"), 1.0}}}}, schema_.agent_ids);
  ASSERT_TRUE(table.ok()) << table.status();
  policy::PolicySpec spec = schema_.policies[PolicySlot(0)];
  spec.id = policy::PolicyId("sixth");
  server_->weights().SetPolicies(*(*table)->Add(spec, true));
  Publish(5, 1, "sixth");
  EXPECT_EQ(subscriber.Next(), "5@1");
}

TEST_F(WeightStreamTest, OneRequestWithoutANumberGetsFixedPolicies) {
  for (int slot = 0; slot < 3; ++slot) Publish(slot, 1);
  v1::SubscribeRequest request;
  *request.mutable_protocol() = OurProtocol();
  request.add_policy_ids("p2");
  Subscriber one(address_);
  one.Send(request, /*last=*/true);
  EXPECT_EQ(one.Next(), "2@1");
  Publish(2, 2);
  EXPECT_EQ(one.Next(), "2@2") << "after it half-closed";
  request.clear_policy_ids();
  Subscriber all(address_);
  all.Send(request);
  EXPECT_EQ(all.Next(3), Texts({"0@1", "1@1", "2@2"}));
  all.Send(request);
  EXPECT_EQ(all.Next(), "end INVALID_ARGUMENT") << "a second one";
}

TEST_F(WeightStreamTest, RefusesWhatNoHonestSubscriberSends) {
  const auto end = [this](std::vector<v1::SubscribeRequest> requests) {
    Subscriber subscriber(address_);
    for (v1::SubscribeRequest& request : requests) {
      *request.mutable_protocol() = OurProtocol();
      subscriber.Send(request);
    }
    std::string last;
    do {
      last = subscriber.Next();
    } while (last.find('=') != std::string::npos);
    return last;
  };
  Announce(1);
  v1::SubscribeRequest first;
  first.set_number(1);
  v1::SubscribeRequest bad = first;
  bad.add_add(-1);
  EXPECT_EQ(end({bad}), "end INVALID_ARGUMENT");
  bad = first;
  bad.add_add(1024);
  EXPECT_EQ(end({bad}), "end INVALID_ARGUMENT");
  bad = first;
  bad.add_remove(1 << 30);
  EXPECT_EQ(end({bad}), "end INVALID_ARGUMENT");
  bad = first;
  bad.set_number(2);
  EXPECT_EQ(end({bad}), "end INVALID_ARGUMENT");
  EXPECT_EQ(end({first, first}), "end INVALID_ARGUMENT");
  bad = first;
  bad.set_number(0);
  bad.add_policy_ids("nobody");
  EXPECT_EQ(end({bad}), "end NOT_FOUND");
  for (size_t i = 0; i < policy::PolicyTable::kMaxPolicies; ++i) bad.add_policy_ids("nobody");
  EXPECT_EQ(end({bad}), "end INVALID_ARGUMENT") << "1025 ids";
  bad = first;
  bad.set_spec_hash(3);
  EXPECT_EQ(end({bad}), "end FAILED_PRECONDITION");
  bad = first;
  for (size_t i = 0; i <= policy::PolicyTable::kMaxPolicies; ++i) bad.add_add(1023);
  EXPECT_EQ(end({bad}), "end INVALID_ARGUMENT") << "1025 slots";
  for (int i = 0; i < 600000; ++i) bad.add_add(1023);
  EXPECT_EQ(end({bad}), "end INVALID_ARGUMENT") << "more than 1 MiB";
  Subscriber honest(address_);
  honest.Change({0});
  EXPECT_EQ(honest.Next(), "1=1");
}

TEST_F(WeightStreamTest, WhoSaysNothingIsEnded) {
  Subscriber subscriber(address_);
  ASSERT_TRUE(base::AwaitPolling(absl::Milliseconds(1), base::Deadline::After(absl::Seconds(10)),
                                 [this] { return server_->num_streams() > 0; }));
  EXPECT_EQ(server_->num_rollout_streams(), 0) << "a learner that ends does not wait for it";
  clock_.Advance(kHandshakeTimeout);
  server_->Tick();
  EXPECT_EQ(subscriber.Next(), "end DEADLINE_EXCEEDED");
}

}  // namespace
}  // namespace troupe::rpc
