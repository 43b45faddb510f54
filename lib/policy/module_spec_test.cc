// Networks that are users' modules: what a spec says of them, and how their tensors lie.

#include "lib/policy/module_spec.h"

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/policy/parameter_layout.h"
#include "lib/policy/policy_entry.h"
#include "lib/policy/policy_table.h"
#include "lib/policy/testing.h"
#include "lib/policy/weight_snapshot.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::policy {
namespace {

using testing::HasSubstr;

const std::string kHash(64, 'a');

NetworkSpec ModuleNetwork(NetworkSpec network) {
  network.encoder = EncoderKind::kTorchScript;
  network.hidden_sizes = {};
  network.module = {kHash, {{"body.weight", {4, 3}}, {"body.bias", {4}}, {"scale", {3}, true}}};
  return network;
}

PolicySpec Spec() {
  PolicySpec spec = SmallSpecForTesting();
  spec.actor = ModuleNetwork(spec.actor);
  return spec;
}

TEST(ModuleSpecTest, TheTextHasItsHashAndTensors) {
  EXPECT_EQ(Spec().Validate(), absl::OkStatus());
  EXPECT_THAT(Spec().ToString(), testing::EndsWith(absl::StrCat(" kind=actor:torchscript module=actor:", kHash,
                                                                "(body.weight[4,3];body.bias[4];scale[3]b)")));
  EXPECT_EQ(ModuleText(Spec().actor.module), absl::StrCat("sha256:", kHash, " with 3 tensors"));
}

TEST(ModuleSpecTest, BuffersAreAnActingSectionThatIsNotTrained) {
  PolicySpec spec = Spec();
  spec.action_space = *space::Space::Box(-1, 1, {2});
  *spec.mutable_critic() = ModuleNetwork(spec.critic());
  const ParameterLayout layout = ParameterLayout::For(spec);
  std::vector<std::string> names;
  for (const ParameterEntry& entry : layout.entries()) names.push_back(entry.name);
  EXPECT_EQ(names,
            (std::vector<std::string>{"actor.body.weight", "actor.body.bias", "actor.log_std", "actor.buffers.scale",
                                      "critic.body.weight", "critic.body.bias", "critic.buffers.scale"}));
  ASSERT_EQ(layout.sections().size(), 4u);
  const auto is = [&](size_t section, const char* role, bool trained, bool acting) {
    const ParameterSection& got = layout.sections()[section];
    return got.role == role && got.trained == trained && got.acting == acting;
  };
  EXPECT_TRUE(is(0, "actor", true, true));
  EXPECT_TRUE(is(1, "actor.buffers", false, true));
  EXPECT_TRUE(is(2, "critic", true, false));
  EXPECT_TRUE(is(3, "critic.buffers", false, false));
  EXPECT_EQ(layout.acting_size(), layout.sections()[2].offset);
}

TEST(ModuleSpecTest, ATableCarriesIt) {
  const PolicySpec spec = Spec();
  const auto table = PolicyTable::Make({spec}, {true}, {{"*", {{spec.id}}}}, {"agent"});
  ASSERT_TRUE(table.ok()) << table.status();
  const auto read = PolicyTableFromJson(ToJson(**table));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ((*read)->Find(PolicySlot(0))->spec.actor, spec.actor);
  EXPECT_EQ((*read)->Find(PolicySlot(0))->spec.ToString(), spec.ToString());
  std::string text = ToJson(**table);
  text.replace(text.find("\"sha256\":\"aa"), 12, "\"sha256\":\"x");
  EXPECT_THAT(std::string(PolicyTableFromJson(text).status().message()), HasSubstr("hexadecimal digits"));
}

TEST(ModuleSpecTest, AStateIsSaidWhereThereIsOne) {
  PolicySpec spec = Spec();
  EXPECT_FALSE(spec.remembers());
  EXPECT_THAT(ToJson(**PolicyTable::Make({spec}, {true}, {{"*", {{spec.id}}}}, {"agent"})),
              HasSubstr(kHash + "\",\"tensors\""))
      << "the text of before";
  spec.actor.module.state_size = 6;
  EXPECT_EQ(spec.Validate(), absl::InvalidArgumentError("policy \"p\": sequence_length is 0; expected 1 to 65536"));
  spec.sequence_length = 7;
  EXPECT_EQ(spec.Validate(), absl::OkStatus());
  EXPECT_TRUE(spec.remembers() && spec.actor.remembers());
  EXPECT_FALSE(spec.critic().remembers());
  EXPECT_EQ(spec.actor_state_size(), 6);
  EXPECT_THAT(spec.ToString(), testing::EndsWith(absl::StrCat(" kind=actor:torchscript sequence=7 module=actor:", kHash,
                                                              "(body.weight[4,3];body.bias[4];scale[3]b)state[6]")));
  const auto table = PolicyTable::Make({spec}, {true}, {{"*", {{spec.id}}}}, {"agent"});
  ASSERT_TRUE(table.ok()) << table.status();
  const auto read = PolicyTableFromJson(ToJson(**table));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ((*read)->Find(PolicySlot(0))->spec.ToString(), spec.ToString());
  PolicySpec other = spec;
  other.actor.module.state_size = 5;
  EXPECT_NE(ShapeOf(other), ShapeOf(spec));
  EXPECT_EQ(FirstDifference(other, spec),
            absl::StrCat("the actor's TorchScript module is sha256:", kHash,
                         " with 3 tensors and a state of 5, expected sha256:", kHash,
                         " with 3 tensors and a state of 6; set model.torchscript alike"));
}

TEST(ModuleSpecTest, FirstDifferenceNamesTheModule) {
  PolicySpec other = Spec();
  other.actor.module.sha256 = std::string(64, 'b');
  EXPECT_EQ(FirstDifference(other, Spec()),
            absl::StrCat("the actor's TorchScript module is sha256:", other.actor.module.sha256,
                         " with 3 tensors, expected sha256:", kHash, " with 3 tensors; set model.torchscript alike"));
}

TEST(ModuleSpecTest, RefusesWhatNoModuleIs) {
  const auto refused = [](const std::function<void(NetworkSpec&)>& change) {
    PolicySpec spec = Spec();
    change(spec.actor);
    return std::string(spec.Validate().message());
  };
  const std::string begin = "policy \"p\": actor's TorchScript module ";
  EXPECT_EQ(refused([](NetworkSpec& n) { n.module.sha256 = "sha256:1"; }),
            begin + "is \"sha256:1\"; expected 64 hexadecimal digits of its SHA-256");
  EXPECT_EQ(refused([](NetworkSpec& n) { n.encoder = EncoderKind::kMlp, n.hidden_sizes = {4}; }),
            begin + "is there, but its encoder is another; expected none");
  EXPECT_EQ(refused([](NetworkSpec& n) { n.hidden_sizes = {4}; }),
            begin + "is the whole network, but has layers or a core beside it; expected none");
  EXPECT_EQ(refused([](NetworkSpec& n) { n.module.tensors[1].name = "body.weight"; }),
            begin + "has two tensors \"body.weight\"");
  EXPECT_EQ(refused([](NetworkSpec& n) { n.module.tensors[1].name = "buffers.scale"; }),
            begin + "has two tensors \"scale\"");
  EXPECT_EQ(refused([](NetworkSpec& n) { n.module.tensors[1].name = "log_std"; }),
            begin + "has a parameter \"log_std\", which is the name of the policy's own; expected another name");
  EXPECT_THAT(refused([](NetworkSpec& n) { n.module.tensors[0].name = "../x"; }), HasSubstr("has a tensor \"../x\""));
  EXPECT_THAT(refused([](NetworkSpec& n) { n.module.tensors[0].name = std::string(kMaxModuleNameBytes + 1, 'a'); }),
              HasSubstr("expected a name of 1 to 256 letters"));
  EXPECT_THAT(refused([](NetworkSpec& n) { n.module.tensors[0].shape = {0}; }), HasSubstr("of shape [0]; expected"));
  EXPECT_THAT(refused([](NetworkSpec& n) { n.module.tensors[0].shape = std::vector<int64_t>(9, 1); }),
              HasSubstr("expected at most 8 extents"));
  EXPECT_THAT(refused([](NetworkSpec& n) {
                n.module.tensors[0].shape = {kMaxModuleElements, 1};
              }),
              HasSubstr("has \"body.bias\" of shape [4]; expected at most 8 extents of at least 1, and 268435456 "));
  EXPECT_THAT(refused([](NetworkSpec& n) {
                n.module.tensors[0].shape = {int64_t{1} << 40, int64_t{1} << 40};
              }),
              HasSubstr("has \"body.weight\" of shape"));
  EXPECT_THAT(refused([](NetworkSpec& n) { n.module.tensors.resize(kMaxModuleTensors + 1); }),
              HasSubstr("has 1025 tensors; expected at most 1024"));
  EXPECT_EQ(refused([](NetworkSpec& n) { n.module.state_size = kMaxModuleState + 1; }),
            begin + "has a state of 32769 numbers; expected 0 to 32768");
  EXPECT_EQ(refused([](NetworkSpec& n) { n.module.state_size = -1; }),
            begin + "has a state of -1 numbers; expected 0 to 32768");
}

}  // namespace
}  // namespace troupe::policy
