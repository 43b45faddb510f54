#include "lib/policy/ids.h"

#include <string>

#include <gtest/gtest.h>

namespace troupe::policy {
namespace {

TEST(PolicyIdTest, AcceptsUsualNames) {
  for (const char* id : {"a", "shared", "agent_0", "team-1.v2", "0", "A.b-C_9"}) {
    EXPECT_TRUE(ValidatePolicyId(id).ok()) << id;
  }
  EXPECT_TRUE(ValidatePolicyId(std::string(64, 'x')).ok());
}

TEST(PolicyIdTest, RefusesWhatCouldBecomeAPathOrHideInALog) {
  for (const std::string& id : {std::string(), std::string("../x"), std::string("a..b"), std::string(".hidden"),
                                std::string("a/b"), std::string("a b"), std::string("a\nb"), std::string("a\0b", 3),
                                std::string("\xc3\xa4"), std::string(65, 'x'), std::string(200, 'x')}) {
    const absl::Status status = ValidatePolicyId(id);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << id;
    EXPECT_EQ(status.message().find('\n'), absl::string_view::npos) << "the raw id must not reach a log";
  }
}

TEST(WeightVersionTest, OrdersByEpochThenNumber) {
  EXPECT_LT((WeightVersion{1, 9}), (WeightVersion{2, 0}));
  EXPECT_LT((WeightVersion{2, 0}), (WeightVersion{2, 1}));
  EXPECT_EQ((WeightVersion{2, 1}), (WeightVersion{2, 1}));
  EXPECT_NE((WeightVersion{1, 1}), (WeightVersion{2, 1}));
}

}  // namespace
}  // namespace troupe::policy
