#include "lib/serving/check_rows.h"

#include <functional>
#include <limits>
#include <string>

#include "lib/serving/testing/query_builder.h"
#include <gtest/gtest.h>

namespace troupe::serving {
namespace {

using space::Space;

/// Observations of 3 floats, two discrete parts (of 3 and 2) with masks, a one-hot of 4 agents.
policy::PolicySpec MaskedSpec() {
  policy::PolicySpec spec = MakeSpec("masked", *Space::Box(-1, 1, {3}), *Space::MultiDiscrete({3, 2}));
  spec.has_action_mask = true;
  spec.agent_id_size = 4;
  return spec;
}

absl::Status Check(const policy::PolicySpec& spec, const OwnedRows& rows) {
  return CheckRows(spec, space::ActionLeaves(spec.action_space), rows.Borrow());
}

TEST(CheckRowsTest, TakesGoodRows) {
  EXPECT_EQ(Check(MaskedSpec(), MakeRows(MaskedSpec(), 5)), absl::OkStatus());
  OwnedRows unmasked = MakeRows(MaskedSpec(), 5);
  unmasked.action_mask.clear();
  EXPECT_EQ(Check(MaskedSpec(), unmasked), absl::OkStatus()) << "no mask allows everything";
  OwnedRows outside = MakeRows(MaskedSpec(), 1);
  outside.obs[0] = 1e6f;
  EXPECT_EQ(Check(MaskedSpec(), outside), absl::OkStatus()) << "bounds are the environment's";
  const policy::PolicySpec image =
      MakeSpec("image", *Space::Box(0, 255, {2, 2}, tensor::DType::kUint8), *Space::Discrete(2));
  EXPECT_EQ(Check(image, MakeRows(image, 3)), absl::OkStatus());
}

TEST(CheckRowsTest, SaysWhatIsWrong) {
  struct Case {
    const char* what;
    std::function<void(OwnedRows&)> spoil;
    const char* words;
  };
  const Case cases[] = {
      {"no rows", [](OwnedRows& r) { r.rows = 0; }, "0 rows, expected at least 1"},
      {"negative rows", [](OwnedRows& r) { r.rows = -1; }, "-1 rows, expected at least 1"},
      {"no dtype", [](OwnedRows& r) { r.obs_dtype = tensor::DType::kUnspecified; },
       "obs_dtype is unspecified, expected float32"},
      {"wrong dtype", [](OwnedRows& r) { r.obs_dtype = tensor::DType::kUint8; },
       "obs_dtype is uint8, expected float32"},
      {"unknown dtype", [](OwnedRows& r) { r.obs_dtype = static_cast<tensor::DType>(200); }, "expected float32"},
      {"row too long", [](OwnedRows& r) { r.obs.push_back(0); }, "obs has 28 bytes, expected 24: 2 rows of 3 float32"},
      {"row missing", [](OwnedRows& r) { r.obs.resize(3); }, "obs has 12 bytes, expected 24"},
      {"no obs", [](OwnedRows& r) { r.obs.clear(); }, "obs has 0 bytes, expected 24"},
      {"NaN", [](OwnedRows& r) { r.obs[4] = std::numeric_limits<float>::quiet_NaN(); },
       "obs row 1, element 1 is nan, expected a finite number"},
      {"infinity", [](OwnedRows& r) { r.obs[0] = -std::numeric_limits<float>::infinity(); },
       "obs row 0, element 0 is -inf"},
      {"mask too short", [](OwnedRows& r) { r.action_mask.pop_back(); },
       "action_mask has 9 bytes, expected 10: 2 rows of 5"},
      {"mask of a two", [](OwnedRows& r) { r.action_mask[6] = 2; }, "action_mask row 1, byte 1 is 2, expected 0 or 1"},
      {"mask that forbids a part", [](OwnedRows& r) { r.action_mask = {1, 1, 1, 1, 1, 1, 1, 1, 0, 0}; },
       "action_mask row 1 forbids all 2 categories of action word 1"},
      {"slot missing", [](OwnedRows& r) { r.agent_slots.pop_back(); }, "1 agent slots, expected 2"},
      {"no slots", [](OwnedRows& r) { r.agent_slots.clear(); }, "0 agent slots, expected 2"},
      {"slot too large", [](OwnedRows& r) { r.agent_slots[1] = 4; }, "agent slot of row 1 is 4, expected 0 to 3"},
      {"slot negative", [](OwnedRows& r) { r.agent_slots[0] = -1; }, "agent slot of row 0 is -1, expected 0 to 3"},
  };
  for (const Case& test : cases) {
    OwnedRows rows = MakeRows(MaskedSpec(), 2);
    test.spoil(rows);
    const absl::Status status = Check(MaskedSpec(), rows);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << test.what << ": " << status;
    EXPECT_NE(status.message().find("policy \"masked\": "), std::string::npos) << status;
    EXPECT_NE(status.message().find(test.words), std::string::npos) << test.what << ": " << status;
  }
}

TEST(CheckRowsTest, RefusesWhatThePolicyDoesNotTake) {
  const policy::PolicySpec plain = MakeSpec("plain", *Space::Box(-1, 1, {3}), *Space::Discrete(2));
  OwnedRows rows = MakeRows(plain, 1);
  rows.action_mask = {1, 1};
  EXPECT_NE(Check(plain, rows).message().find("an action mask was given, expected none"), std::string::npos);
  rows = MakeRows(plain, 1);
  rows.agent_slots = {0};
  EXPECT_NE(Check(plain, rows).message().find("1 agent slots, expected 0"), std::string::npos);
  const policy::PolicySpec image =
      MakeSpec("image", *Space::Box(0, 255, {2, 2}, tensor::DType::kUint8), *Space::Discrete(2));
  rows = MakeRows(image, 1);
  rows.obs_dtype = tensor::DType::kFloat32;
  EXPECT_NE(Check(image, rows).message().find("obs_dtype is float32, expected uint8"), std::string::npos);
}

TEST(CheckRowsTest, AStateIsOfThePolicysSize) {
  const policy::PolicySpec spec = WithCore(MaskedSpec(), policy::CoreKind::kLstm, /*layers=*/2);
  const auto refused = [](const policy::PolicySpec& policy, const OwnedRows& rows) {
    const absl::Status status = Check(policy, rows);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    return std::string(status.message());
  };
  OwnedRows rows = MakeRows(spec, 2);
  EXPECT_EQ(Check(spec, rows), absl::OkStatus()) << "none: the first decisions";
  rows.state_in.assign(40, 0.5f);
  EXPECT_EQ(Check(spec, rows), absl::OkStatus());
  rows.state_in[39] = 3e38f;
  EXPECT_EQ(Check(spec, rows), absl::OkStatus());
  for (const float number : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    rows.state_in[23] = number;
    const std::string words = refused(spec, rows);
    EXPECT_NE(words.find("policy \"masked\": state_in row 1, element 3 is "), std::string::npos) << words;
    EXPECT_NE(words.find(", expected a finite number"), std::string::npos) << words;
  }
  for (const size_t size : {1, 20, 39, 41, 80}) {
    rows.state_in.assign(size, 0.5f);
    const std::string words = refused(spec, rows);
    EXPECT_NE(words.find("state_in has " + std::to_string(4 * size) + " bytes, expected 160: 2 rows of 20 float32"),
              std::string::npos)
        << words;
  }
  rows = MakeRows(MaskedSpec(), 2);
  rows.state_in.assign(2, 0.0f);
  const std::string words = refused(MaskedSpec(), rows);
  EXPECT_NE(words.find("state_in has 8 bytes, expected none: the policy remembers nothing"), std::string::npos)
      << words;
  policy::PolicySpec critic = MaskedSpec();
  critic.mutable_critic()->core = {policy::CoreKind::kGru, 2, 1};
  critic.sequence_length = 8;
  EXPECT_NE(refused(critic, rows).find("the policy remembers nothing"), std::string::npos)
      << "the critic's memory is the learner's";
}

}  // namespace
}  // namespace troupe::serving
