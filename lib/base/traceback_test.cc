#include "lib/base/traceback.h"

#include <gtest/gtest.h>

namespace troupe::base {
namespace {

TEST(TracebackTest, StandsBesideTheMessage) {
  const absl::Status status = WithTraceback(absl::InternalError("it broke"), "line 1\nline 2");
  EXPECT_EQ(status.message(), "it broke");
  EXPECT_EQ(TracebackOf(status), "line 1\nline 2");
  EXPECT_EQ(TracebackOf(absl::InternalError("it broke")), "");
  EXPECT_EQ(TracebackOf(WithTraceback(absl::OkStatus(), "line 1")), "");
}

}  // namespace
}  // namespace troupe::base
