// Episodes over sockets: what a client that knows the .proto alone hears.

#include "lib/rpc/episode/episode_service.h"

#include <unistd.h>

#include <cmath>
#include <fstream>
#include <future>
#include <thread>

#include "absl/strings/str_cat.h"
#include "lib/base/await.h"
#include "lib/base/hidden_order.h"
#include "lib/base/process_memory.h"
#include "lib/env/slot_buffers.h"
#include "lib/outside/lane_env.h"
#include "lib/policy/parameter_layout.h"
#include "lib/policy/policy_entry.h"
#include "lib/policy/policy_table.h"
#include "lib/rpc/episode/episode_codec.h"
#include "lib/rpc/episode/episode_server.h"
#include "lib/rpc/testing/raw_call.h"
#include "lib/rpc/transport/convert.h"
#include "lib/rpc/transport/grpc_deadline.h"
#include "lib/rpc/transport/limits.h"
#include "lib/storage/checkpoint_weights.h"
#include "lib/storage/testing/scratch_directory.h"
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

namespace troupe::rpc {
namespace {

env::EnvSpec World() {
  env::EnvSpec spec;
  spec.name = "external";
  spec.possible_agents.push_back(
      {base::AgentId("cart"), *space::Space::Box(-1, 1, {2}), *space::Space::Discrete(2), true});
  spec.state_kind = env::StateKind::kPerEnv;
  spec.state_space = *space::Space::Box(-1, 1, {3});
  return spec;
}

class EpisodeServiceTest : public testing::Test {
 protected:
  EpisodeServiceTest()
      : address_(absl::StrCat("unix-abstract:troupe-episodes-", getpid(), "-",
                              testing::UnitTest::GetInstance()->current_test_info()->name())),
        book_(World(), {.episodes = 4}, &base::Clock::Real()) {
    server_ = *EpisodeServer::Start(address_, {}, &book_);
    stub_ = v1::ExternalEpisodes::NewStub(grpc::CreateChannel(address_, grpc::InsecureChannelCredentials()));
  }

  template <typename Request, typename Reply, typename Method>
  absl::Status Call(Method method, const Request& request, Reply* reply, absl::Duration timeout = absl::Seconds(20)) {
    grpc::ClientContext context;
    context.set_deadline(GrpcDeadline(timeout));
    return FromGrpc(((*stub_).*method)(&context, request, reply));
  }
  v1::StartEpisodeReply Start() {
    v1::StartEpisodeReply reply;
    EXPECT_EQ(Call(&v1::ExternalEpisodes::Stub::StartEpisode, v1::StartEpisodeRequest(), &reply), absl::OkStatus());
    return reply;
  }
  static v1::GetActionsRequest Step(const std::string& id) {
    v1::GetActionsRequest request;
    request.set_episode_id(id);
    v1::AgentStep* const agent = request.add_agents();
    agent->set_agent_id("cart");
    agent->add_observation(0.5f);
    agent->add_observation(-0.5f);
    agent->set_action_mask(std::string("\x01\x01", 2));
    for (int i = 0; i < 3; ++i) request.add_state(0);
    return request;
  }
  absl::Status Get(const v1::GetActionsRequest& request, absl::Duration timeout = absl::Seconds(20)) {
    return Call(&v1::ExternalEpisodes::Stub::GetActions, request, &reply_, timeout);
  }
  /// A lane of a worker: takes the first step that comes, and plays action 1.
  void PlayOne() {
    env::SlotBuffers buffers(book_.spec(), 1);
    outside::LaneEnv lane(&book_);
    while (!book_.HasEpisode()) book_.Await(absl::Milliseconds(10));
    ASSERT_TRUE(lane.Reset({1, base::EnvId(0), 0}, buffers.BeginStep(0)).ok());
    EXPECT_EQ(buffers.observation(0, 0)[1], -0.5f);
    space::ActionWord word;
    word.i32 = 1;
    book_.SetLogp(base::EnvId(0), base::AgentSlot(0), -0.75f);
    const std::vector<const space::ActionWord*> actions = {&word};
    ASSERT_TRUE(lane.StartStep(actions).ok());
  }

  const std::string address_;
  outside::EpisodeBook book_;
  std::unique_ptr<EpisodeServer> server_;
  std::unique_ptr<v1::ExternalEpisodes::Stub> stub_;
  v1::GetActionsReply reply_;
};

TEST_F(EpisodeServiceTest, AClientPlaysAnEpisode) {
  const v1::StartEpisodeReply begun = Start();
  ASSERT_EQ(begun.agents_size(), 1);
  EXPECT_EQ(begun.agents(0).action_space(), "Discrete(2)");
  EXPECT_EQ(begun.agents(0).observation_size(), 2u);
  EXPECT_EQ(begun.agents(0).mask_size(), 2u);
  EXPECT_EQ(begun.state_size(), 3u);
  std::thread lane([this] { PlayOne(); });
  EXPECT_EQ(Get(Step(begun.episode_id())), absl::OkStatus());
  lane.join();
  ASSERT_EQ(reply_.actions_size(), 1);
  EXPECT_EQ(reply_.actions(0).agent_id(), "cart");
  EXPECT_EQ(reply_.actions(0).discrete(0), 1);
  EXPECT_EQ(reply_.actions(0).log_prob(), -0.75f);
  v1::LogReturnsRequest returns;
  returns.set_episode_id(begun.episode_id());
  returns.add_returns()->set_agent_id("cart");
  v1::LogReturnsReply logged;
  EXPECT_EQ(Call(&v1::ExternalEpisodes::Stub::LogReturns, returns, &logged), absl::OkStatus());
  v1::EndEpisodeRequest end;
  end.set_episode_id(begun.episode_id());
  end.set_end(v1::EPISODE_END_TERMINATED);
  for (int i = 0; i < 3; ++i) end.add_state(0);
  v1::EndEpisodeReply ended;
  EXPECT_EQ(Call(&v1::ExternalEpisodes::Stub::EndEpisode, end, &ended), absl::OkStatus());
  EXPECT_EQ(Call(&v1::ExternalEpisodes::Stub::EndEpisode, end, &ended).code(), absl::StatusCode::kFailedPrecondition);
}

// Each refusal has its code, and the call that is mended is served.
TEST_F(EpisodeServiceTest, BadInputIsRefusedAndTheNextCallServed) {
  const std::string id = Start().episode_id();
  using absl::StatusCode;
  const auto expect = [&](StatusCode code, const std::function<void(v1::GetActionsRequest*)>& spoil) {
    v1::GetActionsRequest request = Step(id);
    spoil(&request);
    const absl::Status status = Get(request);
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_FALSE(book_.HasEpisode()) << "nothing is learned from it";
  };
  expect(StatusCode::kNotFound, [](auto* request) { request->set_episode_id("nobody's"); });
  expect(StatusCode::kInvalidArgument, [](auto* request) { request->clear_agents(); });
  expect(StatusCode::kInvalidArgument, [](auto* request) { request->mutable_agents(0)->add_observation(0); });
  expect(StatusCode::kInvalidArgument, [](auto* request) { request->mutable_agents(0)->set_observation(0, NAN); });
  expect(StatusCode::kInvalidArgument, [](auto* request) { request->mutable_agents(0)->set_image("ab"); });
  expect(StatusCode::kInvalidArgument,
         [](auto* request) { request->mutable_agents(0)->set_action_mask(std::string(2, '\0')); });
  expect(StatusCode::kInvalidArgument,
         [](auto* request) { request->mutable_agents(0)->set_end(static_cast<v1::EpisodeEnd>(7)); });
  expect(StatusCode::kInvalidArgument, [](auto* request) { request->add_state(0); });
  expect(StatusCode::kFailedPrecondition, [](auto* request) { request->mutable_agents(0)->set_reward(1); });
  std::thread lane([this] { PlayOne(); });
  EXPECT_EQ(Get(Step(id)), absl::OkStatus());
  lane.join();
}

TEST_F(EpisodeServiceTest, WhatIsNoRequestIsRefusedBeforeItIsRead) {
  const std::string method = "/troupe.v1.ExternalEpisodes/GetActions";
  EXPECT_EQ(RawCall(address_, method, "\xff\xff").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(RawCall(address_, "/troupe.v1.ExternalEpisodes/GetPolicies", "\xff\xff").status().code(),
            absl::StatusCode::kInvalidArgument);
  std::string many;  // empty agents, two bytes each, which would take hundreds
  for (int i = 0; i < 20000; ++i) many += std::string("\x12\x00", 2);
  EXPECT_EQ(RawCall(address_, method, many).status().code(), absl::StatusCode::kResourceExhausted);
}

// While a call waits its request is kept: no more of it than twice what the world's reports have.
TEST_F(EpisodeServiceTest, ARequestIsAsLargeAsTheWorldsReportsAtMost) {
  v1::LogActionsRequest largest;
  largest.set_episode_id(std::string(outside::kMaxEpisodeIdBytes, 'e'));
  v1::AgentStep* const agent = largest.add_agents();
  *agent = Step("").agents(0);
  agent->set_reward(-1.5);
  agent->set_end(v1::EPISODE_END_TRUNCATED);
  agent->mutable_action()->set_agent_id("cart");
  agent->mutable_action()->add_discrete(INT32_MIN);
  agent->mutable_action()->set_log_prob(-1);
  for (int i = 0; i < 3; ++i) largest.add_state(1);
  EXPECT_LE(largest.ByteSizeLong(), MostReportBytes(World()));
  EXPECT_GT(2 * largest.ByteSizeLong(), MostReportBytes(World()) / 2) << "and it is not far above it";

  const size_t most = 2 * MostReportBytes(World()) + (4 << 10);
  v1::GetActionsRequest padded;
  padded.set_episode_id(std::string(most - 3, 'x'));
  ASSERT_EQ(padded.ByteSizeLong(), most);
  EXPECT_EQ(Get(padded).code(), absl::StatusCode::kNotFound) << "it is looked at";
  *padded.mutable_episode_id() += 'x';
  const absl::Status refused = Get(padded);
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(refused.message(), absl::StrCat("the request has ", most + 1, " bytes, expected at most ", most,
                                            ", twice what a report of all agents takes"));
}

// The door is one of its own: who may play may not ask, sample or steer.
TEST_F(EpisodeServiceTest, NothingElseIsServedHere) {
  for (const char* const method : {"/troupe.v1.Control/Drain", "/troupe.v1.Monitor/GetStatus",
                                   "/troupe.v1.Query/ComputeActions", "/troupe.v1.Rollout/Rollout"}) {
    EXPECT_EQ(RawCall(address_, method, "").status().code(), absl::StatusCode::kUnimplemented) << method;
  }
}

TEST_F(EpisodeServiceTest, ACallThatIsGivenUpLosesItsEpisode) {
  const std::string id = Start().episode_id();
  EXPECT_EQ(Get(Step(id), absl::Milliseconds(50)).code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(base::AwaitPolling(absl::Milliseconds(1), base::Deadline::After(absl::Seconds(20)),
                                 [this] { return book_.counters().lost > 0; }));
  EXPECT_EQ(Get(Step(id)).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(book_.num_open(), 0u);
}

// A thousand clients that vanish in mid-call make room for each other, and leave nothing behind.
TEST_F(EpisodeServiceTest, ClientsThatVanishLeaveNothingBehind) {
  outside::EpisodeBook book(World(), {.episodes = 4, .idle = absl::Milliseconds(5)}, &base::Clock::Real());
  const std::string address = address_ + "-2";
  const std::unique_ptr<EpisodeServer> server = *EpisodeServer::Start(address, {}, &book);
  const auto stub = v1::ExternalEpisodes::NewStub(grpc::CreateChannel(address, grpc::InsecureChannelCredentials()));
  int64_t settled_bytes = 0;
  for (int i = 0; i < 1000; ++i) {
    if (i == 300) settled_bytes = base::ProcessMemory::Now().rss_bytes;
    v1::StartEpisodeReply begun;
    for (bool is_open = false; !is_open;) {
      grpc::ClientContext context;
      is_open = stub->StartEpisode(&context, v1::StartEpisodeRequest(), &begun).ok();
      book.Tick();  // of some the call has never come
    }
    grpc::ClientContext context;
    v1::GetActionsReply reply;
    const v1::GetActionsRequest request = Step(begun.episode_id());
    std::promise<void> over;
    base::HandOver(&over);
    stub->async()->GetActions(&context, &request, &reply, [&over](grpc::Status) {
      base::TakeOver(&over);
      over.set_value();
    });
    if (i % 2 == 0) book.Await(absl::Milliseconds(5));
    context.TryCancel();
    over.get_future().wait();
  }
  EXPECT_TRUE(base::AwaitPolling(absl::Milliseconds(1), base::Deadline::After(absl::Seconds(20)), [&book] {
    book.Tick();
    return book.num_open() == 0;
  }));
  EXPECT_EQ(book.counters().begun, 1000);
  EXPECT_EQ(book.counters().lost, 1000);
  const base::ProcessMemory memory = base::ProcessMemory::Now();
  // A sanitizer's allocator, which counts no heap, keeps what was freed.
  if (memory.heap_bytes > 0) {
    EXPECT_LT(memory.rss_bytes - settled_bytes, 4 << 20);
  }
}

TEST_F(EpisodeServiceTest, WhoWaitsHearsThatTheServerEnds) {
  const std::string id = Start().episode_id();
  std::thread ends([this] {
    while (!book_.HasEpisode()) book_.Await(absl::Milliseconds(10));
    server_->Shutdown(absl::Seconds(5));
  });
  EXPECT_EQ(Get(Step(id)).code(), absl::StatusCode::kUnavailable);
  ends.join();
}

/// Policies of more than one piece play the world.
class GetPoliciesTest : public EpisodeServiceTest {
 protected:
  GetPoliciesTest() {
    spec_.id = policy::PolicyId("main");
    spec_.observation_space = book_.spec().possible_agents[0].observation_space;
    spec_.action_space = book_.spec().possible_agents[0].action_space;
    spec_.has_action_mask = true;
    spec_.actor.hidden_sizes = {600, 600};
    book_.acting().Begin(policy::PolicyTable::Make({spec_}, {false}, {{"*", {{spec_.id}}}}, {"cart"}));
  }
  void SetWeights(int64_t n) {
    auto weights = std::make_shared<policy::WeightSnapshot>();
    weights->id = spec_.id;
    weights->version = {1, n};
    weights->actor.assign(static_cast<size_t>(policy::ParameterLayout::For(spec_).acting_size()), 0.25f);
    book_.SetWeights(policy::PolicySlot(0), std::move(weights), {1, n});
  }
  absl::Status Ask(uint64_t weights, uint64_t offset) {
    v1::GetPoliciesRequest request;
    request.set_weights(weights);
    request.set_offset(offset);
    return Call(&v1::ExternalEpisodes::Stub::GetPolicies, request, &policies_);
  }

  policy::PolicySpec spec_;
  v1::GetPoliciesReply policies_;
};

TEST_F(GetPoliciesTest, PiecesMakeACheckpoint) {
  EXPECT_EQ(Ask(0, 0), absl::OkStatus());
  EXPECT_EQ(policies_.ByteSizeLong(), 0u) << "there is none yet";
  EXPECT_EQ(Start().weights(), 0u);
  SetWeights(5);
  ASSERT_EQ(Ask(0, 0), absl::OkStatus());
  const uint64_t weights = policies_.weights();
  EXPECT_EQ(Start().weights(), weights);
  ASSERT_EQ(policies_.files_size(), 2);
  std::vector<std::pair<std::string, uint64_t>> files;
  for (const v1::PolicyFile& file : policies_.files()) files.emplace_back(file.name(), file.size());
  std::string bytes = policies_.data();
  EXPECT_EQ(bytes.size(), kPolicyPieceBytes);
  SetWeights(6);  // an update in the middle
  while (bytes.size() < files[0].second + files[1].second) {
    ASSERT_EQ(Ask(weights, bytes.size()), absl::OkStatus());
    ASSERT_FALSE(policies_.data().empty());
    bytes += policies_.data();
  }
  ASSERT_EQ(bytes.size(), files[0].second + files[1].second);
  const storage::ScratchDirectory scratch;
  size_t at = 0;
  for (const auto& [name, size] : files) {
    std::ofstream(scratch.path() + "/" + name, std::ios::binary) << bytes.substr(at, size);
    at += size;
  }
  const auto read = storage::CheckpointWeights::Open(storage::FileSystem::Posix(), scratch.path());
  ASSERT_TRUE(read.ok()) << read.status();
  const policy::PolicySpec acting = (*(*read)->Policies())->Find(policy::PolicySlot(0))->spec;
  const auto state = (*read)->Read(acting);
  ASSERT_TRUE(state.ok()) << state.status();
  EXPECT_EQ(state->version, (policy::WeightVersion{1, 5}));
  ASSERT_EQ(Ask(0, 0), absl::OkStatus());
  EXPECT_EQ(policies_.weights(), weights + 1);
}

TEST_F(GetPoliciesTest, WhoCannotActHearsWhy) {
  spec_.has_action_mask = false;
  book_.acting().Begin(policy::PolicyTable::Make({spec_}, {false}, {{"*", {{spec_.id}}}}, {"cart"}));
  const absl::Status refused = Ask(0, 0);
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition) << refused;
  SetWeights(5);
  EXPECT_EQ(Ask(1, 0).code(), absl::StatusCode::kAborted);
  book_.Close();
  EXPECT_EQ(Ask(0, 0).code(), absl::StatusCode::kUnavailable);
}

TEST_F(EpisodeServiceTest, TheEndOfTheRunGoesBesideTheStatus) {
  for (const outside::Closing why : {outside::Closing::kWorkerEnds, outside::Closing::kRunEnded}) {
    outside::EpisodeBook book(World(), {.episodes = 4}, &base::Clock::Real());
    const auto server = EpisodeServer::Start(address_ + "-end", {}, &book);
    ASSERT_TRUE(server.ok()) << server.status();
    const auto stub =
        v1::ExternalEpisodes::NewStub(grpc::CreateChannel((*server)->address(), grpc::InsecureChannelCredentials()));
    book.Close(why);
    grpc::ClientContext context;
    v1::StartEpisodeReply reply;
    EXPECT_EQ(stub->StartEpisode(&context, {}, &reply).error_code(), grpc::StatusCode::UNAVAILABLE);
    const auto& told = context.GetServerTrailingMetadata();
    EXPECT_EQ(told.count("troupe-run"), why == outside::Closing::kRunEnded ? 1u : 0u);
  }
}

TEST_F(GetPoliciesTest, DecisionsSayWhichWeightsMadeThem) {
  SetWeights(5);
  const uint64_t weights = book_.acting().number();
  const std::string id = Start().episode_id();
  v1::LogActionsRequest request;
  const v1::GetActionsRequest step = Step(id);
  request.set_episode_id(id);
  *request.mutable_agents() = step.agents();
  *request.mutable_state() = step.state();
  v1::AgentAction* const action = request.mutable_agents(0)->mutable_action();
  action->add_discrete(1);
  action->set_log_prob(-0.5f);
  request.set_weights(weights + 1);
  v1::LogActionsReply reply;
  EXPECT_EQ(Call(&v1::ExternalEpisodes::Stub::LogActions, request, &reply).code(),
            absl::StatusCode::kFailedPrecondition);
  request.set_weights(weights);
  std::thread lane([this] {
    while (!book_.HasEpisode()) book_.Await(absl::Milliseconds(10));
    SetWeights(6);
    PlayOne();
  });
  EXPECT_EQ(Call(&v1::ExternalEpisodes::Stub::LogActions, request, &reply), absl::OkStatus());
  lane.join();
  EXPECT_EQ(reply.weights(), weights + 1) << "those that act now";
}

/// A call whose answer nobody reads: more than its connection's window.
class UnreadCall final : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  UnreadCall(grpc::GenericStub* stub, const std::string& method) : request_(Serialize(v1::GetPoliciesRequest())) {
    base::HandOver(this);
    stub->PrepareBidiStreamingCall(&context_, method, {}, this);
    AddHold();
    StartCall();
    StartWriteLast(&request_, {});
  }
  void OnReadInitialMetadataDone(bool ok) override {
    const base::Reaction reaction(this);
    answered_.set_value(ok);
  }
  void OnDone(const grpc::Status& status) override {
    base::TakeOver(this);
    status_.set_value(FromGrpc(status));
  }
  /// Once an answer is on its way; false: it will not come.
  bool AwaitAnswer() { return answered_.get_future().get(); }
  /// Once the server has ended it.
  absl::Status Await() {
    StartRead(&answer_);
    RemoveHold();
    return status_.get_future().get();
  }

 private:
  grpc::ClientContext context_;
  grpc::ByteBuffer request_, answer_;
  std::promise<bool> answered_;
  std::promise<absl::Status> status_;
};

TEST_F(GetPoliciesTest, AnswersThatNobodyReadAreFewAndNotForLong) {
  SetWeights(5);
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 65536);
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  grpc::GenericStub stub(grpc::CreateCustomChannel(address_, grpc::InsecureChannelCredentials(), arguments));
  std::vector<std::unique_ptr<UnreadCall>> calls;
  const std::string method = "/troupe.v1.ExternalEpisodes/GetPolicies";
  const absl::Duration now = base::Clock::Real().SteadyNow();
  for (int64_t i = 0; i < kMaxPolicyCalls; ++i) {
    calls.push_back(std::make_unique<UnreadCall>(&stub, method));
    EXPECT_TRUE(calls.back()->AwaitAnswer());
  }
  EXPECT_TRUE(absl::IsResourceExhausted(Ask(0, 0)));
  EXPECT_EQ(Start().weights(), book_.acting().number()) << "all else goes on";
  server_->Tick(now);
  EXPECT_TRUE(absl::IsResourceExhausted(Ask(0, 0))) << "they may have just begun to read";
  server_->Tick(now + kPolicyCallPatience + absl::Minutes(1));
  EXPECT_TRUE(base::AwaitPolling(absl::Milliseconds(1), base::Deadline::After(absl::Seconds(20)),
                                 [&] { return Ask(0, 0).ok(); }));
  for (const auto& call : calls) EXPECT_TRUE(absl::IsCancelled(call->Await()));
}

}  // namespace
}  // namespace troupe::rpc
