#include "lib/config/frozen_weights.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

#include "lib/base/status_macros.h"
#include "lib/envs/register_all.h"
#include "lib/policy/parameter_layout.h"
#include "lib/storage/checkpoint_weights.h"
#include "lib/storage/file_system.h"
#include "lib/storage/run_folder.h"
#include "lib/storage/testing.h"
#include "lib/storage/testing/scratch_directory.h"
#include "lib/training/algorithm_options.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::config {
namespace {

using testing::HasSubstr;

constexpr char kSource[] = R"(
env: {name: rock_paper_scissors}
algorithm: {name: ippo}
model: {actor_hidden_sizes: [8], critic_hidden_sizes: [8]}
multi_agent: {policies: {main: {}, dice: {class: random}}, policy_mapping: {player_0: main, player_1: dice}}
)";
constexpr char kRun[] = R"(
env: {name: rock_paper_scissors}
algorithm: {name: ippo}
model: {actor_hidden_sizes: [8], critic_hidden_sizes: [8], actor_output_gain: 0.5}
multi_agent: {policies: {main: {}, old: {}}, policy_mapping: {player_0: main, player_1: old}}
)";

class FrozenWeightsTest : public testing::Test {
 protected:
  FrozenWeightsTest() { envs::RegisterAllEnvs(registry_); }

  ResolvedRun Resolve(const std::string& yaml, const std::vector<std::string>& overrides = {}) {
    const absl::StatusOr<RunConfig> config = RunConfig::FromYaml(yaml, "run.yaml", overrides);
    EXPECT_TRUE(config.ok()) << config.status();
    const absl::StatusOr<ResolvedRun> run = ResolveRun(*config, registry_);
    EXPECT_TRUE(run.ok()) << run.status();
    return *run;
  }

  /// A run folder with checkpoints after `env_steps`, the weights coloured by the steps.
  std::string MakeRun(const std::string& name, const std::vector<int64_t>& env_steps, bool separately = false,
                      const std::vector<std::string>& overrides = {}) {
    const ResolvedRun source = Resolve(kSource, overrides);
    storage::RunFolder::Options options;
    options.directory = scratch_.path() + "/" + name;
    options.checkpoint.spec_hash = source.schema.Hash();
    options.checkpoint.config_yaml = source.config.ToYaml();
    options.checkpoint.store_separately = separately;
    options.specs = source.policies;
    auto folder = storage::RunFolder::Open(options);
    EXPECT_TRUE(folder.ok()) << folder.status();
    for (const int64_t steps : env_steps) {
      learner::LearnerState state = storage::StateForTesting(source.policies[0], steps);
      policy::PolicyState dice;
      dice.id = source.policies[1].id;
      state.policies.push_back(dice);
      state.table = table_is_noted_ ? *policy::PolicyTable::Make(source.policies, {true, false}, source.mapping_rules,
                                                                 source.agent_ids())
                                    : nullptr;
      const absl::Status saved = (*folder)->Save(state, false);
      EXPECT_TRUE(saved.ok()) << saved;
      std::vector<std::string> quarantined;
      const absl::StatusOr<learner::LearnerState> back = (*folder)->LoadLatest(&quarantined);
      EXPECT_TRUE(back.ok()) << back.status();
      EXPECT_TRUE(back->policies[1].parameters().empty());
    }
    return options.directory;
  }

  absl::StatusOr<std::vector<std::optional<policy::PolicyState>>> Load(const std::string& policy_class,
                                                                       const std::vector<std::string>& more = {}) {
    std::vector<std::string> overrides = {"multi_agent.policies.old.class=\"" + policy_class + "\""};
    overrides.insert(overrides.end(), more.begin(), more.end());
    return LoadFrozenWeights(Resolve(kRun, overrides));
  }

  std::string ErrorOf(absl::StatusCode code, const std::string& policy_class,
                      const std::vector<std::string>& more = {}) {
    const auto states = Load(policy_class, more);
    EXPECT_EQ(states.status().code(), code) << states.status();
    return std::string(states.status().message());
  }

  storage::ScratchDirectory scratch_;
  bool table_is_noted_ = true;  // in checkpoints that are made from now on
  env::EnvRegistry registry_;
};

TEST_F(FrozenWeightsTest, TakesTheLatestOfARunOrTheCheckpointItself) {
  for (const bool separately : {false, true}) {
    const std::string run = MakeRun(separately ? "separate" : "together", {100, 200}, separately);
    const auto latest = Load("checkpoint:" + run + "#main");
    ASSERT_TRUE(latest.ok()) << latest.status();
    EXPECT_FALSE((*latest)[0].has_value()) << "the policy that learns has weights of its own";
    ASSERT_TRUE((*latest)[1].has_value());
    const policy::PolicyState& state = *(*latest)[1];
    EXPECT_EQ(state.id.value(), "old");
    EXPECT_EQ(state.version, policy::WeightVersion{});
    EXPECT_TRUE(state.Floats("adam.exp_avg").empty());
    EXPECT_FLOAT_EQ(state.parameters()[3], 0.001f * 203);
    const auto first = Load("checkpoint:" + run + "/checkpoints/100#main");
    ASSERT_TRUE(first.ok()) << first.status();
    EXPECT_FLOAT_EQ((*first)[1]->parameters()[3], 0.001f * 103);
  }
}

TEST_F(FrozenWeightsTest, SaysWhatIsNotThere) {
  EXPECT_THAT(
      ErrorOf(absl::StatusCode::kNotFound, "checkpoint:/nowhere/at/all"),
      HasSubstr("multi_agent.policies.old.class: \"/nowhere/at/all\" is neither a checkpoint nor a run folder"));
  const std::string run = MakeRun("run", {100});
  EXPECT_THAT(ErrorOf(absl::StatusCode::kNotFound, "checkpoint:" + run),
              HasSubstr("is not there, expected one of main, dice; write PATH#ID"));
  EXPECT_THAT(ErrorOf(absl::StatusCode::kFailedPrecondition, "checkpoint:" + run + "#dice"),
              HasSubstr("is of class random, which has no weights"));
  ErrorOf(absl::StatusCode::kNotFound, "checkpoint:" + MakeRun("empty", {}) + "#main");
}

TEST_F(FrozenWeightsTest, SaysWhatDiffers) {
  const std::string checkpoint = "checkpoint:" + MakeRun("run", {100}) + "#main";
  const auto difference = [&](const std::string& override_text) {
    return ErrorOf(absl::StatusCode::kFailedPrecondition, checkpoint, {override_text});
  };
  EXPECT_THAT(difference("model.actor_hidden_sizes=[8, 8]"),
              HasSubstr("does not fit: model.actor_hidden_sizes is [8], expected [8, 8]"));
  EXPECT_THAT(difference("multi_agent.policies.old.model.activation=relu"),
              HasSubstr("does not fit: model.activation is tanh, expected relu"));
  EXPECT_THAT(difference("algorithm.normalize_observations=true"),
              HasSubstr("normalize_observations is false, expected true"));
  EXPECT_THAT(difference("algorithm.name=mappo"),
              HasSubstr("the critic's input is the observation, expected all observations"));
  EXPECT_THAT(difference("action_bound_method=none"), HasSubstr("action_bound_method is clip, expected none"));
}

TEST_F(FrozenWeightsTest, AWarmStartOfOtherNetworksSaysPolicyTensorFileShapesAndKey) {
  const std::string run = MakeRun("run", {100});
  const auto warm_start = [&](std::vector<std::string> overrides) {
    overrides.push_back("multi_agent.policies.old.class=random");
    const ResolvedRun to = Resolve(kRun, overrides);
    std::vector<std::optional<policy::PolicyState>> states(to.policies.size());
    const absl::Status loaded = LoadWarmStart(run, to, &states);
    EXPECT_TRUE(!loaded.ok() || states[0].has_value());
    return loaded.ok() ? "OK" : std::string(loaded.message());
  };
  EXPECT_EQ(warm_start({}), "OK");
  EXPECT_EQ(warm_start({"action_bound_method=none"}), "OK") << "only the networks' shapes count";
  const std::string at = "--warm-start " + run + ": policy \"main\" of " + run + "/checkpoints/100 does not fit: ";
  EXPECT_EQ(warm_start({"model.actor_hidden_sizes=[9]"}).substr(0, at.size()), at);
  EXPECT_THAT(warm_start({"model.actor_hidden_sizes=[9]"}),
              HasSubstr("model.actor_hidden_sizes is [8], expected [9]; set it alike (policies.safetensors: tensor "
                        "\"main/actor.0.weight\" has shape [8, 7], expected [9, 7])"));
  EXPECT_THAT(warm_start({"model.actor_hidden_sizes=[8, 8]"}),
              HasSubstr("tensor \"main/actor.1.weight\" has shape [3, 8], expected [8, 8]"));
  EXPECT_THAT(warm_start({"model.actor_core=gru"}),
              HasSubstr("the actor's kind of network is mlp, expected mlp+gru; set model alike (policies.safetensors: "
                        "tensor \"main/actor.1.weight\" has shape [3, 8], expected [3, 64])"));
  // The moments that a critic's inputs were normalized by are of its shape.
  for (const bool before : {false, true}) {
    const std::string mappo = MakeRun(before ? "normalized" : "plain", {100}, false,
                                      {"algorithm.name=mappo", before ? "algorithm.normalize_state=true" : "seed=1"});
    const auto warm_start_mappo = [&](const std::string& normalize) {
      const ResolvedRun to = Resolve(kRun, {"algorithm.name=mappo", "algorithm.normalize_state=" + normalize,
                                            "multi_agent.policies.old.class=random"});
      std::vector<std::optional<policy::PolicyState>> states(to.policies.size());
      return std::string(LoadWarmStart(mappo, to, &states).message());
    };
    const std::string same = before ? "true" : "false", other = before ? "false" : "true";
    EXPECT_EQ(warm_start_mappo(same), "");
    EXPECT_THAT(warm_start_mappo(other), HasSubstr("does not fit: normalize_state is " + same + ", expected " + other));
  }
  // A critic that attends to agents may find more of them.
  const auto attending = [](int agents, const char* others) {
    return std::vector<std::string>{"env.name=cartpole", "env.args.num_agents=" + std::to_string(agents),
                                    "algorithm.name=mappo", "model.critic_encoder=attention",
                                    std::string("multi_agent.policy_mapping={agent_0: main, \"*\": ") + others + "}"};
  };
  const auto resolve = [&](int agents, const std::string& also) {
    std::vector<std::string> overrides = attending(agents, "old");
    overrides.insert(overrides.end(), {"multi_agent.policies.old.class=random", also});
    return Resolve(kRun, overrides);
  };
  const auto start_five = [&](const std::string& from, const std::string& also) {
    const ResolvedRun five = resolve(5, also);
    EXPECT_EQ(five.policies[0].critic().attention.agents.size(), 5u);
    std::vector<std::optional<policy::PolicyState>> states(2);
    const absl::Status status = LoadWarmStart(from, five, &states);
    if (!status.ok()) return std::string(status.message());
    const auto weights = storage::CheckpointWeights::Open(storage::FileSystem::Posix(), from + "/checkpoints/100");
    EXPECT_EQ(states[0]->parameters(), (*weights)->Read(resolve(2, "seed=1").policies[0])->parameters());
    return std::string("OK");
  };
  const std::string two = MakeRun("two", {100}, false, attending(2, "dice"));
  EXPECT_EQ(start_five(two, "seed=1"), "OK");
  EXPECT_THAT(start_five(two, "model.attention_heads=2"), HasSubstr("does not fit: the critic's attention is"));
  std::vector<std::string> normalized = attending(2, "dice");
  normalized.emplace_back("algorithm.normalize_state=true");
  EXPECT_THAT(start_five(MakeRun("two_normalized", {100}, false, normalized), "algorithm.normalize_state=true"),
              HasSubstr("does not fit: "))
      << "moments are of each place";
  EXPECT_THAT(
      warm_start({"multi_agent.policies.other={}", "multi_agent.policy_mapping={player_0: main, \"*\": other}"}),
      HasSubstr("policy \"other\" of " + run +
                "/checkpoints/100 is not there, expected one of main, dice; call the run's policy so, too"));
}

TEST_F(FrozenWeightsTest, APolicyThatTrainsMayBeginWithOthersWeights) {
  const std::string run = MakeRun("run", {100});
  const auto load = [&](const std::string& from, const std::vector<std::string>& more = {}) {
    std::vector<std::string> overrides = {"multi_agent.policies.old.load=\"" + from + "\""};
    overrides.insert(overrides.end(), more.begin(), more.end());
    const ResolvedRun to = Resolve(kRun, overrides);
    std::vector<std::optional<policy::PolicyState>> states(to.policies.size());
    return std::make_pair(LoadGivenWeights(to, &states), states);
  };
  const auto [loaded, states] = load(run + "#main");
  ASSERT_TRUE(loaded.ok()) << loaded;
  EXPECT_FALSE(states[0].has_value());
  ASSERT_TRUE(states[1].has_value());
  EXPECT_EQ(states[1]->id.value(), "old");
  EXPECT_TRUE(states[1]->Floats("adam.exp_avg").empty());
  EXPECT_FLOAT_EQ(states[1]->parameters()[3], 0.001f * 103);
  const auto error = [&](const std::string& from, const std::vector<std::string>& more = {}) {
    return std::string(load(from, more).first.message());
  };
  EXPECT_THAT(error(run), HasSubstr("multi_agent.policies.old.load: policy \"old\" of "));
  EXPECT_THAT(error(run), HasSubstr("is not there, expected one of main, dice; write PATH#ID"));
  EXPECT_THAT(error("/nowhere"), HasSubstr("\"/nowhere\" is neither a checkpoint nor a run folder"));
  EXPECT_THAT(error(run + "#main", {"model.actor_hidden_sizes=[9]"}), HasSubstr(" does not fit: "));
  EXPECT_THAT(error(run + "#main", {"multi_agent.policies.old.class=random"}),
              HasSubstr("multi_agent.policies.old.load: is of policies that are trained, got class random"));
  // Beside a warm start, which has no policy of that id.
  const ResolvedRun to = Resolve(kRun, {"multi_agent.policies.old.load=\"" + run + "#main\""});
  std::vector<std::optional<policy::PolicyState>> both(to.policies.size());
  ASSERT_TRUE(LoadGivenWeights(to, &both).ok());
  EXPECT_TRUE(LoadWarmStart(run, to, &both).ok());
  EXPECT_TRUE(both[0].has_value());
}

TEST_F(FrozenWeightsTest, AWarmStartMayTakeSomeParametersAlone) {
  const std::string run = MakeRun("run", {100});
  const auto warm_start = [&](std::vector<std::string> overrides) -> absl::StatusOr<policy::PolicyState> {
    overrides.push_back("multi_agent.policies.old.class=random");
    const ResolvedRun to = Resolve(kRun, overrides);
    std::vector<std::optional<policy::PolicyState>> states(to.policies.size());
    TROUPE_RETURN_IF_ERROR(LoadWarmStart(run, to, &states));
    return *states[0];
  };
  const auto error = [&](std::vector<std::string> overrides) {
    return std::string(warm_start(std::move(overrides)).status().message());
  };
  const policy::PolicyState all = *warm_start({});
  const absl::StatusOr<policy::PolicyState> some =
      warm_start({"model.critic_hidden_sizes=[5]", "multi_agent.load_parameters=[\"actor.*\"]"});
  ASSERT_TRUE(some.ok()) << some.status();
  const ResolvedRun to = Resolve(kRun, {"model.critic_hidden_sizes=[5]", "multi_agent.policies.old.class=random"});
  const policy::PolicyState fresh = *training::InitialState(to.policies[0], to.algorithms[0], to.seed);
  const auto acting = policy::ParameterLayout::For(to.policies[0]).acting_size();
  EXPECT_TRUE(std::equal(all.parameters().begin(), all.parameters().begin() + acting, some->parameters().begin()));
  EXPECT_TRUE(std::equal(fresh.parameters().begin() + acting, fresh.parameters().end(),
                         some->parameters().begin() + acting, some->parameters().end()));
  EXPECT_NE(all.parameters()[0], fresh.parameters()[0]);
  EXPECT_THAT(error({"model.actor_hidden_sizes=[9]", "multi_agent.load_parameters=[\"actor.0.*\"]"}),
              HasSubstr("policy \"main\" of " + run +
                        "/checkpoints/100: \"actor.0.weight\", which "
                        "multi_agent.load_parameters takes, is [8, 7], expected [9, 7]"));
  EXPECT_THAT(error({"model.actor_hidden_sizes=[8, 3]", "multi_agent.load_parameters=[\"actor.2.*\"]"}),
              HasSubstr("takes, is not there, expected [3, 3]"));
  EXPECT_THAT(error({"multi_agent.load_parameters=[actr.0.*]"}),
              HasSubstr("--set multi_agent.load_parameters=[actr.0.*]: multi_agent.load_parameters: \"actr.0.*\" "
                        "matches no parameter of policy \"main\"; the nearest "
                        "is \"actor.0.*\""));
  // Moments are there to be taken where the run's policy has them.
  EXPECT_THAT(error({"multi_agent.load_parameters=[observation]"}),
              HasSubstr("multi_agent.load_parameters: \"observation\" matches no parameter of policy \"main\""));
  EXPECT_THAT(error({"multi_agent.load_parameters=[state]"}), HasSubstr("\"state\" matches no parameter of policy"));
  EXPECT_EQ(error({"multi_agent.load_parameters=[value]"}), "");
  EXPECT_EQ(error({"multi_agent.load_parameters=[\"*\"]"}), "");
  EXPECT_THAT(error({"algorithm.normalize_observations=true", "multi_agent.load_parameters=[observation]"}),
              HasSubstr("has no observation moments of this shape, which multi_agent.load_parameters takes"));
  EXPECT_EQ(CheckNoWarmStart(to), absl::OkStatus());
  EXPECT_EQ(CheckNoWarmStart(Resolve(kRun, {"multi_agent.load_parameters=[\"critic.*\"]"})).message(),
            "--set multi_agent.load_parameters=[\"critic.*\"]: multi_agent.load_parameters: got what to take, but from "
            "nowhere, expected --warm-start PATH beside it");
}

TEST_F(FrozenWeightsTest, NetworksWithACoreAreTakenOnlyWhereTheyFit) {
  const std::vector<std::string> core = {"model.actor_core=gru", "model.core_size=8"};
  const std::string run = MakeRun("run", {100}, false, core);
  const auto difference = [&](std::vector<std::string> more) {
    more.insert(more.begin(), core.begin(), core.end());
    const auto states = Load("checkpoint:" + run + "#main", more);
    return states.ok() ? "OK" : std::string(states.status().message());
  };
  EXPECT_EQ(difference({}), "OK");
  EXPECT_THAT(difference({"model.actor_core=none"}), HasSubstr("kind of network is mlp+gru, expected mlp; set model"));
  EXPECT_THAT(difference({"model.actor_core=lstm"}), HasSubstr("is mlp+gru, expected mlp+lstm; set model alike"));
  EXPECT_THAT(difference({"model.core_size=9"}),
              HasSubstr("the actor's core is gru of 1 x 8, then [], expected gru of 1 x 9, then []; set model alike"));
  EXPECT_THAT(difference({"model.core_layers=2"}), HasSubstr("expected gru of 2 x 8, then []"));
  EXPECT_THAT(difference({"model.actor_head_hidden_sizes=[5]"}), HasSubstr("expected gru of 1 x 8, then [5]"));
  EXPECT_THAT(difference({"model.critic_core=gru"}),
              HasSubstr("the critic's kind of network is mlp, expected mlp+gru; set model alike"));

  const auto warm_start = [&](std::vector<std::string> more) {
    more.insert(more.begin(), core.begin(), core.end());
    more.push_back("multi_agent.policies.old.class=random");
    const ResolvedRun to = Resolve(kRun, more);
    std::vector<std::optional<policy::PolicyState>> states(to.policies.size());
    const absl::Status loaded = LoadWarmStart(run, to, &states);
    return loaded.ok() ? "OK" : std::string(loaded.message());
  };
  EXPECT_EQ(warm_start({}), "OK");
  EXPECT_EQ(warm_start({"model.max_seq_len=5"}), "OK") << "of training alone";
  EXPECT_THAT(warm_start({"model.core_size=9"}),
              HasSubstr("set model alike (policies.safetensors: tensor \"main/actor.core.weight_ih_l0\" has shape [24, "
                        "8], expected [27, 8])"));
  // Tensors of the same names and shapes, of which one would stand on the other side of the core.
  const std::string wide =
      MakeRun("wide", {100}, false, {"model.actor_core=gru", "model.core_size=8", "model.actor_hidden_sizes=[8, 8]"});
  const ResolvedRun to = Resolve(kRun, {"model.actor_core=gru", "model.core_size=8",
                                        "model.actor_head_hidden_sizes=[8]", "multi_agent.policies.old.class=random"});
  std::vector<std::optional<policy::PolicyState>> states(to.policies.size());
  EXPECT_THAT(std::string(LoadWarmStart(wide, to, &states).message()),
              HasSubstr("model.actor_hidden_sizes is [8, 8], expected [8]; set it alike (policies.safetensors: tensor "
                        "\"main/actor.1.weight\" stands where actor.core.weight_ih_l0 is expected)"));
}

// Seven numbers are observed, and seven made of them: tensors of both critics have the same shapes.
TEST_F(FrozenWeightsTest, ACriticBehindAnotherEncoderIsAnotherOne) {
  std::vector<std::string> overrides = {"model.actor_hidden_sizes=[7]", "model.critic_hidden_sizes=[7]"};
  const std::string run = MakeRun("run", {100}, false, overrides);
  overrides.insert(overrides.end(), {"model.critic_encoder=shared", "model.critic_head_hidden_sizes=[7]",
                                     "multi_agent.policies.old.class=random"});
  std::vector<std::optional<policy::PolicyState>> states(2);
  EXPECT_THAT(std::string(LoadWarmStart(run, Resolve(kRun, overrides), &states).message()),
              HasSubstr("does not fit: the critic's kind of network is mlp, expected shared; set model alike"));
}

TEST_F(FrozenWeightsTest, TheConfigurationOfTheOtherRunIsNotRead) {
  const std::string run = MakeRun("run", {100});
  for (const std::string& path : {run + "/config.yaml", run + "/checkpoints/100/config.yaml"}) {
    std::filesystem::remove(path);
    ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);  // whose reader would wait for ever
  }
  for (const std::string& path : {run, run + "/checkpoints/100", run + "/checkpoints/latest"}) {
    const auto loaded = Load("checkpoint:" + path + "#main");
    EXPECT_TRUE(loaded.ok()) << loaded.status();
  }
}

TEST_F(FrozenWeightsTest, ACheckpointWithoutATableNamesTheCommandThatAddsIt) {
  table_is_noted_ = false;
  const std::string run = MakeRun("run", {100});
  EXPECT_THAT(ErrorOf(absl::StatusCode::kFailedPrecondition, "checkpoint:" + run + "#main"),
              HasSubstr("troupe checkpoint convert " + run + "/checkpoints/100"));
  const ResolvedRun source = Resolve(kSource);
  const auto table =
      *policy::PolicyTable::Make(source.policies, {true, false}, source.mapping_rules, source.agent_ids());
  const std::string checkpoint = run + "/checkpoints/100";
  ASSERT_EQ(storage::AddPolicyTable(storage::FileSystem::Posix(), checkpoint, *table), absl::OkStatus());
  EXPECT_TRUE(storage::VerifyCheckpoint(storage::FileSystem::Posix(), checkpoint).ok());
  EXPECT_TRUE(Load("checkpoint:" + run + "#main").ok());
}

TEST_F(FrozenWeightsTest, APartOfACheckpointWithoutATableIsRefusedInsteadOfAllOfItTaken) {
  table_is_noted_ = false;
  const std::string run = MakeRun("run", {100});
  const auto warm_start = [&](std::vector<std::string> overrides) {
    overrides.push_back("multi_agent.policies.old.class=random");
    const ResolvedRun to = Resolve(kRun, overrides);
    std::vector<std::optional<policy::PolicyState>> states(to.policies.size());
    return LoadWarmStart(run, to, &states);
  };
  EXPECT_EQ(warm_start({}), absl::OkStatus());
  const absl::Status part = warm_start({"multi_agent.load_parameters=[\"actor.*\"]"});
  EXPECT_EQ(part.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(part.message()), HasSubstr("troupe checkpoint convert " + run + "/checkpoints/100"));
}

TEST_F(FrozenWeightsTest, FilesThatAreNoneAreRefusedWithoutTheirWords) {
  for (const char* name : {"manifest.json", "policies.safetensors"}) {
    const std::string run = MakeRun(std::string("run_") + name, {100});
    const std::string path = run + "/checkpoints/100/" + name;
    const auto error = [&] { return ErrorOf(absl::StatusCode::kDataLoss, "checkpoint:" + run + "#main"); };
    std::filesystem::rename(path, path + ".real");
    ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
    EXPECT_THAT(error(), HasSubstr(std::string("100/") + name + " is a link, a folder or a device"));
    std::filesystem::remove(path);
    for (const std::string& target : {std::string("/dev/zero"), path + ".real"}) {
      std::filesystem::create_symlink(target, path);
      EXPECT_THAT(error(), HasSubstr("is a link")) << target;
      std::filesystem::remove(path);
    }
    std::filesystem::create_directory(path);
    EXPECT_THAT(error(), HasSubstr("is a link, a folder"));
    std::filesystem::remove(path);
    std::ofstream(path) << "root:x:0:0:canary\n";
    EXPECT_THAT(error(), testing::Not(HasSubstr("canary")));
    std::filesystem::resize_file(path, int64_t{40} << 30);  // takes no room, until somebody reads it
    EXPECT_THAT(error(), HasSubstr("42949672960 bytes; expected"));
  }
}

TEST_F(FrozenWeightsTest, ADamagedCheckpointIsDataLoss) {
  const std::string run = MakeRun("run", {100});
  const std::string file = run + "/checkpoints/100/policies.safetensors";
  std::filesystem::resize_file(file, std::filesystem::file_size(file) - 1);
  EXPECT_THAT(ErrorOf(absl::StatusCode::kDataLoss, "checkpoint:" + run + "#main"), HasSubstr("damaged"));
}

}  // namespace
}  // namespace troupe::config
