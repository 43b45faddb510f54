#include "lib/acting/acting.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/base/crc32c.h"
#include "lib/inference/action_bounds.h"
#include "lib/inference/actor.h"
#include "lib/policy/parameter_layout.h"
#include "lib/policy/testing.h"
#include "lib/storage/checkpoint_format.h"
#include "lib/storage/testing.h"
#include "lib/storage/testing/forge_manifest.h"
#include "lib/storage/testing/scratch_directory.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace troupe {
namespace {

using testing::HasSubstr;

constexpr uint64_t kSeed = 11;

/// A checkpoint of: masked (an action mask), gru (remembers), tanh (squashed continuous actions), python, module
/// (TorchScript).
class ActingTest : public ::testing::Test {
 protected:
  ActingTest() {
    policy::PolicySpec masked = policy::SmallSpecForTesting();
    masked.id = policy::PolicyId("masked");
    masked.has_action_mask = true;
    masked.agent_id_size = 4;
    policy::PolicySpec gru = policy::SmallSpecWithCoresForTesting(policy::CoreKind::kGru, policy::CoreKind::kGru);
    gru.id = policy::PolicyId("gru");
    gru.normalize_observations = true;
    policy::PolicySpec tanh = policy::SmallSpecForTesting();
    tanh.id = policy::PolicyId("tanh");
    tanh.action_space = *space::Space::Box(-3, 2, {2});
    policy::SetDistributionForTesting(policy::ContinuousDistribution::kSquashedGaussian, &tanh);
    policy::PolicySpec python = policy::SmallSpecForTesting();
    python.id = policy::PolicyId("python");
    python.policy_class = *policy::ParsePolicyClass("python:mine:Policy");
    policy::PolicySpec module = policy::SmallSpecForTesting();
    module.id = policy::PolicyId("module");
    module.actor.encoder = policy::EncoderKind::kTorchScript;
    module.actor.hidden_sizes = {};
    module.actor.module = {std::string(64, 'a'), {{"weight", {2, 3}}}};
    specs_ = {masked, gru, tanh, python, module};
    std::mt19937 random(3);
    for (size_t p = 0; p < specs_.size(); ++p) {
      policy::PolicyState of = storage::StateForTesting(specs_[p], 400).policies[0];
      std::vector<float> parameters(of.parameters().begin(), of.parameters().end());
      for (float& each : parameters) each = std::uniform_real_distribution<float>(-1, 1)(random);
      of.Set(policy::kParameters, std::move(parameters));
      if (specs_[p].normalize_observations) of.SetMoments(policy::kObservationMoments, {9, {0.5, -1, 2}, {1, 0.25, 0}});
      if (p == 3) of = {.id = specs_[p].id};
      states_.push_back(of);
    }
    const std::vector<policy::MappingRule> rules = {{"a0", {{specs_[0].id, 1}, {specs_[3].id, 1}}},
                                                    {"*", {{specs_[1].id, 1}, {specs_[2].id, 3}}}};
    table_ = *policy::PolicyTable::Make(specs_, {true, true, true, false, true}, rules, {"a0", "a1", "a2", "a3"});
    WriteCheckpoint();
  }
  ~ActingTest() override { troupe_acting_close(acting_); }

  std::string folder() const { return scratch_.path(); }
  void WriteCheckpoint() {
    std::filesystem::remove_all(folder());
    std::filesystem::create_directory(folder());
    learner::LearnerState state = storage::StateForTesting(specs_[0], 400);
    state.policies = states_;
    state.table = table_;
    EXPECT_EQ(storage::WriteCheckpointFiles(storage::FileSystem::Posix(), folder(), state, specs_,
                                            {.spec_hash = 42, .config_yaml = "seed: 1\n"}),
              absl::OkStatus());
  }
  /// Makes a weight of policy 0 a NaN, with the checksum that fits.
  void WriteNan() {
    const std::string path = folder() + "/policies.safetensors";
    std::string file = *storage::FileSystem::Posix().ReadFile(path, 8 << 20);
    uint64_t header_bytes = 0;
    std::memcpy(&header_bytes, file.data(), sizeof(header_bytes));
    const size_t data = sizeof(header_bytes) + header_bytes;
    size_t begin = file.size(), end = 0;
    const auto header = nlohmann::json::parse(file.substr(sizeof(header_bytes), header_bytes));
    for (const auto& [name, tensor] : header.items()) {
      if (name.rfind(specs_[0].id.value() + "/", 0) != 0) continue;
      begin = std::min(begin, data + tensor["data_offsets"][0].get<size_t>());
      end = std::max(end, data + tensor["data_offsets"][1].get<size_t>());
    }
    const float nan = std::nanf("");
    std::memcpy(file.data() + begin, &nan, sizeof(nan));
    std::ofstream(path, std::ios::binary | std::ios::trunc) << file;
    storage::ForgeManifest(folder(), [&](nlohmann::json& manifest) {
      manifest["weights_crc32c"][0] =
          absl::StrCat(absl::Hex(base::Crc32c(file.data() + begin, end - begin), absl::kZeroPad8));
    });
  }
  void Open() { ASSERT_EQ(troupe_acting_open(folder().c_str(), kSeed, &acting_, &error_), 0) << error_.text; }

  /// What a worker's actor does for the same rows, in the environment's space.
  void ActAsAWorker(size_t policy, const TroupeActingRows& rows, std::vector<space::ActionWord>* actions,
                    std::vector<float>* logp, std::vector<float>* state) {
    const policy::PolicySpec& spec = specs_[policy];
    auto actor = inference::Actor::Create(spec, kSeed);
    ASSERT_TRUE(actor.ok());
    ASSERT_EQ((*actor)->SetWeights(*policy::SnapshotOf(states_[policy], spec)), absl::OkStatus());
    const auto count = static_cast<size_t>(rows.rows);
    const auto words = static_cast<size_t>(spec.action_words());
    actions->resize(count * words);
    logp->resize(count);
    state->resize(count * static_cast<size_t>(spec.actor_state_size()));
    const inference::ActInput input = {.rows = rows.rows,
                                       .obs = rows.observations,
                                       .action_mask = rows.action_masks,
                                       .keys = reinterpret_cast<const inference::RowKey*>(rows.keys),
                                       .deterministic = rows.deterministic != 0,
                                       .state_in = rows.state_in,
                                       .state_out = state->data()};
    ASSERT_EQ((*actor)->Act(input, actions->data(), logp->data()), absl::OkStatus());
    const inference::ActionBounds bounds(spec);
    for (size_t row = 0; row < count; ++row) {
      const auto action = absl::MakeSpan(*actions).subspan(row * words, words);
      bounds.Apply(action, action);
    }
  }

  const storage::ScratchDirectory scratch_;
  std::vector<policy::PolicySpec> specs_;
  std::vector<policy::PolicyState> states_;
  policy::PolicyTablePtr table_;
  TroupeActing* acting_ = nullptr;
  TroupeActingError error_ = {};
};

TEST_F(ActingTest, TheBitsAreThoseOfAWorkersActor) {
  Open();
  constexpr int64_t kRows = 9;
  std::vector<float> obs(3 * kRows);
  for (size_t i = 0; i < obs.size(); ++i) obs[i] = std::sin(static_cast<float>(i));
  std::vector<TroupeActingKey> keys(kRows);
  for (uint32_t row = 0; row < kRows; ++row) keys[row] = {1, 5, static_cast<int32_t>(row % 4), row};
  std::vector<uint8_t> masks(2 * kRows, 1);
  masks[3] = 0;
  for (size_t policy = 0; policy < 3; ++policy) {
    const policy::PolicySpec& spec = specs_[policy];
    for (const int32_t deterministic : {0, 1}) {
      std::vector<int32_t> actions(static_cast<size_t>(kRows * spec.action_words()));
      std::vector<float> logp(kRows);
      std::vector<float> state_in(static_cast<size_t>(kRows * spec.actor_state_size()), 0.25f);
      std::vector<float> state_out(state_in.size());
      const TroupeActingRows rows = {.policy = static_cast<int32_t>(policy),
                                     .deterministic = deterministic,
                                     .rows = kRows,
                                     .observations = obs.data(),
                                     .action_masks = policy == 0 ? masks.data() : nullptr,
                                     .keys = keys.data(),
                                     .state_in = state_in.data(),
                                     .state_out = state_out.data(),
                                     .actions = actions.data(),
                                     .logp = logp.data()};
      ASSERT_EQ(troupe_acting_act(acting_, &rows, &error_), 0) << error_.text;
      std::vector<space::ActionWord> expected;
      std::vector<float> expected_logp, expected_state;
      ActAsAWorker(policy, rows, &expected, &expected_logp, &expected_state);
      EXPECT_EQ(std::memcmp(actions.data(), expected.data(), 4 * actions.size()), 0) << policy;
      EXPECT_EQ(logp, expected_logp) << policy;
      EXPECT_EQ(state_out, expected_state) << policy;
      if (policy == 0) {
        EXPECT_EQ(actions[1], 0) << "the mask allows nothing else";
      }
    }
  }
}

TEST_F(ActingTest, TheLastLayerIsThatOfAWorkersActor) {
  Open();
  constexpr int64_t kRows = 5;
  std::vector<float> obs(3 * kRows);
  for (size_t i = 0; i < obs.size(); ++i) obs[i] = std::sin(static_cast<float>(i));
  const std::vector<TroupeActingKey> keys(kRows, {0, 0, 2, 0});
  for (size_t policy = 0; policy < 3; ++policy) {
    const policy::PolicySpec& spec = specs_[policy];
    std::vector<float> state_in(static_cast<size_t>(kRows * spec.actor_state_size()), 0.25f);
    std::vector<float> state_out(state_in.size()), expected_state(state_in.size());
    std::vector<float> outputs(static_cast<size_t>(kRows * spec.actor_output_size())), expected(outputs.size());
    const TroupeActingRows rows = {.policy = static_cast<int32_t>(policy),
                                   .rows = kRows,
                                   .observations = obs.data(),
                                   .keys = keys.data(),
                                   .state_in = state_in.data(),
                                   .state_out = state_out.data()};
    ASSERT_EQ(troupe_acting_outputs(acting_, &rows, outputs.data(), &error_), 0) << error_.text;
    auto actor = inference::Actor::Create(spec, kSeed);
    ASSERT_EQ((*actor)->SetWeights(*policy::SnapshotOf(states_[policy], spec)), absl::OkStatus());
    const inference::ActInput input = {.rows = kRows,
                                       .obs = obs.data(),
                                       .keys = reinterpret_cast<const inference::RowKey*>(keys.data()),
                                       .state_in = state_in.data(),
                                       .state_out = expected_state.data()};
    ASSERT_EQ((*actor)->Forward(input, absl::MakeSpan(expected)), absl::OkStatus());
    EXPECT_EQ(outputs, expected) << policy;
    EXPECT_EQ(state_out, expected_state) << policy;
    EXPECT_NE(outputs[0], 0) << policy;
  }
}

TEST_F(ActingTest, ANetworkIsDescribedWithItsWeights) {
  Open();
  for (const int32_t place : {0, 1, 2, 4}) {
    const char* text = nullptr;
    ASSERT_EQ(troupe_acting_network(acting_, place, &text, &error_), 0) << error_.text;
    const auto network = nlohmann::json::parse(text);
    const policy::PolicyState& state = states_[static_cast<size_t>(place)];
    EXPECT_EQ(network["spec"]["id"], state.id.value());
    std::vector<float> parameters(network["parameters"].get<size_t>());
    std::vector<double> moments(6);
    ASSERT_EQ(troupe_acting_weights(acting_, place, parameters.data(), moments.data(), &error_), 0) << error_.text;
    const policy::ParameterLayout layout = policy::ParameterLayout::For(specs_[static_cast<size_t>(place)]);
    EXPECT_EQ(parameters.size(), static_cast<size_t>(layout.acting_size()));
    for (const auto& tensor : network["tensors"]) {
      const policy::ParameterEntry* const entry = layout.Find(tensor["name"].get<std::string>());
      ASSERT_NE(entry, nullptr) << tensor;
      EXPECT_EQ(tensor["shape"], nlohmann::json(entry->shape));
      EXPECT_EQ(tensor["offset"], entry->offset);
      const auto offset = static_cast<size_t>(entry->offset), count = static_cast<size_t>(entry->count);
      const auto stored = absl::MakeConstSpan(state.parameters()).subspan(offset, count);
      EXPECT_EQ(absl::MakeConstSpan(parameters).subspan(offset, count), stored) << tensor;
      EXPECT_EQ(entry->name.rfind("actor.", 0), 0u) << "the critic is the learner's";
    }
    EXPECT_FALSE(network["tensors"].empty());
    if (place == 1) {
      EXPECT_THAT(moments, testing::ElementsAre(0.5, -1, 2, 1, 0.25, 0));
    }
  }
  EXPECT_EQ(troupe_acting_weights(acting_, 1, std::vector<float>(1000).data(), nullptr, &error_), 3);
  EXPECT_THAT(error_.text, HasSubstr("got no moments"));
}

TEST_F(ActingTest, WithoutAMaskEverythingIsAllowed) {
  Open();
  const float obs[6] = {0.1f, 0.2f, 0.3f, -0.1f, -0.2f, -0.3f};
  const TroupeActingKey keys[2] = {{0, 0, 0, 1}, {0, 0, 3, 2}};
  const uint8_t all[4] = {1, 1, 1, 1}, none[4] = {1, 1, 0, 0};
  int32_t with[2], without[2];
  float logp[2];
  TroupeActingRows rows = {
      .policy = 0, .rows = 2, .observations = obs, .action_masks = all, .keys = keys, .actions = with, .logp = logp};
  ASSERT_EQ(troupe_acting_act(acting_, &rows, &error_), 0);
  rows.action_masks = nullptr;
  rows.actions = without;
  ASSERT_EQ(troupe_acting_act(acting_, &rows, &error_), 0);
  EXPECT_THAT(without, testing::ElementsAreArray(with));
  rows.action_masks = none;
  EXPECT_EQ(troupe_acting_act(acting_, &rows, &error_), 3);
  EXPECT_THAT(error_.text, HasSubstr("forbids every action"));
}

TEST_F(ActingTest, TheMappingIsDrawnAsTheRunsIs) {
  Open();
  int drawn[2] = {0, 0};
  for (uint32_t episode = 0; episode < 50; ++episode) {
    int32_t places[4] = {};
    ASSERT_EQ(troupe_acting_map(acting_, 7, episode, places, &error_), 0) << error_.text;
    for (int32_t agent = 0; agent < 4; ++agent) {
      policy::EpisodeInfo info;
      info.seed = kSeed;
      info.env_id = base::EnvId(7);
      info.episode = episode;
      const std::string& id = table_->agent_ids()[static_cast<size_t>(agent)];
      EXPECT_EQ(places[agent], table_->mapping().Map(base::AgentId(id), base::AgentSlot(agent), info)->value());
      if (agent > 0) ++drawn[places[agent] - 1];
    }
  }
  EXPECT_GT(drawn[0], 10);
  EXPECT_GT(drawn[1], drawn[0]) << "three times as likely";
}

TEST_F(ActingTest, SaysWhatThereIs) {
  Open();
  const auto said = nlohmann::json::parse(troupe_acting_describe(acting_));
  EXPECT_EQ(said["agents"], nlohmann::json({"a0", "a1", "a2", "a3"}));
  ASSERT_EQ(said["policies"].size(), 5u);
  const auto& masked = said["policies"][0];
  EXPECT_EQ(masked["id"], "masked");
  EXPECT_EQ(masked["version"], 4);
  EXPECT_EQ(masked["obs_size"], 3);
  EXPECT_EQ(masked["mask_size"], 2);
  EXPECT_EQ(masked["needs_agent"], true);
  EXPECT_EQ(masked["agents"], nlohmann::json::array({0}));
  EXPECT_EQ(said["policies"][1]["state_size"], 5);
  EXPECT_EQ(said["policies"][2]["word_dtypes"], nlohmann::json({"float32", "float32"}));
  EXPECT_EQ(troupe_acting_version(), TROUPE_ACTING_VERSION);
  EXPECT_EQ(troupe_acting_rows_bytes(), sizeof(TroupeActingRows));
}

TEST_F(ActingTest, WhatIsWrongIsSaid) {
  EXPECT_NE(troupe_acting_open("/no/such", kSeed, &acting_, &error_), 0);
  EXPECT_THAT(error_.text, HasSubstr("such/manifest.json: No such file"));
  Open();
  const float obs[3] = {};
  const TroupeActingKey key = {};
  int32_t action = 0;
  float logp = 0;
  TroupeActingRows rows = {
      .policy = 5, .rows = 1, .observations = obs, .keys = &key, .actions = &action, .logp = &logp};
  EXPECT_EQ(troupe_acting_act(acting_, &rows, &error_), 3);
  EXPECT_THAT(error_.text, HasSubstr("got policy 5, expected a number below 5"));
  rows.policy = 3;
  EXPECT_EQ(troupe_acting_act(acting_, &rows, &error_), 9) << "no Python is run";
  EXPECT_THAT(error_.text, HasSubstr("python:mine:Policy"));
  const char* network = nullptr;
  EXPECT_EQ(troupe_acting_network(acting_, 3, &network, &error_), 9);
  EXPECT_THAT(error_.text, HasSubstr("policy \"python\" is of class python:mine:Policy, which has no network"));
  EXPECT_EQ(troupe_acting_network(acting_, -1, &network, &error_), 3);
  EXPECT_EQ(troupe_acting_weights(acting_, 3, &logp, nullptr, &error_), 9);
  EXPECT_EQ(troupe_acting_weights(acting_, 0, nullptr, nullptr, &error_), 3);
  rows.policy = 4;
  EXPECT_EQ(troupe_acting_outputs(acting_, &rows, &logp, &error_), 9) << "no TorchScript is run";
  EXPECT_EQ(troupe_acting_act(acting_, &rows, &error_), 9) << "no TorchScript is run";
  EXPECT_THAT(error_.text, HasSubstr("policy \"module\" is a TorchScript module, and this program has no LibTorch"));
  rows.policy = 0;
  for (const int64_t count : {int64_t{0}, int64_t{TROUPE_ACTING_MAX_ROWS} + 1}) {
    rows.rows = count;
    EXPECT_EQ(troupe_acting_act(acting_, &rows, &error_), 3);
    EXPECT_THAT(error_.text, HasSubstr("rows, expected 1 to 65536"));
  }
  rows.rows = 1;
  const TroupeActingKey stranger = {0, 0, 4, 0};
  rows.keys = &stranger;
  EXPECT_EQ(troupe_acting_act(acting_, &rows, &error_), 3);
  EXPECT_THAT(error_.text, HasSubstr("agent slot 4"));
}

// An MLP's bounded activations made an action of them.
TEST_F(ActingTest, WhatIsNotFiniteIsSaid) {
  Open();
  const float good[6] = {}, odd[6] = {0, 0, 0, 0, std::nanf(""), 0};
  const std::vector<float> state(static_cast<size_t>(2 * specs_[1].actor_state_size()));
  std::vector<float> odd_state = state, after = state;
  odd_state[1] = std::numeric_limits<float>::infinity();
  const TroupeActingKey keys[2] = {{0, 0, 0, 1}, {0, 0, 3, 2}};
  int32_t actions[2];
  float logp[2];
  TroupeActingRows rows = {
      .policy = 1, .rows = 2, .observations = good, .keys = keys, .actions = actions, .logp = logp};
  rows.state_in = state.data();
  rows.state_out = after.data();
  ASSERT_EQ(troupe_acting_act(acting_, &rows, &error_), 0) << error_.text;
  rows.state_in = odd_state.data();
  EXPECT_EQ(troupe_acting_act(acting_, &rows, &error_), 3);
  EXPECT_THAT(error_.text, HasSubstr("policy \"gru\": state_in row 0, element 1 is inf, expected a finite number"));
  rows.policy = 0;
  rows.observations = odd;
  EXPECT_EQ(troupe_acting_act(acting_, &rows, &error_), 3);
  EXPECT_THAT(error_.text, HasSubstr("policy \"masked\": observations row 1, element 1 is nan, expected a finite"));
}

TEST_F(ActingTest, MemoryThatIsMissingIsSaid) {
  Open();
  const float obs[3] = {};
  const TroupeActingKey key = {};
  int32_t action = 0;
  float logp = 0;
  const TroupeActingRows whole = {
      .policy = 0, .rows = 1, .observations = obs, .keys = &key, .actions = &action, .logp = &logp};
  const std::pair<const char*, void (*)(TroupeActingRows*)> kWithout[] = {
      {"observations", [](TroupeActingRows* rows) { rows->observations = nullptr; }},
      {"keys", [](TroupeActingRows* rows) { rows->keys = nullptr; }},
      {"actions", [](TroupeActingRows* rows) { rows->actions = nullptr; }},
      {"logp", [](TroupeActingRows* rows) { rows->logp = nullptr; }},
      {"state_in", [](TroupeActingRows* rows) { rows->policy = 1; }},  // which remembers
  };
  for (const auto& [name, take] : kWithout) {
    TroupeActingRows rows = whole;
    take(&rows);
    EXPECT_EQ(troupe_acting_act(acting_, &rows, &error_), 3) << name;
    EXPECT_THAT(error_.text, HasSubstr(absl::StrCat("no ", name)));
  }
  EXPECT_EQ(troupe_acting_outputs(acting_, &whole, nullptr, &error_), 3);
  EXPECT_THAT(error_.text, HasSubstr("no outputs"));
}

// A learner writes neither; whoever can compute a checksum can.
TEST_F(ActingTest, WeightsThatAWorkerRefusesAreNotGiven) {
  states_[1].SetMoments(policy::kObservationMoments, {9, {0.5, 1e300, 2}, {1, 0.25, 0}});
  WriteCheckpoint();
  WriteNan();
  Open();
  std::vector<float> parameters(10000);
  std::vector<double> moments(6);
  EXPECT_EQ(troupe_acting_weights(acting_, 0, parameters.data(), nullptr, &error_), 3);
  EXPECT_THAT(error_.text, HasSubstr("policy \"masked\""));
  EXPECT_THAT(error_.text, HasSubstr("not finite"));
  EXPECT_EQ(troupe_acting_weights(acting_, 1, parameters.data(), moments.data(), &error_), 3);
  EXPECT_THAT(error_.text, HasSubstr("policy \"gru\": observation_mean[1] is not finite")) << "as a float";
  EXPECT_EQ(troupe_acting_weights(acting_, 2, parameters.data(), nullptr, &error_), 0) << error_.text;
}

TEST_F(ActingTest, DamagedWeightsAreNoneToActWith) {
  std::fstream file(folder() + "/policies.safetensors", std::ios::in | std::ios::out | std::ios::binary);
  const auto behind = static_cast<std::streamoff>(4 * states_[4].parameters().size());  // those of the module
  file.seekp(-20 - behind, std::ios::end);
  file.put('x');
  file.close();
  Open();  // the header is whole
  const float obs[3] = {};
  const TroupeActingKey key = {};
  float actions[2] = {}, logp = 0;
  const TroupeActingRows rows = {.policy = 2,
                                 .rows = 1,
                                 .observations = obs,
                                 .keys = &key,
                                 .actions = reinterpret_cast<int32_t*>(actions),
                                 .logp = &logp};
  EXPECT_EQ(troupe_acting_act(acting_, &rows, &error_), static_cast<int32_t>(absl::StatusCode::kDataLoss))
      << error_.text;
}

}  // namespace
}  // namespace troupe
