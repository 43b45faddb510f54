#include "lib/base/status_macros.h"

#include <memory>

#include <gtest/gtest.h>

namespace troupe::base {
namespace {

absl::StatusOr<std::unique_ptr<int>> Make(bool ok) {
  if (!ok) return absl::NotFoundError("nothing");
  return std::make_unique<int>(7);
}

absl::Status Use(bool ok, int* out) {
  TROUPE_ASSIGN_OR_RETURN(const std::unique_ptr<int> value, Make(ok));
  *out = *value;
  TROUPE_RETURN_IF_ERROR(absl::OkStatus());
  return absl::OkStatus();
}

TEST(StatusMacrosTest, PassValuesAndErrors) {
  int value = 0;
  EXPECT_TRUE(Use(true, &value).ok());
  EXPECT_EQ(value, 7);
  EXPECT_EQ(Use(false, &value).code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace troupe::base
