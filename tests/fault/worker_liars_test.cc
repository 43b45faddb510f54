// Whoever answers at the learner's address may lie: `troupe worker` as a process, and learners of our making that send
// what does not fit, acknowledge nothing, or keep a worker busy when it is to stop.

#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/config/resolved_run.h"
#include "lib/envs/register_all.h"
#include "lib/policy/parameter_layout.h"
#include "lib/policy/policy_spec.h"
#include "lib/rpc/learner/learner_server.h"
#include "lib/rpc/testing/fake_endpoint.h"
#include "lib/rpc/transport/limits.h"
#include "lib/sample/testing/batch_maker.h"
#include "tests/fault/process.h"
#include <gtest/gtest.h>

namespace troupe::fault {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(60);
/// From a signal to the end: 2 s, and what a busy machine needs to come to it. Without a limit it would be kPatience.
constexpr absl::Duration kStopTime = absl::Seconds(10);

class WorkerLiarsTest : public testing::Test {
 protected:
  WorkerLiarsTest() {
    const std::string name = testing::UnitTest::GetInstance()->current_test_info()->name();
    directory_ = std::filesystem::path(testing::TempDir()) / absl::StrCat("troupe-liars-", getpid(), "-", name);
    std::filesystem::create_directories(directory_);
    address_ = absl::StrCat("unix-abstract:troupe-liars-", getpid(), "-", name);
  }
  ~WorkerLiarsTest() override {
    worker_.reset();
    server_.reset();
    std::error_code ignored;
    std::filesystem::remove_all(directory_, ignored);
  }

  void Write(const std::string& name, const std::string& text) const { std::ofstream(directory_ / name) << text; }
  std::string Read(const std::string& name) const {
    std::ostringstream text;
    text << std::ifstream(directory_ / name).rdbuf();
    return text.str();
  }
  /// A learner of this configuration that gives all the credit there is.
  void Answer(const std::string& config_yaml) {
    rpc::LearnerServerOptions options;
    options.addresses = {address_};
    options.schema = run_.schema;
    options.config_yaml = config_yaml;
    options.credit_bytes = INT64_MAX;
    auto server = rpc::LearnerServer::Start(std::move(options), &endpoint_, &endpoint_, &base::Clock::Real());
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  void StartWorker(const std::string& flags = "") {
    const std::string command =
        absl::StrCat("exec ", TROUPE_PROGRAM, " worker --log-level warn --learner ", address_, " ", flags, " 2> ",
                     (directory_ / "stderr").string(), " > ", (directory_ / "stdout").string());
    worker_ = std::make_unique<Process>(std::vector<std::string>{"/bin/sh", "-c", command});
  }
  /// Sends a grant of `env_steps` by `table`, with weights to act with.
  void Grant(int32_t env_steps, const policy::PolicyTablePtr& table) {
    ASSERT_TRUE(endpoint_.AwaitJoins(1, 1));
    const policy::PolicySpec& spec = run_.policies[0];
    auto snapshot = std::make_shared<policy::WeightSnapshot>();
    snapshot->id = spec.id;
    snapshot->version = {1, 0};
    snapshot->actor.assign(static_cast<size_t>(policy::ParameterLayout::For(spec).acting_size()), 0.0f);
    if (table != nullptr) server_->weights().SetPolicies(table);
    server_->weights().Publish(policy::PolicySlot(0), snapshot);
    server_->weights().AnnounceVersion(snapshot->version);
    sample::Grant grant = sample::MakeGrant(4, env_steps, snapshot->version);
    for (sample::GrantLane& lane : grant.lanes) lane.fresh = true;
    grant.policies = table;
    endpoint_.worker(1).port->SendGrant(grant);
  }
  /// The worker's exit code after SIGTERM; it has to come in time.
  int Stop() {
    const absl::Time begun = absl::Now();
    worker_->Signal(SIGTERM);
    const std::optional<int> code = worker_->AwaitExit(kPatience);
    EXPECT_LE(absl::Now() - begun, kStopTime) << Read("stdout");
    return code.value_or(-1);
  }

  static constexpr char kConfig[] =
      "{seed: 3, env: {name: mpe/simple_spread}, num_workers: 1, num_envs: 4, rollout_fragment_length: 1, "
      "algorithm: {train_batch_size: 100, minibatch_size: 100}}";
  std::filesystem::path directory_;
  std::string address_;
  const config::ResolvedRun run_ = [] {
    env::EnvRegistry registry;
    envs::RegisterAllEnvs(registry);
    return *config::ResolveRun(*config::RunConfig::FromYaml(kConfig, "honest"), registry);
  }();
  rpc::FakeEndpoint endpoint_{1};
  std::unique_ptr<rpc::LearnerServer> server_;
  std::unique_ptr<Process> worker_;
};

TEST_F(WorkerLiarsTest, ATableOfFewerAgentsThanTheEnvironmentHas) {
  const policy::PolicyTablePtr honest =
      *policy::PolicyTable::Make(run_.policies, run_.learner.trains, run_.mapping_rules, {run_.agent_ids()[0]});
  Answer(kConfig);
  StartWorker();
  Grant(25, honest->AtLeast(1));
  EXPECT_EQ(worker_->AwaitExit(kPatience), 1) << Read("stdout");
  const std::string said = Read("stderr");
  EXPECT_NE(said.find("the policy table of revision 1 has 1 agents, expected 3, those of environment"),
            std::string::npos)
      << said;
}

TEST_F(WorkerLiarsTest, FragmentsThatNobodyAcknowledgesAreFewAndASignalEndsTheirMaker) {
  endpoint_.set_auto_ack(false);
  Answer(kConfig);
  StartWorker();
  Grant(1 << 30, nullptr);
  ASSERT_TRUE(endpoint_.AwaitArrivals(rpc::kMaxUnackedFragments)) << endpoint_.arrivals().size() << Read("stderr");
  EXPECT_EQ(Stop(), 1) << "something is lost: " << Read("stderr");
  EXPECT_EQ(endpoint_.arrivals().size(), rpc::kMaxUnackedFragments) << "it went on without any ack";
}

TEST_F(WorkerLiarsTest, ASignalEndsAWorkerThatIsStillMakingWhatALearnerAsksFor) {
  Write("slow.py", absl::StrCat("import time\ndef make():\n    open('", (directory_ / "making").string(),
                                "', 'w').close()\n    time.sleep(3600)\n"));
  const std::string config = absl::StrCat("{seed: 3, env: {name: 'python:slow:make', python: {interpreter: '",
                                          TROUPE_TEST_PYTHON, "', path: '", directory_.string(),
                                          "', start_timeout_s: 3600}}, num_workers: 1, num_envs: 4, "
                                          "algorithm: {train_batch_size: 100, minibatch_size: 100}}");
  Write("own.yaml", config);
  Answer(config);
  StartWorker(absl::StrCat("--config ", (directory_ / "own.yaml").string()));
  const absl::Time deadline = absl::Now() + kPatience;
  while (!std::filesystem::exists(directory_ / "making")) {
    ASSERT_LT(absl::Now(), deadline) << Read("stderr") << Read("stdout");
    ASSERT_TRUE(worker_->running()) << Read("stderr");
    absl::SleepFor(absl::Milliseconds(5));
  }
  EXPECT_EQ(Stop(), 0) << Read("stderr");
}

}  // namespace
}  // namespace troupe::fault
