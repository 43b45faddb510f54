#include "lib/telemetry/json_lines_writer.h"

#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>

#include <gtest/gtest.h>

namespace troupe::telemetry {
namespace {

std::string Slurp(const std::string& path) {
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

class JsonLinesTest : public ::testing::Test {
 protected:
  void SetUp() override { std::filesystem::remove(path_); }
  const std::string path_ = ::testing::TempDir() + "/troupe_progress_test.jsonl";
};

TEST_F(JsonLinesTest, KeepsOrderAndTurnsNaNIntoNull) {
  EXPECT_EQ(ToJsonLine({{"env_steps", int64_t{5}},
                        {"loss", std::numeric_limits<double>::quiet_NaN()},
                        {"return_sum", -1.5},
                        {"note", std::string("a\"b")},
                        {"ok", true}}),
            R"({"env_steps":5,"loss":null,"return_sum":-1.5,"note":"a\"b","ok":true})");
}

TEST_F(JsonLinesTest, AResumedRunCutsWhatWasRolledBack) {
  {
    auto writer = JsonLinesWriter::Open(path_, 0);
    ASSERT_TRUE(writer.ok());
    for (const int64_t steps : {100, 200, 300}) (*writer)->Write({{"env_steps", steps}});
  }
  std::ofstream(path_, std::ios::app) << "{\"env_steps\": 4";  // the process died in a line
  {
    auto writer = JsonLinesWriter::Open(path_, 200);
    ASSERT_TRUE(writer.ok());
    (*writer)->Write({{"env_steps", int64_t{250}}});
  }
  EXPECT_EQ(Slurp(path_), "{\"env_steps\":100}\n{\"env_steps\":200}\n{\"env_steps\":250}\n");
}

TEST_F(JsonLinesTest, UnwritablePlaceIsAnError) {
  EXPECT_EQ(JsonLinesWriter::Open("/nonexistent/progress.jsonl", 0).status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace troupe::telemetry
