// What a stranger does at the doors of a real learner: every address that it listens at, TCP or Unix socket, is open to
// whoever can connect, and none of them takes a change of the run.

#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/troupe/v1/control.pb.h"
#include "proto/troupe/v1/query.pb.h"
#include "tests/fault/process.h"
#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>

namespace troupe::fault {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(60);
constexpr char kCanary[] = "canary4711";

/// Learners that sample by themselves and listen at a TCP port and at a Unix socket.
class StrangerTest : public testing::Test {
 protected:
  StrangerTest() {
    directory_ =
        std::filesystem::path(testing::TempDir()) /
        absl::StrCat("troupe-stranger-", getpid(), "-", testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::create_directories(directory_);
    std::ofstream(directory_ / "config.yaml")
        << "env: {name: cartpole, args: {num_agents: 2}}\n"
           "num_workers: 0\n"
           "num_envs_per_worker: 4\n"
           "multi_agent: {policies: [main, other], policy_mapping: {\"*\": main}}\n"
           "algorithm: {name: ippo, train_batch_size: 200, minibatch_size: 200, "
           "num_epochs: 1}\n"
           "model: {actor_hidden_sizes: [16], critic_hidden_sizes: [16]}\n"
           "stop: {env_steps: 1000000000}\n"
           "experiment: {write_interval: 200, wandb: true, wandb_kwargs: {key: "
        << kCanary
        << "}}\n"
           "evaluation: {at_end: false}\n";
  }
  ~StrangerTest() override {
    learner_.reset();
    std::error_code ignored;
    std::filesystem::remove_all(directory_, ignored);
  }

  void StartLearner(const std::string& name = "run", int64_t env_steps = 1000000000) {
    run_ = directory_ / name;
    learner_ = std::make_unique<Process>(std::vector<std::string>{
        TROUPE_LEARNER, directory_ / "config.yaml", "--name", name, "--set",
        absl::StrCat("experiment.directory=", directory_.string()), "--set", absl::StrCat("stop.env_steps=", env_steps),
        "--set", "experiment.wandb=false", "--listen", "127.0.0.1:0", "--listen",
        absl::StrCat("unix-abstract:troupe-stranger-", getpid()), "--log-level", "warn"});
  }
  bool Await(const std::function<bool()>& condition) {
    const absl::Time deadline = absl::Now() + kPatience;
    while (!condition()) {
      if (absl::Now() > deadline || !learner_->running()) return false;
      absl::SleepFor(absl::Milliseconds(10));
    }
    return true;
  }
  std::vector<std::string> Lines(const char* name) const {
    std::ifstream file(run_ / name);
    std::vector<std::string> lines;
    for (std::string line; std::getline(file, line);) lines.push_back(line);
    return lines;
  }
  /// Updates that progress.jsonl tells of: one a line.
  size_t updates() const { return Lines("progress.jsonl").size(); }
  /// Where everybody may knock.
  std::vector<std::string> OpenAddresses() {
    std::vector<std::string> open;
    EXPECT_TRUE(Await([this] { return Lines("address").size() >= 2; }));
    for (const std::string& line : Lines("address")) {
      if (line.find("127.0.0.1:") == 0 || line.find("unix") == 0) open.push_back(line);
    }
    EXPECT_EQ(open.size(), 2u);
    return open;
  }
  /// What the learner says to `request` at `address`.
  static grpc::Status Call(const std::string& address, const std::string& method,
                           const google::protobuf::Message& request, std::string* reply_bytes = nullptr) {
    grpc::GenericStub stub(grpc::CreateChannel(address, grpc::InsecureChannelCredentials()));
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
    const grpc::Slice slice(request.SerializeAsString());
    const grpc::ByteBuffer bytes(&slice, 1);
    grpc::ByteBuffer reply;
    std::promise<grpc::Status> done;
    stub.UnaryCall(&context, method, {}, &bytes, &reply,
                   [&done](grpc::Status status) { done.set_value(std::move(status)); });
    grpc::Status status = done.get_future().get();
    grpc::Slice answer;
    if (status.ok() && reply_bytes != nullptr && reply.DumpToSingleSlice(&answer).ok()) {
      reply_bytes->assign(reinterpret_cast<const char*>(answer.begin()), answer.size());
    }
    return status;
  }

  std::filesystem::path directory_, run_;
  std::unique_ptr<Process> learner_;
};

TEST_F(StrangerTest, NoOpenAddressTakesAChangeOfTheRun) {
  v1::ChangePoliciesRequest python, replace, freeze;
  python.mutable_add()->set_id("stranger");
  python.mutable_add()->set_class_("python:pickle:loads");
  replace.mutable_add()->set_id("main");
  replace.mutable_add()->set_replace(true);
  freeze.mutable_set_trainable();
  StartLearner();
  ASSERT_TRUE(Await([this] { return updates() >= 1; }));
  for (const std::string& address : OpenAddresses()) {
    for (const v1::ChangePoliciesRequest& change : {python, replace, freeze}) {
      EXPECT_EQ(Call(address, "/troupe.v1.Control/ChangePolicies", change).error_code(),
                grpc::StatusCode::UNIMPLEMENTED)
          << address << ": " << change.ShortDebugString();
    }
    EXPECT_EQ(Call(address, "/troupe.v1.Control/Checkpoint", v1::CheckpointRequest()).error_code(),
              grpc::StatusCode::UNIMPLEMENTED)
        << address;
    EXPECT_EQ(Call(address, "/troupe.v1.Control/PruneCheckpoints", v1::PruneCheckpointsRequest()).error_code(),
              grpc::StatusCode::UNIMPLEMENTED)
        << address;
    EXPECT_EQ(Call(address, "/troupe.v1.Control/Drain", v1::DrainRequest()).error_code(),
              grpc::StatusCode::UNIMPLEMENTED)
        << address;
  }
  const size_t now = updates();
  EXPECT_TRUE(Await([&] { return updates() >= now + 3; })) << "the run goes on";
}

TEST_F(StrangerTest, WhatEveryAddressTellsHoldsNothingOfTheMachineOrTheConfiguration) {
  StartLearner();
  ASSERT_TRUE(Await([this] { return updates() >= 1; }));
  char host[256] = {};
  ASSERT_EQ(gethostname(host, sizeof(host) - 1), 0);
  for (const std::string& address : OpenAddresses()) {
    for (const char* method :
         {"/troupe.v1.Monitor/Status", "/troupe.v1.Monitor/Policies", "/grpc.health.v1.Health/Check"}) {
      std::string reply;
      const grpc::Status status = Call(address, method, v1::DrainRequest(), &reply);  // all of them take no fields
      ASSERT_TRUE(status.ok()) << method << ": " << status.error_message();
      EXPECT_FALSE(reply.empty());
      // The folder's name is in every path of the run.
      for (const std::string& secret : {directory_.filename().string(), std::string(kCanary), std::string(host)}) {
        EXPECT_EQ(reply.find(secret), std::string::npos) << secret << " in the answer to " << method;
      }
    }
  }
}

TEST_F(StrangerTest, QueriesChangeNothing) {
  constexpr int64_t kEnvSteps = 40000;
  std::vector<std::string> weights;
  int answers = 0;
  for (const char* name : {"quiet", "asked"}) {
    StartLearner(name, kEnvSteps);
    v1::ComputeActionsRequest query;
    v1::QueryRows* rows = query.add_policies();
    rows->set_policy_id("main");
    rows->set_rows(1);
    rows->set_obs_dtype(v1::DTYPE_FLOAT32);
    rows->add_agent_slots(0);
    rows->set_obs(std::string(4 * sizeof(float), '\0'));
    const bool asked = std::string(name) == "asked";
    const std::vector<std::string> addresses = asked ? OpenAddresses() : std::vector<std::string>();
    for (size_t i = 0; asked && learner_->running(); ++i) {
      // Answered ones, sampled and not, and refused ones.
      query.set_deterministic(i % 3 == 0);
      rows->set_policy_id(i % 5 == 4 ? "nobody" : (i % 2 == 0 ? "main" : "other"));
      if (Call(addresses[i % addresses.size()], "/troupe.v1.Query/ComputeActions", query).ok()) ++answers;
    }
    ASSERT_EQ(learner_->AwaitExit(kPatience), 0);
    std::ifstream file(run_ / "checkpoints" / "latest" / "policies.safetensors", std::ios::binary);
    weights.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
    EXPECT_GT(weights.back().size(), 1000u);
  }
  EXPECT_GT(answers, 0);
  EXPECT_TRUE(weights[0] == weights[1]) << "after " << answers << " answers";
}

}  // namespace
}  // namespace troupe::fault
