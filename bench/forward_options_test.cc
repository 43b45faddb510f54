#include "bench/forward_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::bench {
namespace {

using inference::Backend;
using testing::AllOf;
using testing::HasSubstr;

TEST(ForwardOptionsTest, EveryBackEndHasItsName) {
  EXPECT_EQ(*BackendNamed("auto"), Backend::kAuto);
  EXPECT_EQ(*BackendNamed("eigen"), Backend::kEigen);
  EXPECT_EQ(*BackendNamed("avx2"), Backend::kAvx2);
  EXPECT_EQ(*BackendNamed("avx512"), Backend::kAvx512);
}

// What is misspelled was measured as auto.
TEST(ForwardOptionsTest, ABackEndThatThereIsNotIsAnErrorWithTheNames) {
  for (const char* name : {"avx51", "", "AVX2", "auto "}) {
    const absl::Status status = BackendNamed(name).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << name;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr(absl::StrCat("\"", name, "\"")), HasSubstr("one of auto, eigen, avx2, avx512")));
  }
  EXPECT_EXIT(BackendOrExit("a_bench", "avx51"), testing::ExitedWithCode(1), "a_bench: .*avx51");
}

TEST(ForwardOptionsTest, TheMedianStandsInTheMiddleOfWhatIsSorted) {
  EXPECT_EQ(MedianOf({3}), 3);
  EXPECT_EQ(MedianOf({9, 1, 5}), 5);
  EXPECT_EQ(MedianOf({9, 1, 5, 7}), 7);
}

}  // namespace
}  // namespace troupe::bench
