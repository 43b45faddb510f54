// model.torchscript: paths become hashes before anything else reads them, and what a hash may do.

#include "lib/config/torch_modules.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/base/exit_code.h"
#include "lib/base/sha256.h"
#include "lib/config/foreign_code.h"
#include "lib/config/permits.h"
#include "lib/config/resolved_run.h"
#include "lib/config/testing/resolve_fixture.h"
#include "lib/config/worker_yaml.h"
#include "lib/policy/module_files.h"
#include "lib/policy/module_reader.h"
#include "lib/policy/policy_spec.h"
#include "proto/troupe/v1/config.pb.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::config {
namespace {

using testing::HasSubstr;
using testing::Not;

/// Says of every file that it has one weight, or what is wrong with it.
class FakeReader final : public policy::ModuleReader {
 public:
  FakeReader() { policy::SetModuleReader(this); }
  ~FakeReader() override { policy::SetModuleReader(nullptr); }

  absl::StatusOr<policy::ModuleSpec> Describe(const policy::PolicySpec& spec,
                                              const policy::NetworkSpec& network) override {
    if (!error.empty()) return absl::InvalidArgumentError(error);
    outputs.push_back(spec.OutputSize(network));
    return policy::ModuleSpec{network.module.sha256, {{"w", {spec.InputSize(network)}}}, state_size};
  }
  absl::Status WriteFirstValues(const policy::PolicySpec& /*spec*/, const policy::NetworkSpec& /*network*/,
                                const policy::ParameterLayout& /*layout*/, absl::Span<float> /*values*/) override {
    return absl::OkStatus();
  }

  absl::Status CheckLoss(const policy::PolicySpec& spec, const std::string& sha256) override {
    losses.push_back(absl::StrCat(spec.id.value(), " ", sha256));
    return error.empty() ? absl::OkStatus() : absl::InvalidArgumentError(error);
  }

  std::string error;
  std::vector<std::string> losses;  // that it was asked for
  int64_t state_size = 0;           // of every file
  std::vector<int64_t> outputs;     // that it was asked for
};

class TorchModulesTest : public ResolveFixture {
 protected:
  TorchModulesTest() : folder_(absl::StrCat(testing::TempDir(), "/torch_modules_test_", getpid())) {
    std::filesystem::create_directories(folder_);
    Write("net.pt", "an actor");
    Write("critic.pt", "a critic");
    Write("loss.pt", "a loss");
  }

  std::string Write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ + "/" + name, std::ios::binary) << text;
    return folder_ + "/" + name;
  }
  std::string Yaml(const std::string& model) const { return absl::StrCat("{env: {name: team}, model: {", model, "}}"); }
  std::string Custom(const std::string& loss = "") const {
    return absl::StrCat(
        "{env: {name: team}, algorithm: {name: custom, loss: ", loss.empty() ? folder_ + "/loss.pt" : loss, "}}");
  }
  std::string Actor() const { return absl::StrCat("torchscript: ", folder_, "/net.pt"); }

  const std::string folder_;
  const std::string hash_ = absl::StrCat("sha256:", base::Sha256("an actor"));
  const std::string loss_hash_ = absl::StrCat("sha256:", base::Sha256("a loss"));
  const std::string critic_hash_ = absl::StrCat("sha256:", base::Sha256("a critic"));
};

TEST_F(TorchModulesTest, APathBecomesItsHashAndNobodyIsToldThePath) {
  const ResolvedRun run = Resolve(Yaml(absl::StrCat(Actor(), ", critic_torchscript: ", folder_, "/critic.pt")));
  EXPECT_EQ(run.config.proto().model().torchscript(), hash_);
  EXPECT_EQ(run.config.proto().model().critic_torchscript(), critic_hash_);
  for (const std::string& told :
       {run.config.ToYaml(), WelcomeYaml(run.config), run.policies[0].ToString(), WorkerFileYaml(run.config)}) {
    EXPECT_THAT(told, Not(HasSubstr(folder_)));
    EXPECT_THAT(told, HasSubstr(hash_.substr(7)));
  }
  const auto again = RunConfig::FromYaml(run.config.ToYaml(), "again");
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(*PinModules(*again), run.config);
}

TEST_F(TorchModulesTest, APathIsRelativeToTheFileThatSaysIt) {
  const std::string file =
      Write("run.yaml",
            "{env: {name: team}, model: {torchscript: net.pt}, multi_agent: {policies: {a: {model: {torchscript: "
            "critic.pt}}}}}");
  const auto config = RunConfig::FromFile(file);
  ASSERT_TRUE(config.ok()) << config.status();
  const auto pinned = PinModules(*config);
  ASSERT_TRUE(pinned.ok()) << pinned.status();
  std::vector<std::string> named;
  for (const NamedModule& module : ModulesOf(*pinned, ModuleUse::kTraining))
    named.push_back(absl::StrCat(module.key, "=", module.text));
  EXPECT_EQ(named, (std::vector<std::string>{absl::StrCat("model.torchscript=", hash_),
                                             absl::StrCat("multi_agent.policies.a.model.torchscript=", critic_hash_)}));
}

TEST_F(TorchModulesTest, KeysOfLayersHaveNoEffect) {
  const ResolvedRun run = Resolve(Yaml(absl::StrCat(Actor(), ", critic_torchscript: ", folder_,
                                                    "/critic.pt, encoder: cnn, actor_hidden_sizes: [], "
                                                    "critic_hidden_sizes: [], activation: relu")));
  EXPECT_EQ(run.policies[0].actor, Resolve(Yaml(Actor())).policies[0].actor);
  EXPECT_THAT(ErrorOf(Yaml(absl::StrCat(Actor(), ", critic_hidden_sizes: []"))),
              HasSubstr("model.critic_hidden_sizes: got []"));
}

TEST_F(TorchModulesTest, AnErrorHasThePlaceOfItsKey) {
  EXPECT_THAT(ErrorOf(Yaml("torchscript: /no/such.pt")),
              HasSubstr("run.yaml:1:42: model.torchscript: got /no/such.pt, which cannot be read"));
  EXPECT_THAT(ErrorOf(Yaml("torchscript: 'sha256:12'")),
              HasSubstr("model.torchscript: got \"sha256:12\", expected sha256: and 64 hexadecimal digits, or a path"));
  EXPECT_THAT(ErrorOf(Yaml(absl::StrCat(Actor(), ", actor_core: gru"))),
              HasSubstr("model.torchscript: got a TorchScript module, but model.actor_core is not none; expected one"));
  EXPECT_THAT(ErrorOf(absl::StrCat("{env: {name: team}, algorithm: {name: mappo}, model: {critic_encoder: attention, "
                                   "critic_torchscript: ",
                                   folder_, "/critic.pt}}")),
              HasSubstr("model.critic_torchscript: got a TorchScript module, but model.critic_encoder is attention;"));
  FakeReader reader;
  reader.error = "TorchScript file net.pt has no method forward";
  EXPECT_THAT(ErrorOf(Yaml(Actor())), HasSubstr("run.yaml:1:42: model.torchscript: TorchScript file net.pt has no "));
}

TEST_F(TorchModulesTest, TheNetworkIsTheModuleAndNothingElse) {
  FakeReader reader;
  const ResolvedRun run = Resolve(Yaml(absl::StrCat(Actor(), ", layer_norm: true, actor_activation: relu")));
  const policy::NetworkSpec& actor = run.policies[0].actor;
  EXPECT_EQ(actor.encoder, policy::EncoderKind::kTorchScript);
  EXPECT_EQ(actor.module.tensors.size(), 1u);
  EXPECT_TRUE(actor.hidden_sizes.empty());
  EXPECT_FALSE(actor.layer_norm);
  EXPECT_EQ(run.policies[0].critic().encoder, policy::EncoderKind::kMlp);
  EXPECT_TRUE(run.policies[0].critic().layer_norm);
  EXPECT_EQ(reader.outputs, std::vector<int64_t>{5});
  Resolve(Yaml(absl::StrCat("critic_torchscript: ", folder_, "/critic.pt")));
  EXPECT_EQ(reader.outputs.back(), 1);
}

TEST_F(TorchModulesTest, WhatRemembersIsTrainedInSequences) {
  const std::string critic = absl::StrCat("critic_torchscript: ", folder_, "/critic.pt");
  FakeReader reader;
  EXPECT_EQ(Resolve(Yaml(Actor() + ", max_seq_len: 11")).policies[0].sequence_length, 0) << "it remembers nothing";
  reader.state_size = 6;
  const policy::PolicySpec actor = Resolve(Yaml(Actor() + ", max_seq_len: 11")).policies[0];
  EXPECT_EQ(actor.actor_state_size(), 6);
  EXPECT_FALSE(actor.critic().remembers());
  EXPECT_EQ(actor.sequence_length, 11);
  const policy::PolicySpec mixed = Resolve(Yaml(critic + ", actor_core: gru")).policies[0];
  EXPECT_EQ(mixed.actor.core.kind, policy::CoreKind::kGru);
  EXPECT_EQ(mixed.critic().state_size(), 6);
  EXPECT_EQ(mixed.sequence_length, 20);
  EXPECT_EQ(Resolve(Yaml(critic)).policies[0].actor_state_size(), 0);
  EXPECT_THAT(
      ErrorOf(absl::StrCat("{env: {name: team}, algorithm: {minibatch_by: env_steps}, model: {", Actor(), "}}")),
      HasSubstr("algorithm.minibatch_by: got env_steps; expected rows: policy \"default_policy\" remembers "));
  reader.state_size = policy::kMaxModuleState + 1;
  EXPECT_THAT(ErrorOf(Yaml(Actor())), HasSubstr("model.torchscript: policy \"default_policy\": actor's TorchScript "
                                                "module has a state of 32769 numbers; expected 0 to 32768"));
}

TEST_F(TorchModulesTest, WithoutLibTorchThereAreNoTensorsYet) {
  const ResolvedRun run = Resolve(Yaml(Actor()));
  EXPECT_EQ(absl::StrCat("sha256:", run.policies[0].actor.module.sha256), hash_);
  EXPECT_TRUE(run.policies[0].actor.module.tensors.empty());
}

TEST_F(TorchModulesTest, AResumedRunMayNotChangeItsModule) {
  const RunConfig before = Resolve(Yaml(Actor())).config;
  Write("net.pt", "another actor");
  const auto after = PinModules(*RunConfig::FromYaml(Yaml(Actor()), "new.yaml"));
  ASSERT_TRUE(after.ok()) << after.status();
  EXPECT_THAT(std::string(ResumeConfig(before, *after).status().message()),
              HasSubstr(absl::StrCat("model.torchscript: got \"sha256:", base::Sha256("another actor"),
                                     "\", but the run was started with \"", hash_)));
  Write("net.pt", "an actor");
}

TEST_F(TorchModulesTest, AWorkerRunsTheFilesThatItsOwnSideNames) {
  const RunConfig asked = Resolve(Yaml(Actor())).config;
  const absl::Status stranger = Permits().Admit(asked).status();
  EXPECT_EQ(stranger.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(base::ExitCodeOf(stranger), base::ExitCode::kRefused);
  EXPECT_THAT(std::string(stranger.message()),
              HasSubstr(absl::StrCat("the learner asks for the TorchScript module ", hash_,
                                     ", which this worker does not permit; to permit it start it with "
                                     "--allow-torchscript FILE")));
  EXPECT_FALSE(Permits::Make(RunConfig(), {}, {base::Sha256("a critic")})->Admit(asked).ok());
  EXPECT_TRUE(Permits::Make(RunConfig(), {}, {base::Sha256("an actor")})->Admit(asked).ok());
  EXPECT_TRUE(Permits::Make(asked, {})->Admit(asked).ok());
  // A path is a text of the learner's, whatever lies there.
  EXPECT_FALSE(Permits::Make(asked, {})->Admit(*RunConfig::FromYaml(Yaml(Actor()), "asked")).ok());
}

TEST_F(TorchModulesTest, ATableOfPoliciesAsksForModulesToo) {
  FakeReader reader;
  const ResolvedRun run = Resolve(Yaml(absl::StrCat(Actor(), ", critic_torchscript: ", folder_, "/critic.pt")));
  const auto table = policy::PolicyTable::Make(run.policies, run.learner.trains, run.mapping_rules, run.agent_ids());
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_EQ(Permits().Check(**table).code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(Permits::Make(run.config, {})->Check(**table), absl::OkStatus());
  EXPECT_EQ(ForeignCodeOf(**table),
            (std::vector<ForeignCode>{{"model.torchscript", hash_}, {"model.torchscript", critic_hash_}}));
  EXPECT_EQ(ForeignCodeOf(run.config),
            (std::vector<ForeignCode>{{"model.torchscript", hash_}, {"model.critic_torchscript", critic_hash_}}));
}

class LossFilesTest : public TorchModulesTest {};

TEST_F(LossFilesTest, APathBecomesItsHashAndNobodyIsToldThePath) {
  const ResolvedRun run = Resolve(Custom());
  EXPECT_EQ(run.algorithms[0].options.at("loss"), policy::OptionValue(loss_hash_));
  for (const std::string& told : {run.config.ToYaml(), WelcomeYaml(run.config), WorkerFileYaml(run.config)}) {
    EXPECT_THAT(told, Not(HasSubstr(folder_)));
    EXPECT_THAT(told, HasSubstr(loss_hash_));
  }
  const auto again = RunConfig::FromYaml(run.config.ToYaml(), "again");
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(*PinModules(*again), run.config);
}

TEST_F(LossFilesTest, APolicysOwnIsRelativeToTheFileThatSaysIt) {
  const std::string file = Write("run.yaml",
                                 "{env: {name: team}, algorithm: {name: custom, loss: loss.pt}, multi_agent: "
                                 "{policies: {a: {algorithm: {loss: net.pt}}}}}");
  const auto config = RunConfig::FromFile(file);
  ASSERT_TRUE(config.ok()) << config.status();
  const auto pinned = PinModules(*config);
  ASSERT_TRUE(pinned.ok()) << pinned.status();
  std::vector<std::string> named;
  for (const NamedModule& module : ModulesOf(*pinned, ModuleUse::kTraining)) {
    named.push_back(absl::StrCat(module.key, "=", module.text));
    EXPECT_FALSE(module.acts);
  }
  EXPECT_EQ(named, (std::vector<std::string>{absl::StrCat("algorithm.loss=", loss_hash_),
                                             absl::StrCat("multi_agent.policies.a.algorithm.loss=", hash_)}));
  EXPECT_TRUE(ModulesOf(*pinned, ModuleUse::kActing).empty());
  EXPECT_EQ(*PinModules(*config, ModuleUse::kActing), *config) << "who acts needs no file of a loss";
}

TEST_F(LossFilesTest, AnErrorHasThePlaceOfItsKey) {
  EXPECT_THAT(ErrorOf("{env: {name: team}, algorithm: {name: custom}}"),
              HasSubstr("algorithm.loss: got nothing, expected a TorchScript file"));
  EXPECT_THAT(ErrorOf(Custom("/no/such.pt")),
              HasSubstr("run.yaml:1:53: algorithm.loss: got /no/such.pt, which cannot be read"));
  EXPECT_THAT(ErrorOf(Custom("'sha256:12'")),
              HasSubstr("algorithm.loss: got \"sha256:12\", expected sha256: and 64 hexadecimal digits, or a path"));
  EXPECT_THAT(ErrorOf("{env: {name: team}, algorithm: {name: custom, loss: x.pt, clip_param: 0.1}}"),
              HasSubstr("algorithm.clip_param"));
  FakeReader reader;
  Resolve(Custom());
  EXPECT_EQ(reader.losses, std::vector<std::string>{"default_policy " + loss_hash_.substr(7)});
  reader.error = "TorchScript file loss.pt has no method forward";
  EXPECT_THAT(ErrorOf(Custom()), HasSubstr("run.yaml:1:53: algorithm.loss: TorchScript file loss.pt has no method "));
}

TEST_F(LossFilesTest, AResumedRunMayNotChangeItsLoss) {
  const RunConfig before = Resolve(Custom()).config;
  Write("loss.pt", "another loss");
  const auto after = PinModules(*RunConfig::FromYaml(Custom(), "new.yaml"));
  ASSERT_TRUE(after.ok()) << after.status();
  EXPECT_THAT(std::string(ResumeConfig(before, *after).status().message()),
              HasSubstr(absl::StrCat("new.yaml:1:53: algorithm.loss: got \"sha256:", base::Sha256("another loss"),
                                     "\", but the run was started with \"", loss_hash_)));
  Write("loss.pt", "a loss");
}

TEST_F(LossFilesTest, AWorkerIsToldTheHashAndRunsNothing) {
  const RunConfig asked = Resolve(Custom()).config;
  EXPECT_TRUE(Permits().Admit(asked).ok());
  EXPECT_EQ(Permits().Admit(*RunConfig::FromYaml(Custom(), "asked")).status().code(),
            absl::StatusCode::kPermissionDenied)
      << "a path of the learner's, which would be read";
  FakeReader reader;
  const auto unknown = RunConfig::FromYaml(Custom("'sha256:" + std::string(64, 'e') + "'"), "welcome");
  ASSERT_TRUE(unknown.ok()) << unknown.status();
  EXPECT_TRUE(ResolveRun(*unknown, registry_).ok());
  EXPECT_TRUE(reader.losses.empty());
  EXPECT_EQ(TrainingCodeOf(asked), (std::vector<ForeignCode>{{"algorithm.loss", loss_hash_}}));
  EXPECT_TRUE(ForeignCodeOf(asked).empty()) << "who evaluates";
}

}  // namespace
}  // namespace troupe::config
