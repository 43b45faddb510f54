#include "lib/cli/query_text.h"

#include <cstring>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace troupe::cli {
namespace {

using tensor::DType;

TEST(QueryTextTest, ReadsRows) {
  const auto one = ParseRows("--obs", "[1, -0.5, 1e-3]", DType::kFloat32);
  ASSERT_TRUE(one.ok()) << one.status();
  EXPECT_EQ(one->rows, 1);
  float values[3];
  ASSERT_EQ(one->bytes.size(), sizeof(values));
  std::memcpy(values, one->bytes.data(), sizeof(values));
  EXPECT_EQ(values[0], 1.0f);
  EXPECT_EQ(values[1], -0.5f);
  EXPECT_EQ(values[2], 1e-3f);
  const auto two = ParseRows("--obs", " [[0, 255], [7, 1.0]] ", DType::kUint8);
  ASSERT_TRUE(two.ok()) << two.status();
  EXPECT_EQ(two->rows, 2);
  EXPECT_EQ(two->bytes, std::string("\x00\xff\x07\x01", 4));
  const auto empty = ParseRows("--obs", "[[], []]", DType::kFloat32);
  ASSERT_TRUE(empty.ok());
  EXPECT_EQ(empty->rows, 2);
  EXPECT_EQ(empty->bytes, "");
}

TEST(QueryTextTest, SaysWhatIsWrong) {
  struct Case {
    const char* json;
    DType dtype;
    const char* words;
  };
  for (const Case& test : {
           Case{"", DType::kFloat32, "--obs: got \"\", expected JSON"},
           Case{"0.1, 2", DType::kFloat32, "expected JSON"},
           Case{"[0.1, 2", DType::kFloat32, "expected JSON"},
           Case{"[]", DType::kFloat32, "expected JSON"},
           Case{"{\"a\": 1}", DType::kFloat32, "expected JSON"},
           Case{"[1, \"x\"]", DType::kFloat32, "row 0, element 1 is \"x\", expected a number"},
           Case{"[1, true]", DType::kFloat32, "row 0, element 1 is true, expected a number"},
           Case{"[null]", DType::kUint8, "row 0, element 0 is null, expected a whole number from 0 to 255"},
           Case{"[1e39]", DType::kFloat32, "row 0, element 0 is 1e+39, expected a number that fits float32"},
           Case{"[[1, 2], [3]]", DType::kFloat32, "row 1 is 1 numbers, expected a row of 2 numbers"},
           Case{"[[1, 2], 3]", DType::kFloat32, "row 1 is 3, expected a row of 2 numbers"},
           Case{"[1, [2]]", DType::kFloat32, "row 0, element 1 is [2], expected a number"},
           Case{"[256]", DType::kUint8, "row 0, element 0 is 256, expected a whole number from 0 to 255"},
           Case{"[-1]", DType::kUint8, "is -1, expected a whole number"},
           Case{"[0.5]", DType::kUint8, "is 0.5, expected a whole number"},
       }) {
    const absl::Status status = ParseRows("--obs", test.json, test.dtype).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << test.json;
    EXPECT_NE(status.message().find(test.words), std::string::npos) << test.json << ": " << status;
  }
}

TEST(QueryTextTest, ActionsAsJson) {
  serving::PolicyActions actions;
  actions.policy_id = policy::PolicyId("p");
  actions.version = {2, 7};
  actions.rows = 2;
  actions.word_dtypes = {DType::kInt32, DType::kFloat32};
  actions.actions.resize(4);
  actions.sampled_actions.resize(4);
  for (const size_t row : {size_t{0}, size_t{1}}) {
    actions.actions[2 * row].i32 = actions.sampled_actions[2 * row].i32 = static_cast<int32_t>(row) - 3;
    actions.actions[2 * row + 1].f32 = 0.5f;
    actions.sampled_actions[2 * row + 1].f32 = 1.5f;
  }
  actions.logp = {-0.25f, -4.0f};
  EXPECT_EQ(ActionsJson(actions).dump(),
            R"({"policy_id":"p","learner_epoch":2,"version":7,"actions":[[-3,0.5],[-2,0.5]],)"
            R"("sampled_actions":[[-3,1.5],[-2,1.5]],"action_logp":[-0.25,-4.0]})");
  actions.state_out = {0.5f, -1.0f, 0.1f, 0.0f};
  const nlohmann::ordered_json json = ActionsJson(actions);
  EXPECT_EQ(json["state_out"][0].dump(), "[0.5,-1.0]");
  // What is printed is read again bit for bit.
  const auto state = ParseRows("--state-in", json["state_out"].dump(), DType::kFloat32);
  ASSERT_TRUE(state.ok()) << state.status();
  EXPECT_EQ(state->rows, 2);
  EXPECT_EQ(state->bytes, std::string(reinterpret_cast<const char*>(actions.state_out.data()), 16));
}

}  // namespace
}  // namespace troupe::cli
