// Whoever answers at the learner's address runs nothing on a worker that its operator did not permit: `troupe worker`
// as a process, and learners of our making that ask for more.

#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/config/resolved_run.h"
#include "lib/envs/register_all.h"
#include "lib/policy/parameter_layout.h"
#include "lib/policy/policy_spec.h"
#include "lib/rpc/learner/learner_server.h"
#include "lib/rpc/testing/fake_endpoint.h"
#include "lib/sample/testing/batch_maker.h"
#include "tests/fault/process.h"
#include <gtest/gtest.h>

namespace troupe::fault {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(60);
constexpr int kRefused = 78;

class WorkerPermitsTest : public testing::Test {
 protected:
  WorkerPermitsTest() {
    const std::string name = testing::UnitTest::GetInstance()->current_test_info()->name();
    directory_ = std::filesystem::path(testing::TempDir()) / absl::StrCat("troupe-permits-", getpid(), "-", name);
    std::filesystem::create_directories(directory_);
    address_ = absl::StrCat("unix-abstract:troupe-permits-", getpid(), "-", name);
    envs::RegisterAllEnvs(registry_);
    // What the stranger wants to see run: a module, a file of functions, and a program instead of Python.
    const std::string mark = absl::StrCat("open(", Quoted(Path("marker")), ", 'w').close()\n");
    Write("stranger.py", mark);
    Write("evil.py", mark +
                         "def choose(agent_id, episode, worker):\n    return worker.policies[0]\n"
                         "def act(observations, rows):\n    return [0] * len(observations)\n");
    Write("program", absl::StrCat("#!/bin/sh\ntouch ", Path("marker"), "\n"));
    chmod(Path("program").c_str(), 0755);
    // Gymnasium's make imports what stands before the colon of an id.
    Write("gymnasium.py",
          "import importlib\ndef make(id, **kwargs):\n    module = id.partition(':')[0]\n"
          "    importlib.import_module(module)\n    raise RuntimeError('made nothing of ' + module)\n");
    Write("honest.py", "import os\ndef make():\n    raise RuntimeError('honest')\n");
  }
  ~WorkerPermitsTest() override {
    worker_.reset();
    server_.reset();
    std::error_code ignored;
    std::filesystem::remove_all(directory_, ignored);
  }

  static std::string Quoted(const std::string& text) { return absl::StrCat("'", text, "'"); }
  std::string Path(const std::string& name) const { return directory_ / name; }
  void Write(const std::string& name, const std::string& text) const { std::ofstream(directory_ / name) << text; }
  std::string Read(const std::string& name) const {
    std::ostringstream text;
    text << std::ifstream(directory_ / name).rdbuf();
    return text.str();
  }
  bool marked() const { return std::filesystem::exists(directory_ / "marker"); }

  /// `env.python` of a machine that has numpy; the modules of this test are found.
  std::string Python() const {
    return absl::StrCat("python: {interpreter: '", TROUPE_TEST_PYTHON, "', path: '", directory_.string(), "'}");
  }
  /// A run without anything to permit, and `more` besides.
  std::string Native(const std::string& more = "") const {
    return absl::StrCat("{seed: 3, env: {name: mpe/simple_spread, ", Python(),
                        "}, num_workers: 1, num_envs: 4, algorithm: {train_batch_size: 100, minibatch_size: 100}", more,
                        "}");
  }

  /// A learner at the address that says `config_yaml`; it takes the place of the one before.
  rpc::FakeEndpoint& Answer(const std::string& config_yaml) {
    server_.reset();
    rpc::LearnerServerOptions options;
    options.addresses = {address_};
    options.schema = honest_.schema;
    options.config_yaml = config_yaml;
    rpc::FakeEndpoint& endpoint = *endpoints_.emplace_back(std::make_unique<rpc::FakeEndpoint>(endpoints_.size() + 1));
    auto server = rpc::LearnerServer::Start(std::move(options), &endpoint, &endpoint, &base::Clock::Real());
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    return endpoint;
  }
  void StartWorker(const std::vector<std::string>& flags) {
    const std::string command = absl::StrCat("exec ", TROUPE_PROGRAM, " worker --log-level warn --learner ", address_,
                                             " ", absl::StrJoin(flags, " "), " 2> ", Path("stderr"));
    worker_ = std::make_unique<Process>(std::vector<std::string>{"/bin/sh", "-c", command});
  }
  /// A file of the worker's own, as --config.
  std::string Own(const std::string& yaml) const {
    Write("own.yaml", yaml);
    return absl::StrCat("--config ", Path("own.yaml"));
  }
  void ExpectRefused(const std::vector<std::string>& words) {
    EXPECT_EQ(worker_->AwaitExit(kPatience), kRefused) << Read("stderr");
    EXPECT_FALSE(marked()) << "the stranger's code was run";
    const std::string said = Read("stderr");
    for (const std::string& word : words) EXPECT_NE(said.find(word), std::string::npos) << word << " in:\n" << said;
    EXPECT_NE(said.find("does not permit"), std::string::npos) << said;
    EXPECT_NE(said.find("--config FILE"), std::string::npos) << said;
  }

  /// Sends `table` with a grant by it, as after a change in a run that trains, with weights to act with.
  void Push(rpc::FakeEndpoint& endpoint, policy::PolicyTablePtr table) {
    ASSERT_TRUE(endpoint.AwaitJoins(1, 1));
    auto snapshot = std::make_shared<policy::WeightSnapshot>();
    const policy::PolicySpec& spec = honest_.policies[0];
    snapshot->id = spec.id;
    snapshot->version = {endpoints_.size(), 0};
    snapshot->actor.assign(static_cast<size_t>(policy::ParameterLayout::For(spec).acting_size()), 0.0f);
    server_->weights().SetPolicies(table);
    server_->weights().Publish(policy::PolicySlot(0), snapshot);
    server_->weights().AnnounceVersion(snapshot->version);
    sample::Grant grant = sample::MakeGrant(4, 25, snapshot->version);
    for (sample::GrantLane& lane : grant.lanes) lane.fresh = true;
    grant.policies = std::move(table);
    endpoint.worker(1).port->SendGrant(grant);
  }
  policy::PolicyTablePtr HonestTable() const {
    return *policy::PolicyTable::Make(honest_.policies, honest_.learner.trains, honest_.mapping_rules,
                                      honest_.agent_ids());
  }
  /// A mapping function of the stranger's, or a policy.
  policy::PolicyTablePtr MappingTable() const {
    return *HonestTable()->SetMapping({{"*", {}, absl::StrCat("python:", Path("evil.py"), ":choose")}});
  }
  policy::PolicyTablePtr PolicyTable() const {
    policy::PolicySpec spec = honest_.policies[0];
    spec.id = policy::PolicyId("stranger");
    spec.policy_class = *policy::ParsePolicyClass(absl::StrCat("python:", Path("evil.py"), ":act"));
    return *(*HonestTable()->Add(spec, false))->SetMapping({{"*", {{spec.id}}}});
  }

  std::filesystem::path directory_;
  std::string address_;
  env::EnvRegistry registry_;
  const config::ResolvedRun honest_ = [] {
    env::EnvRegistry registry;
    envs::RegisterAllEnvs(registry);
    return *config::ResolveRun(
        *config::RunConfig::FromYaml("{seed: 3, env: {name: mpe/simple_spread}, num_workers: 1, num_envs: 4, "
                                     "algorithm: {train_batch_size: 100, minibatch_size: 100}}",
                                     "honest"),
        registry);
  }();
  std::vector<std::unique_ptr<rpc::FakeEndpoint>> endpoints_;
  std::unique_ptr<rpc::LearnerServer> server_;
  std::unique_ptr<Process> worker_;
};

TEST_F(WorkerPermitsTest, AnyCallableAsEnvironment) {
  Answer(absl::StrCat("env: {name: 'python:subprocess:getoutput', args: {cmd: 'touch ", Path("marker"), "'}, ",
                      Python(), "}"));
  StartWorker({});
  ExpectRefused({"the environment python:subprocess:getoutput", "--allow-python python:subprocess:getoutput"});
}

TEST_F(WorkerPermitsTest, AnyProgramAsInterpreter) {
  Answer(absl::StrCat("env: {name: 'python:honest:make', python: {interpreter: ", Path("program"), "}}"));
  StartWorker({});
  ExpectRefused({"python:honest:make"});
}

TEST_F(WorkerPermitsTest, TheInterpreterIsTheWorkersOwnWhereTheNameIsPermitted) {
  Write("own_program", absl::StrCat("#!/bin/sh\ntouch ", Path("own_marker"), "\n"));
  chmod(Path("own_program").c_str(), 0755);
  Answer(absl::StrCat("env: {name: 'python:honest:make', python: {interpreter: ", Path("program"), "}}"));
  StartWorker(
      {Own(absl::StrCat("env: {name: 'python:honest:make', python: {interpreter: ", Path("own_program"), "}}"))});
  EXPECT_EQ(worker_->AwaitExit(kPatience), 1) << "a program that is no Python";
  EXPECT_FALSE(marked());
  EXPECT_TRUE(std::filesystem::exists(Path("own_marker"))) << Read("stderr");
}

TEST_F(WorkerPermitsTest, APlugInOfTheStrangers) {
  Answer(absl::StrCat("env: {name: mine, plugin: ", Path("libevil.so"), "}"));
  StartWorker({});
  ExpectRefused({"the environment mine of the plug-in libevil.so"});
}

TEST_F(WorkerPermitsTest, ADottedAttributeOfAModuleThatIsPermitted) {
  Answer(absl::StrCat("env: {name: 'python:honest:os.system', args: {command: 'touch ", Path("marker"), "'}, ",
                      Python(), "}"));
  StartWorker({"--allow-python python:honest", "--allow-python python:honest:make"});
  ExpectRefused({"python:honest:os.system"});
}

TEST_F(WorkerPermitsTest, GymnasiumMakeWithAModuleOfTheStrangers) {
  const auto config = [this](const char* id) {
    return absl::StrCat("env: {name: 'python:gymnasium:make', args: {id: '", id, "', n: 1}, ", Python(), "}");
  };
  Answer(config("stranger:X-v0"));
  StartWorker({Own(config("CartPole-v1"))});
  ExpectRefused({"env.args.id: stranger:X-v0"});
}

TEST_F(WorkerPermitsTest, AFunctionOrPolicyInTheConfiguration) {
  const std::string evil = absl::StrCat("'python:", Path("evil.py"));
  for (const std::string& asked :
       {absl::StrCat(", multi_agent: {policy_mapping: {'*': {function: ", evil, ":choose'}}}"),
        absl::StrCat(", multi_agent: {policies: {a: {class: ", evil, ":act'}}}")}) {
    Answer(Native(asked));
    StartWorker({});
    ExpectRefused({"evil.py"});
  }
}

TEST_F(WorkerPermitsTest, AnotherLearnerAtTheAddressAfterAReconnect) {
  rpc::FakeEndpoint& honest = Answer(Native());
  StartWorker({});
  ASSERT_TRUE(honest.AwaitJoins(1, 1));
  Answer(absl::StrCat("env: {name: 'python:subprocess:getoutput', args: {cmd: 'touch ", Path("marker"), "'}, ",
                      Python(), "}"));
  ExpectRefused({"the environment python:subprocess:getoutput"});
}

TEST_F(WorkerPermitsTest, AnotherLearnerThatPushesATable) {
  rpc::FakeEndpoint& honest = Answer(Native());
  StartWorker({Own(Native())});
  ASSERT_TRUE(honest.AwaitJoins(1, 1));
  Push(Answer(Native()), MappingTable());
  ExpectRefused({"the mapping function python:", "evil.py:choose"});
}

TEST_F(WorkerPermitsTest, ATablePushedLaterWithAMappingFunction) {
  rpc::FakeEndpoint& endpoint = Answer(Native());
  StartWorker({Own(Native())});
  Push(endpoint, MappingTable());
  ExpectRefused({"the mapping function python:", "evil.py:choose"});
}

TEST_F(WorkerPermitsTest, ATablePushedLaterWithAPolicy) {
  rpc::FakeEndpoint& endpoint = Answer(Native());
  StartWorker({Own(Native())});
  Push(endpoint, PolicyTable());
  ExpectRefused({"the policy class python:", "evil.py:act"});
}

// What is permitted is run: these tests would see the marker.
TEST_F(WorkerPermitsTest, WhatIsPermittedIsRun) {
  rpc::FakeEndpoint& endpoint = Answer(Native());
  StartWorker({Own(Native()), absl::StrCat("--allow-python python:", Path("evil.py"), ":choose")});
  Push(endpoint, MappingTable());
  EXPECT_TRUE(endpoint.AwaitArrivals(1)) << Read("stderr");
  EXPECT_TRUE(marked());
  EXPECT_TRUE(worker_->running());
  EXPECT_EQ(endpoint.worker(1).request.permits.size(), 3u);
}

}  // namespace
}  // namespace troupe::fault
