#include "lib/env/plugin_env.h"

#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/env/checked_env.h"
#include "lib/env/conformance.h"
#include "lib/env/plugin_file.h"
#include "lib/env/slot_buffers.h"

namespace troupe::env {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;
using Args = ArgMap;

std::string PluginPath(const std::string& name) {
  return std::string(TROUPE_PLUGINS_DIR) + "/libtroupe_" + name + "_plugin.so";
}

std::shared_ptr<const EnvPlugin> TestPlugin() {
  absl::StatusOr<std::shared_ptr<const EnvPlugin>> plugin = EnvPlugin::Load(PluginPath("test"));
  EXPECT_TRUE(plugin.ok()) << plugin.status();
  return *std::move(plugin);
}

absl::Status LoadError(const std::string& path) { return EnvPlugin::Load(path).status(); }

/// A folder of the test's own.
class PluginFileTest : public ::testing::Test {
 protected:
  PluginFileTest() {
    std::string name = (std::filesystem::temp_directory_path() / "troupe_plugin_XXXXXX").string();
    EXPECT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  ~PluginFileTest() override { std::filesystem::remove_all(folder_); }

  std::string Write(const std::string& name, const std::string& bytes) const {
    const std::filesystem::path path = folder_ / name;
    std::ofstream(path, std::ios::binary) << bytes;
    return path.string();
  }
  static std::string Bytes(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  std::filesystem::path folder_;
};

TEST(PluginEnvTest, AWholeEnvironmentKeepsTheContract) {
  const std::shared_ptr<const EnvPlugin> plugin = TestPlugin();
  ASSERT_EQ(plugin->entries().size(), 2u);
  EXPECT_EQ(plugin->entries()[0].name, "whole");
  EXPECT_EQ(plugin->entries()[0].description, "everything an environment can give");
  const ConformanceReport report = CheckConformance([&] { return plugin->Make("whole", EnvArgs()); });
  EXPECT_TRUE(report.ok()) << report.ToString();
  EXPECT_EQ(report.env_steps, 5 * report.episodes());
}

TEST(PluginEnvTest, EverythingThatItGivesArrives) {
  const auto made = TestPlugin()->Make(
      "whole",
      EnvArgs(Args{{"scale", 0.5}, {"text", std::string("\"a\"\n\xc3\xa9")}, {"flag", true}, {"steps", int64_t{2}}}));
  ASSERT_TRUE(made.ok()) << made.status();
  MultiAgentEnv& env = **made;
  EXPECT_EQ(env.spec().ToString(),
            "env: whole\n"
            "agent a \"quoted\": observation Box(-8, 8, [3]), action Discrete(3), action mask\n"
            "agent b\\: observation Box(-8, 8, [3]), action Discrete(3), action mask\n"
            "state: per_env Box(-8, 8, [2])\nagent mask: yes\ninfo columns: [distance, steps]\nmax episode steps: 2\n");
  SlotBuffers buffers(env.spec(), 1);
  ASSERT_TRUE(env.Reset({.seed = 5, .env_id = base::EnvId(1), .episode = 2}, buffers.BeginStep(0)).ok());
  EXPECT_EQ(buffers.observation(0, 0)[2], 6.0f) << "the text arrived byte by byte";
  EXPECT_TRUE(buffers.agent_mask(0, 1));
  const space::ActionWord two{.i32 = 2};
  const std::vector<const space::ActionWord*> rows = {&two, nullptr};
  ASSERT_TRUE(env.Step(rows, buffers.BeginStep(0)).ok());
  EXPECT_EQ(buffers.reward(0, 0), 1.0f);
  EXPECT_EQ(buffers.reward(0, 1), 0.0f);
  EXPECT_EQ(buffers.observation(0, 1)[1], 1.0f);
  EXPECT_EQ(buffers.state(0, 0)[0], buffers.observation(0, 0)[0]);
  EXPECT_EQ(buffers.infos(0, 1)[1], 1.0);
  EXPECT_TRUE(std::isnan(buffers.infos(0, 1)[0])) << "not given";
  EXPECT_FALSE(buffers.agent_mask(0, 1));
  EXPECT_EQ(buffers.action_mask(0, 0)[0], 1);
}

TEST(PluginEnvTest, ArgumentsAreCheckedByTheLibrary) {
  const std::shared_ptr<const EnvPlugin> plugin = TestPlugin();
  const auto error = [&](const Args& args) {
    const absl::Status status = plugin->Make("whole", EnvArgs(args)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    return std::string(status.message());
  };
  EXPECT_THAT(error({{"steps", int64_t{0}}}), HasSubstr("argument steps: expected an integer in [1, 100]"));
  EXPECT_THAT(error({{"steps", 2.5}}), HasSubstr("argument steps"));
  EXPECT_THAT(error({{"flag", int64_t{1}}}), HasSubstr("argument flag: expected true or false"));
  EXPECT_THAT(error({{"scale", std::string("x")}}), HasSubstr("argument scale: expected a number in [0"));
  EXPECT_THAT(
      error({{"stepz", int64_t{1}}}),
      AllOf(HasSubstr("environment whole"), HasSubstr("there is no argument 'stepz', expected one of scale, ")));
  const absl::Status unknown = plugin->Make("hole", EnvArgs()).status();
  EXPECT_EQ(unknown.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(unknown.message()), HasSubstr("has no environment 'hole', did you mean 'whole'?"));
}

/// The first broken rule of `wrong` and what it says.
std::pair<EnvRule, std::string> Broken(const std::string& how, int64_t at = 3) {
  const std::shared_ptr<const EnvPlugin> plugin = TestPlugin();
  const ConformanceReport report = CheckConformance([&] {
    return plugin->Make("wrong", EnvArgs(Args{{"how", how}, {"at", at}}));
  });
  for (const ConformanceLine& line : report.lines) {
    if (!line.ok) return {line.rule, line.detail};
  }
  ADD_FAILURE() << how << " was not found";
  return {};
}

TEST(PluginEnvTest, WhatTheLibraryThrowsIsAnErrorWithAPlace) {
  for (const int64_t at : {0, 3}) {
    const auto [rule, text] = Broken("runtime_error", at);
    EXPECT_EQ(rule, EnvRule::kNoError);
    EXPECT_THAT(
        text, AllOf(StartsWith("environment wrong (env "), HasSubstr("step " + std::to_string(at) + ": the sky fell")));
  }
  EXPECT_THAT(Broken("int").second, HasSubstr("threw something that is no std::exception"));
  EXPECT_THAT(Broken("invalid_argument", -1).second, HasSubstr("environment wrong: no such sky"));
  // Cut at the border; CheckedEnv cuts again.
  EXPECT_THAT(Broken("long text").second,
              AllOf(HasSubstr(std::string(900, 'x')), Not(HasSubstr(std::string(1024, 'x')))));
}

TEST(PluginEnvTest, AfterAnErrorTheEnvironmentGoesOn) {
  const auto made = TestPlugin()->Make("wrong", EnvArgs(Args{{"how", std::string("int")}, {"at", int64_t{1}}}));
  ASSERT_TRUE(made.ok());
  SlotBuffers buffers((*made)->spec(), 1);
  const space::ActionWord zero{.i32 = 0};
  const std::vector<const space::ActionWord*> rows = {&zero};
  for (int episode = 0; episode < 3; ++episode) {
    EXPECT_TRUE((*made)->Reset({}, buffers.BeginStep(0)).ok());
    EXPECT_EQ((*made)->Step(rows, buffers.BeginStep(0)).code(), absl::StatusCode::kInternal);
  }
}

TEST(PluginEnvTest, WhatTheLibraryWritesIsChecked) {
  const auto nan = Broken("nan");
  EXPECT_EQ(nan.first, EnvRule::kObservationValue);
  EXPECT_THAT(nan.second, HasSubstr("agent agent_0, step 3: observation element 1 is nan"));
  EXPECT_THAT(Broken("wrong size").second, HasSubstr("the observation of agent slot 0 has 3 elements, expected 2"));
  const auto overrun = Broken("overrun");
  EXPECT_EQ(overrun.first, EnvRule::kObservationValue);
  EXPECT_THAT(overrun.second, HasSubstr("step 3: agent agent_0 wrote beyond its observation row of 8 bytes"));
  EXPECT_EQ(Broken("beyond").first, EnvRule::kObservedAgents) << "observed twice";
}

TEST(PluginEnvTest, SlotsAndColumnsThatDoNotExistAreRefused) {
  EXPECT_THAT(Broken("wrong slot").second, HasSubstr("add_reward for agent slot 7, expected 0 to 0"));
  EXPECT_THAT(Broken("negative slot").second, HasSubstr("observe for agent slot -1, expected 0 to 0"));
  EXPECT_THAT(Broken("wrong column").second, HasSubstr("set_info for column 0, but the spec has 0 info columns"));
}

TEST(PluginEnvTest, TheHeaderReadsNothingOfASlotThatDoesNotExist) {
  EXPECT_THAT(Broken("values of no slot").second,
              HasSubstr("step 3: the observation of agent slot 1, expected 0 to 0"));
  EXPECT_THAT(Broken("values of a negative slot", 0).second,
              HasSubstr("step 0: the observation of agent slot -1, expected 0 to 0"));
  EXPECT_THAT(Broken("mask size of no slot").second, HasSubstr("the action mask of agent slot 1, expected 0 to 0"));
  EXPECT_THAT(Broken("action of no slot").second, HasSubstr("the action of agent slot 1, expected 0 to 0"));
  EXPECT_THAT(Broken("action of a negative slot").second, HasSubstr("the action of agent slot -1, expected 0 to 0"));
  EXPECT_THAT(Broken("waiting agent").second,
              HasSubstr("step 3: the action of agent slot 1, which does not act in this step"));
}

TEST_F(PluginFileTest, FilesThatAreNoPlugin) {
  const absl::Status missing = LoadError((folder_ / "none.so").string());
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(missing.message()), HasSubstr("none.so: there is no such file"));

  const std::string whole = Bytes(PluginPath("test"));
  ASSERT_GT(whole.size(), 10000u);
  const auto error = [&](const std::string& path) {
    const absl::Status status = LoadError(path);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << path;
    EXPECT_THAT(std::string(status.message()),
                AllOf(StartsWith("plug-in " + path + ": "), HasSubstr(", expected a shared library for ")));
    return std::string(status.message());
  };
  EXPECT_THAT(error(Write("text.so", "not a library\n")), HasSubstr("not an ELF file"));
  EXPECT_THAT(error(Write("empty.so", "")), HasSubstr("not an ELF file"));
  EXPECT_THAT(error(folder_.string()), HasSubstr("is no file"));
  std::string changed = whole;
  changed[18] = '\xf3';  // e_machine
  EXPECT_THAT(error(Write("machine.so", changed)), HasSubstr("is for RISC-V"));
  changed = whole;
  changed[16] = 1;  // e_type: an object file
  EXPECT_THAT(error(Write("object.o", changed)), HasSubstr("is no shared library (ELF type 1)"));
  for (const size_t bytes : {70, 5000}) {
    EXPECT_THAT(error(Write("half.so", whole.substr(0, bytes))),
                HasSubstr("is cut off after " + std::to_string(bytes)));
  }
}

TEST(PluginEnvTest, LibrariesThatAreNoPlugin) {
  const absl::Status no_entry = LoadError(PluginPath("no_entry"));
  EXPECT_EQ(no_entry.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(no_entry.message()), HasSubstr("has no function troupe_env_plugin"));
  const absl::Status undefined = LoadError(PluginPath("undefined"));
  EXPECT_EQ(undefined.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(undefined.message()), HasSubstr("troupe_not_there_at_all"));
  const absl::Status version = LoadError(PluginPath("other_version"));
  EXPECT_EQ(version.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(version.message()), HasSubstr("does not know ABI version 1: build it with this Troupe's"));
}

TEST_F(PluginFileTest, IsFoundByNameInTheSearchPath) {
  const std::string there = Write("libmine.so", "x");
  const std::string folder = folder_.string();
  EXPECT_EQ(*FindEnvPlugin(there, ""), there);
  EXPECT_EQ(*FindEnvPlugin("/another/machine/libmine.so", "/nowhere::" + folder), folder + "/libmine.so");
  const absl::Status missing = FindEnvPlugin("/another/machine/libours.so", "/nowhere:" + folder).status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(missing.message()),
              AllOf(HasSubstr("/another/machine/libours.so, nor libours.so in /nowhere:" + folder),
                    HasSubstr("on every machine"), HasSubstr("TROUPE_PLUGIN_PATH")));
}

// --- tables that a library in another language may have wrong
// ----------------------------------------------------------

int32_t MakeNothing(const char*, const char*, TroupeEnv**, TroupeEnvError*) { return TROUPE_ENV_OK; }
int32_t MakeFails(const char*, const char*, TroupeEnv**, TroupeEnvError* error) {
  std::memset(error->text, 'y', sizeof(error->text));  // without a zero
  error->text[1] = '\n';
  return 99;
}
int32_t MakeSilently(const char*, const char*, TroupeEnv**, TroupeEnvError*) { return TROUPE_ENV_NOT_FOUND; }
int32_t MakeOne(const char*, const char*, TroupeEnv** env, TroupeEnvError*) {
  *env = reinterpret_cast<TroupeEnv*>(new int(0));
  return TROUPE_ENV_OK;
}
void DestroyOne(TroupeEnv* env) { delete reinterpret_cast<int*>(env); }
int32_t ResetNothing(TroupeEnv*, const TroupeEpisodeSeed*, const TroupeStepWriter*, TroupeEnvError*) { return -3; }
int32_t StepNothing(TroupeEnv*, const TroupeActionWord* const*, const TroupeStepWriter*, TroupeEnvError*) { return 0; }

struct TableTest : ::testing::Test {
  TroupeEnvEntry entry = {.name = "one", .description = "for tests"};
  TroupeEnvPlugin table = {.abi_version = TROUPE_ENV_ABI_VERSION,
                           .num_envs = 1,
                           .envs = &entry,
                           .make = &MakeOne,
                           .spec = [](TroupeEnv*) { return "{}"; },
                           .reset = &ResetNothing,
                           .step = &StepNothing,
                           .destroy = &DestroyOne};

  std::string Error(absl::StatusCode code = absl::StatusCode::kInvalidArgument) const {
    const auto plugin = EnvPlugin::FromTable(&table, "libone.so");
    const absl::Status status = plugin.ok() ? (*plugin)->Make("one", EnvArgs()).status() : plugin.status();
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_THAT(std::string(status.message()), StartsWith("plug-in libone.so"));
    return std::string(status.message());
  }
};

TEST_F(TableTest, TablesThatCannotBe) {
  table.abi_version = 7;
  EXPECT_THAT(Error(absl::StatusCode::kFailedPrecondition), HasSubstr("has ABI version 7, expected ABI version 1"));
  table.abi_version = TROUPE_ENV_ABI_VERSION;
  table.num_envs = 0;
  EXPECT_THAT(Error(), HasSubstr("offers 0 environments, expected 1 to 1024"));
  table.num_envs = 1025;
  EXPECT_THAT(Error(), HasSubstr("offers 1025 environments"));
  table.num_envs = 1;
  entry.name = nullptr;
  EXPECT_THAT(Error(), HasSubstr("environment 0 has no name"));
  entry.name = "one";
  const std::string long_text(256, 'd');
  entry.description = long_text.c_str();
  EXPECT_THAT(Error(), HasSubstr("the description of environment 0 is too long, expected at most 255 bytes"));
  entry.description = "for tests";
  table.step = nullptr;
  EXPECT_THAT(Error(), HasSubstr("leaves a function out"));
}

TEST_F(TableTest, EnvironmentsThatCannotBe) {
  table.make = &MakeNothing;
  EXPECT_THAT(Error(), HasSubstr("make returned 0 and no environment"));
  table.make = &MakeFails;
  EXPECT_THAT(Error(absl::StatusCode::kInternal),
              AllOf(HasSubstr("y\\x0ayyy"), Not(HasSubstr(std::string(1024, 'y')))));
  table.make = &MakeSilently;
  EXPECT_THAT(Error(absl::StatusCode::kNotFound), HasSubstr("make returned 5 and no text"));
  table.make = &MakeOne;
  table.spec = [](TroupeEnv*) -> const char* { return nullptr; };
  EXPECT_THAT(Error(), HasSubstr("spec is NULL"));
  table.spec = [](TroupeEnv*) { return "agents: none"; };
  EXPECT_THAT(Error(), HasSubstr("spec: not valid JSON, expected an object, got 'agents: none'"));
  table.spec = [](TroupeEnv*) -> const char* {
    static const std::string* const kLong = new std::string(TROUPE_ENV_SPEC_BYTES, ' ');
    return kLong->c_str();
  };
  EXPECT_THAT(Error(), HasSubstr("spec is too long, expected at most 16777215 bytes"));
  table.spec = [](TroupeEnv*) {
    return R"json({"agents": [{"id": "a", "observation_space": "Box(0, 1, [1])", "action_space": "Discrete(2)"}]})json";
  };
  const auto made = (*EnvPlugin::FromTable(&table, "libone.so"))->Make("one", EnvArgs());
  ASSERT_TRUE(made.ok()) << made.status();
  SlotBuffers buffers((*made)->spec(), 1);
  const absl::Status reset = (*made)->Reset({}, buffers.BeginStep(0));
  EXPECT_EQ(reset, absl::InternalError("reset returned -3 and no text"));
}

}  // namespace
}  // namespace troupe::env
